"""A site that answers with what it was asked, and remembers it: for requests of spiders."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class EchoSite:
    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.origin = ""
        self.pages: dict[str, bytes] = {}
        self.redirects: dict[str, tuple[int, str]] = {}

    def of(self, path: str) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["path"] == path]


@contextlib.contextmanager
def echo_site(robots: str = "") -> Iterator[EchoSite]:
    """`/robots.txt` says `robots`; `pages` are HTML; everything else echoes as JSON."""
    site = EchoSite()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length).decode()
            request = {
                "method": self.command,
                "path": self.path,
                "body": body,
                "headers": {name.lower(): value for name, value in self.headers.items()},
            }
            site.requests.append(request)
            status, kind, data = 200, "application/json", json.dumps(request).encode()
            if self.path == "/robots.txt":
                kind, data = "text/plain", robots.encode()
            elif self.path in site.pages:
                kind, data = "text/html", site.pages[self.path]
            elif self.path in site.redirects:
                status, data = site.redirects[self.path][0], b""
            self.send_response(status)
            if status >= 300:
                self.send_header("Location", site.redirects[self.path][1])
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, format: str, *args: object) -> None:
            """A test's output is not the place for access logs."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.origin = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
