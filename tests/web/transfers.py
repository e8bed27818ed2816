"""Servers that are slow or silent, and those that break off, lie about lengths or speak no HTTP.

Imported by `server`, so that they stand in the same table as the other behaviours.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from tests.web.behaviours import PAGE, Exchange, behaviour

DRIP_INTERVAL_S = 0.2
FIVE_BYTES = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\n"
ONE_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"


# ---------------------------------------------------------------- slow and silent


@behaviour
async def drip(x: Exchange) -> bool:
    """One byte every 0.2 s, for ever."""
    await x.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
    await _drip(x)
    return False


@behaviour
async def drip_header(x: Exchange) -> bool:
    """A header that never ends, one byte every 0.2 s."""
    await x.raw(b"HTTP/1.1 200 OK\r\nX-Long: ")
    await _drip(x)
    return False


async def _drip(x: Exchange) -> None:
    """Until the client leaves."""
    while True:
        await x.raw(b"x")
        await asyncio.sleep(DRIP_INTERVAL_S)


@behaviour
async def hang(x: Exchange) -> bool:
    """Takes the request and never answers."""
    await x.reader.read()
    return False


@behaviour
async def stall(x: Exchange) -> bool:
    """Headers, half a body, then silence."""
    await x.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\nhalf")
    await x.reader.read()
    return False


@behaviour
async def slow(x: Exchange) -> bool:
    """/slow/MS: a good answer after that many milliseconds (default 100)."""
    await asyncio.sleep(int(x.rest or 100) / 1000)
    return await x.reply()


# ---------------------------------------------------------------- broken transfers


@behaviour
async def lies_long(x: Exchange) -> bool:
    """Announces more than it sends."""
    await x.raw(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\nshort"
    )
    return False


@behaviour
async def lies_short(x: Exchange) -> bool:
    """Announces 5 bytes and sends more."""
    await x.raw(FIVE_BYTES)
    await x.raw(b"12345 and then some")
    return False


@behaviour
async def lies_short_at_once(x: Exchange) -> bool:
    """The same in one segment with its headers."""
    await x.raw(FIVE_BYTES + b"12345 and then some")
    return False


@behaviour
async def lies_short_and_closes(x: Exchange) -> bool:
    """The same with Connection: close."""
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
    await x.raw(head + b"12345 and then some")
    return False


@behaviour
async def body_after(x: Exchange) -> bool:
    """/body-after/204|304: a body behind a status that has none, in one segment with it."""
    return await x.reply(int(x.rest))


@behaviour
async def speaks_again(x: Exchange) -> bool:
    """A good answer, and a moment later another one that nobody asked for."""
    await x.reply()
    await asyncio.sleep(0.05)
    return await x.reply(200, b"not asked for")


@behaviour
async def reset_within(x: Exchange) -> bool:
    """Half a body of no announced length, then a TCP reset."""
    await x.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + PAGE[:20])
    await asyncio.sleep(0.05)
    linger_for_nothing = struct.pack("ii", 1, 0)
    x.writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, linger_for_nothing
    )
    x.writer.transport.abort()
    return False


@behaviour
async def close_at_once(x: Exchange) -> bool:
    """Closes without a word."""
    return False


@behaviour
async def close_in_header(x: Exchange) -> bool:
    await x.raw(b"HTTP/1.1 200 OK\r\nContent-Ty")
    return False


@behaviour
async def reset(x: Exchange) -> bool:
    """A TCP reset instead of an answer."""
    x.writer.transport.abort()
    return False


@behaviour
async def close_after(x: Exchange) -> bool:
    """A good answer that promises keep-alive, and then closes the connection."""
    await x.reply(200, PAGE, "Connection: keep-alive")
    return False


@behaviour
async def close_on_second(x: Exchange) -> bool:
    """Answers the first request of a connection; hangs up on the second one."""
    first = sum(hit.connection == x.hit.connection for hit in x.web.log) == 1
    return first and await x.reply()


@behaviour
async def until_close(x: Exchange) -> bool:
    """A good body of no announced length."""
    await x.raw(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + PAGE)
    return False


@behaviour
async def chunked(x: Exchange) -> bool:
    """A good chunked body."""
    await x.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
    for part in (PAGE[:10], PAGE[10:]):
        await x.raw(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    await x.raw(b"0\r\n\r\n")
    return True


@behaviour
async def chunked_cut(x: Exchange) -> bool:
    """A chunked body without its end."""
    await x.raw(ONE_CHUNK)
    return False


@behaviour
async def bad_chunk(x: Exchange) -> bool:
    """A chunk whose size is no number; the connection stays open."""
    await x.raw(ONE_CHUNK)
    await asyncio.sleep(0.05)
    await x.raw(b"zz-not-a-size\r\nhello\r\n")
    await x.reader.read()
    return False


@behaviour
async def garbage(x: Exchange) -> bool:
    """No HTTP at all."""
    await x.raw(b"SSH-2.0-OpenSSH_9.2\r\n\x00\x01\x02\xff\r\n\r\n")
    return False


@behaviour
async def huge_header(x: Exchange) -> bool:
    """A header of 1 MB."""
    await x.raw(b"HTTP/1.1 200 OK\r\nX-Huge: " + b"x" * 1_000_000 + b"\r\n\r\n")
    return False


@behaviour
async def large_header(x: Exchange) -> bool:
    """A header of 16 KB, as real cookies and security policies have."""
    return await x.reply(200, PAGE, "X-Large: " + "x" * 16_000)


@behaviour
async def odd_header(x: Exchange) -> bool:
    """Header values that are neither ASCII nor UTF-8."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-Odd: caf\xe9 \xff\xfe\r\n"
    await x.raw(head + f"Content-Length: {len(PAGE)}\r\n\r\n".encode() + PAGE)
    return True


@behaviour
async def cookie(x: Exchange) -> bool:
    """Sets a cookie that must not come back."""
    return await x.reply(200, PAGE, "Set-Cookie: session=1; Path=/")
