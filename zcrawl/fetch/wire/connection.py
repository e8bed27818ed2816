"""One connection to a server, and one answer at a time on it.

Made by `connector`, used by `pool`. httptools (llhttp, the parser of Node.js) parses the answer.
This module decides when it is complete, when and how it has failed, and whether the connection can
be used again.

    IDLE ──send──▶ WAITING ──whole answer──▶ IDLE, or closed if the server wants that or sent more
                     │
                     └──failure, or closed by the server──▶ closed

Rules for servers that break the standard:
- If a body is longer than announced, only the excess is dropped, as in browsers. A 204 or 304
  announces an empty body.
- Data on an idle connection, without a request, closes the connection, and is never used as the
  answer to the next request.
- A body without a length ends when the server closes the connection; a reset is a failure.
- Chunk sizes, their extensions and trailers count for the limit of the body, because a server can
  send them endlessly. Headers, interim answers and empty lines before them share one limit.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

import httptools
import msgspec

from zcrawl.errors import FetchError
from zcrawl.fetch.body import BodyReader
from zcrawl.fetch.policy import MAX_HEAD_BYTES, fetch_error, head_too_large
from zcrawl.fetch.ports import HopLimits
from zcrawl.model.reasons.failure import (
    PROTOCOL,
    READ_TIMEOUT,
    RESET,
    TOO_LARGE,
    TOTAL_TIMEOUT,
    TRUNCATED,
)

SLEPT_S: Final = 1.0  # if a timer is later than this, our process was stopped, and the server is
# not slow


class StaleConnection(ConnectionError):
    """The connection ended before the first byte of the answer: it may have been stale."""


class WireResponse(msgspec.Struct, frozen=True):
    status: int
    headers: list[tuple[bytes, bytes]]  # as sent
    body: bytes  # decoded
    decoded: bool  # the body was decoded, so some headers do not fit it


class _Reading(msgspec.Struct):
    """An answer that is being received."""

    waiting: asyncio.Future[WireResponse]
    limits: HopLimits
    deadline: float
    received_at: float
    status: int = 0
    headers: list[tuple[bytes, bytes]] = msgspec.field(default_factory=list)
    head_bytes: int = 0  # in segments that did not end the headers
    body: BodyReader | None = None  # set when the headers are complete
    later_bytes: int = 0  # in segments after the one that ended the headers
    pieces: list[bytes] = msgspec.field(default_factory=list)
    failure: FetchError | None = None
    whole: bool = False
    too_much: bool = False  # more data than the answer: it could be mistaken for the next answer
    keeps_alive: bool = False  # the server accepts another request
    ends_with_connection: bool = False

    def wakeup(self) -> float:
        return min(self.deadline, self.received_at + self.limits.read_s)


def lenient_parser(callbacks: object) -> httptools.HttpResponseParser:
    """Return a parser that is as tolerant as aiohttp's parser."""
    parser = httptools.HttpResponseParser(callbacks)
    parser.set_dangerous_leniencies(
        lenient_headers=True,
        lenient_optional_cr_before_lf=True,
        lenient_spaces_after_chunk_size=True,
    )
    return parser


class HttpConnection(asyncio.Protocol):
    """One connection. Call `send`, await the answer, then check `usable`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.usable = True  # for one more request
        self.idle_since = 0.0
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = lenient_parser(self)
        self._reading: _Reading | None = None  # None when idle, so that no page stays in memory
        self._timer: asyncio.TimerHandle | None = None

    def send(self, head: bytes, limits: HopLimits, deadline: float) -> asyncio.Future[WireResponse]:
        """Send a request; return the future answer. To stop waiting, close the connection."""
        assert self._transport is not None and self._reading is None
        waiting: asyncio.Future[WireResponse] = self._loop.create_future()
        reading = _Reading(waiting, limits, deadline, self._loop.time())
        self._reading = reading
        self._timer = self._loop.call_at(reading.wakeup(), self._check_timeouts)
        self._transport.write(head)
        return waiting

    def close(self) -> None:
        self.usable = False
        self._reading = None
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------ called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit
        # from it

    def data_received(self, data: bytes) -> None:
        reading = self._reading
        if reading is None:
            self.close()
            return
        reading.received_at = self._loop.time()
        if reading.body is not None:
            reading.later_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            reading.whole = reading.too_much = True  # 101: we never request another protocol
        except httptools.HttpParserError as error:
            if not reading.whole:
                self._fail(reading, fetch_error(PROTOCOL, f"not a valid HTTP answer: {error}"))
                return
            reading.too_much = True
        if reading.failure is not None:
            self._fail(reading, reading.failure)
        elif reading.whole:
            self._deliver(reading, reading.keeps_alive and not reading.too_much)
        elif reading.body is None:
            reading.head_bytes += len(data)
            if reading.head_bytes > MAX_HEAD_BYTES:
                self._fail(reading, head_too_large())
        elif reading.later_bytes > reading.limits.max_bytes:  # of a body, its chunk sizes and
            # trailers
            self._fail(reading, reading.body.too_large("sent"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        reading = self._reading
        if reading is None:
            return
        if reading.body is not None:
            if exc is None and reading.ends_with_connection:
                self._deliver(reading, False)
            else:
                text = "the connection ended within the body"
                self._fail(reading, fetch_error(TRUNCATED, text))
        elif reading.head_bytes:
            text = "the connection ended within the headers"
            self._fail(reading, fetch_error(RESET, text))
        else:
            self._fail(reading, StaleConnection(str(exc or "the server closed the connection")))

    # ------------------------------------------------------------ called by the parser

    def on_message_begin(self) -> None:
        reading = self._reading
        if reading is not None and reading.whole:
            reading.too_much = True  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        reading = self._reading
        if reading is not None and reading.body is None:  # otherwise part of a trailer
            reading.headers.append((name, value))

    def on_headers_complete(self) -> None:
        reading = self._reading
        if reading is None or reading.whole:
            return
        reading.status = self._parser.get_status_code()
        if 100 <= reading.status < 200 and reading.status != 101:
            reading.headers = []  # an interim answer; the final one follows
            return
        encodings: list[str] = []
        announced, chunked = None, False
        for name, value in reading.headers:
            lower = name.lower()
            if lower == b"content-length" and value.isdigit():
                announced = int(value)
            elif lower == b"content-encoding":
                encodings.append(value.decode("latin-1"))
            elif lower == b"transfer-encoding":
                chunked = True
        reading.keeps_alive = self._parser.should_keep_alive()
        reading.ends_with_connection = announced is None and not chunked
        most = reading.limits.max_bytes
        try:
            reading.body = BodyReader(",".join(encodings), most)
            if announced is not None and announced > most and not chunked:
                raise fetch_error(TOO_LARGE, f"{announced} bytes announced, {most} allowed")
        except FetchError as error:
            reading.failure = error

    def on_body(self, body: bytes) -> None:
        reading = self._reading
        if reading is None or reading.body is None or reading.failure or reading.whole:
            return
        try:
            reading.pieces += reading.body.feed(body)
        except FetchError as error:
            reading.failure = error

    def on_message_complete(self) -> None:
        reading = self._reading
        if reading is not None and reading.body is not None:  # otherwise it was an interim answer
            reading.whole = True

    # ------------------------------------------------------------ the end of an answer

    def _deliver(self, reading: _Reading, usable: bool) -> None:
        body, pieces = reading.body, reading.pieces
        try:
            if body is not None:
                body.finish()
        except FetchError as error:
            self._fail(reading, error)
            return
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        decoded = body is not None and body.decodes
        self._settle(usable)
        if not reading.waiting.done():
            reading.waiting.set_result(
                WireResponse(reading.status, reading.headers, whole, decoded)
            )

    def _fail(self, reading: _Reading, error: Exception) -> None:
        self._settle(False)
        if not reading.waiting.done():
            reading.waiting.set_exception(error)

    def _settle(self, usable: bool) -> None:
        self._reading = None
        if not usable:
            self.close()
        elif self._timer is not None:
            self._timer.cancel()

    def _check_timeouts(self) -> None:
        """Fail the answer if a time limit is over. One timer serves both limits; received data only
        moves the next check."""
        reading = self._reading
        if reading is None:
            return
        now, limits = self._loop.time(), reading.limits
        late_s = now - reading.wakeup()
        if late_s > SLEPT_S:  # data that arrived meanwhile has not been read yet
            reading.received_at = now
            reading.deadline += late_s + SLEPT_S
        if now >= reading.deadline:
            text = f"no whole answer in {limits.total_s} s"
            self._fail(reading, fetch_error(TOTAL_TIMEOUT, text))
        elif now >= reading.received_at + limits.read_s:
            self._fail(reading, fetch_error(READ_TIMEOUT, f"silent for {limits.read_s} s"))
        else:
            self._timer = self._loop.call_at(reading.wakeup(), self._check_timeouts)
