"""Random answers, well-formed and not, in random pieces: a line ends each by a name, in bounds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from tests.property.test_line_answers import Wire
from zcrawl.errors import FetchError
from zcrawl.fetch.policy import MAX_HEAD_BYTES, RETRY_CLASS_OF
from zcrawl.fetch.ports import HopLimits
from zcrawl.fetch.wire.connection import HttpConnection, StaleConnection, WireResponse

MAX_BYTES = 20_000
LIMITS = HopLimits(max_bytes=MAX_BYTES)
SEGMENT = 8_192
# The segment that ends the headers may hold both; what comes after it is counted to the byte.
MOST_READ = MAX_HEAD_BYTES + MAX_BYTES + 2 * SEGMENT

STATUS = (
    *(
        b"HTTP/1.1 200 OK",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 204 No",
        b"HTTP/1.1 304 Not",
        b"HTTP/1.1 100",
    ),
    *(
        b"HTTP/1.1 101 Switch",
        b"HTTP/1.1 000 No",
        b"HTTP/9.9 200 OK",
        b"HTTP/1.1 99999 X",
        b"ICY 200",
    ),
    *(b"HTTP/1.1 200", b"HTTP/1.1", b"", b"\xff\xfe", b"HTTP/1.1 -20 OK", b"GET / HTTP/1.1", b"\0"),
)
NAMES = (
    *(b"Content-Length", b"Transfer-Encoding", b"Content-Encoding", b"Connection", b"Trailer"),
    *(b"Set-Cookie", b"Location", b"Upgrade", b"X", b"", b" ", b"\xff", b"a b", b":", b"Expect"),
)
VALUES = (
    *(b"5", b"0", b"-1", b"99999999999999999999", b"5, 5", b"+5", b"chunked", b"gzip, chunked"),
    *(b"gzip", b"deflate", b"br", b"identity", b"close", b"keep-alive", b"upgrade", b"", b"\xff\0"),
    *(b"x" * 300, b"a\r b", b"100-continue", b"chunked, chunked", b"\t"),
)
ENDS = (b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\r\n")
SIZES = (
    b"1",
    b"5",
    b"0",
    b"00005",
    b"ffffffffffffffff",
    b"-1",
    b"x",
    b"5 ",
    b"5;a",
    b'5;a="b"',
    b"",
)


def head(rng: random.Random) -> bytes:
    if rng.random() < 0.7:  # what a parser accepts, so that its body is reached
        kind = rng.choice((b"Transfer-Encoding: chunked", b"Content-Length: 50", b"X: y"))
        return b"HTTP/1.1 200 OK\r\n" + kind + b"\r\n\r\n"
    lines = [rng.choice(STATUS)]
    for _ in range(rng.randrange(6)):
        lines.append(
            rng.choice(NAMES) + rng.choice((b": ", b":", b" : ", b"")) + rng.choice(VALUES)
        )
    return b"".join(line + rng.choice(ENDS) for line in lines) + rng.choice(ENDS)


def body(rng: random.Random) -> bytes:
    parts: list[bytes] = []
    for _ in range(rng.randrange(8)):
        if rng.random() < 0.3:
            parts.append(rng.randbytes(rng.randrange(40)))
            continue
        extension = rng.choice((b"", b"", b";" + b"x" * rng.randrange(3_000), b" " * 50))
        parts.append(rng.choice(SIZES) + extension + rng.choice(ENDS))
        parts.append(rng.choice((b"x", b"xxxxx", b"", b"\x1f\x8b")) + rng.choice(ENDS))
    return b"".join(parts)


def flood(rng: random.Random) -> bytes:
    """Something that a server might repeat for ever."""
    return rng.choice(
        (
            *(
                b"x",
                b" ",
                b"\r\n",
                b"\n",
                b"X: y\r\n",
                b"1;" + b"e" * 900 + b"\r\nx\r\n",
                b"5\r\nhello\r\n",
            ),
            *(
                b"HTTP/1.1 100 Continue\r\n\r\n",
                b"0\r\nX: y\r\n",
                b"\0",
                b"0",
                b";a=b",
                b"X: " + b"y" * 99,
            ),
            rng.randbytes(30),
        )
    )


def pieces(rng: random.Random, data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = rng.choice((1, 3, 100, SEGMENT)) if len(data) < 3_000 else SEGMENT
        yield data[at : at + size]
        at += size


def read(
    rng: random.Random, data: bytes, then: Callable[[HttpConnection], None]
) -> tuple[object, int]:
    """What became of the answer (None: still waited for), and how many bytes were read for it."""

    async def main() -> tuple[object, int]:
        loop = asyncio.get_running_loop()
        line = HttpConnection(loop)
        line.connection_made(Wire())
        waiting = line.send(b"GET / HTTP/1.1\r\n\r\n", LIMITS, loop.time() + 100)
        count = 0
        for piece in pieces(rng, data):
            if waiting.done():
                break
            line.data_received(piece)
            count += len(piece)
        if not waiting.done():
            then(line)
        came = (waiting.exception() or waiting.result()) if waiting.done() else None
        line.close()
        return came, count

    return asyncio.run(main())


def check_end(came: object) -> None:
    """An answer within its limit, or a failure that has a name."""
    match came:
        case WireResponse():
            assert len(came.body) <= MAX_BYTES
            assert sum(len(name) + len(value) for name, value in came.headers) <= MOST_READ
        case FetchError():
            assert came.code in RETRY_CLASS_OF
        case _:
            assert isinstance(came, StaleConnection), came


@pytest.mark.parametrize("seed", range(30))
def test_random_answers_end_by_name(seed: int) -> None:
    """Status lines, headers and chunks at random: when the server hangs up, there is an answer, a
    named failure, or nothing had come."""
    rng = random.Random(seed)
    for _ in range(100):
        reset = rng.choice((None, ConnectionResetError("reset")))

        def hang_up(line: HttpConnection, reset: Exception | None = reset) -> None:
            line.connection_lost(reset)

        came, _ = read(rng, head(rng) + body(rng), hang_up)
        check_end(came)


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_read_without_end(seed: int) -> None:
    """However an answer begins and whatever is repeated then, it ends within the limits."""
    rng = random.Random(seed)
    for _ in range(8):
        start = rng.choice((b"", head(rng), head(rng) + body(rng), head(rng)[:-2]))
        again = flood(rng)
        data = start + again * (2 * MOST_READ // len(again))
        came, count = read(rng, data, lambda line: None)
        assert came is not None, (start, again)
        check_end(came)
        assert count <= MOST_READ
