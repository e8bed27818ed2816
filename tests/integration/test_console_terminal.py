"""The console in a real terminal and behind a real web server, on a live cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.integration.cluster import cluster
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.cli.specs import prepare
from zcrawl.demo.server import DemoServer
from zcrawl.model.spec import Politeness
from zcrawl.roles.client import MeshClient, controls_in, is_live

PATIENCE_S = 60.0
ZCRAWL = [sys.executable, "-m", "zcrawl"]


class Terminal:
    """A tmux of its own: keys in, screen out."""

    def __init__(self, name: str) -> None:
        self._tmux = ["tmux", "-L", name]

    def open(self, command: list[str], cells: int = 160, rows: int = 36) -> None:
        size = ["-x", str(cells), "-y", str(rows)]
        # COLUMNS and LINES of a test run are not those of this terminal.
        clean = ["env", "-u", "COLUMNS", "-u", "LINES"]
        self._run("new-session", "-d", "-s", "console", *size, *clean, *command)
        self._run("set-option", "-g", "remain-on-exit", "on")

    def keys(self, *keys: str) -> None:
        self._run("send-keys", "-t", "console", *keys)

    def burst(self, text: str) -> None:
        """All at once, as somebody types who does not look."""
        self._run("send-keys", "-t", "console", "-l", text)

    def paste(self, text: str) -> None:
        """A bracketed paste."""
        self._run("set-buffer", text)
        self._run("paste-buffer", "-p", "-t", "console")

    def resize(self, cells: int, rows: int) -> None:
        self._run("resize-window", "-t", "console", "-x", str(cells), "-y", str(rows))

    async def escape(self) -> None:
        """As a person types it: what follows at once would be a key with alt."""
        self.keys("Escape")
        await asyncio.sleep(0.3)

    async def answer(self, key: str) -> None:
        """As a person who reads the question: a yes has to stand alone."""
        await asyncio.sleep(0.5)
        self.keys(key)

    def screen(self) -> str:
        return self._run("capture-pane", "-t", "console", "-p")

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):  # it is gone already
            self._run("kill-server")

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], check=True, capture_output=True, text=True)
        return done.stdout

    async def shows(self, what: str | Callable[[str], bool]) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            text = self.screen()
            if what in text if isinstance(what, str) else what(text):
                return text
            await asyncio.sleep(0.1)
        raise AssertionError(f"the screen never showed {what!r}:\n{self.screen()}")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        assert os.environ.get("CI") != "true", "tmux is missing"
        pytest.skip("tmux is missing: apt-get install tmux")
    session = Terminal(f"zcrawl-{os.getpid()}-{tmp_path.name}"[:60])
    try:
        yield session
    finally:
        session.close()


def up(data: Path) -> subprocess.Popen[bytes]:
    command = [*ZCRAWL, "up", "--workers", "1", "--data", str(data)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


async def live(data: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_live(data):
        assert time.monotonic() < deadline, "no cluster came up"
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def crawling(data: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """`zcrawl up` with a slow crawl; what is handed over is its process."""
    async with DemoServer() as server:
        process = up(data)
        try:
            await live(data)
            spec = prepare([server.url], None, None, {"name": "shop", "politeness.rate": 3.0})
            async with MeshClient(controls_in(data)) as client:
                await client.ask("submit", spec.args("new", None))
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 30)


async def test_a_console_in_a_terminal_lives_through_the_kill_of_the_leader(
    tmp_path: Path, terminal: Terminal
) -> None:
    """It shows the crawl, acts on it, says that the leader is silent, and finds the next one."""
    data = tmp_path / "d"
    async with crawling(data) as leader:
        terminal.open([*ZCRAWL, "console", "--data", str(data)])
        await terminal.shows(
            lambda text: "● live" in text and "Why not faster" in text and "shop" in text
        )
        terminal.keys("3")
        await terminal.shows("Progress")
        terminal.keys("h")
        await terminal.shows("job shop (1), run 1, running")
        await terminal.answer("y")
        await terminal.shows(" paused ")
        terminal.keys("g")
        await terminal.shows("Continue a paused run.")
        await terminal.answer("Enter")
        await terminal.shows(" running ")

        terminal.burst(":hosts\r")  # it paused the job, once
        await terminal.shows("Robots")
        terminal.burst("3/rust\r")  # it ran a retry, once
        await terminal.shows("filter: rust")
        await terminal.escape()
        terminal.paste("xydyhy")
        await asyncio.sleep(1.0)
        assert "?" not in terminal.screen().partition("Progress")[2].partition("? help")[0]
        terminal.resize(80, 24)
        await terminal.shows(lambda text: "ETA" in text and len(text.splitlines()) <= 24)
        terminal.resize(160, 36)
        await terminal.shows("Progress")
        terminal.keys("/")
        await terminal.shows("filter (")
        terminal.paste("shop")
        terminal.keys("Enter")
        await terminal.shows("filter: shop")
        await terminal.escape()
        terminal.keys("1")

        leader.kill()
        await asyncio.to_thread(leader.wait, 30)
        await terminal.shows(lambda text: "○ lost" in text and "no cluster runs in" in text)
        again = up(data)
        try:
            await terminal.shows(lambda text: "● live" in text and "epoch 2" in text)
            terminal.keys("8")
            await terminal.shows("leads in epoch 2")
            terminal.keys("q")
            await terminal.shows(lambda text: "Pane is dead" in text or "● live" not in text)
        finally:
            again.send_signal(signal.SIGTERM)
            await asyncio.to_thread(again.wait, 30)


async def test_a_small_terminal_has_all_pages_and_survives_all_keys(
    tmp_path: Path, terminal: Terminal
) -> None:
    """80 × 24: each page by its key and back with escape; then whatever a cat may type."""
    data = tmp_path / "d"
    async with crawling(data):
        terminal.open([*ZCRAWL, "console", "--readonly", "--data", str(data)], 80, 24)
        await terminal.shows("● live")
        heads = ("Why not faster", "Uncommitted", "ETA", "Waiting", "Host", "Reason", "What")
        for key, head in zip("1234567", heads, strict=True):
            terminal.keys(key)
            await terminal.shows(head)
            terminal.keys("Enter")
            await terminal.shows("● live")
            await terminal.escape()
        terminal.keys("8", "/")
        terminal.keys(*"node:w1", "Enter")
        text = await terminal.shows(lambda text: " follows " in text and "filter: node:w1" in text)
        assert "worker_joined" not in text
        await terminal.escape()
        terminal.keys("9")
        await terminal.shows("Pages per second")
        terminal.keys("?")
        await terminal.shows("Focus Next")
        await terminal.escape()
        typed = "3 hgxrdtjkmay!§$%&/()=?{[]}pPJNSZ"
        for key in (*typed, "Escape", "Tab", "BSpace", "F5", "C-a", "End", "PageUp", "Left"):
            terminal.keys("Space" if key == " " else key)
        for _ in range(4):
            await terminal.escape()
        terminal.keys("1")
        await terminal.shows(lambda text: "● live" in text and "shop" in text)
        terminal.keys("C-c", "q")


def test_a_console_follows_a_cluster_from_leader_to_leader(
    tmp_path: Path, terminal: Terminal, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Three masters on Consul and MariaDB: kill -9, then a step-down by key."""
    slow = Politeness(rate=5.0, concurrency=2, robots=False)
    with page_site(tmp_path, 2000) as site, cluster(tmp_path, consul.url, mysql) as made:
        made.submit(site, slow)
        leader = made.leader()
        terminal.open([*ZCRAWL, "console", "--config", str(tmp_path / "client.toml")])
        asyncio.run(terminal.shows(f"leader {leader.name}"))
        leader.kill()
        # That the old leader is silent is shown until another one is heard, which may be sooner
        # than the screen is read: tests/console/test_overview.py checks the banner.
        change = f", before: {leader.name}"
        lead = asyncio.run(terminal.shows(lambda text: "● live" in text and change in text))
        assert f"leader {leader.name}" not in lead.splitlines()[0]
        terminal.keys("8")
        asyncio.run(terminal.shows(lambda text: " follows " in text and "in epoch" in text))
        terminal.keys("5")
        asyncio.run(terminal.shows("5/s"))
        terminal.keys("2", "l")
        asyncio.run(terminal.shows("zcrawl step-down"))
        epoch = made.epoch()
        asyncio.run(terminal.answer("y"))
        asyncio.run(terminal.shows(lambda text: f"epoch {epoch + 1}" in text and "● live" in text))


async def test_a_page_is_printed_for_scripts(tmp_path: Path) -> None:
    """`--snapshot` needs no terminal; without a cluster it ends with exit 3."""
    data = tmp_path / "d"
    command = [*ZCRAWL, "console", "--data", str(data), "--snapshot"]
    alone = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert alone.returncode == 3
    assert "no cluster runs in" in alone.stderr
    async with crawling(data):
        env = {**os.environ, "COLUMNS": "100", "LINES": "30"}
        for page, expected in (("overview", "Why not faster"), ("job shop", "robots=True")):
            done = await asyncio.to_thread(
                subprocess.run,
                [*command[:-1], f"--snapshot={page}"],
                capture_output=True,
                text=True,
                env=env,
                timeout=PATIENCE_S,
            )
            assert done.returncode == 0, done
            assert expected in done.stdout, done
            assert "\x1b" not in done.stdout
            assert len(done.stdout.splitlines()) > 10


async def test_a_browser_gets_the_console_over_a_socket(tmp_path: Path) -> None:
    """After the token was given: a terminal's worth of the same screen."""
    pytest.importorskip("textual_serve")
    data = tmp_path / "d"
    async with crawling(data):
        command = [*ZCRAWL, "console", "--data", str(data), "--web", "--port", "0", "--readonly"]
        server = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        assert server.stderr is not None
        try:
            said = (await asyncio.wait_for(server.stderr.readline(), PATIENCE_S)).decode()
            address = re.search(r"http://\S+", said)
            assert address is not None, said
            assert await _seen_in_browser(address[0], b"read-only")
        finally:
            server.terminate()
            await server.wait()


async def _status(session: aiohttp.ClientSession, address: str) -> int:
    """The address is printed a moment before the server listens."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            async with session.get(address) as answer:
                return answer.status
        except aiohttp.ClientConnectorError:
            assert time.monotonic() < deadline, "nobody listens"
            await asyncio.sleep(0.05)


async def _seen_in_browser(address: str, text: bytes) -> bool:
    jar = aiohttp.CookieJar(unsafe=True)
    base = address.partition("?")[0]
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        assert await _status(session, base) == 401
        async with session.get(address) as page:
            assert page.status == 200
            assert "zcrawl console" in await page.text()
        seen = b""
        async with (
            asyncio.timeout(PATIENCE_S),
            session.ws_connect(f"{base}ws?width=100&height=30") as socket,
        ):
            async for message in socket:
                data = message.data
                seen += data if isinstance(data, bytes) else data.encode()
                if text in seen:
                    return True
    return False
