"""Serve the demo catalogue on loopback: a small HTTP/1.1 server with keep-alive.

Used by `zcrawl demo` and by tests. It answers GET and HEAD for the pages of one catalogue and
for robots.txt, and nothing else. `DemoServer` runs in the caller's event loop; `demo_site` runs a
server in a separate thread, for callers without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType
from urllib.parse import unquote

from zcrawl.demo.catalogue import ROBOTS_TXT, DemoCatalogue

LOOPBACK = "127.0.0.1"
HEAD_LIMIT_BYTES = 16_384
IDLE_TIMEOUT_S = 30.0

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
}


class DemoServer:
    """A server; use `async with DemoServer(DemoCatalogue(seed=1)) as server`, then `server.url`."""

    def __init__(self, catalogue: DemoCatalogue | None = None, port: int = 0) -> None:
        self._catalogue = catalogue if catalogue is not None else DemoCatalogue()
        self._port = port  # 0: a free one
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.requests = 0  # answered so far, whatever the status

    @property
    def url(self) -> str:
        """The URL of the home page; valid after the server has started."""
        return f"http://{LOOPBACK}:{self._port}/"

    async def __aenter__(self) -> DemoServer:
        self._server = await asyncio.start_server(
            self._connection, LOOPBACK, self._port, limit=HEAD_LIMIT_BYTES
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        # Kept-alive connections would hold wait_closed() until their clients go away.
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            while await self._one_request(reader, writer):
                pass
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client went away, or the server is closing: nobody waits for an answer
        finally:
            del self._connections[task]
            writer.close()

    async def _one_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; return whether the connection may be used for another."""
        try:
            async with asyncio.timeout(IDLE_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, TimeoutError):
            return False  # closed or idle between requests, the normal end of a connection
        except asyncio.LimitOverrunError:
            answer = _answer(431, "", keep=False, with_body=True)
            keep = False
        else:
            answer, keep = respond(self._catalogue, head)
        self.requests += 1
        writer.write(answer)
        await writer.drain()
        return keep


def respond(catalogue: DemoCatalogue, head: bytes) -> tuple[bytes, bool]:
    """Return the answer to a request, and whether the connection stays open."""
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = {
        name.strip().lower(): value.strip().lower()
        for name, _, value in (line.partition(":") for line in lines)
    }
    match first.split(" "):
        case [method, target, ("HTTP/1.1" | "HTTP/1.0") as version]:
            pass
        case _:
            return _answer(400, "", keep=False, with_body=True), False
    # A body would have to be read before the next request; no client of this site sends one.
    has_body = "transfer-encoding" in fields or fields.get("content-length", "0") != "0"
    wish = fields.get("connection", "keep-alive" if version == "HTTP/1.1" else "close")
    keep = wish == "keep-alive" and not has_body
    if method not in ("GET", "HEAD"):
        return _answer(405, "", keep=keep, with_body=True), keep
    path = unquote(target.partition("?")[0])
    text = ROBOTS_TXT if path == "/robots.txt" else catalogue.page(path)
    status = 404 if text is None else 200
    kind = "text/plain" if path == "/robots.txt" else "text/html"
    return _answer(status, text or "", kind, keep=keep, with_body=method == "GET"), keep


def _answer(
    status: int, text: str, kind: str = "text/html", *, keep: bool, with_body: bool
) -> bytes:
    if status != 200:
        text = f"<!DOCTYPE html><title>{status}</title><h1>{status} {REASONS[status]}</h1>\n"
        kind = "text/html"
    body = text.encode()
    allow = "Allow: GET, HEAD\r\n" if status == 405 else ""
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\n{allow}"
        f"Content-Type: {kind}; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


@contextlib.contextmanager
def demo_site(catalogue: DemoCatalogue | None = None) -> Iterator[DemoServer]:
    """Run a DemoServer in a thread with its own event loop, for callers without one."""
    server = DemoServer(catalogue)
    started = threading.Event()
    failure: list[OSError] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        try:
            async with server:
                started.set()
                await stop.wait()
        except OSError as error:  # no free port, no loopback: the caller gets it
            failure.append(error)
            started.set()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="demo-site", daemon=True)
    thread.start()
    started.wait()
    if failure:
        thread.join()
        raise failure[0]
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
