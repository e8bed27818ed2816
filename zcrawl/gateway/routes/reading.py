"""What all routes share: answers with an ETag, references, cursors, and ids of requests."""

from __future__ import annotations

import hashlib
import time
from typing import Any, Final, TypeVar

import msgspec
from litestar import Request, Response
from litestar.datastructures import State

from zcrawl.gateway.principals import Principal
from zcrawl.gateway.problem import bad_field
from zcrawl.store.rules import KEYED
from zcrawl.telemetry.times import iso

T = TypeVar("T")
HttpRequest = Request[Any, Any, State]
JSON: Final = "application/json"
KEY_MOST: Final = 255


def answer(request: HttpRequest, value: T) -> Response[T]:
    """Return the answer to a read, or 304 if the client has it already."""
    body = msgspec.json.encode(value)
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache, private"}
    if tag in [entry.strip() for entry in request.headers.get("if-none-match", "").split(",")]:
        return Response(b"", status_code=304, headers=headers)  # type: ignore[arg-type]
    return Response(body, headers=headers, media_type=JSON)  # type: ignore[arg-type]


def as_of(data: dict[str, Any]) -> str | None:
    """Return when the leader last spoke, if the answer is not the leader's."""
    stale = data.get("stale")
    if not stale:
        return None
    return iso(time.time() - (stale.get("leader_silent_s") or 0.0))


def view(data: dict[str, Any], kind: type[T]) -> T:
    """Return the view of a master as a type of the gateway."""
    return msgspec.convert({**data, "as_of": as_of(data)}, kind, strict=False)


def cursor(offset: int) -> str:
    return f"o{offset}"


def offset_of(text: str | None) -> int:
    """Return the place of a cursor; ProblemError if it is none of ours."""
    if not text:
        return 0
    if not text.startswith("o") or not text[1:].isdecimal() or len(text) > 12:
        raise bad_field("cursor", "cursor must be the `next` of an earlier page")
    return int(text[1:])


def keyed_id(principal: Principal, key: str, body: object) -> str:
    """Return the id of a request with an Idempotency-Key, the same on every gateway; without a
    key an empty text. The key belongs to its user; another body under it is refused."""
    if not key:
        return ""
    if len(key) > KEY_MOST or not key.isprintable():
        raise bad_field("Idempotency-Key", f"write at most {KEY_MOST} printable characters")
    plain = msgspec.json.encode(body, order="sorted")
    owner = hashlib.blake2b(msgspec.msgpack.encode((principal.name, key)), digest_size=20)
    content = hashlib.blake2b(plain, digest_size=16)
    return f"{KEYED}{owner.hexdigest()}:{content.hexdigest()}"
