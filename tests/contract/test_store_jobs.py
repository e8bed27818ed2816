"""The contract of a store: jobs and their seeds."""

from __future__ import annotations

import pytest

from tests.contract.store_world import DONE, A, B, C, World
from zcrawl.errors import StoreDataError
from zcrawl.model.rows import RunCounters
from zcrawl.model.states import RunState
from zcrawl.store.queries import FindJob, JobList, ListJobs


def test_a_submission_starts_a_run_with_its_seeds(world: World) -> None:
    """Seeds enter at depth 0 without a parent; a seed given twice enters once."""
    done = world.submit(A, B, A, seed_hosts=("a.test", "a.test"))
    assert [(q.url, q.depth, q.parent) for q in done.admitted] == [(A, 0, None), (B, 0, None)]
    assert (done.refused, done.repeated) == ("", False)
    assert done.row is not None
    assert done.row == world.run_row(done.run)
    assert done.row.state is RunState.PENDING
    assert done.row.seed_hosts == ("a.test",)
    assert done.row.counters == RunCounters(admitted=2, pending=2)
    assert [host.origin for host in done.hosts] == ["https://a.test"]


def test_a_repeated_request_is_answered_and_not_done_again(world: World) -> None:
    """The reply is stored with the job (G1), also for seeds."""
    first = world.submit(A, request="same", seeding=True)
    again = world.submit(B, request="same", name="other")
    assert (again.job, again.run, again.repeated) == (first.job, first.run, True)
    assert (again.admitted, again.hosts) == ([], [])
    assert again.row == world.run_row(first.run)
    assert [q.url for q in world.seeds(first.run, B, request="seeds").admitted] == [B]
    again = world.seeds(first.run, B, C, request="seeds")
    assert (again.admitted, again.repeated, again.run) == ([], True, first.run)
    assert len(world.ask(ListJobs(), JobList).jobs) == 1


def test_a_known_name_is_refused_unless_asked_for(world: World) -> None:
    """new refuses, update takes the new spec, again runs the stored one."""
    first = world.submit(A, name="docs", spec=b'{"name":"1"}')
    refused = world.submit(A, name="docs", request="refused")
    assert (refused.refused, refused.job, refused.run) == ("name_exists", first.job, 0)
    update = world.submit(A, name="docs", mode="update", spec=b'{"name":"2"}', request="refused")
    again = world.submit(A, name="docs", mode="again", spec=b'{"name":"3"}')
    assert first.job == update.job == again.job
    assert update.row is not None
    assert update.row.spec == b'{"name":"2"}'
    assert again.row is not None
    assert again.row.spec == b'{"name":"2"}'
    (job,) = world.ask(FindJob("docs"), JobList).jobs
    assert [run.id for run in job.runs] == [again.run, update.run, first.run]
    assert job.spec == b'{"name":"2"}'
    assert world.submit(A, name="fresh", mode="again").refused == ""


def test_jobs_are_found_by_id_and_by_name(world: World) -> None:
    """A number is an id if a job has it, otherwise a name."""
    first = world.submit(A, name="docs")
    second = world.submit(A, name=str(first.job + 40))

    def find(ref: str) -> list[int]:
        return [job.id for job in world.ask(FindJob(ref), JobList).jobs]

    assert find("docs") == find(str(first.job)) == [first.job]
    assert find(str(first.job + 40)) == [second.job]
    assert find("unknown") == find("9" * 30) == find("") == []
    assert [job.id for job in world.ask(ListJobs(), JobList).jobs] == [first.job, second.job]


def test_a_spec_that_cannot_be_read_is_a_data_error(world: World) -> None:
    """The store must know max_pages; nothing is stored."""
    with pytest.raises(StoreDataError) as caught:
        world.submit(A, spec=b"{")
    assert caught.value.code == "bad_spec"
    assert world.ask(ListJobs(), JobList).jobs == []


def test_a_run_without_seeds_completes_at_once(world: World) -> None:
    """Nothing is pending, nothing will come."""
    row = world.submit().row
    assert row is not None
    assert (row.state, row.reason, row.ended_at) == (RunState.COMPLETED, "", world.now)


def test_a_run_whose_seeds_still_come_does_not_complete(world: World) -> None:
    """Seeding holds it open until the list is closed."""
    job = world.submit(A, seeding=True, seed_hosts=("a.test",))
    assert world.finish(job.admitted[0], DONE).runs[0].state is RunState.RUNNING
    more = world.seeds(job.run, A, B, seed_hosts=("b.test", "a.test"))
    assert [q.url for q in more.admitted] == [B]
    assert more.row is not None
    assert more.row.seed_hosts == ("a.test", "b.test")
    world.finish(more.admitted[0], DONE)
    closed = world.seeds(job.run, last=True)
    assert closed.row is not None
    assert closed.row.state is RunState.COMPLETED
    assert not closed.row.seeding
    assert world.seeds(job.run, C).refused == "run_ended"
    assert world.seeds(99, C).refused == "no_such_job"
