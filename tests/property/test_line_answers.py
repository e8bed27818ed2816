"""Whatever a server sends, in whatever pieces: a line gives the same answer, or a named error."""

from __future__ import annotations

import asyncio
import gzip
import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from zcrawl.errors import FetchError
from zcrawl.fetch.ports import HopLimits
from zcrawl.fetch.wire.connection import HttpConnection, StaleConnection, WireResponse

LIMITS = HopLimits(max_bytes=100_000)
HEAD = b"GET / HTTP/1.1\r\n\r\n"


class Wire(asyncio.Transport):
    """Takes what is written and notes that it was cut."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.cut = False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def abort(self) -> None:
        self.cut = True


def on_a_line(
    play: Callable[[HttpConnection, Wire], asyncio.Future[WireResponse]],
) -> tuple[Any, HttpConnection, Wire]:
    """What the answer came to: a WireResponse, an error, or None while it is waited for."""

    async def main() -> tuple[Any, HttpConnection, Wire]:
        line, wire = HttpConnection(asyncio.get_running_loop()), Wire()
        line.connection_made(wire)
        waiting = play(line, wire)
        came: Any = None
        if waiting.done():
            came = waiting.exception() or waiting.result()
        line.close()
        return came, line, wire

    return asyncio.run(main())


def ask(line: HttpConnection) -> asyncio.Future[WireResponse]:
    loop = asyncio.get_running_loop()
    return line.send(HEAD, LIMITS, loop.time() + 100)


def cut_at(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


def chunked(body: bytes, places: list[int], trailer: bool) -> bytes:
    parts = cut_at(body, places) if body else []
    framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return framed + b"0\r\n" + (b"X-Trailer: late\r\n" if trailer else b"") + b"\r\n"


answers = st.fixed_dictionaries(
    {
        "status": st.sampled_from([200, 201, 301, 404, 429, 500, 503]),
        "body": st.binary(max_size=400),
        "framing": st.sampled_from(["length", "chunked", "close"]),
        "packed": st.booleans(),
        "interim": st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early "
                                    b"Hints\r\nLink: </s.css>\r\n\r\n"]),
        "pieces": st.lists(st.integers(0, 1_000), max_size=4),
        "trailer": st.booleans(),
        "extra": st.binary(max_size=20),
    }
)  # fmt: skip
places = st.lists(st.integers(0, 2_000), max_size=6)


@settings(max_examples=300, deadline=None)
@given(answers, places)
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(
    response: dict[str, Any], where: list[int]
) -> None:
    """Status, own headers and decoded body; interim answers, trailers and bytes behind it are
    not part of it, and only a clean end leaves the line to the next request."""
    body = gzip.compress(response["body"]) if response["packed"] else response["body"]
    head = b"HTTP/1.1 %d Any\r\nX-A: 1\r\nX-Empty:\r\n" % response["status"]
    head += b"Content-Encoding: gzip\r\n" if response["packed"] else b""
    if response["framing"] == "length":
        sent = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    elif response["framing"] == "chunked":
        framed = chunked(body, response["pieces"], response["trailer"])
        sent = head + b"Transfer-Encoding: chunked\r\n\r\n" + framed
    else:
        sent = head + b"\r\n" + body
    extra = b"" if response["framing"] == "close" else response["extra"]
    # What is behind an answer counts only if it comes together with its end.
    pieces = cut_at(response["interim"] + sent, where)
    pieces[-1] += extra

    def play(line: HttpConnection, wire: Wire) -> asyncio.Future[WireResponse]:
        waiting = ask(line)
        for piece in pieces:
            line.data_received(piece)
        if response["framing"] == "close":
            assert not waiting.done()
            line.connection_lost(None)
        came.append(line.usable)
        return waiting

    came: list[bool] = []
    answer, _, wire = on_a_line(play)
    assert isinstance(answer, WireResponse), answer
    assert (answer.status, answer.body) == (response["status"], response["body"])
    assert (b"X-A", b"1") in answer.headers
    assert (b"X-Empty", b"") in answer.headers
    assert not {b"X-Trailer", b"Link"} & dict(answer.headers).keys()
    assert answer.decoded == response["packed"]
    assert wire.sent == HEAD
    # Empty lines between two answers are nobody's; llhttp passes over them.
    assert came == [response["framing"] != "close" and not extra.strip(b"\r\n")]


@settings(max_examples=500, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.builds(
            lambda status, rest: b"HTTP/1.1 " + status + rest,
            st.sampled_from([b"200 OK\r\n", b"99\r\n", b"101 X\r\n", b"304 N\r\n\r\n", b"200 OK"]),
            st.binary(max_size=200),
        ),
        st.lists(
            st.sampled_from(
                [b"HTTP/1.1 200 OK\r\n", b"Content-Length: 5\r\n", b"Content-Length: x\r\n",
                 b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n", b"\r\n",
                 b"hello", b"5\r\nhello\r\n", b"fffffffffffffffffff\r\n", b"0\r\n\r\n",
                 b"Upgrade: h2c\r\n",
                 b"Connection: close\r\n", b"Connection: upgrade\r\n", b"\0",
                 b"HTTP/1.0 204\r\n\r\n"]
            ), max_size=9,
        ).map(b"".join),
    ),
    places,
    st.sampled_from([None, ConnectionResetError("reset")]),
)  # fmt: skip
def test_nonsense_has_a_name_and_ends_the_line(
    data: bytes, where: list[int], end: Exception | None
) -> None:
    """An answer, a FetchError, or nobody answered: after the end of the connection nobody waits,
    and nothing else is ever raised."""

    def play(line: HttpConnection, wire: Wire) -> asyncio.Future[WireResponse]:
        waiting = ask(line)
        for piece in cut_at(data, where):
            line.data_received(piece)
        line.connection_lost(end)
        return waiting

    came, line, _ = on_a_line(play)
    assert isinstance(came, WireResponse | FetchError | StaleConnection), came
    assert not line.usable


def test_what_nobody_asked_for_ends_the_line() -> None:
    """An idle line that hears something is of no use to the next request."""

    def play(line: HttpConnection, wire: Wire) -> asyncio.Future[WireResponse]:
        first = ask(line)
        line.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        assert (line.usable, wire.cut) == (True, False)
        line.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
        assert (line.usable, wire.cut) == (False, True)
        return first

    answer, _, _ = on_a_line(play)
    assert answer.body == b"hi"


def test_who_stops_waiting_gets_nothing_and_breaks_nothing() -> None:
    """A cancelled request's answer may still arrive."""

    def play(line: HttpConnection, wire: Wire) -> asyncio.Future[WireResponse]:
        waiting = ask(line)
        waiting.cancel()
        line.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        line.connection_lost(None)
        return asyncio.get_running_loop().create_future()

    came, _, _ = on_a_line(play)
    assert came is None


def test_a_reset_is_no_end_of_a_body_without_a_length() -> None:
    """Half a page is not taken for the whole."""

    def play(line: HttpConnection, wire: Wire) -> asyncio.Future[WireResponse]:
        waiting = ask(line)
        line.data_received(b"HTTP/1.1 200 OK\r\n\r\nhalf a pa")
        line.connection_lost(ConnectionResetError("reset"))
        return waiting

    came, _, _ = on_a_line(play)
    assert isinstance(came, FetchError)
    assert came.code == "truncated"


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time stands until somebody moves it."""

    moment = 1_000.0

    def time(self) -> float:
        return self.moment


def test_a_process_that_stood_still_blames_no_server() -> None:
    """A timer far behind its time gives the answer, which may be there already, its seconds again;
    one that is in time ends the wait with its name."""
    loop = Clock()
    try:
        line, wire = HttpConnection(loop), Wire()
        line.connection_made(wire)
        waiting = line.send(HEAD, HopLimits(read_s=15.0), loop.time() + 40.0)
        loop.moment += 3_600.0  # it slept for an hour
        line._check_timeouts()
        assert not waiting.done()
        loop.moment += 14.0
        line._check_timeouts()
        assert not waiting.done()
        loop.moment += 1.5
        line._check_timeouts()
        error = waiting.exception()
        assert isinstance(error, FetchError)
        assert error.code == "read_timeout"
        assert wire.cut
    finally:
        loop.close()
