"""Servers that send without end where no body is: chunk extensions, trailers, headers, interims.

Imported by `server`, so that they stand in the same table as the other behaviours. All send as
fast as they are read, until the client leaves.
"""

from __future__ import annotations

from tests.web.behaviours import Exchange, behaviour

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = 16_384


async def _for_ever(x: Exchange, start: bytes, piece: bytes) -> bool:
    await x.raw(start)
    while True:
        await x.raw(piece)


@behaviour
async def endless_extension(x: Exchange) -> bool:
    """One chunk whose extension never ends."""
    return await _for_ever(x, CHUNKED + b"5;a=", b"x" * PIECE)


@behaviour
async def many_extensions(x: Exchange) -> bool:
    """Chunks of one byte, each with a long extension."""
    return await _for_ever(x, CHUNKED, b"1;a=" + b"x" * PIECE + b"\r\nx\r\n")


@behaviour
async def endless_chunk_padding(x: Exchange) -> bool:
    """Spaces behind a chunk's size."""
    return await _for_ever(x, CHUNKED + b"5", b" " * PIECE)


@behaviour
async def endless_trailer(x: Exchange) -> bool:
    """One line of a trailer that never ends."""
    return await _for_ever(x, CHUNKED + b"5\r\nhello\r\n0\r\nX-Long: ", b"x" * PIECE)


@behaviour
async def many_trailers(x: Exchange) -> bool:
    """Lines of a trailer without end."""
    return await _for_ever(x, CHUNKED + b"5\r\nhello\r\n0\r\n", b"X-Line: a\r\n" * 1_000)


@behaviour
async def many_headers(x: Exchange) -> bool:
    """Headers without end."""
    return await _for_ever(x, b"HTTP/1.1 200 OK\r\n", b"X-Line: a\r\n" * 1_000)


@behaviour
async def endless_header_padding(x: Exchange) -> bool:
    """Spaces before a header's value."""
    return await _for_ever(x, b"HTTP/1.1 200 OK\r\nX-Long:", b" " * PIECE)


@behaviour
async def endless_interims(x: Exchange) -> bool:
    """Continue, continue, continue."""
    return await _for_ever(x, b"", b"HTTP/1.1 100 Continue\r\nX-Line: a\r\n\r\n" * 500)


@behaviour
async def endless_blank(x: Exchange) -> bool:
    """Empty lines before the status line."""
    return await _for_ever(x, b"", b"\r\n" * PIECE)
