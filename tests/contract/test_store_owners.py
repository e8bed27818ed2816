"""The contract of a store: who may change a job, and quotas, inside the transaction."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.store_world import A, B, C, World
from zcrawl.model.people import Quotas
from zcrawl.model.states import RunState
from zcrawl.store.queries import FindJob, JobList, JobRow, ListJobs


def job_of(world: World, ref: str = "docs") -> JobRow:
    (job,) = world.ask(FindJob(ref), JobList).jobs
    return job


@pytest.mark.parametrize("mode", ["update", "again"])
def test_a_submission_limited_to_an_owner_changes_no_other_job(world: World, mode: str) -> None:
    """The owner is who submitted it first, also after an operator's update. Nothing is stored for
    somebody else, and nothing for a user without a name."""
    first = world.submit(A, name="docs", by="ann", spec=b'{"name":"1"}')
    world.submit(A, name="docs", by="root", mode="update", spec=b'{"name":"2"}', request="op")
    before = job_of(world)
    assert before.owner == "ann"
    for other in ("eve", "root", ""):
        changes: dict[str, Any] = {"by": other, "only_owner": other, "request": f"by {other}"}
        done = world.submit(B, name="docs", mode=mode, spec=b'{"name":"3"}', **changes)
        assert (done.refused, done.job, done.run) == ("not_owner", first.job, 0)
        assert "belongs to ann" in done.why
        assert job_of(world) == before
    own = world.submit(B, name="docs", mode=mode, by="ann", only_owner="ann", request="own")
    assert (own.refused, own.job) == ("", first.job)
    fresh = world.submit(B, name="new", by="eve", only_owner="eve", request="fresh")
    assert (fresh.refused, job_of(world, "new").owner) == ("", "eve")


def test_a_job_without_an_owner_belongs_to_no_submitter(world: World) -> None:
    """Also not to one whose name is empty."""
    world.submit(A, name="docs")
    for user in ("ann", ""):
        done = world.submit(B, name="docs", mode="again", only_owner=user, request=f"by {user}")
        assert (done.refused, done.run) == ("not_owner", 0)


def test_seeds_are_added_by_the_owner_only(world: World) -> None:
    """A number of a run is no permission; the run goes on without these seeds."""
    run = world.submit(A, name="docs", by="ann", seeding=True).run
    refused = world.seeds(run, B, last=True, by="eve", only_owner="eve", request="s1")
    assert (refused.refused, refused.admitted) == ("not_owner", [])
    assert world.run_row(run).seeding
    added = world.seeds(run, B, by="ann", only_owner="ann", request="s2")
    assert [row.url for row in added.admitted] == [B]


def test_an_answer_is_repeated_to_its_owner_only(world: World) -> None:
    """Somebody who knows another's request id gets no answer about that job by it."""
    first = world.submit(A, name="docs", by="ann", only_owner="ann", request="same", seeding=True)
    stolen = world.submit(B, name="mine", by="eve", only_owner="eve", request="same")
    assert (stolen.refused, stolen.row) == ("not_owner", None)
    assert len(world.ask(ListJobs(), JobList).jobs) == 1
    again = world.submit(A, name="docs", by="ann", only_owner="ann", request="same")
    assert (again.repeated, again.run) == (True, first.run)


def test_a_quota_of_live_runs_is_counted_with_the_submission(world: World) -> None:
    """The runs of all the user's jobs; ended ones and those of others do not count, nor one that
    the submission replaces."""
    quotas = Quotas(most_live_runs=1)
    mine: dict[str, Any] = {"by": "ann", "quotas": quotas, "seeding": True}
    world.submit(A, name="theirs", by="eve", request="r0", seeding=True)
    first = world.submit(A, name="one", request="r1", **mine)
    refused = world.submit(A, name="two", request="r2", **mine)
    assert (first.refused, refused.refused, refused.run) == ("", "quota_exceeded", 0)
    assert "ann has 1 live runs, and the quota is 1" in refused.why
    assert [job.name for job in world.ask(ListJobs(), JobList).jobs] == ["theirs", "one"]
    stored = world.submit(name="spec", request="r3", start=False, **mine)
    replaced = world.submit(A, name="one", mode="again", request="r4", cancels=(first.run,), **mine)
    assert (stored.refused, replaced.refused) == ("", "")
    world.change_run(replaced.run, RunState.CANCELLED, "cancelled")
    assert world.submit(A, name="two", request="r2", **mine).refused == ""


def test_a_quota_of_queued_urls_is_counted_with_the_seeds(world: World) -> None:
    """With those of a submission and with those that follow."""
    mine: dict[str, Any] = {"by": "ann", "quotas": Quotas(most_queued=2)}
    refused = world.submit(A, B, C, name="docs", request="r1", **mine)
    assert (refused.refused, refused.job) == ("quota_exceeded", 0)
    run = world.submit(A, name="docs", request="r1", seeding=True, **mine).run
    assert world.seeds(run, B, C, request="s1", **mine).refused == "quota_exceeded"
    assert len(world.seeds(run, B, request="s1", **mine).admitted) == 1
    assert world.seeds(run, last=True, request="s2", **mine).refused == ""
