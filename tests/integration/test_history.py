"""What charts show is kept: a console of the next `zcrawl up` has the curve of before."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.app import ConsoleApp
from console.state import ConsolePage
from tests.console.samples import until
from tests.integration.crawling import command, start, wait_until
from zcrawl.demo.server import DemoServer
from zcrawl.roles.watching import in_folder

CHARTS = f"{ConsolePage.CHARTS}:"
OVERVIEW = "overview:history"


@contextlib.contextmanager
def up(data: Path) -> Iterator[None]:
    """`zcrawl up` in a folder, until it is killed: nothing is written at its end."""
    process = start("up", "--workers", "1", "--data", data, cwd=data.parent)
    try:
        wait_until(lambda: (data / "mesh.json").exists(), 30)
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def pages_by_time(answer: dict[str, Any]) -> dict[float, float]:
    """The points with pages, by the time at which they begin."""
    return {at: pages for at, pages in zip(answer["at"], answer["pages_s"], strict=True) if pages}


async def answer(data: Path, key: str, slot: str) -> dict[str, Any]:
    """What a console on this page hears, once it has a point with pages."""
    app = ConsoleApp({"test": in_folder(data)}, ahead=False)

    def heard() -> bool:
        answered = app.view.live.answers.get(slot)
        return answered is not None and bool(pages_by_time(answered.data or EMPTY))

    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.press(key)
        await until(pilot, heard, 60.0)
        return app.view.live.answers[slot].data


EMPTY: dict[str, Any] = {"at": [], "pages_s": []}


@pytest.mark.timeout(240)
async def test_charts_have_what_was_before_a_restart(tmp_path: Path) -> None:
    """On the overview and on the page of charts; the pause between is a gap, not a zero."""
    data = tmp_path / "d"
    async with DemoServer() as server:
        with up(data):
            done = command("submit", server.url, "--rate", "5", "--data", data, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            before = await answer(data, "9", CHARTS)
        stopped_at = time.time()
        points = pages_by_time(before)
        assert points
        await asyncio.sleep(2 * before["step_s"])  # a whole point in which nobody counts
        with up(data):
            for key, slot in (("9", CHARTS), ("1", OVERVIEW)):
                after = await answer(data, key, slot)
                assert points.items() <= pages_by_time(after).items()
                gap = [
                    pages
                    for at, pages in zip(after["at"], after["pages_s"], strict=True)
                    if stopped_at < at < stopped_at + before["step_s"]
                ]
                assert gap == [None]
