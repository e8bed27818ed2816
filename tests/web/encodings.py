"""Bodies in every Content-Encoding, and how the network may cut them.

Imported by `server`, for /encoded/…, by the HTTP/2 web for the same path, and by unit tests. A
coding is a name of PACKERS, or two of them with a plus: `br+gzip` was packed by br first.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import sys
import zlib
from collections.abc import Callable

import brotli

from tests.web.behaviours import Exchange, behaviour

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "deflate": zlib.compress,
    "raw-deflate": raw_deflate,
    "br": lambda data: brotli.compress(data, quality=5),
    "zstd": zstd.compress,
}
STACKS = tuple("+".join(pair) for pair in itertools.product(PACKERS, repeat=2))
CODINGS = (*PACKERS, *STACKS)
PIECES = (1, 7, 1000, 1_000_000_000)  # bytes that come at once

BOMB = bytes(20_000_000)
# More than any decoder gives at once, so that each has output left after its last input.
SMALL = b"<html><title>a page</title>" + b"<p>the same line again and again</p>\n" * 8000  # packed
VARIED = b"<html><title>a page</title>" + b"".join(
    b"<p>line %d: %x</p>\n" % (n, n * 2_654_435_761 % 2**64) for n in range(4000)
)


def header_of(coding: str) -> list[str]:
    """The words of the Content-Encoding."""
    return [name.removeprefix("raw-") for name in coding.split("+")]


@functools.cache
def packed(coding: str, body: bytes) -> bytes:
    for name in coding.split("+"):
        body = PACKERS[name](body)
    return body


def bomb(coding: str) -> bytes:
    return packed(coding, BOMB)


def encoded_answer(rest: str) -> tuple[list[tuple[str, str]], list[bytes]]:
    """The headers and the pieces of /encoded/WHAT/CODING/PIECE.

    WHAT: `small` and `varied` are whole pages; `lines` is a page with a Content-Encoding line for
    each encoding; `cut-N` lacks the last N bytes; `bomb` expands to BOMB.
    """
    what, coding, piece = rest.split("/")
    pages = {"bomb": BOMB, "varied": VARIED}
    body = packed(coding, pages.get(what, SMALL))
    if what.startswith("cut-"):
        body = body[: -int(what.removeprefix("cut-"))]
    words = header_of(coding)
    lines = words if what == "lines" else [", ".join(words)]
    headers = [("Content-Type", "text/html"), *(("Content-Encoding", line) for line in lines)]
    size = int(piece)
    return headers, [body[at : at + size] for at in range(0, len(body), size)]


@behaviour
async def encoded(x: Exchange) -> bool:
    """/encoded/WHAT/CODING/PIECE, each piece a chunk; a single piece has its length announced."""
    headers, pieces = encoded_answer(x.rest)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    if len(pieces) == 1:
        head += f"Content-Length: {len(pieces[0])}\r\n"
        body = pieces[0]
    else:
        head += "Transfer-Encoding: chunked\r\n"
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    await x.raw(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + body)
    return True
