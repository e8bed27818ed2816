"""How the httpx engine connects, and what it looks at in the frames of HTTP/2.

Used by `engine`. httpcore hands a name to its network backend and lets the operating system
look it up while it connects, which leaves no moment for a check. This backend does the look-up
itself and passes addresses on; TLS still gets the name, because httpcore names it separately.

It also looks at what comes, for the request at hand (its `StreamAllowance`):

- It is counted: h11 forgets chunk extensions and interim answers, so a server can send them without
  end.
- A status line that is none is refused at once. h11 waits for the end of the headers first, and for
  a server that hangs up before it has the same error as for one that said nothing.
- On HTTP/2 many requests share a connection. What breaks it fails all of them at once, with the
  same words, instead of the one that happened to read.

Follows the frames that an HTTP/2 server sends, to see at once what cannot be frames.

h2 looks at a frame when it is
whole: a server that sends something else (HTTP/1.1, an error page of a proxy) announces frames of
megabytes by it, and all pages of the connection would wait for the rest until they time out. Pure.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import httpcore
import httptools
import httpx

from zcrawl.errors import FetchError
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.policy import MAX_HEAD_BYTES, fetch_error, head_too_large
from zcrawl.fetch.wire.connection import lenient_parser
from zcrawl.frontier.domains import only_at
from zcrawl.model.reasons.failure import HTTP2, PROTOCOL, TOO_LARGE

# Our side never allows longer frames, so every server has to keep to what the standard begins with.
MAX_FRAME_BYTES: Final = 16_384
_HEAD_BYTES: Final = 9  # of each frame: 3 of its length, then type, flags and stream
_SETTINGS: Final = 4


class FrameWatch:
    """One connection, in the direction from the server."""

    def __init__(self) -> None:
        self._head = b""  # of a frame whose first bytes have come
        self._payload_left = 0
        self._began = False

    def feed(self, data: bytes) -> str:
        """Look at what came next; return what is wrong with it, or nothing."""
        at = 0
        while at < len(data):
            if self._payload_left:
                skipped = min(self._payload_left, len(data) - at)
                self._payload_left -= skipped
                at += skipped
                continue
            missing = _HEAD_BYTES - len(self._head)
            self._head += data[at : at + missing]
            at += missing
            if len(self._head) == _HEAD_BYTES:
                length, kind = int.from_bytes(self._head[:3], "big"), self._head[3]
                if length > MAX_FRAME_BYTES:
                    return f"a frame of {length} bytes; {MAX_FRAME_BYTES} are allowed"
                if not self._began and kind != _SETTINGS:
                    return f"the first frame is of type {kind}, not SETTINGS"
                self._began = True
                self._payload_left, self._head = length, b""
        return ""


Resolve = Callable[[str, int], Awaitable[list[str]]]
NO_POOL_LIMIT: Final = httpx.Limits(
    max_connections=None, max_keepalive_connections=None, keepalive_expiry=15.0
)


class StreamAllowance:
    """How many bytes the answer to one request may have yet: first its head, then its body. Also
    which connection it uses."""

    def __init__(self, max_bytes: int) -> None:
        self.connection: CountedStream | None = None
        self.is_answer = False  # what came, by its first line (HTTP/1.1)
        self.began = False  # the body: the headers are whole
        self._max_bytes = max_bytes
        self._left = MAX_HEAD_BYTES
        self._failure = head_too_large()
        self._status_line: StatusLine | None = None

    def begin_body(self) -> None:
        self.began = True
        self._left = self._max_bytes
        self._failure = fetch_error(TOO_LARGE, f"more than {self._max_bytes} bytes sent")

    def use(self, data: bytes) -> None:
        if not data:
            return
        self._left -= len(data)
        if self._left < 0:
            raise self._failure
        if not self.is_answer:
            self._status_line = self._status_line or StatusLine()
            self.is_answer = self._status_line.whole_with(data)


class StatusLine:
    """Judges the first line of an answer as the engine `http` does, by the same parser."""

    def __init__(self) -> None:
        self._parser = lenient_parser(self)
        self._seen = False

    def whole_with(self, data: bytes) -> bool:
        """Whether these bytes complete the line; FetchError if it is none."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return True
        except httptools.HttpParserError as error:
            if not self._seen:  # else it is of what comes later, and h11's to judge
                raise fetch_error(PROTOCOL, f"no HTTP: {error}") from error
        return self._seen

    def on_status(self, _: bytes) -> None:
        self._seen = True

    def on_header(self, _: bytes, __: bytes) -> None:
        self._seen = True

    def on_headers_complete(self) -> None:
        self._seen = True


allowance: contextvars.ContextVar[StreamAllowance | None] = contextvars.ContextVar(
    "zcrawl_allowance", default=None
)


class CountedStream(httpcore.AsyncNetworkStream):
    """A connection whose reads use up the allowance of the request that they serve.

    Not those of HTTP/2: there one request reads what belongs to others, and nothing but bodies and
    headers, which its library bounds, can be sent."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self.users = 0  # requests that were sent on it
        self.fault: FetchError | None = None  # why it was ended
        self._inner = inner
        tls = inner.get_extra_info("ssl_object")
        http2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        self._frames = FrameWatch() if http2 else None

    @property
    def shared(self) -> bool:
        """Whether it may have ended for what another request did, or before this one came."""
        return self.users > 1

    @property
    def is_http2(self) -> bool:
        return self._frames is not None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        left = self._note_user()
        try:
            data = await self._inner.read(max_bytes, timeout)
        except Exception:
            if self.fault is not None:  # closed by `fail` while this request was waiting
                raise self.fault from None
            raise
        if self._frames is not None:
            wrong = self._frames.feed(data)
            if wrong:
                raise await self.fail(f"the server broke the rules of HTTP/2 ({wrong})")
        elif left is not None:
            left.use(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._note_user()
        if self.fault is not None:
            raise self.fault
        await self._inner.write(buffer, timeout)

    async def fail(self, reason: str) -> FetchError:
        """End the connection; all who use it get the error that is returned."""
        if self.fault is None:
            self.fault = fetch_error(HTTP2, reason)
            with contextlib.suppress(OSError):  # it is closed all the same
                await self._inner.aclose()
        return self.fault

    def _note_user(self) -> StreamAllowance | None:
        left = allowance.get()
        if left is not None and left.connection is not self:
            left.connection = self
            self.users += 1
        return left

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
    ) -> httpcore.AsyncNetworkStream:
        return CountedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


async def resolve(name: str, port: int) -> list[str]:
    """The addresses of a name, as the system has them, each once."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """`address` is the only one to connect to, if it is given; empty: none is known yet."""

    def __init__(self, guard: Guard, look_up: Resolve, address: str | None = None) -> None:
        self._guard = guard
        self._look_up = look_up
        self._address = address
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._look_up(host, port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        good = self._guard.pick(host, port, addresses)
        if self._address is not None:
            good = only_at(self._address, host, good)
        for address in good:
            try:
                stream = await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
                return CountedStream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error  # the next address, if there is one
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def guarded_transport(
    guard: Guard, look_up: Resolve = resolve, address: str | None = None, **options: Any
) -> httpx.AsyncHTTPTransport:
    """httpx's own transport on a guarded backend; httpx has no argument for one."""
    transport = httpx.AsyncHTTPTransport(trust_env=False, limits=NO_POOL_LIMIT, **options)
    transport._pool._network_backend = GuardedBackend(guard, look_up, address)
    return transport


async def cancel_stream(
    transport: httpx.AsyncHTTPTransport, connection: CountedStream, stream: int
) -> None:
    """Reset an HTTP/2 stream that nobody will read on, and give back the room its data took.

    httpcore forgets such a stream. The server would go on sending, nothing of it would ever be
    acknowledged, and after 16 MB all pages of the connection would wait for ever. Neither httpx nor
    httpcore has a call for this, so it reaches for httpcore's own objects."""
    pool_connections = transport._pool.connections
    for http2 in (getattr(entry, "_connection", None) for entry in pool_connections):
        if getattr(http2, "_network_stream", None) is connection:
            break
    else:
        return
    from h2.connection import ConnectionState  # of jobs with HTTP/2, whose transport has loaded it
    from h2.errors import ErrorCodes
    from h2.events import DataReceived

    assert http2 is not None
    state = http2._h2_state
    unread = [event for event in http2._events.get(stream, ()) if isinstance(event, DataReceived)]
    stream_state = state.streams.get(stream)
    unfinished = stream_state is not None and not stream_state.closed
    if state.state_machine.state is ConnectionState.CLOSED or not (unread or unfinished):
        return
    for event in unread:
        state.acknowledge_received_data(event.flow_controlled_length, stream)
    if unfinished:
        state.reset_stream(stream, ErrorCodes.CANCEL)
    with contextlib.suppress(httpcore.NetworkError, httpcore.TimeoutException, FetchError):
        # A connection that takes nothing any more has failed, and httpcore has noted it.
        await http2._write_outgoing_data(_Unhurried)


class _Unhurried:
    """The part of a request that httpcore looks at when it writes."""

    extensions: Final = {"timeout": {"write": 5.0}}
