"""From a host's name to a connection: look-up, guard, connect, TLS.

Called by `pool`. One look-up serves all connections of a minute to one port; what the guard
lets through is what the sockets get, and no name is looked up again behind it.
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

NAMES_S: Final = 60.0  # how long a look-up is remembered
NEXT_ADDRESS_S: Final = 0.25  # after this the next address is tried beside the first (RFC 8305)
_MOST_NAMES: Final = 10_000

LookUp = Callable[[str, int], Awaitable[list[str]]]


class ConnectionTarget(msgspec.Struct, frozen=True):
    """Where an origin's connections go."""

    name: str  # without brackets
    port: int
    secure: bool


class Dialer:
    def __init__(self, loop: asyncio.AbstractEventLoop, look_up: LookUp | None = None) -> None:
        self._loop = loop
        self._look_up = look_up or self._ask_system
        self._known: dict[ConnectionTarget, tuple[float, list[str]]] = {}  # until, addresses
        self._dialled = 0
        self._asking: dict[ConnectionTarget, asyncio.Future[list[str]]] = {}

    async def dial(self, place: ConnectionTarget, limits: HopLimits) -> HttpConnection:
        """A new connection; FetchError blocked_address, dns, connect, tls or connect_timeout."""
        where = f"{place.name}:{place.port}"
        # Before anything is connected: files that cannot be used are nobody else's fault.
        context = context_for(limits.tls, limits.verify_tls) if place.secure else None
        try:
            async with asyncio.timeout(limits.connect_s):
                addresses = await self._addresses(place)
                good = limits.guard.pick(place.name, place.port, addresses)
                if limits.address is not None:
                    good = only_at(limits.address, place.name, good)
                self._dialled += 1
                first = self._dialled % max(1, len(good))  # connections are spread over them
                good = good[first:] + good[:first]
                sock = await aiohappyeyeballs.start_connection(
                    [_address_info(address, place.port) for address in good],
                    happy_eyeballs_delay=NEXT_ADDRESS_S,
                    interleave=1,
                    loop=self._loop,
                )
                return await self._speak(sock, place, context)
        except FetchError:
            raise
        except TimeoutError:
            text = f"{where}: no connection in {limits.connect_s} s"
            raise fetch_error(CONNECT_TIMEOUT, text) from None
        except socket.gaierror as error:
            raise fetch_error(DNS, f"{place.name}: {error}") from error
        except ssl.SSLError as error:
            raise fetch_error(TLS, f"{where}: {error}") from error
        except OSError as error:
            # During a handshake too: a server that hangs up there may want another TLS.
            raise fetch_error(CONNECT, f"{where}: {error}") from error

    async def _speak(
        self, sock: socket.socket, place: ConnectionTarget, context: ssl.SSLContext | None
    ) -> HttpConnection:
        try:
            _, line = await self._loop.create_connection(
                lambda: HttpConnection(self._loop),
                sock=sock,
                ssl=context,
                server_hostname=place.name.rstrip(".") if context is not None else None,
            )
        except BaseException:
            sock.close()
            raise
        return line

    async def _addresses(self, place: ConnectionTarget) -> list[str]:
        if as_address(place.name) is not None:
            return [place.name]
        entry = self._known.get(place)
        if entry is not None and entry[0] > self._loop.time():
            return entry[1]
        asking = self._asking.get(place)
        if asking is None:  # one question for all who want to know at the same time
            asking = asyncio.ensure_future(self._look_up(place.name, place.port))
            self._asking[place] = asking
            asking.add_done_callback(lambda done: self._learn(place, done))
        return await asyncio.shield(asking)

    def _learn(self, place: ConnectionTarget, lookup: asyncio.Future[list[str]]) -> None:
        del self._asking[place]
        # A failure is told to those who wait, and not remembered.
        if not lookup.cancelled() and lookup.exception() is None and lookup.result():
            if len(self._known) >= _MOST_NAMES:
                self._known.clear()
            self._known[place] = (self._loop.time() + NAMES_S, lookup.result())

    async def _ask_system(self, name: str, port: int) -> list[str]:
        infos = await self._loop.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        addresses = (str(info[4][0]) for info in infos)
        return list(dict.fromkeys(addresses))

    def close(self) -> None:
        for asking in list(self._asking.values()):
            asking.cancel()


def _address_info(address: str, port: int) -> tuple[int, int, int, str, tuple[str, int]]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))
