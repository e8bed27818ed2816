"""The overview answers four questions, at every size, also while there is no leader."""

from __future__ import annotations

import pytest

from console.app import ConsoleApp
from console.drawing.lines import as_text, line_width
from console.drawing.measures import LATENCY, PAGES, chart_data, recent_data
from console.drawing.overview import banner, cluster_lines, overview_text
from console.rates import Sample
from console.state import ConsolePage, LinkChanged, LinkState, Place, Ticked, View
from console.view import reduce
from console.widgets.chart import Chart
from console.widgets.charts import SpanChoice
from console.widgets.heat_map import HeatMap
from console.widgets.overview import OverviewBody
from console.widgets.painted import Painted
from console.widgets.panel import Panel, PanelList
from tests.console.samples import AT, at, fake_app, heard, snapshot, until
from tests.console.stories import busy_cluster


def lost(view: View) -> View:
    view = reduce(view, LinkChanged(LinkState.LOST, "m1 is silent, listening to m2", 10.0))
    return reduce(view, Ticked(14.2))


def test_a_failover_has_a_banner_that_says_how_long() -> None:
    """The figures below it are as old; when somebody leads again it goes."""
    view = heard(snapshot(0))
    assert banner(view) == ()
    assert "No leader for 4.2 s: m1 is silent, listening to m2" in as_text([banner(lost(view))])
    assert "no leader" in as_text(cluster_lines(lost(view), 120))
    assert banner(heard(snapshot(15), view=lost(view))) == ()


def test_a_database_that_fails_has_a_banner() -> None:
    """Nothing is saved meanwhile."""
    view = heard(snapshot(0, store={"state": "failing", "error": "2003", "since_s": 7.0}))
    assert "The database fails for 7.0 s: 2003" in as_text([banner(view)])


@pytest.mark.parametrize("cells", [40, 80, 120, 200])
def test_health_fits_two_lines_of_every_width(cells: int) -> None:
    """With what leads, who is there, the store, and the speed."""
    view = heard(*busy_cluster().snapshots)
    lines = cluster_lines(view, cells)
    assert len(lines) == 2 or cells < 80
    assert all(line_width(line) <= cells for line in lines) or cells < 80
    text = as_text(lines)
    assert "needs you" in text and "3 of 3 masters" in text and "42" in text and "● ok" in text
    assert "fetching of" in text


def test_the_chart_of_now_ends_now() -> None:
    """History first, then what this console has seen itself, without a point twice."""
    stored = {"at": [AT - 20, AT - 10, AT], "pages_s": [1, 2, 99]}
    samples = [Sample(AT - 4 + n, pages_s=50.0) for n in range(10)]
    data = recent_data(PAGES, stored, samples, 900)
    assert data.series[0].values[:2] == (1, 2) and 99 not in data.series[0].values
    assert data.at[-1] == AT + 5 and list(data.at) == sorted(set(data.at))


def test_latency_is_the_history_alone() -> None:
    """No snapshot has it."""
    stored = {"at": [AT], "p50": [10], "p95": [20], "p99": [30]}
    data = recent_data(LATENCY, stored, [Sample(AT + 60)], 900)
    assert data.at == (AT,) and [series.name for series in data.series] == ["p50", "p95", "p99"]


@pytest.mark.parametrize(
    "answer", [None, {}, {"at": 3}, {"at": [AT], "pages_s": []}, {"at": ["x"], "pages_s": [1]}]
)
def test_a_history_that_is_none_draws_nothing(answer: dict[str, object] | None) -> None:
    """Anything may come over the wire."""
    assert chart_data(PAGES, answer, 900).at == ()


def test_the_page_can_be_printed() -> None:
    """`--snapshot` has the same parts."""
    text = as_text(overview_text(at(Place(ConsolePage.OVERVIEW)), 100))
    for part in ("Cluster", "Pages per second", "Why not faster", "Needs you", "Jobs", "Workers"):
        assert part in text


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((80, 24), {"cluster", "pages", "queue", "limits", "attention", "jobs"}),
        (
            (120, 35),
            {"cluster", "pages", "queue", "latency", "limits", "attention", "jobs", "events"},
        ),
        (
            (200, 50),
            {"cluster", "pages", "queue", "latency", "failures", "limits", "attention", "jobs"}
            | {"workers", "events"},
        ),
        ((200, 24), {"cluster", "pages", "queue", "latency", "failures", "limits", "attention"}),
    ],
)
async def test_a_larger_screen_has_more_panels(size: tuple[int, int], shown: set[str]) -> None:
    """All of them within the screen, and none so flat that nothing fits in."""
    app = fake_app(busy_cluster())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        panels = [*app.screen.query(Panel), *app.screen.query(Chart), *app.screen.query(HeatMap)]
        visible = {panel.id: panel.region for panel in panels if panel.display}
        assert visible.keys() >= shown
        assert all(app.screen.region.contains_region(region) for region in visible.values())
        assert all(region.height >= 4 for region in visible.values()), visible


async def test_a_failover_is_visible_in_the_app() -> None:
    """And gone when a leader speaks."""
    feed = busy_cluster()
    app = fake_app(feed)
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause()
        bar = app.screen.query_one("#banner", Painted)
        before = bar.display
        app.feed_event(LinkChanged(LinkState.LOST, "m2 is silent", 1.0))
        await pilot.pause(0.1)
        assert (before, bar.display) == (False, True)
        assert "m2 is silent" in as_text(bar.picture)


def place(app: ConsoleApp) -> tuple[ConsolePage, str]:
    return app.view.page, app.view.place.ref


async def test_enter_on_a_job_and_on_a_worker_opens_it() -> None:
    """By key and by mouse; escape comes back."""
    app = fake_app(busy_cluster())
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause(0.2)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert place(app) == (ConsolePage.JOB, "3")
        await pilot.press("escape")
        await pilot.pause(0.1)
        assert place(app) == (ConsolePage.OVERVIEW, "")
        app.screen.query_one(HeatMap).focus()
        await pilot.press("right", "enter")
        await pilot.pause()
        assert place(app) == (ConsolePage.NODE, "worker-02")
        await pilot.press("escape")
        await pilot.pause(0.1)
        needs = app.screen.query_one(OverviewBody).query_one("#attention", PanelList)
        await pilot.click(needs, offset=(5, 1))
        await pilot.pause()
        assert place(app) == (ConsolePage.NODES, "")


@pytest.mark.parametrize(
    ("page", "ref", "about"),
    [("3", "run:", "job python-docs"), ("5", "host:1", "host https://h1.test")],
)
async def test_a_job_and_a_host_have_charts_of_their_own(page: str, ref: str, about: str) -> None:
    """`c` opens them, the leader is asked for that one, a click chooses the span."""
    feed = busy_cluster()
    app = fake_app(feed)
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.press(page)
        await pilot.pause(0.3)
        await pilot.press("c")
        await pilot.pause(0.3)
        assert place(app)[0] is ConsolePage.CHARTS and place(app)[1].startswith(ref)
        kind, _, number = place(app)[1].partition(":")
        assert feed.done("history")[-1] == {"span_s": 900, kind: int(number)}
        choice = app.screen.query_one(SpanChoice)
        assert about in as_text(choice.picture)
        await pilot.click(SpanChoice, offset=(as_text(choice.picture).index("24 h"), 0))
        await until(pilot, lambda: feed.done("history")[-1]["span_s"] == 86_400)
