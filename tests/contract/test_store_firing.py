"""What every store does when a job's schedule starts a run: each due time and each run of a parent
is used once, whoever leads; and seeds that are items of another run."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.contract.store_world import DEAD, DONE, A, B, C, World, link, links
from zcrawl.model.rows import DefinitionRow, HeldSubmission
from zcrawl.model.states import JobState, RunCause, RunState
from zcrawl.schedule.dependencies import FinishedRun
from zcrawl.store.commands import (
    AdmitFed,
    DueMark,
    FireJob,
    JobFired,
    KnownAdmitted,
    Loaded,
    StartFacts,
    Submitted,
    TakeOver,
)
from zcrawl.store.queries import (
    ChainRuns,
    JobList,
    ListJobs,
    ParentRuns,
    ReadChain,
    ReadParents,
)

HOURLY = msgspec.json.encode({"schedule": {"cron": "0 * * * *"}})
DAILY = msgspec.json.encode({"schedule": {"cron": "0 0 * * *"}})
CHILD = msgspec.json.encode({"schedule": {"after": [{"job": "lists"}]}})
FED = msgspec.json.encode({"seeds_from": {"job": "lists"}})
DUE = 3_600.0


def definition(world: World, job: int) -> DefinitionRow | None:
    """The job as a new leader loads it; None: its schedule starts nothing."""
    return next((row for row in world.reload().jobs if row.id == job), None)


def scheduled(world: World, spec: bytes = HOURLY, **changes: Any) -> Submitted:
    return world.submit(name="nightly", spec=spec, start=False, **changes)


def fire(
    world: World,
    job: int,
    due: float | None = DUE,
    mark: DueMark | None = None,
    **changes: Any,
) -> JobFired:
    fields: dict[str, Any] = {
        "epoch": world.epoch,
        "job": job,
        "version": 1,
        "now": world.now,
        "name": "nightly",
        "spec": b"{}",
        "seeds": (link(A, depth=0),),
        "start_facts": StartFacts(RunCause.CRON, due),
        "due": None if due is None else mark or DueMark(due),
    }
    return world.do(FireJob(**{**fields, **changes}), JobFired)


def take_over(world: World) -> None:
    """Another master leads."""
    world.epoch = world.do(TakeOver("m2", 0, world.now), Loaded).epoch


def states(world: World, job: int) -> list[RunState]:
    jobs = world.ask(ListJobs(), JobList).jobs
    return [run.state for row in jobs if row.id == job for run in row.runs]


def test_a_due_time_starts_one_run(world: World) -> None:
    """The run has its cause and due time, its seeds are queued, and the due time is dealt with."""
    job = scheduled(world).job
    fired = fire(world, job)
    assert fired.row is not None
    assert (fired.row.cause, fired.row.due_at, fired.row.version) == (RunCause.CRON, DUE, 1)
    assert [row.url for row in fired.admitted] == [A]
    assert fired.definition == definition(world, job)
    assert fired.definition is not None
    assert (fired.definition.due_done, fired.definition.due_held) == (DUE, None)


def test_a_due_time_that_fires_again_changes_nothing(world: World) -> None:
    """The same leader after a commit with unknown outcome, and the next leader."""
    job = scheduled(world).job
    fire(world, job)
    for _ in range(2):
        before = world.reload()
        again = fire(world, job)
        assert again.repeated
        assert again.row is None
        assert world.reload() == before
        take_over(world)
    assert states(world, job) == [RunState.PENDING]


def test_an_older_due_time_does_not_fire_after_a_newer_one(world: World) -> None:
    """What is dealt with stays so, also if it started no run."""
    job = scheduled(world).job
    skipped = fire(world, job, start=False, note="skipped: run 7 is still running")
    assert skipped.row is None
    assert skipped.definition is not None
    assert skipped.definition.due_note == "skipped: run 7 is still running"
    assert fire(world, job).repeated
    assert fire(world, job, due=DUE - 60).repeated
    assert states(world, job) == []
    assert fire(world, job, due=2 * DUE).row is not None


def test_a_due_time_that_waits_fires_once(world: World) -> None:
    """It is stored, so the next leader knows it, and it may be older than others by then."""
    job = scheduled(world).job
    held = fire(world, job, start=False, mark=DueMark(DUE, DUE))
    assert held.definition is not None
    assert held.definition.due_held == DUE
    fire(world, job, due=2 * DUE, start=False, mark=DueMark(2 * DUE, DUE))
    row = definition(world, job)
    assert row is not None
    assert (row.due_done, row.due_held) == (2 * DUE, DUE)
    fired = fire(world, job, mark=DueMark(2 * DUE))
    assert fired.row is not None
    assert fired.row.due_at == DUE
    assert fire(world, job, mark=DueMark(2 * DUE)).repeated
    assert states(world, job) == [RunState.PENDING]


def test_the_older_runs_end_in_the_same_transaction(world: World) -> None:
    """`cancel`: either both happen or none."""
    job = scheduled(world).job
    first = fire(world, job).row
    assert first is not None
    fired = fire(world, job, due=2 * DUE, cancels=(first.id,))
    assert [row.id for row in fired.cancelled] == [first.id]
    assert states(world, job) == [RunState.PENDING, RunState.CANCELLED]


def test_a_run_does_not_start_beside_one_that_the_leader_does_not_know(world: World) -> None:
    """It decided without it: a submission whose answer was lost, for example."""
    job = scheduled(world).job
    first = fire(world, job, beside=()).row
    assert first is not None
    refused = fire(world, job, due=2 * DUE, beside=())
    assert (refused.refused, refused.row) == ("run_is_alive", None)
    assert fire(world, job, due=2 * DUE, beside=(first.id,)).row is not None
    assert fire(world, job, due=3 * DUE).row is not None


def test_a_run_that_cannot_start_is_stored_as_failed(world: World) -> None:
    """Its due time is dealt with, and people see why nothing happened."""
    job = scheduled(world).job
    row = fire(world, job, seeds=(), failure="not_started: bad URL").row
    assert row is not None
    assert (row.state, row.reason, row.ended_at) == (RunState.FAILED, "not_started: bad URL", 100.0)


def test_a_job_that_was_changed_or_paused_does_not_fire(world: World) -> None:
    """The leader planned with what the job was; it gets the job as it is."""
    job = scheduled(world).job
    changed = fire(world, job, version=2)
    assert (changed.refused, changed.definition) == ("job_changed", definition(world, job))
    world.change_job(job, JobState.PAUSED)
    assert fire(world, job).refused == "job_changed"
    assert definition(world, job) is None
    world.change_job(job, JobState.DELETED)
    assert fire(world, job) == JobFired("no_such_job", None)
    assert fire(world, 4_711) == JobFired("no_such_job", None)
    assert states(world, job) == []


def test_a_schedule_counts_from_its_submission_its_change_and_its_resumption(world: World) -> None:
    """Due times before it are nobody's. Other changes of the job do not move it."""
    job = scheduled(world).job
    world.now = 200.0
    scheduled(world, msgspec.json.encode({"schedule": {"cron": "0 * * * *"}, "tags": ["x"]}),
              mode="update")  # fmt: skip
    row = definition(world, job)
    assert row is not None
    assert (row.schedule_from, row.version) == (100.0, 2)
    scheduled(world, DAILY, mode="update")
    row = definition(world, job)
    assert row is not None
    assert row.schedule_from == 200.0
    world.change_job(job, JobState.PAUSED)
    world.now = 300.0
    world.change_job(job, JobState.ACTIVE)
    row = definition(world, job)
    assert row is not None
    assert row.schedule_from == 300.0
    scheduled(world, b"{}", mode="update")
    assert definition(world, job) is None


def test_a_submission_brings_the_definition(world: World) -> None:
    """With a run and without; so the leader needs no reload to fire it."""
    stored = scheduled(world)
    assert stored.definition == definition(world, stored.job)
    started = world.submit(A, name="nightly", mode="again")
    assert started.definition == stored.definition


def test_a_run_may_have_another_spec_than_its_job(world: World) -> None:
    """Its parameters are filled in; the job keeps the references."""
    run = world.submit(A, name="p", spec=b'{"tags": ["a"]}', run_spec=b'{"tags": ["b"]}')
    assert run.row is not None
    assert run.row.spec == b'{"tags": ["b"]}'
    assert run.definition is not None
    assert run.definition.spec == b'{"tags": ["a"]}'


# ---------------------------------------------------------------- held submissions

QUEUED_UP = msgspec.json.encode({"schedule": {"cron": "0 * * * *", "overlap": "queue"}})
WAITING = HeldSubmission(0, 90.0, "ann", (B,), b'{"day":"1"}', ("x.csv", "csv"))


def beside(world: World, **changes: Any) -> Submitted:
    """Submit the job again; it has a live run."""
    fields: dict[str, Any] = {"name": "nightly", "mode": "again", "hold": WAITING, **changes}
    return world.submit(A, **fields)


def live(world: World) -> Submitted:
    return world.submit(A, name="nightly", spec=QUEUED_UP)


def test_a_submission_beside_a_live_run_is_held(world: World) -> None:
    """It has the number of its run at once, and the next leader finds all that it needs."""
    first = live(world)
    held = beside(world)
    assert (held.refused, held.run, held.row, held.after) == ("", 0, None, first.run)
    take_over(world)
    row = definition(world, first.job)
    assert row is not None
    assert row.held == msgspec.structs.replace(WAITING, run=held.held_run)
    assert row == held.definition
    (job,) = world.ask(ListJobs(), JobList).jobs
    assert job.held == row.held
    assert states(world, first.job) == [RunState.PENDING]


def test_a_held_submission_that_is_asked_again_has_the_same_answer(world: World) -> None:
    """Before its start, and after it: then it is its run."""
    first = live(world)
    held = beside(world, request="again")
    repeated = beside(world, request="again")
    assert repeated.repeated
    assert (repeated.run, repeated.held_run, repeated.after) == (0, held.held_run, first.run)
    world.change_run(first.run, RunState.CANCELLED)
    fire(world, first.job, None, held_run=held.held_run)
    assert beside(world, request="again").run == held.held_run


def test_a_held_submission_starts_once(world: World) -> None:
    """Whoever leads: its run has the number, so it cannot be there twice."""
    first = live(world)
    number = beside(world).held_run
    world.change_run(first.run, RunState.CANCELLED)
    facts = StartFacts(params=WAITING.params)
    fired = fire(world, first.job, None, held_run=number, start_facts=facts, beside=())
    assert fired.row is not None
    assert (fired.row.id, fired.row.cause, fired.row.params) == (
        number,
        RunCause.SUBMITTED,
        WAITING.params,
    )
    assert fired.definition is not None
    assert fired.definition.held is None
    assert fired.definition == definition(world, first.job)
    for _ in range(2):
        assert fire(world, first.job, None, held_run=number).repeated
        take_over(world)
    assert states(world, first.job) == [RunState.PENDING, RunState.CANCELLED]
    assert live_again(world) > number


def live_again(world: World) -> int:
    """The number of another run."""
    return world.submit(B, name="other").run


def test_only_one_start_is_held(world: World) -> None:
    """A second submission is refused, also beside a due time; nothing of it is stored."""
    first = live(world)
    number = beside(world).held_run
    before = world.ask(ListJobs(), JobList)
    refused = beside(world, mode="update", spec=DAILY.replace(b"}}", b',"overlap":"queue"}}'))
    assert refused.refused == "start_is_held"
    assert f"as run {number}" in refused.why
    assert world.ask(ListJobs(), JobList) == before
    assert fire(world, first.job, None, start=False, held_run=number).row is None
    fire(world, first.job, start=False, mark=DueMark(DUE, DUE))
    assert beside(world).refused == "start_is_held"


def test_a_submission_is_held_only_if_the_job_queues_and_a_run_is_alive(world: World) -> None:
    """The store looks at the job as it is; a run that this one replaces does not count."""
    first = live(world)
    replaced = beside(world, cancels=(first.run,))
    assert (replaced.held_run, [row.id for row in replaced.cancelled]) == (0, [first.run])
    assert beside(world, seeding=True).refused == "run_is_alive"
    world.change_job(first.job, JobState.PAUSED)
    assert beside(world).refused == "run_is_alive"
    world.change_job(first.job, JobState.ACTIVE)
    assert beside(world, mode="update", spec=HOURLY).run


def test_a_schedule_that_begins_anew_holds_nothing(world: World) -> None:
    """After a pause, and after a change of it; other changes leave what is held."""
    first = live(world)
    tagged = msgspec.json.decode(QUEUED_UP) | {"tags": ["x"]}
    for drop in (True, False):
        number = beside(world).held_run
        scheduled(world, msgspec.json.encode(tagged), mode="update")
        row = definition(world, first.job)
        assert row is not None
        assert row.held is not None
        if drop:
            world.change_job(first.job, JobState.PAUSED)
            world.change_job(first.job, JobState.ACTIVE)
        else:
            scheduled(world, DAILY, mode="update")
        row = definition(world, first.job)
        assert row is not None
        assert row.held is None
        assert fire(world, first.job, None, held_run=number, version=row.version).repeated


# ---------------------------------------------------------------- parents


def is_there(world: World, name: str) -> bool:
    return any(job.name == name for job in world.ask(ListJobs(), JobList).jobs)


def after(*parents: str) -> bytes:
    """A spec whose job follows these."""
    return msgspec.json.encode({"schedule": {"after": [{"job": parent} for parent in parents]}})


def finished(world: World, url: str, how: Any = DONE, name: str = "lists", **changes: Any) -> int:
    """A run of a parent that has ended; its one page has an item."""
    mode = "again" if is_there(world, name) else "new"
    run = world.submit(url, name=name, mode=mode, **changes)
    item = msgspec.json.encode({"url": f"{url}/item"})
    more: dict[str, Any] = {"items": (item,)} if how is DONE else {"reason": "timeout"}
    world.finish(run.admitted[0], how, **more)
    return run.run


def unused(world: World, job: int, *outcomes: str, since: float = 0.0) -> list[FinishedRun]:
    query = ReadParents(job, (("lists", outcomes or ("success",)),), since, 10)
    return world.ask(query, ParentRuns).rows


def test_runs_of_parents_are_found_until_they_are_used(world: World) -> None:
    """Each once for each child, in the order in which they ended, with what they hand on."""
    facts = StartFacts(params=b'{"day":"monday"}', chain=0)
    first = finished(world, A, start_facts=facts)
    world.now += 1
    failed = finished(world, B, DEAD)
    child = world.submit(name="child", spec=CHILD, start=False).job
    other = world.submit(name="other", spec=CHILD, start=False).job
    success = FinishedRun("lists", first, "success", 0, b'{"day":"monday"}')
    failure = FinishedRun("lists", failed, "failure")
    assert unused(world, child) == [success]
    assert unused(world, child, "failure") == [failure]
    assert unused(world, child, "success", "failure", "end") == [success, failure]
    assert unused(world, child, "success", "failure", since=100.0) == [failure]
    facts = StartFacts(RunCause.DEPENDENCY, None, b"", first)
    fired = fire(world, child, None, used=(first,), start_facts=facts)
    assert fired.row is not None
    assert (fired.row.cause, fired.row.chain) == (RunCause.DEPENDENCY, first)
    assert unused(world, child) == []
    assert unused(world, other) == [success]


def test_a_run_of_a_parent_starts_one_run(world: World) -> None:
    """A second firing with it changes nothing, whoever leads, also if others come with it."""
    first, second = finished(world, A), finished(world, B)
    child = world.submit(name="child", spec=CHILD, start=False).job
    fire(world, child, None, used=(first,))
    take_over(world)
    assert fire(world, child, None, used=(first,)).repeated
    assert fire(world, child, None, used=(first, second)).repeated
    assert [run.run for run in unused(world, child)] == [second]
    assert fire(world, child, None, used=(second,), start=False, note="skipped").row is None
    assert unused(world, child) == []
    assert states(world, child) == [RunState.PENDING]


def test_runs_that_go_on_or_are_deleted_start_nothing(world: World) -> None:
    """Only an end starts a child; a deleted run has none, and a deleted job is nobody's parent."""
    run = finished(world, A)
    world.submit(B, name="lists", mode="again")
    child = world.submit(name="child", spec=CHILD, start=False).job
    assert [row.run for row in unused(world, child, "success", "failure", "end")] == [run]
    world.change_run(run, RunState.DELETED)
    assert unused(world, child, "success", "failure", "end") == []
    again = finished(world, C)
    assert [row.run for row in unused(world, child)] == [again]
    world.change_job(world.run_row(again).job, JobState.DELETED)
    assert unused(world, child) == []


def test_a_chain_is_read_from_any_of_its_runs(world: World) -> None:
    """With the runs that started each; a removed run leaves no trace in it."""
    first = finished(world, A)
    child = world.submit(name="child", spec=CHILD, start=False).job
    facts = StartFacts(RunCause.DEPENDENCY, None, b"", first)
    row = fire(world, child, None, used=(first,), start_facts=facts).row
    assert row is not None
    for run in (first, row.id):
        chain = world.ask(ReadChain(run, 10), ChainRuns).rows
        assert [(entry.name, entry.id, entry.parents) for entry in chain] == [
            ("lists", first, ()),
            ("child", row.id, (first,)),
        ]
    assert len(world.ask(ReadChain(first, 1), ChainRuns).rows) == 1
    world.change_run(first, RunState.DELETED)
    while world.sweep(first).more:
        pass
    chain = world.ask(ReadChain(row.id, 10), ChainRuns).rows
    assert [(entry.id, entry.parents) for entry in chain] == [(row.id, ())]
    assert world.ask(ReadChain(4_711, 10), ChainRuns).rows == []


def test_of_two_updates_that_close_a_circle_the_second_is_refused(world: World) -> None:
    """Each was right when its master looked. The store looks in the transaction, so nothing of the
    second is stored; also through a paused job."""
    for name in ("a", "b", "c"):
        world.submit(name=name, start=False)
    assert world.submit(name="b", spec=after("a"), mode="update", start=False).refused == ""
    middle = world.submit(name="c", spec=after("b"), mode="update", start=False)
    world.change_job(middle.job, JobState.PAUSED)
    before = world.ask(ListJobs(), JobList)
    refused = world.submit(A, name="a", spec=after("c"), mode="update")
    assert (refused.refused, refused.job, refused.run) == ("bad_dependency", 0, 0)
    assert "a -> b -> c -> a" in refused.why
    assert world.ask(ListJobs(), JobList) == before
    assert world.submit(name="c", spec=b"{}", mode="update", start=False).refused == ""
    assert world.submit(name="a", spec=after("c"), mode="update", start=False).refused == ""


def test_a_parent_that_is_not_there_is_refused(world: World) -> None:
    """Deleted ones too, by the right words, unless a job has the name again; and `seeds_from`."""
    for name in ("gone", "back"):
        world.change_job(world.submit(A, name=name).job, JobState.DELETED)
    world.submit(name="back", start=False)
    assert "has been deleted" in world.submit(name="x", spec=after("gone"), start=False).why
    assert "does not exist" in world.submit(name="x", spec=after("never"), start=False).why
    assert "seeds_from.job" in world.submit(A, name="x", spec=FED).why
    assert not is_there(world, "x")
    assert world.submit(name="x", spec=after("back"), start=False).refused == ""


# ---------------------------------------------------------------- items as seeds


def admit(world: World, run: int, after: int, upto: int, *urls: str, last: bool) -> KnownAdmitted:
    hosts = ("a.test",) if urls else ()
    command = AdmitFed(world.epoch, run, after, upto, links(*urls), hosts, last, world.now)
    return world.do(command, KnownAdmitted)


def test_a_fed_run_goes_on_until_all_items_are_admitted(world: World) -> None:
    """Its position is stored with each chunk, so the next leader goes on from there."""
    source = finished(world, A)
    run = world.submit(name="fed", spec=FED)
    assert run.row is not None
    assert (run.row.feed_run, run.row.feed_at, run.row.state) == (source, 0, RunState.PENDING)
    first = admit(world, run.run, 0, 5, B, last=False)
    assert [row.url for row in first.admitted] == [B]
    assert first.row is not None
    assert first.row.feed_at == 5
    assert first.row.seed_hosts == ("a.test",)
    world.finish(first.admitted[0], DONE)
    assert not world.run_row(run.run).state.ended
    take_over(world)
    repeated = admit(world, run.run, 0, 5, B, last=False)
    assert repeated.repeated
    assert not repeated.admitted
    ended = admit(world, run.run, 5, 5, last=True)
    assert ended.row is not None
    assert (ended.row.state, ended.row.feed_at) == (RunState.COMPLETED, None)
    assert admit(world, run.run, 5, 9, C, last=True).repeated


def test_a_pause_does_not_stop_the_seeds(world: World) -> None:
    """Nothing is dispatched, but a resumed run has all its seeds."""
    finished(world, A)
    run = world.submit(name="fed", spec=FED).run
    world.change_run(run, RunState.PAUSED)
    assert admit(world, run, 0, 5, B, last=False).admitted
    row = world.change_run(run, RunState.RUNNING).row
    assert row is not None
    assert row.feed_at == 5
    world.change_run(run, RunState.CANCELLED)
    assert world.run_row(run).feed_at is None


def test_the_newest_completed_run_feeds_unless_one_is_named(world: World) -> None:
    """A failed one has no say; a firing names the run of the parent that started it."""
    first = finished(world, A)
    second = finished(world, B)
    finished(world, C, DEAD)
    assert world.submit(name="fed", spec=FED).row.feed_run == second  # type: ignore[union-attr]
    child = world.submit(name="child", spec=CHILD, start=False).job
    row = fire(world, child, None, spec=FED, feed_run=first, used=(first,), seeds=()).row
    assert row is not None
    assert row.feed_run == first


def test_a_run_without_a_parents_run_fails(world: World) -> None:
    """Seeds that will never come are a failure with a reason, and no run that waits for ever."""
    world.submit(name="lists", start=False)
    run = world.submit(A, name="fed", spec=FED)
    assert run.row is not None
    assert (run.row.state, run.row.reason) == (RunState.FAILED, "no_parent_run")
    assert run.admitted == []
    job = scheduled(world).job
    row = fire(world, job, spec=FED).row
    assert row is not None
    assert (row.state, row.reason) == (RunState.FAILED, "no_parent_run")
