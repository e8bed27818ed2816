"""The contract of a store: jobs as definitions, their versions, and how runs begin and end."""

from __future__ import annotations

import msgspec
import pytest

from tests.contract.store_world import DEAD, DONE, SKIPPED, A, B, C, D, World, client_action
from zcrawl.errors import StoreError
from zcrawl.model.states import JobState, RunCause, RunState
from zcrawl.store.commands import Forget, Forgotten, StartFacts
from zcrawl.store.queries import (
    NEWEST,
    FindJob,
    JobList,
    JobRow,
    JobVersions,
    ListJobs,
    ReadRuns,
    ReadVersions,
    RunRows,
    Tallies,
    TallyRows,
)


def job_of(world: World, ref: str) -> JobRow:
    (job,) = world.ask(FindJob(ref), JobList).jobs
    return job


def versions(world: World, job: int) -> list[tuple[int, bytes, str]]:
    rows = world.ask(ReadVersions(job), JobVersions).rows
    return [(row.version, row.spec, row.author) for row in rows]


# ---------------------------------------------------------------- definitions


def test_a_job_lives_without_a_run(world: World) -> None:
    """A submission can store it only; later it runs, and its name stays taken without runs."""
    stored = world.submit(A, name="docs", start=False, by="ann@laptop")
    assert (stored.refused, stored.run, stored.row, stored.admitted) == ("", 0, None, [])
    job = job_of(world, "docs")
    assert (job.runs, job.state, job.owner) == ([], JobState.ACTIVE, "ann@laptop")
    assert world.submit(A, name="docs").refused == "name_exists"
    again = world.submit(A, name="docs", mode="again")
    assert (again.job, again.refused) == (stored.job, "")
    world.change_run(again.run, RunState.DELETED)
    while world.sweep(again.run).more:
        pass
    assert job_of(world, "docs").runs == []


def test_a_submission_that_starts_nothing_is_repeated_without_effect(world: World) -> None:
    """The stored answer says that no run was started."""
    first = world.submit(A, request="same", start=False)
    repeated = world.submit(A, request="same", start=False)
    assert (repeated.repeated, repeated.job, repeated.run, repeated.row) == (
        True,
        first.job,
        0,
        None,
    )
    assert [version for version, _, _ in versions(world, first.job)] == [1]


def test_each_changed_spec_is_a_version_of_the_job(world: World) -> None:
    """With its author; a run keeps the number of its version; an equal spec is none."""
    first = world.submit(A, name="docs", spec=b'{"name":"1"}', by="ann")
    same = world.submit(A, name="docs", mode="update", spec=b'{"name":"1"}', by="ben")
    other = world.submit(A, name="docs", mode="update", spec=b'{"name":"2"}', by="ben")
    again = world.submit(A, name="docs", mode="again", spec=b'{"name":"3"}', by="eve")
    assert versions(world, first.job) == [(1, b'{"name":"1"}', "ann"), (2, b'{"name":"2"}', "ben")]
    rows = [world.run_row(submitted.run) for submitted in (first, same, other, again)]
    assert [row.version for row in rows] == [1, 1, 2, 2]
    job = job_of(world, "docs")
    assert (job.version, job.owner) == (2, "ann")


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.ARCHIVED, JobState.ACTIVE])
def test_the_state_of_a_job_changes_no_run(world: World, state: JobState) -> None:
    """The runs go on; a repeated request gets the stored answer."""
    run = world.submit(A, name="docs")
    changed = world.change_job(run.job, state, "q")
    assert changed.row is not None
    assert (changed.refused, changed.row.state, changed.runs) == ("", state, [])
    assert world.run_row(run.run).state is RunState.PENDING
    assert job_of(world, "docs").state is state
    again = world.change_job(run.job, JobState.DELETED, "q")
    assert again.reply == changed.reply
    assert msgspec.json.decode(again.reply)["state"] == state.value
    assert job_of(world, "docs").state is state


def test_an_archived_job_is_not_run_again_by_mistake(world: World) -> None:
    """A new spec may still be stored."""
    job = world.submit(A, name="docs").job
    world.change_job(job, JobState.ARCHIVED)
    assert world.submit(A, name="docs", mode="again").refused == "job_archived"
    world.change_job(job, JobState.ACTIVE)
    assert world.submit(A, name="docs", mode="again").refused == ""


def test_a_job_is_deleted_with_all_its_runs_and_its_name_is_free(world: World) -> None:
    """In one transaction. Its rows go by and by."""
    first = world.submit(A, B, name="docs")
    second = world.submit(A, name="docs", mode="again")
    deleted = world.change_job(first.job, JobState.DELETED, "q")
    assert [row.id for row in deleted.runs] == [first.run, second.run]
    assert {row.state for row in deleted.runs} == {RunState.DELETED}
    assert world.change_job(first.job, JobState.ACTIVE).refused == "no_such_job"
    third = world.submit(A, name="docs")
    assert third.job != first.job
    for run in (first.run, second.run):
        while world.sweep(run).more:
            pass
    assert [job.id for job in world.ask(ListJobs(), JobList).jobs] == [third.job]
    assert versions(world, first.job) == []
    assert world.change_job(99, JobState.PAUSED).refused == "no_such_job"


def test_a_deleted_job_without_runs_is_removed_by_the_pruning(world: World) -> None:
    """No sweep of a run would do it."""
    job = world.submit(A, name="docs", start=False).job
    assert world.change_job(job, JobState.DELETED).refused == ""
    assert world.submit(A, name="docs").job != job
    before = world.now - 1
    assert not world.do(Forget(world.epoch, (), before, before, 500), Forgotten).more
    assert job not in [row.id for row in world.ask(ListJobs(), JobList).jobs]


# ---------------------------------------------------------------- how runs begin


def test_a_run_is_pending_until_a_worker_accepts_work(world: World) -> None:
    """Only then its time counts."""
    run = world.submit(A).run
    assert (world.run_row(run).state, world.run_row(run).started_at) == (RunState.PENDING, 0.0)
    world.now += 5
    (begun,) = world.begin(run, 99).rows
    assert (begun.state, begun.started_at) == (RunState.RUNNING, world.now)
    world.now += 5
    assert world.begin(run).rows == [begun]
    assert [row.state for row in world.reload().runs] == [RunState.RUNNING]


def test_a_result_lets_a_pending_run_begin(world: World) -> None:
    """It may be committed before the leader has heard the acceptance."""
    done = world.submit(A, B)
    (row,) = world.finish(done.admitted[0], DONE).runs
    assert (row.state, row.started_at) == (RunState.RUNNING, world.now)


def test_a_paused_run_goes_on_as_it_was(world: World) -> None:
    """Pending if no worker had work of it, else running."""
    run = world.submit(A).run
    for expected in (RunState.PENDING, RunState.RUNNING):
        world.change_run(run, RunState.PAUSED)
        assert world.begin(run).rows[0].state is RunState.PAUSED
        assert world.change_run(run, RunState.RUNNING).row == world.run_row(run)
        assert world.run_row(run).state is expected
        world.begin(run)


def test_a_due_time_starts_one_run(world: World) -> None:
    """Whoever tries it again; another job may have the same due time."""
    facts = StartFacts(RunCause.CRON, 500.0, b'{"day":"monday"}', 7)
    first = world.submit(A, name="docs", start_facts=facts)
    row = world.run_row(first.run)
    assert (row.cause, row.due_at, row.params, row.chain) == (
        RunCause.CRON,
        500.0,
        b'{"day":"monday"}',
        7,
    )
    with pytest.raises(StoreError):
        world.submit(A, name="docs", mode="again", start_facts=facts)
    assert world.submit(A, name="other", start_facts=facts).refused == ""
    for _ in range(2):
        assert world.submit(A, name="docs", mode="again").refused == ""


def test_a_new_run_can_replace_the_live_ones(world: World) -> None:
    """They are cancelled in the transaction that starts it; an ended one stays as it is."""
    ended, live = world.submit(A, name="docs"), world.submit(A, B, name="docs", mode="again")
    world.finish(ended.admitted[0], DONE)
    new = world.submit(A, name="docs", mode="again", cancels=(ended.run, live.run, 99))
    assert [(row.id, row.state, row.reason) for row in new.cancelled] == [
        (live.run, RunState.CANCELLED, "cancelled")
    ]
    states = [world.run_row(run).state for run in (ended.run, live.run, new.run)]
    assert states == [RunState.COMPLETED, RunState.CANCELLED, RunState.PENDING]
    assert world.run_row(live.run).counters.skipped == 2


def test_a_new_spec_can_be_given_to_live_runs(world: World) -> None:
    """They get the version; one that has as many pages as it allows ends; ended ones stay."""
    ended, full = world.submit(A, name="docs"), world.submit(A, B, name="docs", mode="again")
    live = world.submit(A, B, name="docs", mode="again")
    world.finish(ended.admitted[0], DONE)
    world.finish(full.admitted[0], DONE)
    spec = b'{"scope":{"max_pages":1}}'
    runs = tuple((run, spec) for run in (ended.run, full.run, live.run, 99))
    stored = world.submit(name="docs", mode="update", spec=spec, start=False, live=runs)
    assert [(row.id, row.version, row.state) for row in stored.changed] == [
        (full.run, 2, RunState.COMPLETED),
        (live.run, 2, RunState.PENDING),
    ]
    assert [row.spec for row in stored.changed] == [spec, spec]
    assert world.run_row(ended.run).version == 1
    assert world.run_row(full.run).reason == "max_pages"


# ---------------------------------------------------------------- how runs end


@pytest.mark.parametrize(
    ("ends", "spec", "state", "reason"),
    [
        ((200, 200, 500, 404), b"{}", RunState.COMPLETED, ""),
        (
            (200, 500, 500, 404),
            b"{}",
            RunState.FAILED,
            "too_many_failed: 2 of 3; fail_above is 0.5",
        ),
        ((200, 500, 500, 500), b'{"fail_above":0.75}', RunState.COMPLETED, ""),
        ((200, 404, 410, 404), b'{"fail_above":0}', RunState.COMPLETED, ""),
        ((200, 200, 200, 500), b'{"fail_above":0}', RunState.FAILED, "too_many_failed: 1 of 4; "),
        ((404, 404, 404, 404), b'{"fail_above":1}', RunState.FAILED, "no_page_fetched: 4 failed"),
    ],
)
def test_a_run_is_judged_at_its_end(
    world: World, ends: tuple[int, ...], spec: bytes, state: RunState, reason: str
) -> None:
    """By the share of failed requests; answers that a page is missing do not count."""
    rows = world.submit(A, B, C, D, spec=spec).admitted
    for row, status in zip(rows, ends, strict=True):
        if status == 200:
            world.finish(row, DONE)
        else:
            world.finish(row, DEAD, reason=f"http_{status}", status=status)
    run = world.run_row(rows[0].run)
    assert run.state is state
    assert run.reason.startswith(reason)
    assert bool(run.reason) == bool(reason)
    assert run.missing == sum(status in (404, 410) for status in ends)


def test_a_run_whose_seeds_were_all_skipped_has_failed(world: World) -> None:
    """Nothing was fetched."""
    (row,) = world.submit(A).admitted
    (run,) = world.finish(row, SKIPPED, reason="robots").runs
    assert (run.state, run.reason.partition(":")[0]) == (RunState.FAILED, "no_page_fetched")


def test_a_retried_answer_404_counts_once(world: World) -> None:
    """The count of missing pages goes back with the request."""
    rows = world.submit(A, B).admitted
    world.finish(rows[0], DONE)
    world.finish(rows[1], DEAD, reason="http_404", status=404)
    retried = world.retry(rows[0].run)
    assert retried.row is not None
    assert (retried.row.missing, retried.row.state) == (0, RunState.RUNNING)
    world.finish(retried.rows[0], DEAD, reason="http_500", status=500)
    run = world.run_row(rows[0].run)
    assert (run.missing, run.state) == (0, RunState.COMPLETED)


def test_a_run_remembers_who_worked_on_it(world: World) -> None:
    """By worker, the requests that it has ended; also when the worker is gone."""
    rows = world.submit(A, B, C).admitted
    world.finish(rows[0], DONE, worker="w1")
    world.finish(rows[1], DEAD, reason="dns", worker="w2")
    world.apply(world.change(rows[2], None, worker="w3"))
    world.finish(rows[2], DONE, worker="w2")
    assert world.ask(Tallies(rows[0].run), TallyRows).workers == {"w1": 1, "w2": 2}


def test_runs_are_listed_newest_first(world: World) -> None:
    """Of all jobs, in pages; deleted ones are left out."""
    runs = [world.submit(A).run for _ in range(4)]
    world.change_run(runs[2], RunState.DELETED)
    rows = world.ask(ReadRuns(NEWEST, 2), RunRows).rows
    assert [row.id for row in rows] == [runs[3], runs[1]]
    assert [row.id for row in world.ask(ReadRuns(runs[1], 9), RunRows).rows] == [runs[0]]
    (job,) = world.ask(FindJob("", runs[1]), JobList).jobs
    assert [run.id for run in job.runs] == [runs[1]]
    assert world.ask(FindJob("", 99), JobList).jobs == []


def test_what_was_asked_of_a_job_is_answered_once(world: World) -> None:
    """An action on a job stores its answer like an action on a run."""
    job = world.submit(A, name="docs").job
    changed = world.change_job(job, JobState.PAUSED, "q")
    assert changed.reply
    assert client_action("q").request == "q"
    assert world.change_job(job, JobState.PAUSED, "q").reply == changed.reply
