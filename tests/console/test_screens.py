"""Pictures of every page in two sizes, light and dark, compared with stored ones.

`ZCRAWL_UPDATE_PICTURES=1 pytest tests/console/test_screens.py` stores them anew; look at the
difference before you commit it. (pytest-textual-snapshot would hold pytest at 8.x.)
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.app import ConsoleApp
from console.questions import questions
from console.state import GROUPED, MAIN_PAGES, ConsolePage, Drill, GoTo, Place
from console.widgets.canvas import Canvas
from tests.console.samples import AT, FakeFeed, fake_app, run, snapshot, worker

STORED = Path(__file__).parent / "pictures"
UPDATE = os.environ.get("ZCRAWL_UPDATE_PICTURES") == "1"
SIZES = {"80x24": (80, 24), "160x48": (160, 48)}
LAST_AT = AT + 3
THEMES = {"dark": "textual-dark", "light": "textual-light"}


def crawl() -> FakeFeed:
    """A cluster with some of everything, three seconds long."""
    states = ("busy", "busy", "idle", "suspect", "draining", "lost")
    workers = [
        worker(f"w{n}", state=state, rate=10.0 * n, running=5 * n, lag_ms=90.0 * n)
        for n, state in enumerate(states, 1)
    ]
    shots = [
        snapshot(
            at,
            workers=workers,
            runs=[
                run(4, "python-docs", pages=4000 + 120 * at, queued=3000 - 100 * at, admitted=7500),
                run(3, "shop", pages=900 + 7 * at, max_pages=2000, failed=12, tags=["eu", "daily"]),
                run(2, "news", state="paused", reason="paused by request"),
                run(1, "wiki", state="completed", pages=99_000, seconds=3_723.0),
            ],
        )
        for at in range(4)
    ]
    return FakeFeed(*shots)


def normal(svg: str) -> str:
    """Without what differs from run to run: rich numbers its styles by their content."""
    return re.sub(r"terminal-\d+", "terminal", svg)


async def picture(app: ConsoleApp, size: tuple[int, int], place: Place, drill: bool) -> str:
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        for event in (GoTo(place), Drill() if drill else None):
            if event is not None:
                app.feed_event(event)
                await settled(app, pilot)
        return normal(app.export_screenshot())


async def settled(app: ConsoleApp, pilot: Pilot[None]) -> None:
    """All that was heard and asked for is there and painted, in the colours of the theme."""
    async with asyncio.timeout(30):
        while True:
            await pilot.pause()
            heard = app.view.live.snapshot is not None and app.view.live.snapshot.at == LAST_AT
            if heard and all(
                question.slot in app.view.live.answers for question in questions(app.view)
            ):
                break
    app.draw()
    for canvas in app.screen.query(Canvas):
        canvas.refresh()
    await pilot.pause()
    await pilot.pause()


def compare(name: str, svg: str) -> None:
    path = STORED / f"{name}.svg"
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
    """Every page, in both sizes, light and dark."""
    app = fake_app(crawl(), theme=THEMES[theme])
    svg = await picture(app, SIZES[size], Place(page), False)
    compare(f"{page}-{size}-{theme}".replace(" ", "-"), svg)


@pytest.mark.parametrize(
    "page",
    [
        ConsolePage.NODES,
        ConsolePage.JOBS,
        ConsolePage.QUEUES,
        ConsolePage.TAG_QUEUES,
        ConsolePage.HOSTS,
        ConsolePage.ERRORS,
    ],
)
async def test_what_one_drills_into_looks_as_it_did(page: ConsolePage) -> None:
    """One size is enough: they are text that scrolls."""
    app = fake_app(crawl())
    svg = await picture(app, (120, 40), Place(page), True)
    compare(f"inside-{page}".replace(" ", "-"), svg)


async def test_the_pictures_can_fail(tmp_path: Path) -> None:
    """A page with another number is another picture."""
    first = await picture(fake_app(crawl()), (80, 24), Place(ConsolePage.JOBS), False)
    other = FakeFeed(*(snapshot(at, runs=[run(4, "python-docs", pages=5)]) for at in range(4)))
    second = await picture(fake_app(other), (80, 24), Place(ConsolePage.JOBS), False)
    again = await picture(fake_app(crawl()), (80, 24), Place(ConsolePage.JOBS), False)
    assert first == again and first != second
