"""The contract of a store: failed requests are counted by run, host and reason."""

from __future__ import annotations

from tests.contract.store_world import DEAD, A, B, C, World
from zcrawl.model.states import RunState
from zcrawl.store.queries import FailureGroupRow, FailureGroupRows, ReadFailureGroups

OTHER = "https://b.test/x"


def groups(world: World, run: int | None = None, limit: int = 100) -> list[FailureGroupRow]:
    return world.ask(ReadFailureGroups(run, 10, limit), FailureGroupRows).rows


def failed(world: World) -> int:
    """A run in which two requests of one host failed for one reason, and one of another."""
    submitted = world.submit(A, B, C, OTHER)
    reasons = {A: "dns", B: "dns", OTHER: "connect"}
    for row in submitted.admitted:
        if row.url in reasons:
            world.finish(row, DEAD, reason=reasons[row.url])
    return submitted.run


def test_failed_requests_are_counted_by_host_and_reason(world: World) -> None:
    """The largest group first, with the newest URL of each."""
    run = failed(world)
    rows = groups(world)
    assert [(row.run, row.origin, row.reason, row.count, row.url) for row in rows] == [
        (run, "https://a.test", "dns", 2, B),
        (run, "https://b.test", "connect", 1, OTHER),
    ]
    assert rows == groups(world, run)
    assert groups(world, run, 1) == rows[:1]
    assert groups(world, run + 1) == []


def test_a_retry_queues_as_many_as_its_group_has(world: World) -> None:
    """What the errors page shows is what a retry does."""
    run = failed(world)
    row = groups(world)[0]
    assert world.retry(run, 100, "r", row.reason, row.host).changed == row.count
    assert [left.reason for left in groups(world)] == ["connect"]


def test_a_deleted_run_has_no_groups(world: World) -> None:
    """Its rows may still be there, until they are swept."""
    run = failed(world)
    world.change_run(run, RunState.DELETED)
    assert groups(world) == []


def test_the_pause_before_a_retry_is_counted(world: World) -> None:
    """A completed run that is retried later has rested since its end."""
    submitted = world.submit(A)
    world.finish(submitted.admitted[0], DEAD, reason="dns")
    ended_at = world.run_row(submitted.run).ended_at
    world.now += 3_600.0
    world.retry(submitted.run)
    row = world.run_row(submitted.run)
    assert (row.state, row.ended_at) == (RunState.RUNNING, 0.0)
    assert row.idle_s == world.now - ended_at == 3_600.0


def test_what_a_run_had_not_fetched_when_it_was_cancelled_is_counted(world: World) -> None:
    """It counts as skipped, and is not progress."""
    run = failed(world)
    world.change_run(run, RunState.CANCELLED, "cancelled")
    assert world.run_row(run).unfetched == 1
