"""The contract of a store: the life of a run."""

from __future__ import annotations

from tests.contract.store_world import DEAD, DONE, QUEUED, SKIPPED, A, B, C, D, E, World, links
from zcrawl.model.rows import RunCounters
from zcrawl.model.states import Disposition, JobState, RunState
from zcrawl.store.commands import RunChanged, TuneRun
from zcrawl.store.queries import Items, JobList, ListJobs, Outputs, ReadItems, ReadOutputs

TWO_PAGES = b'{"name":"x","scope":{"max_pages":2},"seeds":["u"]}'


def test_a_run_completes_in_the_transaction_that_leaves_nothing_pending(world: World) -> None:
    """Not before: a delayed retry and a new link are pending."""
    a, b = world.submit(A, B).admitted
    world.finish(a, QUEUED, due_at=900.0)
    world.finish(b, DEAD, reason="dns")
    (new,) = world.finish(a, DONE, links=links(C)).admitted
    world.now = 200.0
    row = world.finish(new, SKIPPED, reason="robots").runs[0]
    assert (row.state, row.reason, row.ended_at) == (RunState.COMPLETED, "", 200.0)
    assert row.counters == RunCounters(3, 0, done=1, failed=1, skipped=1, items=1, bytes=10)
    assert world.reload().runs == []


def test_a_run_keeps_the_version_of_its_keys(world: World) -> None:
    """Each run keeps its own version, also after changes and takeovers."""
    old, new = (world.submit(A, B, canonical=version) for version in (1, 2))
    world.finish(old.admitted[0], DONE)
    world.finish(new.admitted[0], DONE)
    assert {row.id: row.canonical for row in world.reload().runs} == {old.run: 1, new.run: 2}
    paused = world.change_run(new.run, RunState.PAUSED, "by hand").row
    assert paused is not None
    assert paused.canonical == 2


def test_max_pages_ends_a_run_in_the_middle_of_a_batch(world: World) -> None:
    """Its pending requests count as skipped at once; later results are dropped."""
    a, b, c, _ = world.submit(A, B, C, D, spec=TWO_PAGES).admitted
    changes = [world.change(row, DONE, links=links(E)) for row in (a, b, c)]
    applied = world.apply(*changes)
    assert applied.dispositions == [Disposition.APPLIED] * 2 + [Disposition.DROPPED]
    assert applied.admitted == [], "an ended run queues nothing"
    assert applied.hosts == [], "an ended run queues nothing"
    (row,) = applied.runs
    assert (row.state, row.reason, row.ended_at) == (RunState.COMPLETED, "max_pages", world.now)
    assert row.counters == RunCounters(5, 0, done=2, skipped=3, items=2, bytes=20)
    assert world.tallies(a.run).skipped == {"max_pages": 3}
    derived = [(url, SKIPPED, "max_pages") for url in (C, D, E)]
    assert world.failures(a.run) == derived
    loaded = world.reload()
    assert (loaded.sweeps, loaded.lanes) == ([a.run], [])
    assert [run.id for run in loaded.runs] == [a.run]
    assert world.sweep(a.run, 2).more
    assert not world.sweep(a.run, 2).more
    assert world.failures(a.run) == derived
    assert world.reload().runs == []
    retried = world.retry(a.run)
    assert retried.refused == "run_ended"


def test_a_paused_run_commits_what_is_in_flight(world: World) -> None:
    """Paused results are applied, and its last one completes it."""
    a, b = world.submit(A, B).admitted
    row = world.change_run(a.run, RunState.PAUSED, "by hand").row
    assert row is not None
    assert (row.state, row.reason) == (RunState.PAUSED, "by hand")
    assert world.finish(a, DONE).runs[0].state is RunState.PAUSED
    assert [lane.queued for lane in world.reload().lanes] == [1]
    assert world.finish(b, DONE).runs[0].state is RunState.COMPLETED


def test_pause_and_resume_can_be_repeated(world: World) -> None:
    """Idempotent, and only while the run goes on."""
    run = world.submit(A).run
    world.begin(run)
    for state in (RunState.PAUSED, RunState.PAUSED, RunState.RUNNING, RunState.RUNNING):
        changed = world.change_run(run, state)
        assert changed.refused == ""
        assert changed.row is not None
        assert changed.row.state is state
    world.change_run(run, RunState.CANCELLED)
    for state in (RunState.PAUSED, RunState.RUNNING, RunState.COMPLETED):
        assert world.change_run(run, state).refused == "run_ended"
    assert world.change_run(run, RunState.CANCELLED).refused == ""
    assert world.change_run(99, RunState.PAUSED).refused == "no_such_run"


def test_a_resume_closes_an_abandoned_seed_list(world: World) -> None:
    """A submitter that died would hold the run open for ever."""
    run = world.submit(seeding=True).run
    row = world.change_run(run, RunState.RUNNING).row
    assert row is not None
    assert (row.state, row.seeding) == (RunState.COMPLETED, False)


def test_a_cancelled_run_skips_what_is_pending(world: World) -> None:
    """One row at first, the requests by sweeps; results in flight are dropped."""
    a, b, _ = world.submit(A, B, C).admitted
    world.finish(a, DEAD, reason="dns")
    row = world.change_run(a.run, RunState.CANCELLED).row
    assert row is not None
    assert row.ended_at == world.now
    assert row.counters == RunCounters(admitted=3, failed=1, skipped=2)
    assert world.apply(world.change(b, DONE)).dispositions == [Disposition.DROPPED]
    expected = [(A, DEAD, "dns"), (B, SKIPPED, "cancelled"), (C, SKIPPED, "cancelled")]
    assert world.failures(a.run) == expected
    while world.sweep(a.run, 1).more:
        pass
    assert world.failures(a.run) == expected
    assert world.reload().sweeps == []
    assert world.retry(a.run).refused == "run_ended"


def test_a_sweep_leaves_a_run_alone_that_goes_on(world: World) -> None:
    """Only ended runs have rows to sweep."""
    run = world.submit(A).run
    assert not world.sweep(run).more
    assert not world.sweep(99).more
    assert world.run_row(run).counters.pending == 1


def test_a_deleted_run_goes_in_pieces_and_its_ids_do_not_come_back(world: World) -> None:
    """Rows, run and job are removed; no id is used twice, and its name is free at once."""
    first = world.submit(A, B, C, name="docs", output=("/tmp/x.jsonl", "jsonl"))
    world.finish(first.admitted[0], DONE, items=(b"1", b"2", b"3"))
    item = world.ask(ReadItems(first.run, 0, 10), Items).rows[-1].id
    assert world.change_job(first.job, JobState.DELETED).refused == ""
    assert world.reload().sweeps == [first.run]
    assert world.apply(world.change(first.admitted[1], DONE)).dispositions == [Disposition.DROPPED]
    second = world.submit(A, name="docs")
    assert second.refused == ""
    steps = 1
    while world.sweep(first.run, 2).more:
        steps += 1
    assert steps == 4, "three items and three requests, two at a time, then the run"
    assert world.reload().sweeps == []
    assert [job.id for job in world.ask(ListJobs(), JobList).jobs] == [second.job]
    assert world.ask(ReadOutputs(first.run), Outputs).rows == []
    assert world.change_run(first.run, RunState.PAUSED).refused == "no_such_run"
    assert second.job > first.job
    assert second.run > first.run
    assert second.admitted[0].seq > first.admitted[-1].seq
    world.finish(second.admitted[0], DONE)
    assert world.ask(ReadItems(second.run, 0, 10), Items).rows[0].id > item


def test_deleting_one_of_two_runs_keeps_the_job(world: World) -> None:
    """The job goes with its last run."""
    first = world.submit(name="docs")
    second = world.submit(A, name="docs", mode="again")
    world.change_run(first.run, RunState.DELETED)
    world.sweep(first.run)
    (job,) = world.ask(ListJobs(), JobList).jobs
    assert [run.id for run in job.runs] == [second.run]


def test_a_run_gets_another_limit_of_pages_while_it_goes_on(world: World) -> None:
    """It ends at the new one, whether it was raised, set or lowered."""
    a, b, c, _ = world.submit(A, B, C, D, spec=TWO_PAGES).admitted
    three = TWO_PAGES.replace(b":2", b":3")
    assert world.do(TuneRun(1, "q", a.run, three), RunChanged).refused == ""
    for row in (a, b):
        world.finish(row, DONE)
    assert not world.run_row(a.run).state.ended
    assert world.finish(c, DONE).runs[0].reason == "max_pages"


def test_a_run_that_has_enough_pages_for_its_new_limit_ends_at_once(world: World) -> None:
    """No later result would end it, because nothing is requested for it any more."""
    a, b, _, _ = world.submit(A, B, C, D).admitted
    world.finish(a, DONE)
    world.finish(b, DONE)
    tuned = world.do(TuneRun(1, "q", a.run, TWO_PAGES, now=500.0), RunChanged).row
    assert tuned == world.run_row(a.run)
    assert tuned is not None
    assert (tuned.state, tuned.reason, tuned.ended_at) == (RunState.COMPLETED, "max_pages", 500.0)
    assert (tuned.counters.pending, tuned.counters.skipped) == (0, 2)


def test_a_run_gets_another_spec_while_it_goes_on(world: World) -> None:
    """An ended one does not, and nothing else of it changes."""
    row = world.submit(A).admitted[0]
    before = world.run_row(row.run)
    spec = b'{"politeness":{"rate":1}}'
    tuned = world.do(TuneRun(1, "q", row.run, spec), RunChanged)
    assert tuned.refused == ""
    assert tuned.row == world.run_row(row.run)
    assert (world.run_row(row.run).spec, world.run_row(row.run).counters) == (spec, before.counters)
    assert world.reload().runs[0].spec == spec
    world.finish(row, DONE)
    assert world.do(TuneRun(1, "q", row.run, b"{}"), RunChanged).refused == "run_ended"
    assert world.do(TuneRun(1, "q", 99, b"{}"), RunChanged).refused == "no_such_run"
