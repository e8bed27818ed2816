"""A hostile site on a real terminal: nothing that it writes drives the terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.hostile_text import EVERYTHING, driving
from tests.integration.crawling import ZCRAWL, command, items, wait_until
from zcrawl.roles.client import is_live

PATIENCE_S = 60.0
# What may stand in a header: bytes above 0x80 are C1 controls to whoever reads them as Latin-1.
HEADER = "a\x9b6n\x9d0;owned\x9cb"
PAGE = f"<title>{EVERYTHING}</title><a href='/x?{EVERYTHING}'>{EVERYTHING}</a>".replace("\0", "")
SPIDER = """
from zcrawl.spider import Request, Spider

class Test(Spider):
    def __init__(self, origin):
        self.origin = origin
    def start(self):
        yield Request(self.origin + "/")
    def parse(self, page):
        print(page.text)
        raise ValueError(page.text)
"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = PAGE.encode()
        self.send_response(200 if self.path != "/robots.txt" else 404, HEADER)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("X-Said", HEADER)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test reads its own output."""


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def on_terminal(*args: object, cwd: Path, keys: bytes = b"", seconds: float = 0.0) -> str:
    """What a command writes to its terminal. With `seconds` it is watched so long, then ended."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "LINES": "50"}
    process = subprocess.Popen(
        [*ZCRAWL, *map(str, args)], cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, env=environ
    )
    os.close(theirs)
    heard = b""
    began = time.monotonic()
    try:
        while time.monotonic() - began < PATIENCE_S:
            if keys and time.monotonic() - began > seconds / 2:
                os.write(ours, keys[:1])
                keys = keys[1:]
            if seconds and time.monotonic() - began > seconds:
                break
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    piece = os.read(ours, 65_536)
                except OSError:  # the other end is closed: it has ended
                    break
                heard += piece
                if not piece:
                    break
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        os.close(ours)
    return heard.decode("utf-8", "replace")


def test_no_command_lets_a_hostile_site_drive_the_terminal(tmp_path: Path, site: str) -> None:
    """The live display, the views of the job, its items, the report of one page, the doctor."""
    data = ["--data", "d"]
    screens = {
        "crawl": on_terminal("crawl", site, "--allow-private", *data, cwd=tmp_path),
        "crawl to stdout": on_terminal(
            *("crawl", site, "--allow-private", "--out", "-", "--data", "e"), cwd=tmp_path
        ),
    }
    for name, args in {
        "jobs": ["jobs"],
        "jobs --json": ["jobs", "--json"],
        "job": ["job", "1"],
        "job --json": ["job", "1", "--json"],
        "export": ["export", "1"],
        "export csv": ["export", "1", "--format", "csv"],
        "export failed": ["export", "1", "--failed"],
        "test": ["test", site, "--allow-private"],
        "test --json": ["test", site, "--allow-private", "--json"],
        "doctor": ["doctor"],
        "unknown job": ["job", EVERYTHING.replace("\0", "")],
    }.items():
        screens[name] = on_terminal(*args, *data, cwd=tmp_path)
    assert "owned" in screens["export"]
    assert "owned" in screens["test"]
    assert {name: driving(text) for name, text in screens.items() if driving(text)} == {}
    (item,) = [row for row in items(next(tmp_path.glob("d/*-1.jsonl"))) if row["depth"] == 0]
    exported = command("export", "1", *data, cwd=tmp_path).stdout.splitlines()
    assert item in [json.loads(line) for line in exported]


def test_what_a_spider_prints_of_a_page_is_shown_by_the_rule(tmp_path: Path, site: str) -> None:
    """`zcrawl test` has the spider's prints and errors on its own terminal."""
    (tmp_path / "s.py").write_text(SPIDER)
    (tmp_path / "s.toml").write_text(
        f'name = "s"\nspider = "s.py:Test"\nspider_args = {{ origin = "{site}" }}\n'
        "[fetch]\nallow_private = true\n"
    )
    screen = on_terminal("test", "s.toml", site, cwd=tmp_path)
    assert screen.count("owned") >= 4
    assert "spider_error" in screen
    assert driving(screen) == []
    data = ["--data", "d"]
    screens = [
        on_terminal("crawl", "--job", "s.toml", *data, cwd=tmp_path),
        on_terminal("export", "1", "--failed", *data, cwd=tmp_path),
    ]
    assert "spider_error" in screens[1]
    assert [driving(screen) for screen in screens] == [[], []]


def test_a_running_cluster_shows_nothing_that_drives_the_terminal(
    tmp_path: Path, site: str
) -> None:
    """`nodes`, `submit`, and the console: its pages as text, and itself on the terminal."""
    data = ["--data", "d"]
    up = subprocess.Popen(
        [*ZCRAWL, "up", "--workers", "1", *data],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: is_live(tmp_path / "d"))
        name = "h\x9b6n\u202egnp\x9d0;owned\x9c\u2066\ufeffh"
        submit = ["submit", site, "--allow-private", "--name", name, "--wait"]
        screens = [
            on_terminal(*submit, *data, cwd=tmp_path),
            on_terminal("jobs", *data, cwd=tmp_path),
            on_terminal("nodes", *data, cwd=tmp_path),
            on_terminal("console", *data, cwd=tmp_path, keys=b"123456789", seconds=6.0),
        ]
        for page in ("overview", "jobs", "job 1", "hosts", "items 1"):
            shot = f"--snapshot={page}"
            screens.append(on_terminal("console", shot, *data, cwd=tmp_path))
        assert [driving(screen) for screen in screens] == [[] for _ in screens]
        assert any("owned" in screen for screen in screens)
    finally:
        with contextlib.suppress(ProcessLookupError):
            up.terminate()
        up.wait(30)
