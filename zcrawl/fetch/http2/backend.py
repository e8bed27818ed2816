"""Guarded connections of the httpx engine, and checks of the received bytes.

Used by `engine`. httpcore passes a name to its network backend, and the operating system looks
it up while it connects, so the address cannot be checked in between. This backend looks names up
itself and connects to addresses; TLS still gets the name, because httpcore passes it separately.

It also checks the received bytes of the current request (its `StreamAllowance`):

- All bytes are counted, because h11 drops chunk extensions and interim answers without a limit.
- An invalid status line is refused at once. h11 would wait for the end of the headers, and reports
  the same error for a server that closes before and for one that sent nothing.
- On HTTP/2 many requests share a connection. An error of the connection fails all of them at once,
  with the same text, and not only the request that happened to read.

`FrameWatch` checks the heads of HTTP/2 frames at once, because h2 reads only whole frames. Other
data (HTTP/1.1, the error page of a proxy) looks like the head of a frame of megabytes, and all
pages of the connection would wait for the rest until they time out. It also ends a connection that
sends frames without content all the time, because h2 has no limit for them.
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

# We never announce a larger size, so the initial limit of the standard holds for every server.
MAX_FRAME_BYTES: Final = 16_384
# What a connection may send besides content, for each of its requests: PING, SETTINGS, interim
# answers, empty DATA. Each costs the event loop 10 to 40 us.
FRAMES_A_REQUEST: Final = 1_000
BYTES_A_FRAME: Final = 8  # of content; that much allows one more frame
READ_BYTES: Final = 16_384  # in one step of the loop; httpcore wants 64 KB, which is 7,000 frames
_DATA: Final = 0
_HEAD_BYTES: Final = 9  # of each frame: 3 of its length, then type, flags and stream
_SETTINGS: Final = 4


class FrameWatch:
    """Checks the frames that a server sends on one connection."""

    def __init__(self) -> None:
        self._head = b""  # of a frame whose first bytes have come
        self._payload_left = 0
        self._began = False
        self._frames_left = FRAMES_A_REQUEST
        self._content = 0  # bytes that do not yet allow one more frame

    def allow_request(self) -> None:
        """Allow the frames of one more request."""
        self._frames_left += FRAMES_A_REQUEST

    def feed(self, data: bytes) -> str:
        """Check the next bytes; return what is wrong with them, or an empty text."""
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
                if kind == _DATA:
                    frames, self._content = divmod(self._content + length, BYTES_A_FRAME)
                    self._frames_left += frames
                self._frames_left -= 1
                if self._frames_left < 0:
                    return "too many frames without content"
        return ""


Resolve = Callable[[str, int], Awaitable[list[str]]]
NO_POOL_LIMIT: Final = httpx.Limits(
    max_connections=None, max_keepalive_connections=None, keepalive_expiry=15.0
)


class StreamAllowance:
    """The bytes that the answer to one request may still have: first its head, then its body. Also
    the connection that it uses."""

    def __init__(self, max_bytes: int) -> None:
        self.connection: CountedStream | None = None
        self.is_answer = False  # the first line is a valid status line (HTTP/1.1)
        self.began = False  # the body has begun: the headers are complete
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
            self.is_answer = self._status_line.completes(data)


class StatusLine:
    """Checks the first line of an answer with the parser of the engine `http`."""

    def __init__(self) -> None:
        self._parser = lenient_parser(self)
        self._seen = False

    def completes(self, data: bytes) -> bool:
        """Return whether these bytes complete the line; FetchError if it is not a status line."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return True
        except httptools.HttpParserError as error:
            if not self._seen:  # a later error is reported by h11
                raise fetch_error(PROTOCOL, f"not a valid HTTP answer: {error}") from error
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
    """A connection that counts received bytes against the allowance of the current request.

    Not on HTTP/2: there a request also reads bytes of others, and the library already limits
    headers and bodies."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self.users = 0  # requests that were sent on it
        self.fault: FetchError | None = None  # why it was ended
        self._inner = inner
        tls = inner.get_extra_info("ssl_object")
        http2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        self._frames = FrameWatch() if http2 else None

    @property
    def shared(self) -> bool:
        """Whether another request may be the reason for the end of the connection."""
        return self.users > 1

    @property
    def is_http2(self) -> bool:
        return self._frames is not None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        left = self._note_user()
        if self._frames is not None:
            max_bytes = min(max_bytes, READ_BYTES)
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
        """Close the connection, and return the error that all its requests get."""
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
            if self._frames is not None:
                self._frames.allow_request()
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
    """Return the addresses of a name from the system, without duplicates."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to allowed addresses only. `address`: the only one to use; empty: not known yet."""

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
    """Return a transport of httpx with a guarded backend; httpx has no argument for a backend."""
    transport = httpx.AsyncHTTPTransport(trust_env=False, limits=NO_POOL_LIMIT, **options)
    transport._pool._network_backend = GuardedBackend(guard, look_up, address)
    return transport


async def cancel_stream(
    transport: httpx.AsyncHTTPTransport, connection: CountedStream, stream: int
) -> None:
    """Reset an HTTP/2 stream that is not read any more, and release its flow-control window.

    httpcore drops such a stream without telling the server. The server would continue to send, the
    data would never be acknowledged, and after 16 MB all pages of the connection would wait for
    ever. Neither httpx nor httpcore has a call for this, so it uses internal objects of
    httpcore."""
    pool_connections = transport._pool.connections
    for http2 in (getattr(entry, "_connection", None) for entry in pool_connections):
        if getattr(http2, "_network_stream", None) is connection:
            break
    else:
        return
    from h2.connection import ConnectionState  # only loaded for jobs with HTTP/2
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
        # The connection has failed if it cannot be written to, and httpcore knows it.
        await http2._write_outgoing_data(_WriteRequest)


class _WriteRequest:
    """The part of a request that httpcore reads when it writes."""

    extensions: Final = {"timeout": {"write": 5.0}}
