"""Ways to a place: the palette, jumps from the log, the heat map, the runs of a job."""

from __future__ import annotations

from functools import partial

from textual.widgets import OptionList

from console.app import ConsoleApp
from console.jumps import jumps
from console.state import ConsolePage, HappeningCame, Place
from console.widgets.heat_map import HeatMap
from tests.console.samples import (
    AT,
    FakeFeed,
    answers,
    at,
    fake_app,
    press_after,
    run,
    snapshot,
    text_of,
    until,
    worker,
)


def has_choice(app: ConsoleApp) -> bool:
    choices = app.screen.query_one(OptionList)
    return choices.option_count == 1 or choices.highlighted is not None


def is_at(app: ConsoleApp, page: ConsolePage) -> bool:
    return app.view.page is page


async def test_the_palette_finds_jobs_nodes_hosts_and_actions_by_name() -> None:
    """What is chosen is gone to, or asked about."""
    app = fake_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("5")
        await until(pilot, lambda: "hosts:" in app.view.live.answers)
        for typed, page in (
            ("job shop", ConsolePage.JOB),
            ("node w2", ConsolePage.NODE),
            ("host h7", ConsolePage.HOST),
        ):
            await pilot.press("ctrl+p")
            await until(pilot, lambda: bool(app.screen.query("Input")))
            await pilot.press(*("space" if char == " " else char for char in typed))
            await until(pilot, partial(has_choice, app))
            await pilot.press("enter")
            await until(pilot, partial(is_at, app, page))


async def test_a_palette_that_is_closed_at_once_does_not_end_the_console() -> None:
    """Its search may still run."""
    app = fake_app()
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(5):
            await pilot.press("ctrl+p", "j", "escape", "escape")
        await pilot.pause(0.2)
        assert app.is_running and app._exception is None


def test_an_event_leads_to_its_job_its_host_and_its_node() -> None:
    """As far as the console knows them."""
    view = at(Place(ConsolePage.LOG))
    line = {"text": "w2 gave up https://h1.test/a after 3", "source": "m1", "run": 2}
    places = [jump.place for jump in jumps(view, line)]
    assert [place.page for place in places] == [
        ConsolePage.JOB,
        ConsolePage.HOSTS,
        ConsolePage.NODE,
        ConsolePage.NODE,
    ]
    assert places[0].ref == "2" and places[1].about["filter"] == "https://h1.test"
    assert {place.ref for place in places[2:]} == {"w2", "m1"}
    assert jumps(view, {"text": "nothing", "source": "nobody"}) == []


async def test_the_key_o_jumps_from_a_line_of_the_log() -> None:
    """At once, if there is one way; after a choice, if there are several."""
    feed = FakeFeed()
    app = fake_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        fields = {"text": "about nobody else", "source": "w2", "at": AT + 50, "level": "info"}
        feed.emit(HappeningCame("said", fields, 1.0))
        await pilot.press("8")
        await until(pilot, lambda: "about nobody else" in text_of(app))
        await pilot.press("home", "o")
        assert (app.view.page, app.view.place.ref) == (ConsolePage.NODE, "w2")
        fields = {"text": "w1 failed", "source": "w2", "at": AT + 60, "run": 1}
        feed.emit(HappeningCame("said", fields, 1.0))
        await pilot.press("8")
        await until(pilot, lambda: "w1 failed" in text_of(app))
        await pilot.press("home")
        await press_after(pilot, "o", "enter")
        await until(pilot, lambda: app.view.page is ConsolePage.JOB)


async def test_the_heat_map_has_500_workers_and_actions_are_about_the_one_at_its_cursor() -> None:
    """`w` shows it in place of the table; enter opens a worker, `d` asks about it."""
    workers = [worker(f"w{n}") for n in range(500)]
    feed = FakeFeed(snapshot(0, workers=workers), snapshot(1, workers=workers))
    app = fake_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("2", "w")
        await until(pilot, lambda: app.focused is app.screen.query_one(HeatMap))
        await pilot.pause()
        await pilot.press("right", "right")
        await press_after(pilot, "d")
        assert "worker w2 (busy)" in text_of(app)
        await pilot.press("n")
        await pilot.press("enter")
        await until(pilot, lambda: app.view.page is ConsolePage.NODE)
        assert app.view.place.ref == "w2"


async def test_the_runs_of_a_job_are_shown_and_hidden() -> None:
    """`e` on its row."""
    runs = [run(1, "docs", job=1, state="completed"), run(2, "docs", job=1)]
    app = fake_app(FakeFeed(snapshot(0, runs=runs), said=answers()))
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        await until(pilot, lambda: "of 1" in text_of(app))
        await pilot.press("e")
        await until(pilot, lambda: "of 3" in text_of(app) or "of 2" in text_of(app))
        await pilot.press("e")
        await until(pilot, lambda: "of 1" in text_of(app))
