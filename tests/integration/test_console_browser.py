"""The console in Chromium: `zcrawl console --web` on a live cluster, as an operator sees it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from console.state import MAIN_PAGES
from tests.integration.browser_site import need_chromium, pixels
from tests.integration.test_console_terminal import PATIENCE_S, ZCRAWL, crawling

need_chromium()
pytest.importorskip("textual_serve")

from playwright.async_api import Error, Page, ViewportSize, WebSocket, async_playwright  # noqa: E402

from zcrawl.fetch.browser.chromium import find_chromium  # noqa: E402

SIZE = ViewportSize(width=960, height=540)
GROUND, PRIMARY = (0x0E, 0x13, 0x1A), (0x24, 0x56, 0x8C)  # of the theme zcrawl-dark

Picture = list[list[tuple[int, int, int]]]


@contextlib.asynccontextmanager
async def served(data: Path) -> AsyncIterator[str]:
    """The address that `--web` prints, once: no other line of it holds the token."""
    command = [*ZCRAWL, "console", "--data", str(data), "--web", "--port", "0"]
    server = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    assert server.stderr is not None
    try:
        first_line = (await asyncio.wait_for(server.stderr.readline(), PATIENCE_S)).decode()
        match = re.search(r"http://\S+", first_line)
        assert match is not None, first_line
        yield match[0]
    finally:
        server.terminate()
        rest = await server.stderr.read()
        rest += await server.stdout.read() if server.stdout is not None else b""
        await server.wait()
    assert match[0].rpartition("=")[2].encode() not in rest


class Window:
    """A page, and what its terminal was sent."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.seen = b""
        self.columns = self.lines = 0
        self.complaints: list[str] = []
        page.on("websocket", self._opened)
        page.on("console", lambda message: self.complaints.append(message.text))

    def _opened(self, socket: WebSocket) -> None:
        size = parse_qs(urlsplit(socket.url).query)
        self.columns, self.lines = int(size["width"][0]), int(size["height"][0])
        socket.on("framereceived", self._received)

    async def click_tab(self, number: int) -> None:
        """Click the tab of a page, in the second line of the terminal."""
        labels = [f"{n} {str(page).capitalize()}" for n, page in enumerate(MAIN_PAGES, 1)]
        gap = 4 if self.columns >= 100 else 1
        column = sum(len(label) + gap for label in labels[: number - 1]) + gap // 2 + 1
        script = """() => {
            const r = document.querySelector('.xterm-screen').getBoundingClientRect();
            return [r.x, r.y, r.width, r.height];
        }"""
        x, y, width, height = await self.page.evaluate(script)
        cell, line = width / self.columns, height / self.lines
        await self.page.mouse.click(x + (column + 0.5) * cell, y + 1.5 * line)

    def _received(self, data: bytes | str) -> None:
        self.seen += data if isinstance(data, bytes) else data.encode()

    async def open(self, address: str) -> int:
        """The answer's status. The address is told a moment before anybody listens there."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = await self.page.goto(address)
            except Error as error:
                assert "ERR_CONNECTION_REFUSED" in str(error), error
                assert time.monotonic() < deadline, "nobody listens"
                await asyncio.sleep(0.1)
            else:
                assert answer is not None
                return answer.status

    async def shows(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while words.encode() not in self.seen:
            assert time.monotonic() < deadline, f"{words!r} never came"
            await asyncio.sleep(0.05)

    async def picture(self, condition: Callable[[bytes], bool], path: Path) -> bytes:
        """The first screenshot of which that is true."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            png = await self.page.screenshot(path=path)
            if condition(png):
                return png
            assert time.monotonic() < deadline, f"it never looked like that: {path}"
            await asyncio.sleep(0.2)


def near(pixel: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(abs(a - b) <= 12 for a, b in zip(pixel, other, strict=True))


def is_overview(png: bytes) -> bool:
    return looks_right(pixels(png))


def looks_right(picture: Picture) -> bool:
    """The dark ground nearly everywhere, the cluster's mark at the top left in the theme's colour,
    the mark of a live line to the right of it, and text all over."""
    colours = Counter(pixel for row in picture[::4] for pixel in row[::4])
    most, _ = colours.most_common(1)[0]
    mark = [pixel for row in picture[:24] for pixel in row[:70]]
    top = [pixel for row in picture[:24] for pixel in row[70:600]]
    green = [pixel for pixel in top if pixel[1] > pixel[0] + 30 and pixel[1] > pixel[2] + 20]
    lower = [pixel for row in picture[300:] for pixel in row if not near(pixel, most)]
    return (
        near(most, GROUND)
        and sum(near(pixel, PRIMARY) for pixel in mark) > len(mark) // 3
        and len(green) > 20
        and len(lower) > 2_000
    )


async def test_chromium_shows_the_live_console_to_who_has_the_token(tmp_path: Path) -> None:
    """Refused without it; with it the overview is painted, keys work, and nothing is loaded from
    anywhere else."""
    data = tmp_path / "d"
    async with crawling(data), served(data) as address, async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            window = Window(await browser.new_page(viewport=SIZE))
            base, token = address.split("?token=")
            assert await window.open(base) == 401
            assert "open the address" in await window.page.content()
            wrong = token[:-1] + ("y" if token.endswith("x") else "x")
            assert await window.open(f"{base}?token={wrong}") == 401
            assert not window.seen, "no socket was opened"

            assert await window.open(address) == 200
            assert token not in window.page.url
            await window.shows("Why not faster")
            await window.shows("shop")
            shot = await window.picture(is_overview, tmp_path / "overview.png")

            await window.page.mouse.click(400, 300)  # a terminal has to be looked at
            window.seen = b""
            await window.page.keyboard.press("3")
            await window.shows("Elapsed")
            window.seen = b""
            await window.page.keyboard.press("h")
            await window.shows("job shop (1), run 1, running")
            await asyncio.sleep(0.5)  # a yes has to stand alone
            await window.page.keyboard.press("y")
            await window.shows("run 1: paused")
            window.seen = b""
            await window.click_tab(5)
            await window.shows("Owner")
            await window.page.screenshot(path=tmp_path / "hosts.png")
            await window.picture(lambda now: now != shot, tmp_path / "jobs.png")
            flat = [row[:1] * len(row) for row in pixels(shot)]
            assert not looks_right(flat), "the check can fail"
            refused = [text for text in window.complaints if "fonts." in text]
            assert all("Content Security Policy" in text for text in refused)
            assert refused
        finally:
            await browser.close()
