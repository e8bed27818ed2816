"""The figures on the screen are those of the thing that they stand beside."""

from __future__ import annotations

from typing import Any

import pytest

from console.actions import BY_NAME, key_of, plan
from console.columns.pages import TABLES
from console.columns.work import in_flight_text, job_facts
from console.drawing.lines import as_text
from console.drawing.overview import cluster_lines
from console.drawing.table import nothing_text
from console.questions import questions
from console.state import (
    Answered,
    ConsolePage,
    Drill,
    GoTo,
    LinkChanged,
    LinkState,
    Move,
    Place,
    SetSpan,
    SortBy,
    ToggleRow,
    View,
)
from console.tables import shown
from console.units import latency, plural
from console.view import current_row, reduce
from tests.console.samples import came, heard, run, snapshot, worker

NODES, JOBS = Place(ConsolePage.NODES), Place(ConsolePage.JOBS)


def then(view: View, *events: Any) -> View:
    for event in events:
        view = reduce(view, event)
    return view


def rows(view: View) -> list[dict[str, Any]]:
    return list(shown(TABLES[view.page], view).rows)


def cells(view: View, title: str) -> list[str]:
    column = next(column for column in TABLES[view.page].columns if column.title == title)
    return [column.cell(row).text for row in rows(view)]


def two_runs() -> View:
    """Job 1 has a run that is complete and one that is running; job 2 has one run."""
    old = run(15, "rust", job=1, state="completed", pages=900, admitted=900, queued=0)
    new = run(16, "rust", job=1, pages=10, admitted=100, fetching=3, waiting=5, uncommitted=2)
    return then(heard(snapshot(0, runs=[old, new, run(17, "docs", job=2)])), GoTo(JOBS))


# ---------------------------------------------------------------- jobs


def test_a_job_is_one_row_with_its_runs_inside() -> None:
    """The row is that of the newest run; open, all its runs are below it, newest first."""
    view = two_runs()
    assert [row["job"] for row in rows(view)] == [2, 1]
    assert cells(view, "Name") == ["docs", "▸ rust"]
    view = then(view, Move(1), ToggleRow())
    assert [(row["job"], row["run"]) for row in rows(view)] == [(2, 17), (1, 16), (1, 16), (1, 15)]
    assert cells(view, "Name") == ["docs", "▾ rust", "  run 16", "  run 15"]
    view = then(view, Move(2), ToggleRow())
    assert [row["job"] for row in rows(view)] == [2, 1]
    assert (current_row(view) or {})["run"] == 16


def test_runs_stay_below_their_job_whatever_is_sorted_by() -> None:
    """A sorted table does not tear a job apart."""
    view = then(two_runs(), Move(1), ToggleRow(), SortBy("D"))
    assert [row["run"] for row in rows(view)] == [17, 16, 16, 15]
    view = then(view, SortBy("D"))
    assert [row["run"] for row in rows(view)] == [16, 16, 15, 17]


def test_a_job_with_one_run_does_not_open() -> None:
    """There is nothing else inside."""
    view = two_runs()
    assert then(view, ToggleRow()).table.expanded == frozenset()


def test_details_never_mix_two_runs() -> None:
    """The newest run's answer is not shown on the page of an older one, and the master is asked
    for the run that the page is about."""
    view = then(two_runs(), Move(1), ToggleRow(), Move(2), Drill())
    assert (view.place.page, view.place.ref) == (ConsolePage.JOB, "15")
    question = next(question for question in questions(view) if question.op == "job")
    assert question.args == {"ref": "1", "run": 15}
    other = run(16, "rust", job=1, percent=10.0, spec={"seeds": ["https://new.test/"]})
    view = then(view, Answered(view.place.key, other, 1.0))
    facts = job_facts(view)
    assert (facts["run"], facts["pages"], facts["share"]) == (15, 900, 1.0)
    assert "spec" not in facts


def test_a_cancelled_run_is_not_complete() -> None:
    """Of 100 requests 60 were not made: 40 %."""
    cancelled = run(1, state="cancelled", admitted=100, pages=40, skipped=60, unfetched=60)
    view = then(heard(snapshot(0, runs=[cancelled])), GoTo(JOBS))
    assert cells(view, "Progress") == ["████░░░░░░  40 %"]
    before = {
        "jobs": [cancelled | {"job": 9, "run": 9, "runs": [cancelled | {"run": 9, "job": 9}]}]
    }
    view = then(view, Answered("jobs:", before, 1.0))
    assert cells(view, "Progress") == ["████░░░░░░  40 %"] * 2


def test_a_deleted_job_vanishes() -> None:
    """Also one whose rows the leader still sweeps, and one that the database still lists."""
    view = then(heard(snapshot(0, runs=[run(1, state="deleted")])), GoTo(JOBS))
    view = then(view, Answered("jobs:", {"jobs": [run(2, state="deleted")]}, 1.0))
    assert rows(view) == []


def test_the_time_left_and_the_time_taken_are_two_columns() -> None:
    """An ended run has no time left."""
    ended = run(1, state="completed", seconds=75.0)
    view = then(heard(snapshot(0, runs=[ended])), GoTo(JOBS))
    assert (cells(view, "ETA"), cells(view, "Elapsed")) == ([""], ["1:15"])
    titles = [column.title for column in TABLES[ConsolePage.JOBS].columns]
    assert "Left" not in titles
    assert "Why" in titles


def test_a_job_says_why_it_is_not_faster() -> None:
    """What it waits for, else what limits it."""
    limited = run(1, why="rate limit of docs.test: 40/s")
    waiting = run(2, reason="waiting: no worker", waits="waiting: no worker")
    view = then(heard(snapshot(0, runs=[limited, waiting])), GoTo(JOBS))
    assert cells(view, "Why") == ["waiting: no worker", "rate limit of docs.test: 40/s"]


# ---------------------------------------------------------------- nodes


def test_a_dead_master_is_not_shown_as_a_follower() -> None:
    """Its state is what the leader knows about it."""
    masters = [{"id": "m1"}, {"id": "m2", "role": "down", "healthy": False}, {"id": "m3"}]
    view = then(heard(snapshot(0, workers=[], masters=masters)), GoTo(NODES))
    assert cells(view, "State") == ["leader", "down", "follower"]


def test_figures_of_a_worker_that_is_gone_are_blank() -> None:
    """They are those of its last heartbeat, and it may have been long ago."""
    figures = {"cpu_percent": 51.0, "uncommitted": 7}
    workers = [worker("a", **figures), worker("b", state="lost", heard_s_ago=400.0, **figures)]
    view = then(heard(snapshot(0, workers=workers, masters=[])), GoTo(NODES))
    for title in ("Fetching", "Waiting", "Uncommitted", "Rate/s", "CPU", "Memory", "Lag"):
        alive, gone, _ = cells(view, title)
        assert alive, title
        assert gone == "", title
    assert cells(view, "Heard")[1] == "6:40 ago"
    assert cells(view, "CPU")[0] == "51 %"


def test_a_drained_worker_is_shown_so_and_can_be_taken_back() -> None:
    """Its row offers `undrain`, which names the worker."""
    view = then(heard(snapshot(0, workers=[worker("a", state="drained")], masters=[])), GoTo(NODES))
    assert cells(view, "State")[0] == "drained"
    (request,) = plan(BY_NAME["undrain"], rows(view)[:1])
    assert (request.op, request.args) == ("undrain", {"node": "a"})
    assert key_of(view, BY_NAME["undrain"]) == "u"


def test_a_cpu_that_was_not_measured_is_blank() -> None:
    """A worker of an older version does not report it; 0 % would be a claim."""
    view = then(heard(snapshot(0, workers=[worker("a")], masters=[])), GoTo(NODES))
    assert cells(view, "CPU")[0] == ""


@pytest.mark.parametrize("page", list(TABLES))
def test_before_a_leader_is_heard_no_table_says_that_there_is_nothing(page: ConsolePage) -> None:
    """`no jobs` would be a claim; why nothing is known is said instead."""
    view = then(View(), LinkChanged(LinkState.CONNECTING, "no cluster runs in ./data", 1.0))
    text = nothing_text(TABLES[page], then(view, GoTo(Place(page))))
    assert text == "no cluster runs in ./data"


# ---------------------------------------------------------------- in flight


def test_requests_in_flight_are_three_numbers_that_agree_everywhere() -> None:
    """The overview, the nodes and the job count the same requests by the same names."""
    busy = worker("a", running=3, waiting=5, uncommitted=2, slots=8)
    job = run(1, fetching=3, waiting=5, uncommitted=2, in_flight=10)
    view = then(heard(snapshot(0, workers=[busy], masters=[], runs=[job])), GoTo(NODES))
    node = [cells(view, title)[0] for title in ("Fetching", "Waiting", "Uncommitted")]
    assert node == ["3/8", "5", "2"]
    overview = as_text(cluster_lines(view, 200))
    assert "3 fetching of 8 slots" in overview
    assert "5 waiting 2 uncommitted" in overview
    assert in_flight_text(rows(then(view, GoTo(JOBS)))[0]) == "3 fetching, 5 waiting, 2 uncommitted"


def test_the_errors_page_is_asked_of_the_database_and_not_counted_here() -> None:
    """So its numbers are those that `r` queues, also after a failover."""
    errors = Place(ConsolePage.ERRORS)
    view = then(heard(snapshot(0)), GoTo(errors))
    assert next(question.op for question in questions(view)) == "errors"
    group = {"run": 1, "job": 1, "host_id": 4, "host": "h", "reason": "dns", "count": 12}
    view = then(view, Answered(view.place.key, {"rows": [group], "total": 1, "offset": 0}, 1.0))
    view = then(view, came(snapshot(1, leader="m2", epoch=4, failed={})))
    assert cells(view, "Count") == ["12"]


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize(
    ("bound", "shown_text"),
    [(0.0, "–"), (1.0, "≤ 1 ms"), (86.736, "≤ 87 ms"), (108.42, "≤ 110 ms"), (1_355.0, "≤ 1.4 s")],
)
def test_the_edge_of_a_class_is_not_shown_as_a_measurement(bound: float, shown_text: str) -> None:
    """Two digits and a sign that it is a bound."""
    assert latency(bound) == shown_text


def test_one_is_not_many() -> None:
    """`1 pages` is not English."""
    assert (plural(1, "page"), plural(2, "page"), plural(0, "page")) == (
        "1 page",
        "2 pages",
        "0 pages",
    )


def test_charts_reach_back_a_day_and_can_be_of_a_run_or_a_host() -> None:
    """The question names the series."""
    view = then(heard(snapshot(0)), GoTo(Place(ConsolePage.CHARTS, "host:34")))
    view = then(view, SetSpan(), SetSpan(), SetSpan())
    question = next(question for question in questions(view) if question.op == "history")
    assert question.args == {"span_s": 86_400, "host": 34}
    assert question.slot == "charts:host:34"
