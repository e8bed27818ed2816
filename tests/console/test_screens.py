"""Pictures of every page in three sizes, light and dark, compared with stored ones.

`ZCRAWL_UPDATE_PICTURES=1 pytest tests/console/test_screens.py` stores them anew; look at the
difference before you commit it. (pytest-textual-snapshot would hold pytest at 8.x.)
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.app import ConsoleApp
from console.questions import questions
from console.state import (
    GROUPED,
    MAIN_PAGES,
    ConsoleEvent,
    ConsolePage,
    Drill,
    GoTo,
    LinkChanged,
    LinkState,
    Place,
    Ticked,
)
from tests.console.samples import FakeFeed, fake_app, run, snapshot
from tests.console.stories import LAST_AT, busy_cluster

STORED = Path(__file__).parent / "pictures"
UPDATE = os.environ.get("ZCRAWL_UPDATE_PICTURES") == "1"
SIZES = {"80x24": (80, 24), "120x35": (120, 35), "200x50": (200, 50)}
THEMES = {"dark": "zcrawl-dark", "light": "zcrawl-light"}
DRILLED = (
    ConsolePage.NODES,
    ConsolePage.JOBS,
    ConsolePage.QUEUES,
    ConsolePage.TAG_QUEUES,
    ConsolePage.HOSTS,
    ConsolePage.ERRORS,
)


def normal(svg: str) -> str:
    """Without what differs from run to run: rich numbers its styles by their content."""
    return re.sub(r"terminal-\d+", "terminal", svg)


async def picture(
    app: ConsoleApp, size: tuple[int, int], *place: Place, drill: bool = False
) -> str:
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        commands: list[ConsoleEvent] = [GoTo(target) for target in place]
        if drill:
            commands.append(Drill())
        for command in commands:
            app.feed_event(command)
            await settled(app, pilot)
        return normal(app.export_screenshot())


async def settled(app: ConsoleApp, pilot: Pilot[None]) -> None:
    """All that was heard and asked for is there, and nothing that is painted changes any more."""
    async with asyncio.timeout(30):
        while True:
            await pilot.pause()
            heard = app.view.live.snapshot is not None
            if heard and all(
                question.slot in app.view.live.answers for question in questions(app.view)
            ):
                break
        before = ""
        while before != (now := hashlib.sha256(app.export_screenshot().encode()).hexdigest()):
            before = now
            app.draw()
            await pilot.pause(0.02)


def compare(name: str, svg: str) -> None:
    path = STORED / f"{name}.svg".replace(" ", "-")
    if UPDATE:
        STORED.mkdir(exist_ok=True)
        path.write_text(svg, "utf-8")
    assert path.is_file(), f"no stored picture {path.name}: ZCRAWL_UPDATE_PICTURES=1 stores it"
    if svg != path.read_text("utf-8"):
        seen = path.with_suffix(".new.svg")
        seen.write_text(svg, "utf-8")
        raise AssertionError(f"{path.name} looks different now: compare it with {seen.name}")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", [*MAIN_PAGES, *GROUPED])
async def test_a_page_looks_as_it_did(page: ConsolePage, size: str, theme: str) -> None:
    """Every page, in three sizes, light and dark."""
    app = fake_app(busy_cluster(), theme=THEMES[theme])
    compare(f"{page}-{size}-{theme}", await picture(app, SIZES[size], Place(page)))


@pytest.mark.parametrize("page", DRILLED)
async def test_what_one_drills_into_looks_as_it_did(page: ConsolePage) -> None:
    """One size is enough: they are text that scrolls."""
    app = fake_app(busy_cluster())
    compare(f"inside-{page}", await picture(app, SIZES["120x35"], Place(page), drill=True))


@pytest.mark.parametrize("theme", THEMES)
async def test_a_failover_looks_as_it_did(theme: str) -> None:
    """The banner is above all figures."""
    app = fake_app(busy_cluster(), theme=THEMES[theme])
    async with app.run_test(size=SIZES["120x35"]) as pilot:
        await settled(app, pilot)
        app.feed_event(LinkChanged(LinkState.LOST, "m2 is silent, listening to m1 and m3", -3.0))
        app.feed_event(Ticked(1.0))  # four seconds later, whenever the app's own tick comes
        await settled(app, pilot)
        compare(f"failover-{theme}", normal(app.export_screenshot()))


async def test_the_pictures_can_fail() -> None:
    """A page with another number is another picture."""
    jobs = Place(ConsolePage.JOBS)
    first = await picture(fake_app(busy_cluster()), (80, 24), jobs)
    other = FakeFeed(*(snapshot(at, runs=[run(4, "python-docs", pages=5)]) for at in range(4)))
    second = await picture(fake_app(other), (80, 24), jobs)
    again = await picture(fake_app(busy_cluster()), (80, 24), jobs)
    assert first == again and first != second


def test_the_story_ends_where_it_says() -> None:
    """The pictures show its last second."""
    assert busy_cluster().snapshots[-1]["at"] == LAST_AT
