"""The wire of plain GETs, which is what nearly all requests of a crawl are.

aiohttp's session makes a request, a response, two timers and several copies of the headers for each
answer: more work than reading the page's links, and its import is a fifth of a worker's start (ADR
0004). Among the thousand requests that a crawler has for a host only the path differs, so here a
request is one line before a block of headers that is kept, on a pooled connection.

Used by `engine`. What is no plain GET (a body, a proxy, an archive) is aiohttp's.
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
from zcrawl.fetch.wire.connection import HttpConnection, Unanswered, WireResponse
from zcrawl.fetch.wire.connector import ConnectionTarget, Dialer, LookUp
from zcrawl.model.reasons.failure import RESET
from zcrawl.text.patterns import lazy_pattern

KEEPALIVE_S: Final = 15.0
SWEEP_S: Final = 5.0  # between two looks at what nobody uses

# Nothing in it that could end the request line, be cut off it, or mean somebody's password.
_PLAIN: Final = lazy_pattern(r"(https?)://([^/?#@\\\s]+)(/[!\"$-~]*)?", re.ASCII)
_NETLOC: Final = lazy_pattern(r"(\[[0-9A-Fa-f:.]+\]|[!-9;-~]+)(?::([0-9]{1,5}))?")
_BREAKS_A_HEADER: Final = lazy_pattern(r"[\r\n\0]")

# Connections are shared by those who may reach the same places, in the same way.
_Key = tuple[str, str, tuple[bool, frozenset[str]], TlsFiles, bool, str | None]


class _Destination(msgspec.Struct):
    place: ConnectionTarget
    host_line: str
    idle: list[HttpConnection] = msgspec.field(default_factory=list)  # the one used last at the end
    busy: int = 0  # requests under way


class PlainWire:
    """Belongs to one event loop. `look_up` gives the addresses of a name; default: the system."""

    def __init__(self, loop: asyncio.AbstractEventLoop, look_up: LookUp | None = None) -> None:
        self._loop = loop
        self._dialer = Dialer(loop, look_up)
        self._destinations: dict[_Key, _Destination] = {}
        self._block: tuple[Mapping[str, str], str, bool] | None = None  # the headers seen last
        self._sweeper: asyncio.TimerHandle | None = None

    async def get(
        self, plain: tuple[str, str, str], headers: Mapping[str, str], limits: HopLimits
    ) -> WireResponse:
        """The whole answer to one GET of (scheme, netloc, path). FetchError for whatever the
        network or the server does; ValueError for what cannot be sent."""
        scheme, netloc, path = plain
        deadline = self._loop.time() + limits.total_s
        destination = self._destination(scheme, netloc, limits)
        block, names_host = self._headers(headers)
        host = "" if names_host else destination.host_line
        head = f"GET {path} HTTP/1.1\r\n{host}{block}".encode()
        destination.busy += 1
        try:
            line = self._take(destination)
            if line is not None:
                try:
                    return await self._ask(line, destination, head, limits, deadline)
                except Unanswered:
                    pass  # closed while our request was on its way: it is sent again, once
            line = await self._dialer.dial(destination.place, limits)
            return await self._ask(line, destination, head, limits, deadline)
        except Unanswered as error:
            raise fetch_error(RESET, f"{netloc}: {error}") from error
        finally:
            destination.busy -= 1

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._dialer.close()
        for destination in self._destinations.values():
            for line in destination.idle:
                line.close()
        self._destinations.clear()

    async def _ask(
        self,
        line: HttpConnection,
        to: _Destination,
        head: bytes,
        limits: HopLimits,
        deadline: float,
    ) -> WireResponse:
        try:
            answer = await line.ask(head, limits, deadline)
        except BaseException:
            line.close()
            raise
        if line.usable:
            line.idle_since = self._loop.time()
            to.idle.append(line)
        return answer

    # ------------------------------------------------------------ connections

    def _take(self, destination: _Destination) -> HttpConnection | None:
        idle = destination.idle
        while idle:
            line = idle.pop()
            if line.usable:
                return line
        return None

    def _sweep(self) -> None:
        """Close what nobody has used for a while, and forget where nobody goes any more."""
        self._sweeper = None
        oldest = self._loop.time() - KEEPALIVE_S
        for key, destination in list(self._destinations.items()):
            kept = [line for line in destination.idle if line.usable and line.idle_since > oldest]
            for line in destination.idle:
                if line not in kept:
                    line.close()
            destination.idle = kept
            if not kept and not destination.busy:
                del self._destinations[key]
        if self._destinations:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def _destination(self, scheme: str, netloc: str, limits: HopLimits) -> _Destination:
        key = (scheme, netloc, limits.guard.policy, limits.tls, limits.verify_tls, limits.address)
        destination = self._destinations.get(key)
        if destination is None:
            destination = self._destinations[key] = _made(scheme, netloc)
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        return destination

    def _headers(self, headers: Mapping[str, str]) -> tuple[str, bool]:
        """The caller's headers as lines, with the empty one; whether Host is among them."""
        if self._block is not None and self._block[0] == headers:
            return self._block[1:]
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if any(_BREAKS_A_HEADER.search(line) for line in lines):
            raise ValueError("a header has a line break in it")
        names = {name.lower() for name in headers}
        if "accept-encoding" not in names:
            lines.append(f"Accept-Encoding: {ACCEPT_ENCODING}")
        block = "\r\n".join(lines) + "\r\n\r\n"
        # A copy: a middleware may use one mapping for all its requests, and change it.
        self._block = (dict(headers), block, "host" in names)
        return self._block[1:]


def split_plain(url: str) -> tuple[str, str, str] | None:
    """Scheme, host with port, and path of a URL that can be asked for here; None if it needs more
    than that."""
    match = _PLAIN.fullmatch(url)
    return None if match is None else (match[1], match[2], match[3] or "/")


def _made(scheme: str, netloc: str) -> _Destination:
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
