"""Job views: counters, percent, times and the summary."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from zcrawl.cli.commands.submit import with_remedy
from zcrawl.dispatch.in_flight import NONE, InFlight
from zcrawl.model.rows import RunCounters, RunRow
from zcrawl.model.snapshot import LiveRunView
from zcrawl.model.spec import JobSpec, Scope
from zcrawl.model.states import RunState
from zcrawl.store.queries import JobRow, TallyRows
from zcrawl.submit.read import to_json
from zcrawl.telemetry.views import LiveRun, iso, job_view, run_view, summary

SPEC = JobSpec(name="x", seeds=("https://x/",))


def run(
    state: RunState = RunState.RUNNING, spec: JobSpec = SPEC, number: int = 7, **counts: int
) -> RunRow:
    return RunRow(
        id=number,
        job=3,
        name="x",
        state=state,
        reason="",
        spec=to_json(spec),
        seed_hosts=("x",),
        seeding=False,
        counters=RunCounters(**counts),
        created_at=100.0,
        started_at=100.0,
        ended_at=110.0 if state.ended else 0.0,
    )


def view(*runs: RunRow, **more: Any) -> dict[str, Any]:
    job = JobRow(3, "x", to_json(SPEC), 99.5, list(runs))
    return job_view(job, more.get("tallies"), more.get("live"), more.get("now", 120.0))


def test_a_running_job_tells_counts_times_rate_and_who_works_on_it() -> None:
    """Everything that `job --json` promises is there, and can be written as JSON."""
    counts: dict[str, Any] = {
        "admitted": 100,
        "pending": 40,
        "done": 50,
        "failed": 4,
        "skipped": 6,
        "items": 50,
    }
    seen = view(
        run(**counts, bytes=1000),
        live=LiveRun(InFlight(2, 1), ["w2", "w1"], [f"https://x/{n}" for n in range(60)]),
        tallies=TallyRows({404: 4, 200: 50}, {"http_404": 1, "dns": 3}, {"robots": 6}),
    )
    assert (seen["pages"], seen["queued"], seen["in_flight"]) == (50, 37, 3)
    assert (seen["fetching"], seen["waiting"], seen["uncommitted"]) == (2, 1, 0)
    assert (seen["seconds"], seen["pages_per_second"]) == (20.0, 2.5)
    assert seen["percent"] == 60.0
    assert seen["workers"] == ["w1", "w2"]
    assert len(seen["in_flight_urls"]) == 50
    assert list(seen["statuses"]) == ["200", "404"]
    assert list(seen["failed_reasons"]) == ["dns", "http_404"]
    assert seen["spec"]["seeds"] == ["https://x/"]
    assert seen["created_at"] == "1970-01-01T00:01:39.500Z"
    assert seen["ended_at"] is None
    assert msgspec.json.decode(msgspec.json.encode(seen)) == seen


def test_nothing_is_counted_twice_and_nothing_is_left_out() -> None:
    """G2 as a user sees it: all admitted requests are in exactly one of the counts."""
    seen = view(
        run(admitted=10, pending=4, done=3, failed=2, skipped=1),
        live=LiveRun(in_flight=InFlight(fetching=1)),
    )
    names = ("pages", "failed", "skipped", "queued", "in_flight")
    assert sum(seen[name] for name in names) == seen["admitted"] == 10


def test_percent_is_the_further_of_final_requests_and_max_pages() -> None:
    """A limited crawl of a huge site is nearly over although its queue is long."""
    limited = JobSpec(name="x", scope=Scope(max_pages=10))
    assert view(run(spec=limited, admitted=1000, pending=991, done=9))["percent"] == 90.0
    assert view(run(spec=limited, admitted=4, pending=1, done=3))["percent"] == 75.0


def test_percent_is_100_only_when_the_run_has_ended() -> None:
    """Between the last page and the end there may still be work."""
    assert view(run(admitted=5, done=5))["percent"] == 99.9
    assert view(run(RunState.COMPLETED, admitted=5, done=5))["percent"] == 100.0
    assert view(run(RunState.CANCELLED, admitted=5, done=1, skipped=4))["percent"] == 100.0
    assert view(run())["percent"] == 0.0


def test_an_ended_run_stops_its_clock() -> None:
    """Seconds and rate are those of the run, whenever one looks."""
    seen = view(run(RunState.COMPLETED, admitted=5, done=5), now=99_999.0)
    assert (seen["seconds"], seen["pages_per_second"]) == (10.0, 0.5)


def test_a_clock_that_was_set_back_gives_no_negative_time() -> None:
    """Also no division by zero and no infinite rate."""
    seen = view(run(admitted=5, done=5), now=50.0)
    assert (seen["seconds"], seen["pages_per_second"]) == (0.0, 0.0)


def test_the_view_is_that_of_the_newest_run_and_lists_all() -> None:
    """In-flight requests belong to the newest run only."""
    old = run(RunState.COMPLETED, number=6, admitted=2, done=2)
    seen = view(run(admitted=3, pending=3), old, live=LiveRun(in_flight=InFlight(fetching=1)))
    assert seen["run"] == 7
    assert [(row["run"], row["pages"], row["in_flight"]) for row in seen["runs"]] == [
        (7, 0, 1),
        (6, 2, 0),
    ]


def test_a_job_without_runs_can_be_shown() -> None:
    """It lives without them."""
    seen = view()
    assert (seen["job"], seen["run"], seen["state"], seen["percent"]) == (3, None, "active", 0.0)
    assert summary(seen)["pages"] == 0


def test_the_summary_has_exactly_the_promised_keys() -> None:
    """Scripts rely on them, for a job's view and for a run's."""
    counts = ["pages", "unchanged", "items", "failed", "skipped", "queued", "bytes"]
    reasons = ["failed_reasons", "skipped_reasons", "dropped", "rejected_items", "fields"]
    names = ["seconds", "pages_per_second", *reasons, "examples", "outputs"]
    keys = ["job", "run", "state", *counts, *names]
    assert list(summary(view(run()))) == keys
    assert list(summary(msgspec.structs.asdict(run_view(run(), NONE, 120.0)))) == keys


def test_times_are_utc_with_milliseconds() -> None:
    """Zero means never."""
    assert iso(0) is None
    assert iso(1_767_225_600.25) == "2026-01-01T00:00:00.250Z"


def test_a_job_says_what_no_live_worker_has_in_a_field_of_its_own() -> None:
    """Only while that is the reason shown: a paused run waits for somebody else."""
    live = LiveRun(waiting="waiting: no live worker has parser 'pdf' yet", missing="parser 'pdf'")
    waits = view(run(admitted=1, pending=1), live=live)
    assert (waits["reason"], waits["missing"]) == (live.waiting, "parser 'pdf'")
    paused = msgspec.structs.replace(run(RunState.PAUSED), reason="by request")
    assert view(paused, live=live)["missing"] == view(run())["missing"] == ""


def test_the_remedy_is_for_what_no_live_worker_has_and_for_nothing_else() -> None:
    """Asked of the field: the words of the reason may be any."""
    waits = {"job": 3, "reason": "waiting: in other words", "missing": "parser 'pdf'"}
    assert with_remedy(waits).startswith("waiting: in other words; install it where a worker runs")
    assert with_remedy(waits).endswith("zcrawl cancel 3")
    assert with_remedy({**waits, "missing": ""}) == "waiting: in other words"
    assert with_remedy({"job": 3, "reason": "of a run's own view"}) == "of a run's own view"


def test_a_cancelled_run_has_got_as_far_as_it_had() -> None:
    """What was queued then counts as skipped, and is still not progress."""
    counts: dict[str, Any] = {"admitted": 10, "done": 3, "failed": 1, "skipped": 6}
    cancelled = msgspec.structs.replace(run(RunState.CANCELLED, **counts), unfetched=6)
    assert view(cancelled)["percent"] == 40.0
    snapshot = LiveRunView(job=3, run=7, state="cancelled", admitted=10, unfetched=6, pages=3)
    assert snapshot.share == pytest.approx(0.4)
    assert view(run(RunState.COMPLETED, **counts))["percent"] == 100.0


def test_the_pause_before_a_retry_is_not_a_part_of_the_duration() -> None:
    """A run of 20 s that was retried after an hour has taken 20 s, not an hour."""
    retried = msgspec.structs.replace(run(admitted=5, done=5), idle_s=3_600.0)
    seen = view(retried, now=100.0 + 3_600.0 + 20.0)
    assert (seen["seconds"], seen["pages_per_second"]) == (20.0, 0.25)
