"""The Queues page by job, by tag and by host: what it asks for, how one moves, what it shows."""

from __future__ import annotations

import pytest

from console.columns.queues import BY, next_grouping
from console.commands import Mistake, completions, parse
from console.plain_page import page_text
from console.questions import questions
from console.state import (
    Answered,
    Back,
    ConsoleEvent,
    ConsolePage,
    Drill,
    GoTo,
    Move,
    Place,
    SetFilter,
    SortBy,
    View,
)
from console.view import current_row, reduce
from tests.console.samples import FakeFeed, at, fake_app, heard, run, snapshot

WIDE, NARROW = (160, 48), (80, 24)


def then(view: View, *events: ConsoleEvent) -> View:
    for event in events:
        view = reduce(view, event)
    return view


def seen(view: View, size: tuple[int, int] = WIDE) -> str:
    return page_text(view, size[0])


@pytest.mark.parametrize("by", BY)
def test_the_leader_is_asked_for_the_sums_of_each_grouping(by: str) -> None:
    """It filters, sorts and cuts; the console draws."""
    view = then(at(Place(BY[by])), SetFilter("!shop"), SortBy("F"))
    (question,) = (candidate for candidate in questions(view) if candidate.op == "queues")
    expected_args = {"by": by, "filter": "shop", "inverse": True, "sort": "fetching", "desc": True}
    assert expected_args.items() <= question.args.items()
    assert question.slot == f"{BY[by]}:"


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("size", [NARROW, WIDE])
def test_what_is_queued_and_the_three_numbers_in_flight_are_on_every_screen(
    by: str, size: tuple[int, int]
) -> None:
    """Also on the smallest; the trend where there is room."""
    text = seen(at(Place(BY[by])), size)
    for title in ("Queued", "Due", "Fetching", "Waiting", "Uncommitted"):
        assert title in text, title
    assert ("Trend" in text) is (size == WIDE)
    assert {"job": "docs", "tag": "shop", "host": "https://h1.test"}[by] in text


def test_a_key_goes_through_the_groupings() -> None:
    """And round again; elsewhere it does nothing."""
    page, way = ConsolePage.QUEUES, []
    for _ in range(3):
        page = BY[next_grouping(page)]
        way.append(page)
    assert way == [ConsolePage.TAG_QUEUES, ConsolePage.HOST_QUEUES, ConsolePage.QUEUES]
    assert not any(
        next_grouping(console_page)
        for console_page in ConsolePage
        if console_page not in BY.values()
    )


async def test_the_key_works() -> None:
    """Against the app: b, b, b; and on Jobs it changes nothing."""
    feed = FakeFeed()
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("4", "b")
        pages = [app.view.page]
        await pilot.press("b")
        pages.append(app.view.page)
        await pilot.press("b", "3", "b")
        pages.append(app.view.page)
        assert pages == [ConsolePage.TAG_QUEUES, ConsolePage.HOST_QUEUES, ConsolePage.JOBS]
        await pilot.pause()
    assert {"job", "tag", "host"} <= {args["by"] for args in feed.done("queues")}


def test_enter_on_a_tag_opens_the_jobs_that_have_it() -> None:
    """Also on those that have none; escape comes back to the row."""
    view = at(Place(ConsolePage.TAG_QUEUES))
    inside = then(view, Drill())
    assert (inside.page, inside.place.ref) == (ConsolePage.QUEUES, "shop")
    assert questions(inside)[0].args["tag"] == "shop" and "› tag shop" in seen(inside)
    assert (current_row(then(inside, Back())) or {})["tag"] == "shop"
    none = then(view, Move(1), Drill())
    assert questions(none)[0].args["tag"] == "(no tag)"


def test_a_grouping_is_a_page_of_its_own_under_queues() -> None:
    """The tab of the queues stays lit, escape leads to the overview as from any of the nine."""
    view = then(at(Place(ConsolePage.JOBS)), GoTo(Place(ConsolePage.TAG_QUEUES)))
    assert "› by tag" in seen(view)
    assert then(view, Back()).page is ConsolePage.OVERVIEW
    host = then(at(Place(ConsolePage.HOST_QUEUES)), Drill())
    assert host.page is ConsolePage.HOST


def test_each_grouping_has_its_own_trend() -> None:
    """Of the same id in another table it is another one's."""
    view = at(Place(ConsolePage.TAG_QUEUES))
    for n in range(3):
        rows = [{"id": "shop", "tag": "shop", "queued": n}]
        view = then(view, Answered("queues by tag:", {"rows": rows, "total": 1}, float(n)))
    assert (current_row(view) or {})["trend"][-3:] == (0, 1, 2)


def test_a_trend_that_the_leader_sends_is_shown_as_it_is() -> None:
    """It was watching before anybody looked."""
    view = at(Place(ConsolePage.TAG_QUEUES))
    for n in range(3):
        rows = [{"id": "shop", "tag": "shop", "queued": n, "trend": [5, n]}]
        view = then(view, Answered("queues by tag:", {"rows": rows, "total": 1}, float(n)))
    assert (current_row(view) or {})["trend"] == [5, 2]


@pytest.mark.parametrize("trend", [5, "up", ["a", None], {"a": 1}, []])
def test_what_is_no_trend_breaks_no_screen(trend: object) -> None:
    """Nor the one after it."""
    view = at(Place(ConsolePage.TAG_QUEUES))
    for n in range(2):
        rows = [{"id": "shop", "tag": "shop", "queued": 7, **({"trend": trend} if n == 0 else {})}]
        view = then(view, Answered("queues by tag:", {"rows": rows, "total": 1}, float(n)))
        assert "shop" in seen(view)
    assert (current_row(view) or {})["trend"] == (7,)


def test_a_mistaken_grouping_is_told_and_the_right_ones_complete() -> None:
    """With the tags that jobs have."""
    mistake = parse("queues by colour", View())
    assert isinstance(mistake, Mistake) and "tag" in mistake.text
    view = heard(snapshot(0, runs=[run(1, tags=["shop", "daily"]), run(2, tags=["shop"])]))
    assert completions("queues by ", view) == [f"queues by {grouping}" for grouping in BY]
    assert completions("queues s", view) == ["queues shop"]


def test_jobs_show_their_tags_and_are_found_by_them() -> None:
    """In a column where there is room, in the filter everywhere, on the page of the job."""
    runs = [run(1, "one", tags=["shop", "daily"]), run(2, "two", tags=["news"]), run(3, "three")]
    view = then(heard(snapshot(0, runs=runs)), GoTo(Place(ConsolePage.JOBS)))
    assert "shop, daily" in seen(view, (200, 50)) and "shop" not in seen(view, NARROW)
    screen_text = seen(then(view, SetFilter("shop")), NARROW)
    assert "one" in screen_text and "two" not in screen_text and "three" not in screen_text
    inside = then(view, SetFilter("shop"), Drill())
    answered = {**runs[0], "percent": 1.0, "spec": {}}
    assert "shop, daily" in seen(then(inside, Answered("job:1", answered, 1.0)))


@pytest.mark.parametrize("tags", ["shop", 5, None, {"a": 1}])
def test_what_is_no_list_of_tags_breaks_no_screen(tags: object) -> None:
    """Jobs that ended come from another answer than the snapshot, and are not checked there."""
    view = then(heard(snapshot(0)), GoTo(Place(ConsolePage.JOBS)))
    view = then(view, Answered("jobs:", {"jobs": [run(9, state="completed", tags=tags)]}, 1.0))
    assert "completed" in seen(view)
    assert completions("queues by", view)
