"""A web server on raw sockets that does to a crawler what the real web does.

`MisbehavingWeb` runs on the test's own event loop; `WebThread` runs one on a thread of its own,
for tests that start the crawler as other processes and wait for them. What each path does is in
`behaviours`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.web import (  # noqa: F401 - they register their own
    behaviours,
    encodings,
    first_lines,
    floods,
    manners,
    shelf,
    transfers,
)
from tests.web.tls import self_signed_context


@dataclasses.dataclass(frozen=True, slots=True)
class Hit:
    """One request as it arrived."""

    at: float  # time.monotonic()
    path: str  # with its query, as sent
    headers: dict[str, str]  # names in lower case
    connection: int  # counts from 1, so that tests can see which requests shared one
    body: bytes = b""
    port: int = 0  # that it arrived at


class MisbehavingWeb:
    """One server on a free loopback port, and with `tls=True` a second one that speaks TLS.
    With `hosts` it listens on so many ports: a port more is a host more, at the same address.
    In an `internet` of its own it may have another `address`, `fixed` ports instead of free ones,
    and `secure` is what it speaks TLS with on port 443.

    `robots` is what /robots.txt answers with (None: 404), `robots_status` its status; both may
    be changed while the server runs. `log` has every request in order of arrival. `catch_all` is
    the behaviour that answers what no other one does.
    """

    def __init__(
        self,
        *,
        robots: bytes | None = None,
        robots_status: int = 200,
        tls: bool = False,
        catch_all: str = "",
        hosts: int = 1,
        address: str = "127.0.0.1",
        fixed: tuple[int, ...] = (),
        secure: ssl.SSLContext | None = None,
    ) -> None:
        self.robots = robots
        self.robots_status = robots_status
        self.robots_headers: tuple[str, ...] = ()
        self.catch_all = catch_all
        self.log: list[Hit] = []
        self.shelf: dict[str, shelf.Document] = {}  # what /shelf/NAME answers with
        self.port = 0
        self.ports: list[int] = []
        self.tls_port = 0
        self.most_at_once = 0  # requests that were being answered at the same time
        self.answered: list[tuple[Hit, float]] = []  # each request, and when it was done with
        self.connections = 0  # that were made, whether anything was asked on them or not
        self._address = address
        self._wanted = fixed or (0,) * hosts
        self._at_once = 0
        self._secure = (secure, 443) if secure is not None else None
        if tls:
            self._secure = (self_signed_context(), 0)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrival = asyncio.Event()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return self.origin + path

    def tls_url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.tls_port}{path}"

    def hits(self, path: str) -> int:
        """How often `path` was asked for."""
        return sum(hit.path == path for hit in self.log)

    async def arrived(self, requests: int) -> None:
        """Returns once that many requests have come in, answered or not."""
        while len(self.log) < requests:
            self._arrival.clear()
            await self._arrival.wait()

    async def __aenter__(self) -> Self:
        for port in self._wanted:
            server = await asyncio.start_server(self._serve, self._address, port)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])
        self.port = self.ports[0]
        if self._secure is not None:
            context, port = self._secure
            server = await asyncio.start_server(self._serve, self._address, port, ssl=context)
            self._servers.append(server)
            self.tls_port = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close one tick later

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        port = writer.get_extra_info("sockname")[1]
        try:
            while (hit := await self._request(reader, number, port)) is not None:
                self.log.append(hit)
                self._arrival.set()
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
                try:
                    if not await behaviours.answer(self, hit, reader, writer):
                        break
                finally:
                    self._at_once -= 1
                    self.answered.append((hit, time.monotonic()))
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the client left, which is what many of these paths are for, or the web ends
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asyncio.wait_for(writer.wait_closed(), 0.2)

    async def _request(self, reader: asyncio.StreamReader, number: int, port: int) -> Hit | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, colon, value in (line.partition(":") for line in lines)
            if colon
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Hit(time.monotonic(), first.split(" ")[1], headers, number, body, port)


class WebThread:
    """A `MisbehavingWeb` on its own thread and loop: `with WebThread() as web`. `enter` is called
    on that thread before anything is opened."""

    def __init__(
        self, web: MisbehavingWeb | None = None, enter: Callable[[], None] = lambda: None
    ) -> None:
        self._web = web or MisbehavingWeb()
        self._enter = enter
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="misbehaving-web", daemon=True)

    def __enter__(self) -> MisbehavingWeb:
        self._thread.start()
        assert self._ready.wait(30), "the web did not come up"
        return self._web

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._enter()
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()

    async def _main(self) -> None:
        async with self._web:
            self._ready.set()
            await self._stop.wait()
