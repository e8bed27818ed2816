"""A server for HTTP tasks: it answers as its script says, and remembers what it was sent."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec


class TaskAnswer(msgspec.Struct, frozen=True):
    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b'{"status": "ok"}'
    wait_s: float = 0.0
    echoes: bool = False  # the headers and the body of the request are in the answer


class TaskRequest(msgspec.Struct, frozen=True):
    method: str
    path: str
    headers: dict[str, str]
    body: str
    at: float


class TaskSite:
    def __init__(self) -> None:
        self.origin = ""
        self.answers: dict[str, list[TaskAnswer]] = {}  # the last one is repeated
        self.requests: list[TaskRequest] = []

    def answer(self, path: str, *answers: TaskAnswer) -> str:
        """Set the answers of a path, one after the other; return its URL."""
        self.answers[path] = [*answers]
        return self.origin + path

    def redirect(self, path: str, status: int, target: str) -> str:
        return self.answer(path, TaskAnswer(status, {"Location": target}, b""))

    def at(self, path: str) -> list[TaskRequest]:
        return [request for request in self.requests if request.path == path]


@contextlib.contextmanager
def task_site() -> Iterator[TaskSite]:
    site = TaskSite()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = TaskRequest(self.command, self.path, headers, body, time.monotonic())
            site.requests.append(request)
            answers = site.answers.get(self.path, [TaskAnswer(404)])
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            time.sleep(answer.wait_s)
            data = answer.body
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.echoes:
                data = msgspec.json.encode(request)
                self.send_header("X-Echo", headers.get("authorization", ""))
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, format: str, *args: object) -> None:
            """A test's output is not the place for access logs."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site.origin = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
