"""When the screen is drawn, and what need not be made anew for it."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import selectors
import time
from typing import Any

import pytest

from console.columns.work import job_rows, node_rows
from console.latest import Latest
from console.painting import Painting
from console.quick_escape import QuickSelector, quicken
from console.state import ConsolePage, GoTo, HappeningCame, Move, Place, View
from console.view import reduce
from tests.console.samples import FakeFeed, fake_app, heard, snapshot, until


async def test_a_hundred_things_that_were_heard_are_drawn_once() -> None:
    """And a key draws at once, with all of them: nothing is left to draw after it."""
    drawn = 0
    again = asyncio.Event()

    def draw() -> None:
        nonlocal drawn
        drawn += 1
        again.set()

    painting = Painting(draw)
    for _ in range(100):
        painting.soon()
    assert drawn == 0
    async with asyncio.timeout(30):
        await again.wait()
        assert drawn == 1
        again.clear()
        painting.soon()
        painting.now()
        assert drawn == 2
        painting.soon()
        again.clear()
        await again.wait()
    assert drawn == 3


async def test_a_burst_of_events_costs_a_console_few_drawings() -> None:
    """A leader that tells 200 lines in a moment."""
    feed = FakeFeed()
    app = fake_app(feed)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        drawn = 0
        screen = app.page_screen
        assert screen is not None
        show = screen.show

        def counted(view: View) -> None:
            nonlocal drawn
            drawn += 1
            show(view)

        screen.show = counted  # type: ignore[method-assign]
        for n in range(200):
            fields = {"text": f"line {n}", "source": "w1", "at": 5.0 + n, "level": "info"}
            feed.emit(HappeningCame("said", fields, 1.0))
        assert drawn == 0 and len(app.view.live.happenings) >= 200
        await until(pilot, lambda: drawn > 0)
        assert drawn <= 3


def test_rows_are_made_once_for_a_snapshot_and_not_for_every_key() -> None:
    """Five hundred workers are not taken apart again because the cursor moved."""
    view = reduce(heard(snapshot(0), snapshot(1)), GoTo(Place(ConsolePage.NODES)))
    moved = reduce(view, Move(1))
    assert node_rows(moved) is node_rows(view) and job_rows(moved) is job_rows(view)
    later = heard(snapshot(2), view=moved)
    assert node_rows(later) is not node_rows(moved)


def test_the_latest_answer_is_kept_by_identity() -> None:
    """An equal object is another one; so is one more of the arguments."""
    made: list[tuple[object, ...]] = []

    def make(*about: object) -> int:
        made.append(about)
        return len(made)

    latest = Latest(make)
    first, same = [1], [1]
    assert (latest(first, 2), latest(first, 2), latest(same, 2), latest(same, 2)) == (1, 1, 2, 2)
    assert latest(first, 2) == 3


def test_a_wait_after_some_input_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is when a lone escape becomes a key; a wait for input itself is as long as it was."""
    reading, writing = os.pipe()
    quick = QuickSelector()
    try:
        quick.register(reading, selectors.EVENT_READ)
        os.write(writing, b"x")
        assert quick.select(60.0) and os.read(reading, 9) == b"x"
        began = time.monotonic()
        assert quick.select(60.0) == []
        assert time.monotonic() - began < 10.0
        waited: list[float | None] = []

        def wait(*lists: Any) -> tuple[list[int], list[int], list[int]]:
            waited.append(lists[-1])
            return [], [], []

        monkeypatch.setattr(quick, "_select", wait)
        assert quick.select(60.0) == [] and waited == [60.0]
    finally:
        quick.close()
        os.close(reading)
        os.close(writing)


def test_textual_reads_its_keys_through_it() -> None:
    """The name in Textual's driver is the one that is replaced."""
    linux_driver: Any = importlib.import_module("textual.drivers.linux_driver")
    before = linux_driver.selectors
    try:
        quicken()
        assert linux_driver.selectors.SelectSelector is QuickSelector
        assert linux_driver.selectors.EVENT_READ == selectors.EVENT_READ
        assert "selectors.SelectSelector()" in inspect.getsource(linux_driver)
    finally:
        linux_driver.selectors = before
