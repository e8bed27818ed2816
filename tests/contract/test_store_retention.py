"""The contract of a store: which runs are to be removed, and why one could not be."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.contract.store_world import DEAD, DONE, A, B, World, client_action
from zcrawl.model.spec import Retention
from zcrawl.model.states import JobState, RunState
from zcrawl.store.commands import AdvanceOutput, ChangeRun, Done, NoteArchive, RunChanged
from zcrawl.store.queries import Items as StoredItems
from zcrawl.store.queries import KeptRun, ReadItems, ReadRemovable, RemovableRun, RemovableRuns
from zcrawl.store.retention import DAY_S

NOTHING = Retention()


def spec_of(name: str, **retention: Any) -> bytes:
    return msgspec.json.encode({"name": name, "retention": retention})


def ended_run(world: World, name: str, **changes: Any) -> int:
    """A run of a job with one page, which has completed."""
    submitted = world.submit(A, name=name, mode="update", **changes)
    for row in submitted.admitted:
        world.finish(row, DONE)
    return submitted.run


def removable(world: World, **changes: Any) -> list[RemovableRun]:
    fields: dict[str, Any] = {"now": world.now, "defaults": NOTHING, "limit": 100, **changes}
    return world.ask(ReadRemovable(**fields), RemovableRuns).rows


def test_runs_beyond_the_newest_are_removable_the_oldest_first(world: World) -> None:
    """By number, in the order of jobs, with what an archive needs to know. Live and deleted runs
    do not count."""
    spec = spec_of("docs", keep_runs=2, archive="old", archive_format="csv")
    runs = [ended_run(world, "docs", spec=spec) for _ in range(5)]
    world.change_run(runs[4], RunState.DELETED)
    world.submit(B, name="docs", mode="update", spec=spec)
    rows = removable(world)
    assert [row.run for row in rows] == runs[:2]
    why = "number 4 of the newest; keep_runs is 2"
    expected = RemovableRun(1, "docs", runs[0], 100.0, why, "old", "csv", True)
    assert rows[0] == expected


def test_old_runs_are_removable_by_their_end(world: World) -> None:
    """Days count from the end of the run, whatever its state."""
    spec = spec_of("docs", keep_days=1.0)
    ended_run(world, "docs", spec=spec)
    failed = world.submit(A, name="docs", mode="update", spec=spec)
    world.finish(failed.admitted[0], DEAD, reason="dns")
    assert removable(world, now=100.0 + DAY_S) == []
    rows = removable(world, now=100.0 + 2 * DAY_S)
    assert [(row.run, row.why) for row in rows] == [
        (1, "ended 2.0 days ago; keep_days is 1"),
        (failed.run, "ended 2.0 days ago; keep_days is 1"),
    ]


def test_the_masters_values_hold_where_a_job_has_none(world: World) -> None:
    """A job can keep more with 0, which is no limit; a job that cannot be read keeps its runs."""
    defaults = Retention(keep_runs=1, archive="/srv/old")
    plain = [ended_run(world, "plain", spec=spec_of("plain")) for _ in range(2)]
    for _ in range(2):
        ended_run(world, "all", spec=spec_of("all", keep_runs=0))
        ended_run(world, "unreadable", spec=b'{"retention":{"keep_runs":"x"}}')
    rows = removable(world, defaults=defaults)
    assert [(row.run, row.archive, row.by_job) for row in rows] == [(plain[0], "/srv/old", False)]
    assert removable(world) == []


def test_the_answer_comes_in_parts(world: World) -> None:
    """Each one goes on after the last run of the one before; one job can be asked for alone."""
    for name in ("a", "b"):
        for _ in range(4):
            ended_run(world, name, spec=spec_of(name, keep_runs=1))
    everything = removable(world)
    assert len(everything) == 6
    parts: list[RemovableRun] = []
    after = (0, 0)
    while part := removable(world, limit=2, after=after):
        assert len(part) <= 2
        parts += part
        after = (part[-1].job, part[-1].run)
    assert parts == everything
    assert removable(world, job=2) == everything[3:]


def test_a_deleted_job_has_no_removable_runs_and_an_archived_one_has(world: World) -> None:
    """The runs of a deleted job go anyway; an archived job is only hidden."""
    for name in ("gone", "hidden"):
        for _ in range(2):
            ended_run(world, name, spec=spec_of(name, keep_runs=1))
    world.change_job(1, JobState.DELETED)
    world.change_job(2, JobState.ARCHIVED)
    assert [row.name for row in removable(world)] == ["hidden"]


def test_the_newest_completed_run_of_a_parent_is_kept(world: World) -> None:
    """The job that depends on it may not have used it yet. Failed runs do not count."""
    spec = spec_of("lists", keep_runs=1)
    runs = [ended_run(world, "lists", spec=spec) for _ in range(3)]
    failed = world.submit(A, name="lists", mode="update", spec=spec)
    world.finish(failed.admitted[0], DEAD, reason="dns")
    assert [row.run for row in removable(world)] == runs
    child = msgspec.json.encode({"name": "pages", "schedule": {"after": [{"job": "lists"}]}})
    world.submit(B, name="pages", spec=child)
    assert [row.run for row in removable(world)] == runs[:2]


def test_a_run_names_the_outputs_that_are_not_complete(world: World) -> None:
    """Until the file holds every item: the rows are needed for that."""
    spec = spec_of("docs", keep_runs=1)
    first = ended_run(world, "docs", spec=spec, output=("/out/x.jsonl", "jsonl"))
    ended_run(world, "docs", spec=spec)
    assert [row.unwritten for row in removable(world)] == [("/out/x.jsonl",)]
    (item,) = world.ask(ReadItems(first, 0, 9), StoredItems).rows
    world.do(AdvanceOutput(1, first, "/out/x.jsonl", item.id, 8), Done)
    assert [row.unwritten for row in removable(world)] == [()]


def test_a_problem_of_an_archive_is_stored_and_counted(world: World) -> None:
    """It is shown with each run of the job until it is over; a run does not fail for it."""
    spec = spec_of("docs", keep_runs=1)
    runs = [ended_run(world, "docs", spec=spec) for _ in range(3)]
    for problem in ("[disk_full] größer", "[store_unavailable] " + "x" * 1_000):
        world.do(NoteArchive(1, runs[0], problem), Done)
    world.do(NoteArchive(1, 999, "there is no such run"), Done)
    problem = ("[store_unavailable] " + "x" * 1_000)[:255]
    assert [(row.problem, row.failures) for row in removable(world)] == [(problem, 2), ("", 0)]
    for run in runs:
        tallies = world.tallies(run)
        assert tallies.not_removed == [KeptRun(runs[0], problem)]
        assert (tallies.failed, tallies.skipped) == ({}, {})
    world.do(NoteArchive(1, runs[0], ""), Done)
    assert world.tallies(runs[2]).not_removed == []
    world.do(NoteArchive(1, runs[0], "again"), Done)
    world.change_run(runs[0], RunState.DELETED)
    assert world.tallies(runs[2]).not_removed == []
    while world.sweep(runs[0]).more:
        pass
    assert removable(world)[0].problem == ""


def delete_if_ended(world: World, run: int, ended_at: float, request: str) -> RunChanged:
    action = client_action(request)
    command = ChangeRun(
        world.epoch, request, run, RunState.DELETED, "deleted", 1.0, action, (), ended_at
    )
    return world.do(command, RunChanged)


def test_a_run_that_was_reopened_is_not_deleted(world: World) -> None:
    """A retry between the archive and the delete: neither while it goes on nor after its other
    end. The same request is not carried out twice."""
    submitted = world.submit(A, B)
    world.finish(submitted.admitted[0], DONE)
    world.finish(submitted.admitted[1], DEAD, reason="dns")
    world.now = 150.0
    (again,) = world.retry(submitted.run).rows
    assert delete_if_ended(world, submitted.run, 100.0, "x").refused == "run_reopened"
    world.finish(again, DONE)
    assert delete_if_ended(world, submitted.run, 100.0, "x").refused == "run_reopened"
    row = world.run_row(submitted.run)
    assert (row.state, row.ended_at) == (RunState.COMPLETED, 150.0)
    done = delete_if_ended(world, submitted.run, 150.0, "x")
    assert done.row is not None
    assert (done.refused, done.row.state) == ("", RunState.DELETED)
    assert delete_if_ended(world, submitted.run, 150.0, "x").reply
