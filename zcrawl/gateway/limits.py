"""Limits of HTTP: rate of a user, time and length of a request, connections, length of a header.

`Guarded` is the outermost ASGI layer, `LimitedProtocol` guards the connection below it: uvicorn
waits for ever for a client that connects and sends nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from zcrawl.config import GatewayConfig
from zcrawl.gateway.cutting import TRANSPORT
from zcrawl.gateway.principals import Principal
from zcrawl.gateway.problem import MEDIA_TYPE, ProblemError, problem
from zcrawl.mesh.border import Allowance, Buckets
from zcrawl.model.reasons.cluster import (
    BODY_TOO_LARGE,
    BODY_TOO_SLOW,
    TOO_MANY_REQUESTS,
)

HEADER_MOST: Final = 32_768  # bytes
HEADER_S: Final = 10.0  # for a whole header, also of the next request on a connection
IDLE_S: Final = 15.0  # between two parts of a streamed body
# Paths whose body or answer is a stream: they keep to limits of their own.
STREAMED: Final = ("/seeds", "/events", "/items", "/failed")
_SAFE: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    (b"x-frame-options", b"DENY"),
)


class RequestRates:
    """The requests of each principal."""

    def __init__(self, config: GatewayConfig) -> None:
        self._allowance = Allowance(config.rate, max(1.0, float(config.burst)))
        self._buckets = Buckets()

    def take(self, principal: Principal) -> None:
        """Count a request; ProblemError if there are too many."""
        if self._allowance.per_s <= 0:
            return
        who = f"{principal.name} {principal.through}"
        if not self._buckets.take(who, self._allowance, time.monotonic()):
            raise problem(
                TOO_MANY_REQUESTS,
                f"more than {self._allowance.per_s:g} requests per second of {principal.name}",
            )


class _Ended(Exception):
    """The body was too long or too slow."""

    def __init__(self, problem_error: ProblemError) -> None:
        super().__init__()
        self.problem_error = problem_error


class Guarded:
    """The application with limits of time and length, and the headers that all answers have."""

    def __init__(self, app: ASGIApp, config: GatewayConfig) -> None:
        self._app, self._config = app, config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        begun = False

        async def safe_send(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message["headers"], *_SAFE]
            await send(message)

        path = str(scope["path"])
        streamed = path.endswith(STREAMED)
        body = self._streamed(receive) if streamed else self._whole(receive)
        try:
            self._check_length(scope, streamed)
            if streamed:
                await self._app(scope, body, safe_send)
            else:
                async with asyncio.timeout(self._config.timeout):
                    await self._app(scope, body, safe_send)
        except (_Ended, ProblemError, TimeoutError) as error:
            if begun:
                raise
            if isinstance(error, _Ended):
                error = error.problem_error
            if isinstance(error, TimeoutError):
                error = problem(BODY_TOO_SLOW, "no answer in time", status=503)
            await _send_problem(error, safe_send)

    def _check_length(self, scope: Scope, streamed: bool) -> None:
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not streamed and length.isdigit() and int(length) > self._config.max_body:
            raise self._too_long()

    def _too_long(self) -> ProblemError:
        return problem(BODY_TOO_LARGE, f"the body is longer than {self._config.max_body} bytes")

    def _whole(self, receive: Receive) -> Receive:
        size, deadline = 0, time.monotonic() + self._config.timeout / 2

        async def limited() -> Any:
            nonlocal size
            left = deadline - time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    message = await receive()
            except TimeoutError:
                raise _Ended(_too_slow()) from None
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size > self._config.max_body:
                    raise _Ended(self._too_long())
            return message

        return limited

    def _streamed(self, receive: Receive) -> Receive:
        ended = False

        async def limited() -> Any:
            nonlocal ended
            if ended:  # an answer that takes its time waits here for the end of the client
                return await receive()
            try:
                async with asyncio.timeout(IDLE_S):
                    message = await receive()
            except TimeoutError:
                raise _Ended(_too_slow()) from None
            ended = not message.get("more_body", False)
            return message

        return limited


def _too_slow() -> ProblemError:
    return problem(BODY_TOO_SLOW, "the body of the request came too slowly")


async def _send_problem(error: ProblemError, send: Send) -> None:
    body = msgspec.json.encode(error.problem)
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if error.retry_after_s:
        headers.append((b"retry-after", str(max(1, round(error.retry_after_s))).encode()))
    start: Any = {
        "type": "http.response.start",
        "status": error.problem.status,
        "headers": headers,
    }
    end: Any = {"type": "http.response.body", "body": body, "more_body": False}
    await send(start)
    await send(end)


class LimitedProtocol(HttpToolsProtocol):
    """A connection of uvicorn that ends when its header is too long or too slow."""

    connections_most = 2_000  # set by `serve`

    def connection_made(self, transport: Any) -> None:
        self.app_state = {**self.app_state, TRANSPORT: transport}  # `cutting` ends it
        super().connection_made(transport)
        self._header_bytes = 0
        self._in_body = False
        self._header_timer: asyncio.TimerHandle | None = None
        if len(self.connections) > self.connections_most:
            transport.write(
                b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n"
                b"content-length: 0\r\nconnection: close\r\n\r\n"
            )
            transport.close()
            return
        self._expect_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self._in_body:
            if self._header_timer is None:
                self._expect_header()
            self._header_bytes += len(data)
            # A part may have the end of the header and much of the body: only then it is parsed.
            if self._header_bytes > HEADER_MOST and b"\r\n\r\n" not in data:
                self._refuse(b"431 Request Header Fields Too Large")
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._in_body, self._header_bytes = True, 0
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def _expect_header(self) -> None:
        loop = asyncio.get_running_loop()
        self._header_timer = loop.call_later(HEADER_S, self._refuse, b"408 Request Timeout")

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, status: bytes) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            self.transport.close()
