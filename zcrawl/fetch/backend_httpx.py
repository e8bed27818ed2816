"""How the httpx engine connects: look up, ask the guard, connect to exactly that address.

Used by `fetch_httpx`. httpcore hands a name to its network backend and lets the operating system
look it up while it connects, which leaves no moment for a check. This backend does the look-up
itself and passes addresses on; TLS still gets the name, because httpcore names it separately.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import httpcore
import httpx

from zcrawl.fetch.guard import Guard
from zcrawl.frontier.domains import only_at

Resolve = Callable[[str, int], Awaitable[list[str]]]
NO_POOL_LIMIT: Final = httpx.Limits(
    max_connections=None, max_keepalive_connections=None, keepalive_expiry=15.0
)


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
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
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
