"""Small real proxies: http (absolute form and CONNECT) and SOCKS5, with passwords and faults.

`fault` may be changed while a proxy runs: `hang_up` closes every connection at once, `refuse`
answers that it does not want to, `unreached` that the server cannot be reached, `hang` says
nothing; `half` breaks off within its answer, `garbage` speaks no HTTP (both: http only). `served`
counts the requests or tunnels that went through.
"""

from __future__ import annotations

import abc
import asyncio
import base64
import contextlib
import socket
import struct
from urllib.parse import urlsplit

from tests.web.listening import Listening


class _Proxy(Listening):
    scheme = ""

    def __init__(
        self,
        *,
        user: str = "",
        password: str = "",
        fault: str = "",
        names: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.user, self.password = user, password
        self.fault = fault
        self.names = names or {}  # the proxy's own idea of DNS
        self.served = 0
        self.met = 0  # connections
        self.running = 0
        self.most_running = 0
        self.targets: list[str] = []  # targets

    @property
    def url(self) -> str:
        auth = f"{self.user}:{self.password}@" if self.user else ""
        return f"{self.scheme}://{auth}127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.met += 1
        try:
            if self.fault == "hang":
                await asyncio.Event().wait()
            if self.fault != "hang_up":
                await self._work(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # one of the two sides left, or the proxy ends: the other one sees it
        finally:
            await _close(writer)

    @abc.abstractmethod
    async def _work(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """All that comes over one connection, until its end."""

    async def _dial(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.targets.append(f"{host}:{port}")
        return await asyncio.open_connection(self.names.get(host, host), port)

    def _began(self) -> None:
        self.served += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, asyncio.CancelledError, TimeoutError):
        await asyncio.wait_for(writer.wait_closed(), 0.2)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    try:
        await asyncio.gather(_pump(reader, far[1]), _pump(far[0], writer))
    finally:
        await _close(far[1])


BROKEN = {
    "half": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5000\r\n\r\n<html>",
    "garbage": b"\x00\x01 no such thing\r\n\r\n",
}


class HttpProxy(_Proxy):
    scheme = "http"

    async def _work(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await self._head(reader):
            lines = head.decode("latin-1").split("\r\n")
            method, target, _ = lines[0].split(" ")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
            if self.fault == "hang":  # also on a connection that was good before
                await asyncio.Event().wait()
            if self.fault in BROKEN:
                writer.write(BROKEN[self.fault])
                await writer.drain()
                return
            status = self._refusal(lines)
            if status:
                writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
                continue
            self._began()
            try:
                if method == "CONNECT":
                    await self._tunnel(target, reader, writer)
                    return
                length = int(headers.get("content-length", "0"))
                await self._forward(method, target, lines, await reader.readexactly(length), writer)
            finally:
                self.running -= 1

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""

    def _refusal(self, lines: list[str]) -> int:
        if self.fault in ("refuse", "unreached"):
            return 403 if self.fault == "refuse" else 502
        if not self.user:
            return 0
        token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        expected = f"proxy-authorization: basic {token}"
        return 0 if any(line.lower() == expected.lower() for line in lines) else 407

    async def _tunnel(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, _, port = target.rpartition(":")
        try:
            far = await self._dial(host, int(port))
        except OSError:
            writer.write(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await _join(reader, writer, far)

    async def _forward(
        self, method: str, target: str, lines: list[str], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        parts = urlsplit(target)
        far_reader, far = await self._dial(parts.hostname or "", parts.port or 80)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        kept = [line for line in lines[1:] if line and not line.lower().startswith("proxy-")]
        kept = [line for line in kept if not line.lower().startswith("connection")]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close"])
        far.write(head.encode("latin-1") + b"\r\n\r\n" + body)
        await far.drain()
        try:
            answer = await far_reader.readuntil(b"\r\n\r\n")
            for line in answer.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    answer += await far_reader.readexactly(int(line.partition(b":")[2]))
        finally:
            await _close(far)
        writer.write(answer)
        await writer.drain()


class SocksProxy(_Proxy):
    scheme = "socks5"

    async def _work(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        method = 2 if self.user else 0
        if method not in methods:
            writer.write(b"\x05\xff")
            await writer.drain()
            return
        writer.write(bytes([5, method]))
        if method and not await self._authenticate(reader, writer):
            return
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            (length,) = await reader.readexactly(1)
            host = (await reader.readexactly(length)).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, await reader.readexactly(size))
        (port,) = struct.unpack("!H", await reader.readexactly(2))
        code = {"refuse": 2, "unreached": 5}.get(self.fault, 0)
        far = None
        if not code:
            try:
                far = await self._dial(host, port)
            except OSError:
                code = 5
        writer.write(bytes([5, code, 0, 1, 0, 0, 0, 0, 0, 0]))
        await writer.drain()
        if far is None:
            return
        self._began()
        try:
            await _join(reader, writer, far)
        finally:
            self.running -= 1

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        _, length = await reader.readexactly(2)
        user = (await reader.readexactly(length)).decode()
        (length,) = await reader.readexactly(1)
        password = (await reader.readexactly(length)).decode()
        good = (user, password) == (self.user, self.password)
        writer.write(b"\x01\x00" if good else b"\x01\x01")
        await writer.drain()
        return good
