"""Send plain GETs, nearly all requests of a crawl, on pooled connections.

For each answer, aiohttp creates a request, a response, two timers and several copies of the
headers: more work than reading the page's links, and its import takes a fifth of a worker's start
(ADR 0004). A thousand requests to a host differ only in the path, so here a request is one line and
a cached block of headers, on a pooled connection.

Used by `engine`. Other requests (a body, a proxy, an archive) are sent by aiohttp.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from zcrawl.fetch.body import ACCEPT_ENCODING
from zcrawl.fetch.policy import fetch_error
from zcrawl.fetch.ports import HopLimits, TlsFiles
from zcrawl.fetch.wire.connection import HttpConnection, StaleConnection, WireResponse
from zcrawl.fetch.wire.connector import ConnectionTarget, Dialer, LookUp
from zcrawl.model.reasons.failure import RESET
from zcrawl.text.patterns import lazy_pattern

KEEPALIVE_S: Final = 15.0
SWEEP_S: Final = 5.0  # between two checks for unused connections

# Without characters that end the request line or are cut off, and without a user name.
_PLAIN: Final = lazy_pattern(r"(https?)://([^/?#@\\\s]+)(/[!\"$-~]*)?", re.ASCII)
_NETLOC: Final = lazy_pattern(r"(\[[0-9A-Fa-f:.]+\]|[!-9;-~]+)(?::([0-9]{1,5}))?")
_BREAKS_A_HEADER: Final = lazy_pattern(r"[\r\n\0]")

# Requests with the same key share connections.
_Key = tuple[str, str, tuple[bool, frozenset[str]], TlsFiles, bool, str | None]


class _Destination(msgspec.Struct):
    place: ConnectionTarget
    host_line: str
    idle: list[HttpConnection] = msgspec.field(default_factory=list)  # the last used one at the end
    busy: int = 0  # requests under way


class PlainWire:
    """The connections of one event loop. `look_up` returns the addresses of a name; default: the
    system's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, look_up: LookUp | None = None) -> None:
        self._loop = loop
        self._dialer = Dialer(loop, look_up)
        self._destinations: dict[_Key, _Destination] = {}
        # The last headers, as a block.
        self._block: tuple[Mapping[str, str], str, bool] | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def get(
        self, plain: tuple[str, str, str], headers: Mapping[str, str], limits: HopLimits
    ) -> WireResponse:
        """Return the whole answer to one GET of (scheme, netloc, path).

        FetchError for failures of the network or the server; ValueError if it cannot be sent."""
        scheme, netloc, path = plain
        deadline = self._loop.time() + limits.total_s
        destination = self._destination(scheme, netloc, limits)
        block, names_host = self._headers(headers)
        host = "" if names_host else destination.host_line
        head = f"GET {path} HTTP/1.1\r\n{host}{block}".encode()
        destination.busy += 1
        try:
            connection = self._take(destination)
            if connection is not None:
                try:
                    return await self._send(connection, destination, head, limits, deadline)
                except StaleConnection:
                    pass  # closed before our request arrived: it is sent again, once
            connection = await self._dialer.dial(destination.place, limits)
            return await self._send(connection, destination, head, limits, deadline)
        except StaleConnection as error:
            raise fetch_error(RESET, f"{netloc}: {error}") from error
        finally:
            destination.busy -= 1

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._dialer.close()
        for destination in self._destinations.values():
            for connection in destination.idle:
                connection.close()
        self._destinations.clear()

    async def _send(
        self,
        connection: HttpConnection,
        destination: _Destination,
        head: bytes,
        limits: HopLimits,
        deadline: float,
    ) -> WireResponse:
        try:
            answer = await connection.send(head, limits, deadline)
        except BaseException:
            connection.close()
            raise
        if connection.usable:
            connection.idle_since = self._loop.time()
            destination.idle.append(connection)
        return answer

    # ------------------------------------------------------------ connections

    def _take(self, destination: _Destination) -> HttpConnection | None:
        idle = destination.idle
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
        return None

    def _sweep(self) -> None:
        """Close idle connections, and remove destinations without connections."""
        self._sweeper = None
        oldest = self._loop.time() - KEEPALIVE_S
        for key, destination in list(self._destinations.items()):
            kept = [
                connection
                for connection in destination.idle
                if connection.usable and connection.idle_since > oldest
            ]
            for connection in destination.idle:
                if connection not in kept:
                    connection.close()
            destination.idle = kept
            if not kept and not destination.busy:
                del self._destinations[key]
        if self._destinations:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def _destination(self, scheme: str, netloc: str, limits: HopLimits) -> _Destination:
        key = (scheme, netloc, limits.guard.policy, limits.tls, limits.verify_tls, limits.address)
        destination = self._destinations.get(key)
        if destination is None:
            destination = self._destinations[key] = _new_destination(scheme, netloc)
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        return destination

    def _headers(self, headers: Mapping[str, str]) -> tuple[str, bool]:
        """Return the headers as lines, with the final empty line, and whether Host is among
        them."""
        if self._block is not None and self._block[0] == headers:
            return self._block[1:]
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if any(_BREAKS_A_HEADER.search(connection) for connection in lines):
            raise ValueError("a header has a line break in it")
        names = {name.lower() for name in headers}
        if "accept-encoding" not in names:
            lines.append(f"Accept-Encoding: {ACCEPT_ENCODING}")
        block = "\r\n".join(lines) + "\r\n\r\n"
        # A copy, because a middleware may change one mapping for all its requests.
        self._block = (dict(headers), block, "host" in names)
        return self._block[1:]


def split_plain(url: str) -> tuple[str, str, str] | None:
    """Return scheme, host with port, and path of a URL; None if it is not a plain URL."""
    match = _PLAIN.fullmatch(url)
    return None if match is None else (match[1], match[2], match[3] or "/")


def _new_destination(scheme: str, netloc: str) -> _Destination:
    parts = _NETLOC.fullmatch(netloc)
    if parts is None:
        raise ValueError(f"no host and port: {netloc[:100]}")
    secure = scheme == "https"
    usual = 443 if secure else 80
    port = int(parts[2]) if parts[2] else usual
    if not 0 < port < 65_536:
        raise ValueError(f"no port: {netloc[:100]}")
    name = parts[1].rstrip(".")
    shown = name if port == usual else f"{name}:{port}"
    return _Destination(ConnectionTarget(parts[1].strip("[]"), port, secure), f"Host: {shown}\r\n")
