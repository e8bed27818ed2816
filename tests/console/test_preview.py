"""A high screen has no empty half: below a short table is what the row at the cursor is about."""

from __future__ import annotations

import pytest

from console.drawing.lines import as_text
from console.drawing.preview import preview, table_rows
from console.state import ConsolePage, GoTo, HappeningCame, Move, Place
from console.view import reduce
from console.widgets.painted import Painted
from tests.console.samples import AT, at, fake_app, text_of, until
from tests.console.stories import busy_cluster


def test_a_long_table_keeps_all_lines() -> None:
    """A preview of a few lines is not worth a row of the table."""
    assert (table_rows(200, 46), table_rows(33, 46), table_rows(4, 46)) == (46, 46, 6)


def test_the_row_is_shown_whole() -> None:
    """Also the columns that a narrower table leaves out, and values that it cuts."""
    view = at(Place(ConsolePage.ERRORS))
    text = as_text(preview(view, 200, 30))
    for part in ("Reason", "dns", "Newest URL", "https://h1.test/a", "Name or service not known"):
        assert part in text
    assert "Pages per second, all jobs" in text
    assert "Queued URLs, all jobs" in text


def test_events_are_those_of_the_node_or_run() -> None:
    """Of other rows they are the newest of all."""
    view = at(Place(ConsolePage.JOBS))
    for run in (1, 2):
        fields = {"at": AT + run, "text": f"about {run}", "source": "m1", "level": "info"}
        view = reduce(view, HappeningCame("run_paused", fields | {"run": run}, 1.0))
    newest = as_text(preview(view, 200, 30))
    assert "Events of run 2" in newest
    assert "about 2" in newest
    assert "about 1" not in newest
    assert "Events of run 1" in as_text(preview(reduce(view, Move(1)), 200, 30))
    assert "Events of m1" in as_text(preview(at(Place(ConsolePage.NODES)), 200, 30))
    assert "Events ──" in as_text(preview(at(Place(ConsolePage.HOSTS)), 200, 30))


@pytest.mark.parametrize("rows", [12, 20, 40])
@pytest.mark.parametrize("page", [ConsolePage.ITEMS, ConsolePage.LOG, ConsolePage.ERRORS])
def test_it_is_never_higher_than_its_room(page: ConsolePage, rows: int) -> None:
    """Whatever it is about."""
    assert len(preview(at(Place(page)), 200, rows)) <= rows


@pytest.mark.parametrize(
    "page",
    [
        *(ConsolePage.JOBS, ConsolePage.QUEUES, ConsolePage.TAG_QUEUES, ConsolePage.HOST_QUEUES),
        *(ConsolePage.ERRORS, ConsolePage.LOG),
    ],
)
async def test_a_high_screen_is_used(page: ConsolePage) -> None:
    """Most lines of the page have something; a lower screen has the table alone."""
    app = fake_app(busy_cluster())
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        app.feed_event(GoTo(Place(page)))
        await until(pilot, lambda: "all jobs" in text_of(app))
        empty = [line for line in text_of(app).splitlines() if not line.strip()]
        assert len(empty) <= 16, text_of(app)
        await pilot.resize_terminal(120, 35)
        await until(pilot, lambda: "all jobs" not in text_of(app))
        assert not app.screen.query_one("#preview", Painted).display
