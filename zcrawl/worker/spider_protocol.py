"""The messages between a worker and the child process that runs a spider, and their frames.

Used on both sides: `extensions.spiders` asks, `extensions.spider_child` answers. Pure. The child
runs foreign code, so all its messages are validated: a wrong frame ends the child, not the
worker.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import msgspec

LENGTH: Final = struct.Struct("!I")
MOST_ANSWER_BYTES: Final = 9_000_000
MOST_YIELDED_BYTES: Final = 8_000_000  # items and requests of one page
MOST_ITEMS: Final = 10_000
MOST_REQUESTS: Final = 50_000
MOST_TEXT: Final = 500


class Load(msgspec.Struct, frozen=True, array_like=True, tag="load"):
    """The first question: the spider to load. `source` is the file's text; none for a package."""

    name: str  # file.py:Name or package.module:Name
    source: bytes
    args: dict[str, Any]
    memory: int  # bytes of address space
    parent: int  # process id: the child ends with it
    closed: list[str] = []  # files that it must not read, such as the worker's key


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """Call the spider's `start`."""


class Handle(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    """Call the handler of a page."""

    url: str
    requested_url: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    handler: str
    meta: dict[str, Any]
    depth: int
    parent: str | None
    canonical: int  # version of the canonical form that the run keeps


SpiderQuestion: TypeAlias = Load | Start | Handle


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """A request as the spider wrote it; the worker decides what becomes of it."""

    url: str
    method: str
    body: bytes
    headers: dict[str, str]
    handler: str
    meta: dict[str, Any]
    priority: int


class SpiderLoaded(msgspec.Struct, frozen=True, array_like=True, tag="loaded"):
    """The spider is loaded. `starts`: it has its own `start`."""

    starts: bool


class Yielded(msgspec.Struct, frozen=True, array_like=True, tag="yielded"):
    """The end of a handler: everything that it yielded."""

    items: list[bytes]  # JSON objects
    requests: list[Wanted]


class Raised(msgspec.Struct, frozen=True, array_like=True, tag="raised"):
    """The handler raised; `memory`: memory ran out, so the child must not be used again."""

    text: str
    memory: bool = False


SpiderAnswer: TypeAlias = SpiderLoaded | Yielded | Raised

_encode = msgspec.msgpack.Encoder().encode
_decode_item = msgspec.json.Decoder(dict[str, Any]).decode
decode_question = msgspec.msgpack.Decoder(SpiderQuestion).decode
decode_answer = msgspec.msgpack.Decoder(SpiderAnswer).decode


def check_items(items: list[bytes]) -> None:
    """Raise MsgspecError for items that are not JSON objects, which no store accepts."""
    for item in items:
        _decode_item(item)


def frame(message: SpiderQuestion | SpiderAnswer) -> bytes:
    data = _encode(message)
    return LENGTH.pack(len(data)) + data
