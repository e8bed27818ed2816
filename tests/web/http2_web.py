"""A web server that speaks HTTP/2 (h2, over TLS) and breaks its connections as servers do.

`Http2Web` runs on the test's own event loop. What a path does is in BEHAVIOURS. Each stream has a
task of its own, so answers overtake each other and one stream can end all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event, RequestReceived, StreamReset, WindowUpdated
from h2.exceptions import H2Error, ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import DataFrame, HeadersFrame, PushPromiseFrame, SettingsFrame

from tests.web.behaviours import PAGE
from tests.web.encodings import encoded_answer
from tests.web.tls import self_signed_context

HTML = [("content-type", "text/html")]
FRAME = 16_384  # bytes of a DATA frame


@dataclasses.dataclass(frozen=True, slots=True)
class Http2Hit:
    """One request as it arrived."""

    path: str
    method: str
    connection: int  # counts from 1
    stream: int
    headers: dict[str, str]


class Http2Web:
    """`async with Http2Web() as web`. `log` has every request in order of arrival, `cancelled` the
    streams that the client reset, by their path. `streams` is the limit that clients are told."""

    def __init__(self, streams: int = 100) -> None:
        self.log: list[Http2Hit] = []
        self.cancelled: list[str] = []
        self.connections = 0
        self.port = 0
        self.request_counts: Counter[str] = Counter()  # how often each path was asked for
        self.streams = streams
        self._arrival = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}{path}"

    def connections_of(self, path: str) -> list[int]:
        """On which connections `path` was asked for, in order."""
        return [hit.connection for hit in self.log if hit.path == path]

    async def arrived(self, requests: int) -> None:
        """Return once that many requests have come in, answered or not."""
        while len(self.log) < requests:
            self._arrival.clear()
            await self._arrival.wait()

    def note(self, hit: Http2Hit) -> None:
        self.log.append(hit)
        self.request_counts[hit.path] += 1
        self._arrival.set()

    async def __aenter__(self) -> Self:
        context = self_signed_context("h2", "http/1.1")
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close one tick later

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection = Http2Connection(self, self.connections, reader, writer)
        protocol = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        try:
            await (connection.run() if protocol == "h2" else connection.run_http1())
        except (OSError, EOFError, H2Error, asyncio.CancelledError):
            pass  # the client left, or the web ends
        finally:
            self._tasks.discard(task)
            await connection.end()


class Http2Connection:
    def __init__(
        self,
        web: Http2Web,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.web = web
        self.number = number
        self.writer = writer
        self.state = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._reader = reader
        self._streams: dict[int, asyncio.Task[None]] = {}
        self._window = asyncio.Event()  # set when there may be more room to send

    async def run(self) -> None:
        # A value that is set later would count before the client is told of it.
        limits = {SettingCodes.MAX_CONCURRENT_STREAMS: self.web.streams}
        self.state.local_settings = Settings(client=False, initial_values=limits)
        self.state.initiate_connection()
        await self.flush()
        while data := await self._reader.read(65_536):
            for event in self.state.receive_data(data):
                self._handle(event)
            await self.flush()

    async def run_http1(self) -> None:
        """Every path is a page to those who do not speak HTTP/2."""
        while True:
            line, *_ = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = line.split(" ")
            self.web.note(Http2Hit(path, method, self.number, 0, {}))
            self.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE)
            await self.writer.drain()

    async def end(self) -> None:
        streams = list(self._streams.values())
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self.writer.wait_closed(), 0.2)

    def _handle(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=stream, headers=sent):
                headers = {str(name): str(value) for name, value in sent or ()}
                path, method = headers[":path"], headers[":method"]
                hit = Http2Hit(path, method, self.number, stream or 0, headers)
                self.web.note(hit)
                answer = Http2Exchange(self, hit).answer()
                self._streams[hit.stream] = asyncio.create_task(answer)
            case StreamReset(stream_id=stream):
                paths = [hit.path for hit in self.web.log if _is_at(hit, self.number, stream)]
                self.web.cancelled += paths
                if stream in self._streams:
                    self._streams[stream].cancel()
            case WindowUpdated():
                self._window.set()

    async def flush(self) -> None:
        self.writer.write(self.state.data_to_send())
        await self.writer.drain()

    async def send_body(self, stream: int, pieces: list[bytes], end: bool = True) -> None:
        """DATA frames of these sizes, as the client's windows let them out."""
        for piece in pieces:
            for at in range(0, len(piece), FRAME):
                part = piece[at : at + FRAME]
                while self.state.local_flow_control_window(stream) < len(part):
                    self._window.clear()
                    await self._window.wait()
                self.state.send_data(stream, part)
            await self.flush()
        if end:
            self.state.end_stream(stream)
        await self.flush()

    async def go_away(self, last_stream: int, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        self.state.close_connection(code, last_stream_id=last_stream)
        await self.flush()


def _is_at(hit: Http2Hit, connection: int, stream: int | None) -> bool:
    return (hit.connection, hit.stream) == (connection, stream)


class Http2Exchange:
    """One request and the connection that it came on."""

    def __init__(self, connection: Http2Connection, hit: Http2Hit) -> None:
        self.connection = connection
        self.web = connection.web
        self.hit = hit
        name, _, self.rest = hit.path.removeprefix("/").partition("?")[0].partition("/")
        self.behave = BEHAVIOURS.get(name, not_found)

    async def answer(self) -> None:
        # The client, or another stream, has ended the connection or this stream meanwhile.
        with contextlib.suppress(OSError, ProtocolError, KeyError):
            await self.behave(self)

    async def begin(self, status: int | str = 200, headers: list[tuple[str, str]] = HTML) -> None:
        self.connection.state.send_headers(self.hit.stream, [(":status", str(status)), *headers])
        await self.connection.flush()

    async def reply(self, status: int = 200, body: bytes = PAGE) -> None:
        await self.begin(status)
        await self.connection.send_body(self.hit.stream, [body])

    async def reset(self, code: ErrorCodes) -> None:
        self.connection.state.reset_stream(self.hit.stream, code)
        await self.connection.flush()

    async def raw(self, data: bytes) -> None:
        self.connection.writer.write(data)
        await self.connection.writer.drain()


Behaviour = Callable[[Http2Exchange], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    """Registers a function under its name, as in `behaviours`."""
    BEHAVIOURS[function.__name__.replace("_", "-")] = function
    return function


async def not_found(x: Http2Exchange) -> None:
    await x.reply(404, b"no such behaviour")


@behaviour
async def page(x: Http2Exchange) -> None:
    """/page/ANYTHING"""
    await x.reply()


@behaviour
async def links(x: Http2Exchange) -> None:
    """/links/A,B,C: a page with links to /A, /B and /C, in which a dot stands for a slash."""
    paths = [path.replace(".", "/") for path in x.rest.split(",")]
    await x.reply(200, "".join(f'<a href="/{path}">x</a>' for path in paths).encode())


@behaviour
async def encoded(x: Http2Exchange) -> None:
    """/encoded/WHAT/CODING/PIECE, each piece a DATA frame."""
    headers, pieces = encoded_answer(x.rest)
    await x.begin(200, [(name.lower(), value) for name, value in headers])
    await x.connection.send_body(x.hit.stream, pieces)


@behaviour
async def large(x: Http2Exchange) -> None:
    """/large/N: N bytes, announced. /large/N/quietly: not announced."""
    size, _, quietly = x.rest.partition("/")
    announced = [] if quietly else [("content-length", size)]
    await x.begin(200, [*HTML, *announced])
    await x.connection.send_body(x.hit.stream, [b"x" * FRAME] * (int(size) // FRAME), end=False)
    await x.connection.send_body(x.hit.stream, [b"x" * (int(size) % FRAME)])


@behaviour
async def waits(x: Http2Exchange) -> None:
    """/waits/ANYTHING: without an answer when it is asked for first; later a page."""
    if x.web.request_counts[x.hit.path] > 1:
        await x.reply()


@behaviour
async def half(x: Http2Exchange) -> None:
    """/half/ANYTHING: half a page when it is asked for first; later a whole one."""
    if x.web.request_counts[x.hit.path] > 1:
        await x.reply()
    else:
        await x.begin()
        await x.connection.send_body(x.hit.stream, [PAGE[:20]], end=False)


@behaviour
async def hangs(x: Http2Exchange) -> None:
    """/hangs/ANYTHING: never an answer."""


# ---------------------------------------------------------------- ends of streams


@behaviour
async def reset(x: Http2Exchange) -> None:
    """/reset/CODE/WHEN/TIMES: the stream is reset `before` the headers, or `within` the body; a
    page after it was so TIMES times."""
    code, when, times = x.rest.split("/")
    if x.web.request_counts[x.hit.path] > int(times):
        await x.reply()
        return
    if when == "within":
        await x.begin()
        await x.connection.send_body(x.hit.stream, [PAGE[:20]], end=False)
    await x.reset(ErrorCodes[code])


@behaviour
async def bad_status(x: Http2Exchange) -> None:
    """/bad-status/TEXT: a :status that is no number."""
    await x.begin(x.rest)
    await x.connection.send_body(x.hit.stream, [PAGE])


# ---------------------------------------------------------------- ends of connections


def settings_ack_with_payload(x: Http2Exchange) -> bytes:
    return SettingsFrame(0, {1: 1}).serialize()[:3] + b"\x04\x01" + bytes(4) + bytes(6)


FAULTS: dict[str, Callable[[Http2Exchange], bytes]] = {
    "garbage": lambda x: b"\xff" * 400,
    "http1": lambda x: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    "frame-too-large": lambda x: b"\xff\xff\xff\x00\x00" + x.hit.stream.to_bytes(4, "big"),
    "data-first": lambda x: DataFrame(x.hit.stream, b"no headers").serialize(),
    "data-of-nobody": lambda x: DataFrame(x.hit.stream + 1000, b"?").serialize(),
    "data-for-all": lambda x: b"\x00\x00\x01\x00\x00" + bytes(4) + b"?",
    "bad-hpack": lambda x: HeadersFrame(
        x.hit.stream, b"\xff\xff\xff\xff\xff\xff", flags=["END_HEADERS"]
    ).serialize(),
    "no-status": lambda x: HeadersFrame(
        x.hit.stream, b"\x00\x01a\x01b", flags=["END_HEADERS", "END_STREAM"]
    ).serialize(),
    "push": lambda x: PushPromiseFrame(
        x.hit.stream, promised_stream_id=2, data=b"\x82\x87\x84", flags=["END_HEADERS"]
    ).serialize(),
    "settings": settings_ack_with_payload,
    "window": lambda x: b"\x00\x00\x04\x08\x00" + bytes(4) + b"\x7f\xff\xff\xff",
}


@behaviour
async def fault(x: Http2Exchange) -> None:
    """/fault/KIND/TIMES: bytes that break the protocol; a page after that was so TIMES times."""
    kind, times = x.rest.split("/")
    if x.web.request_counts[x.hit.path] > int(times):
        await x.reply()
    else:
        await x.raw(FAULTS[kind](x))


_NO_CONTENT: Final = {
    "ping": b"\x00\x00\x08\x06\x00" + bytes(4 + 8),
    "settings": b"\x00\x00\x00\x04\x00" + bytes(4),
    "unknown": b"\x00\x00\x00\x63\x00" + bytes(4),
}


@behaviour
async def flood(x: Http2Exchange) -> None:
    """/flood/KIND: frames without content, until the client goes away."""
    while not x.connection.writer.is_closing():
        await x.raw(_NO_CONTENT[x.rest] * 500)


@behaviour
async def goaway(x: Http2Exchange) -> None:
    """/goaway/CODE/LAST/TIMES: the connection ends; LAST is `all` (this stream was the last that
    counted), `none`, or a number; a page after it was so TIMES times."""
    code, last, times = x.rest.split("/")
    if x.web.request_counts[x.hit.path] > int(times):
        await x.reply()
        return
    stream = {"all": x.hit.stream, "none": 0}.get(last) if not last.isdigit() else int(last)
    await x.connection.go_away(stream or 0, ErrorCodes[code])


@behaviour
async def answers_and_leaves(x: Http2Exchange) -> None:
    """/answers-and-leaves/ANYTHING: a page, and GOAWAY right behind it, as servers do that limit
    the requests of a connection."""
    await x.reply()
    await x.connection.go_away(x.hit.stream)
    x.connection.writer.close()


@behaviour
async def hangs_up(x: Http2Exchange) -> None:
    """/hangs-up/TIMES: the connection is closed without a word; then a page."""
    if x.web.request_counts[x.hit.path] > int(x.rest):
        await x.reply()
    else:
        x.connection.writer.close()
