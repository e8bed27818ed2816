"""The browser's only way to the network: a SOCKS5 server on loopback that checks addresses.

Each browser context has its own gate (`engine`), and Chromium makes all its connections through
it: documents, scripts, frames, workers, WebSockets. The gate gets a name and a port, looks the name
up, checks the addresses with the guard and connects to exactly the checked address. No second
look-up can give another address, whatever page or redirect the request came from.

Two alternatives were rejected. Interception of requests sees URLs, not addresses, and neither
WebSockets nor shared workers. Rules for Chromium's own resolver do not know the addresses that DNS
returns later. SOCKS5 was chosen over an HTTP proxy because plain HTTP is a tunnel there too, so the
gate does not have to parse requests of pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import struct
from typing import Final
from urllib.parse import urlsplit

from zcrawl.errors import BlockedAddress, FetchError
from zcrawl.fetch.general.socks import connect_through
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.http2.backend import Resolve, resolve
from zcrawl.fetch.policy import fetch_error
from zcrawl.model.reasons.failure import CONNECT, CONNECT_TIMEOUT, DNS, PROXY

HANDSHAKE_S: Final = 5.0
MOST_FAILURES: Final = 1_000  # that are remembered
_PIECE: Final = 65_536
# RFC 1928
_OK, _FORBIDDEN, _UNREACHABLE, _NO_SUCH_COMMAND = 0, 2, 4, 7
_IPV4 = 1

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class BrowserGate:
    """A SOCKS5 server for one browser context, at the URL `server`. `failures` has the last failure
    of each name and port, because Chromium reports only that the proxy failed."""

    def __init__(
        self,
        guard: Guard,
        connect_s: float,
        gates: set[int],
        *,
        upstream: str | None = None,
        look_up: Resolve = resolve,
    ) -> None:
        self._guard = guard
        self._connect_s = connect_s
        self._gates = gates  # ports of all gates of this process: pages may not connect to them
        self._upstream = None if upstream is None else urlsplit(upstream)
        self._look_up = look_up
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._port = 0
        self.failures: dict[tuple[str, int], FetchError] = {}

    @property
    def server(self) -> str:
        return f"socks5://127.0.0.1:{self._port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        self._gates.add(self._port)

    async def aclose(self) -> None:
        if self._server is None:
            return
        self._gates.discard(self._port)
        self._server.close()
        waiting = list(self._connections)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    # ------------------------------------------------------------ one connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                target = await _handshake(reader, writer)
            if target is not None:
                await self._pass_on(*target, reader, writer)
        except (OSError, EOFError, TimeoutError):
            pass  # the browser or the server closed the connection: the other side is closed too
        except asyncio.CancelledError:
            pass  # the gate closes; asyncio's own server would log it as an error
        finally:
            self._connections.discard(task)
            writer.close()

    async def _pass_on(
        self, name: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            far_reader, far_writer = await self._connect(name, port)
        except FetchError as error:
            if len(self.failures) >= MOST_FAILURES:
                self.failures.clear()
            self.failures[name, port] = error
            blocked = isinstance(error, BlockedAddress)
            writer.write(_reply(_FORBIDDEN if blocked else _UNREACHABLE))
            await writer.drain()
            return
        self.failures.pop((name, port), None)
        try:
            writer.write(_reply(_OK))
            async with asyncio.TaskGroup() as group:
                copies = [
                    group.create_task(_copy(reader, far_writer)),
                    group.create_task(_copy(far_reader, writer)),
                ]
                # Browsers and servers close whole connections, not one direction of them.
                await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
                for copy in copies:
                    copy.cancel()
        finally:
            far_writer.close()

    async def _connect(self, name: str, port: int) -> Streams:
        """Connect to an address that the guard allows; FetchError if there is none."""
        shown = f"[{name}]" if ":" in name else name
        self._guard.check(f"http://{shown}:{port}/")
        try:
            async with asyncio.timeout(self._connect_s):
                try:
                    addresses = await self._look_up(name, port)
                except (OSError, UnicodeError) as error:
                    raise fetch_error(DNS, f"{name}: {error}") from error
                good = self._guard.pick(name, port, addresses)
                return await self._reach(name, port, good)
        except TimeoutError as error:
            message = f"{name}:{port}: no connection in {self._connect_s} s"
            raise fetch_error(CONNECT_TIMEOUT, message) from error

    async def _reach(self, name: str, port: int, addresses: list[str]) -> Streams:
        failure: FetchError = fetch_error(DNS, f"{name} has no address")
        for address in addresses:
            if port in self._gates and ipaddress.ip_address(address).is_loopback:
                raise BlockedAddress(f"{name}:{port}", "the crawler's own proxy")
            try:
                if self._upstream is None:
                    return await asyncio.open_connection(address, port)
                return await self._through(address, port)
            except FetchError as error:
                failure = error
            except OSError as error:
                failure = fetch_error(CONNECT, f"{name}:{port}: {error}")
        raise failure

    async def _through(self, address: str, port: int) -> Streams:
        proxy = self._upstream
        assert proxy is not None
        assert proxy.hostname is not None
        assert proxy.port is not None
        try:
            addresses = await self._look_up(proxy.hostname, proxy.port)
        except (OSError, ValueError) as error:
            raise fetch_error(PROXY, f"proxy {proxy.hostname}: {error}") from error
        good = self._guard.pick(proxy.hostname, proxy.port, addresses)
        if not good:
            raise fetch_error(PROXY, f"proxy {proxy.hostname} has no address")
        sock = await connect_through(proxy, good[0], address, port)
        return await asyncio.open_connection(sock=sock)


async def _handshake(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[str, int] | None:
    """Return the requested name and port; None if the request is not valid."""
    version, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    if version != 5:
        return None
    writer.write(b"\x05\x00")
    version, command, _, kind = await reader.readexactly(4)
    match kind:
        case 1:  # IPv4
            name = str(ipaddress.IPv4Address(await reader.readexactly(4)))
        case 4:  # IPv6
            name = str(ipaddress.IPv6Address(await reader.readexactly(16)))
        case _:
            (length,) = await reader.readexactly(1)
            raw = await reader.readexactly(length)
            name = raw.decode("ascii", "replace").strip("[]").lower()
    (port,) = struct.unpack(">H", await reader.readexactly(2))
    if version != 5 or command != 1 or not name:
        writer.write(_reply(_NO_SUCH_COMMAND))
        await writer.drain()
        return None
    return name, port


def _reply(code: int) -> bytes:
    return bytes((5, code, 0, _IPV4)) + bytes(6)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # the other side is gone; its reader ends the connection
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
