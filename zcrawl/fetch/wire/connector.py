"""Connect to a host: look-up, guard, TCP, TLS.

Called by `pool`. One look-up serves all connections to a port for one minute. Sockets connect to
exactly the addresses that the guard allowed; the name is not looked up again.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import aiohappyeyeballs
import msgspec

from zcrawl.errors import FetchError
from zcrawl.fetch.guard import as_address
from zcrawl.fetch.policy import fetch_error
from zcrawl.fetch.ports import HopLimits
from zcrawl.fetch.wire.connection import HttpConnection
from zcrawl.fetch.wire.tls import context_for
from zcrawl.frontier.domains import only_at
from zcrawl.model.reasons.failure import CONNECT, CONNECT_TIMEOUT, DNS, TLS

NAMES_S: Final = 60.0  # how long the result of a look-up is used
NEXT_ADDRESS_S: Final = 0.25  # after this the next address is tried beside the first (RFC 8305)
_MOST_NAMES: Final = 10_000

LookUp = Callable[[str, int], Awaitable[list[str]]]


class ConnectionTarget(msgspec.Struct, frozen=True):
    """Name and port of the server of an origin."""

    name: str  # without brackets
    port: int
    secure: bool


class Dialer:
    def __init__(self, loop: asyncio.AbstractEventLoop, look_up: LookUp | None = None) -> None:
        self._loop = loop
        self._look_up = look_up or self._look_up_by_system
        self._cached: dict[ConnectionTarget, tuple[float, list[str]]] = {}  # until, addresses
        self._dialled = 0
        self._look_ups: dict[ConnectionTarget, asyncio.Future[list[str]]] = {}

    async def dial(self, target: ConnectionTarget, limits: HopLimits) -> HttpConnection:
        """Open a connection; FetchError blocked_address, dns, connect, tls or connect_timeout."""
        where = f"{target.name}:{target.port}"
        # Before connecting: unusable files are not a failure of the server.
        context = context_for(limits.tls, limits.verify_tls) if target.secure else None
        try:
            async with asyncio.timeout(limits.connect_s):
                addresses = await self._addresses(target)
                good = limits.guard.pick(target.name, target.port, addresses)
                if limits.address is not None:
                    good = only_at(limits.address, target.name, good)
                self._dialled += 1
                first = self._dialled % max(1, len(good))  # connections are spread over them
                good = good[first:] + good[:first]
                sock = await aiohappyeyeballs.start_connection(
                    [_address_info(address, target.port) for address in good],
                    happy_eyeballs_delay=NEXT_ADDRESS_S,
                    interleave=1,
                    loop=self._loop,
                )
                return await self._start_protocol(sock, target, context)
        except FetchError:
            raise
        except TimeoutError:
            text = f"{where}: no connection in {limits.connect_s} s"
            raise fetch_error(CONNECT_TIMEOUT, text) from None
        except socket.gaierror as error:
            raise fetch_error(DNS, f"{target.name}: {error}") from error
        except ssl.SSLError as error:
            raise fetch_error(TLS, f"{where}: {error}") from error
        except OSError as error:
            # Also during a handshake: the server may close it because it needs another TLS.
            raise fetch_error(CONNECT, f"{where}: {error}") from error

    async def _start_protocol(
        self, sock: socket.socket, target: ConnectionTarget, context: ssl.SSLContext | None
    ) -> HttpConnection:
        try:
            _, connection = await self._loop.create_connection(
                lambda: HttpConnection(self._loop),
                sock=sock,
                ssl=context,
                server_hostname=target.name.rstrip(".") if context is not None else None,
            )
        except BaseException:
            sock.close()
            raise
        return connection

    async def _addresses(self, target: ConnectionTarget) -> list[str]:
        if as_address(target.name) is not None:
            return [target.name]
        entry = self._cached.get(target)
        if entry is not None and entry[0] > self._loop.time():
            return entry[1]
        look_up = self._look_ups.get(target)
        if look_up is None:  # concurrent requests for a name share one look-up
            look_up = asyncio.ensure_future(self._look_up(target.name, target.port))
            self._look_ups[target] = look_up
            look_up.add_done_callback(lambda done: self._cache(target, done))
        return await asyncio.shield(look_up)

    def _cache(self, target: ConnectionTarget, lookup: asyncio.Future[list[str]]) -> None:
        del self._look_ups[target]
        # A failure is not cached.
        if not lookup.cancelled() and lookup.exception() is None and lookup.result():
            if len(self._cached) >= _MOST_NAMES:
                self._cached.clear()
            self._cached[target] = (self._loop.time() + NAMES_S, lookup.result())

    async def _look_up_by_system(self, name: str, port: int) -> list[str]:
        infos = await self._loop.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        addresses = (str(info[4][0]) for info in infos)
        return list(dict.fromkeys(addresses))

    def close(self) -> None:
        for look_up in list(self._look_ups.values()):
            look_up.cancel()


def _address_info(address: str, port: int) -> tuple[int, int, int, str, tuple[str, int]]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))
