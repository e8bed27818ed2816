"""The contract of a store: dead requests, tried again or quarantined."""

from __future__ import annotations

from tests.contract.store_world import DEAD, DONE, SKIPPED, A, B, C, D, World
from zcrawl.model.rows import LaneWant, Refilled, RunCounters
from zcrawl.model.states import RunState
from zcrawl.store.commands import CountCrash, CrashCounted
from zcrawl.store.queries import Failures, ReadFailed, Refill


def test_dead_requests_can_be_tried_again(world: World) -> None:
    """They are queued again in parts, and a run that failed is running again."""
    rows = world.submit(A, B, C, D).admitted
    for row in rows[:3]:
        world.finish(row, DEAD, reason="dns", attempts=4, status=500)
    world.finish(rows[3], DONE)
    assert world.run_row(rows[0].run).state is RunState.FAILED
    first = world.retry(rows[0].run, 2)
    assert (first.refused, first.rows, first.changed, first.more) == ("", rows[:2], 2, True)
    assert [host.id for host in first.hosts] == [rows[0].host]
    assert first.row is not None
    assert (first.row.state, first.row.ended_at, first.row.reason) == (RunState.RUNNING, 0.0, "")
    assert first.row.counters == RunCounters(4, 2, done=1, failed=1, items=1, bytes=10)
    assert world.tallies(rows[0].run).failed == {"dns": 1}
    second = world.retry(rows[0].run, 2)
    assert (second.rows, second.changed, second.more) == ([rows[2]], 3, False)
    assert world.retry(99, request="other").refused == "no_such_run"
    assert world.finish(rows[0], DONE).runs[0].counters.done == 2


def test_a_retry_can_be_of_one_reason_or_one_host(world: World) -> None:
    """What failed for another reason, or elsewhere, stays dead."""
    elsewhere = "https://b.test/"
    a, b, c = world.submit(A, B, elsewhere).admitted
    world.finish(a, DEAD, reason="dns")
    world.finish(b, DEAD, reason="tls")
    world.finish(c, DEAD, reason="dns")
    rows = world.ask(ReadFailed(a.run, 0, 9, "dns", a.host), Failures).rows
    assert [row.url for row in rows] == [A]
    retried = world.retry(a.run, reason="dns", host=c.host)
    assert retried.rows == [c]
    retried = world.retry(a.run, request="other", reason="tls")
    assert retried.rows == [b]
    assert world.failures(a.run) == [(A, DEAD, "dns")]


def test_retrying_nothing_leaves_a_run_completed(world: World) -> None:
    """A run without dead requests is not reopened."""
    row = world.submit(A).admitted[0]
    world.finish(row, DONE)
    retried = world.retry(row.run)
    assert (retried.rows, retried.changed, retried.more) == ([], 0, False)
    assert retried.row is not None
    assert retried.row.state is RunState.COMPLETED


def test_a_reopened_run_does_not_revive_what_it_had_skipped(world: World) -> None:
    """A stopped run that is retried before its sweep keeps its skipped requests skipped."""
    a = world.submit(A, B, C).admitted[0]
    world.finish(a, DEAD, reason="dns")
    world.change_run(a.run, RunState.COMPLETED, "stopped")
    retried = world.retry(a.run)
    assert retried.rows == [a]
    assert retried.row is not None
    assert retried.row.counters == RunCounters(admitted=3, pending=1, skipped=2)
    want = LaneWant(a.run, a.host, None, 10)
    assert world.ask(Refill((want,)), Refilled).lanes == [(want, [a], True)]
    assert world.failures(a.run) == [(B, SKIPPED, "stopped"), (C, SKIPPED, "stopped")]


def test_crashes_are_counted_and_the_third_quarantines(world: World) -> None:
    """The count is stored with the request; quarantine ends it dead and may complete the run."""
    a, b = world.submit(A, B).admitted
    world.finish(b, DONE)
    world.do(CountCrash(1, a.seq, 2, False, 1.0), CrashCounted)
    want = LaneWant(a.run, a.host, None, 10)
    ((_, (row,), _),) = world.ask(Refill((want,)), Refilled).lanes
    assert row.crashes == 2
    counted = world.do(CountCrash(1, a.seq, 3, True, 1.0), CrashCounted).row
    assert counted is not None
    assert counted.state is RunState.COMPLETED
    assert counted.counters == RunCounters(2, 0, done=1, failed=1, items=1, bytes=10)
    assert world.failures(a.run) == [(A, DEAD, "quarantined")]
    assert world.tallies(a.run).failed == {"quarantined": 1}
    assert world.do(CountCrash(1, a.seq, 4, True, 1.0), CrashCounted).row == counted
    assert world.do(CountCrash(1, 99, 1, True, 1.0), CrashCounted).row is None
