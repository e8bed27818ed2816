"""How the httpx engine connects: look up, ask the guard, connect to exactly that address.

Used by `fetch_httpx`. httpcore hands a name to its network backend and lets the operating system
look it up while it connects, which leaves no moment for a check. This backend does the look-up
itself and passes addresses on; TLS still gets the name, because httpcore names it separately.

It also counts what comes: h11 forgets chunk extensions and interim answers, so a server can send
them without end. The request at hand has an `Allowance`, which its reads use up.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import httpcore
import httpx

from zcrawl.fetch.guard import Guard
from zcrawl.fetch.policy import MAX_HEAD_BYTES, fetch_error, head_too_large
from zcrawl.frontier.domains import only_at

Resolve = Callable[[str, int], Awaitable[list[str]]]
NO_POOL_LIMIT: Final = httpx.Limits(
    max_connections=None, max_keepalive_connections=None, keepalive_expiry=15.0
)


class Allowance:
    """How many bytes the answer to one request may have yet: first its head, then its body."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left = MAX_HEAD_BYTES
        self._failure = head_too_large()

    def begin_body(self) -> None:
        self._left = self._max_bytes
        self._failure = fetch_error("too_large", f"more than {self._max_bytes} bytes sent")

    def use(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise self._failure


allowance: contextvars.ContextVar[Allowance | None] = contextvars.ContextVar(
    "zcrawl_allowance", default=None
)


class CountedStream(httpcore.AsyncNetworkStream):
    """A connection whose reads use up the allowance of the request that they serve.

    Not those of HTTP/2: there one request reads what belongs to others, and nothing but bodies and
    headers, which its library bounds, can be sent."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        tls = inner.get_extra_info("ssl_object")
        self._counts = tls is None or tls.selected_alpn_protocol() != "h2"

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        data = await self._inner.read(max_bytes, timeout)
        left = allowance.get()
        if left is not None and self._counts:
            left.use(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._inner.write(buffer, timeout)

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
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


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
                found = await self._look_up(host, port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        good = self._guard.pick(host, port, found)
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
