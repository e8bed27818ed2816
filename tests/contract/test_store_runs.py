"""The contract of a store: jobs, seeds, and the life of a run."""

from __future__ import annotations

import msgspec
import pytest

from tests.contract.store_world import World, link, links
from zcrawl.errors import StoreDataError
from zcrawl.model import Disposition, RequestState, RunState
from zcrawl.store.commands import (
    AdvanceOutput,
    CountCrash,
    CrashCounted,
    Done,
    Retried,
    RetryDead,
    RunChanged,
    TuneRun,
)
from zcrawl.store.cookie_jar import merged
from zcrawl.store.ports import Store
from zcrawl.store.queries import (
    Failures,
    FindItems,
    FindJob,
    FoundItems,
    Items,
    JobList,
    LaneWant,
    ListJobs,
    OutputRow,
    Outputs,
    ReadFailed,
    ReadItems,
    ReadOutputs,
    Refill,
    Refilled,
)
from zcrawl.store.rows import RunCounters

A, B, C, D, E = (f"https://a.test/{name}" for name in "abcde")
DONE, DEAD, SKIPPED, QUEUED = (
    RequestState.DONE,
    RequestState.DEAD,
    RequestState.SKIPPED,
    RequestState.QUEUED,
)
TWO_PAGES = b'{"name":"x","scope":{"max_pages":2},"seeds":["u"]}'


# ---------------------------------------------------------------- submissions


def test_a_submission_starts_a_run_with_its_seeds(world: World) -> None:
    """Seeds enter at depth 0 without a parent; a seed given twice enters once."""
    done = world.submit(A, B, A, seed_hosts=("a.test", "a.test"))
    assert [(q.url, q.depth, q.parent) for q in done.admitted] == [(A, 0, None), (B, 0, None)]
    assert (done.refused, done.repeated) == ("", False)
    assert done.row is not None and done.row == world.run_row(done.run)
    assert done.row.state is RunState.RUNNING
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
    assert update.row is not None and update.row.spec == b'{"name":"2"}'
    assert again.row is not None and again.row.spec == b'{"name":"2"}'
    (job,) = world.ask(FindJob("docs"), JobList).jobs
    assert [run.id for run in job.runs] == [again.run, update.run, first.run]
    assert job.spec == b'{"name":"2"}'
    assert world.submit(A, name="fresh", mode="again").refused == ""


def test_jobs_are_found_by_id_and_by_name(world: World) -> None:
    """A number is an id if a job has it, otherwise a name."""
    first = world.submit(A, name="docs")
    second = world.submit(A, name=str(first.job + 40))
    find = lambda ref: [job.id for job in world.ask(FindJob(ref), JobList).jobs]  # noqa: E731
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
    assert more.row is not None and more.row.seed_hosts == ("a.test", "b.test")
    world.finish(more.admitted[0], DONE)
    closed = world.seeds(job.run, last=True)
    assert closed.row is not None and closed.row.state is RunState.COMPLETED
    assert not closed.row.seeding
    assert world.seeds(job.run, C).refused == "run_ended"
    assert world.seeds(99, C).refused == "no_such_job"


# ---------------------------------------------------------------- how runs end


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


def test_max_pages_ends_a_run_in_the_middle_of_a_batch(world: World) -> None:
    """Its pending requests count as skipped at once; later results are dropped."""
    a, b, c, _ = world.submit(A, B, C, D, spec=TWO_PAGES).admitted
    changes = [world.change(row, DONE, links=links(E)) for row in (a, b, c)]
    applied = world.apply(*changes)
    assert applied.dispositions == [Disposition.APPLIED] * 2 + [Disposition.DROPPED]
    assert applied.admitted == [] and applied.hosts == [], "an ended run queues nothing"
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
    retried = world.do(RetryDead(world.epoch, a.run, 0, 10, 1.0), Retried)
    assert retried.refused == "run_ended"


def test_a_paused_run_commits_what_is_in_flight(world: World) -> None:
    """Paused results are applied, and its last one completes it."""
    a, b = world.submit(A, B).admitted
    row = world.change_run(a.run, RunState.PAUSED, "by hand").row
    assert row is not None and (row.state, row.reason) == (RunState.PAUSED, "by hand")
    assert world.finish(a, DONE).runs[0].state is RunState.PAUSED
    assert [lane.queued for lane in world.reload().lanes] == [1]
    assert world.finish(b, DONE).runs[0].state is RunState.COMPLETED


def test_pause_and_resume_can_be_repeated(world: World) -> None:
    """Idempotent, and only while the run goes on."""
    run = world.submit(A).run
    for state in (RunState.PAUSED, RunState.PAUSED, RunState.RUNNING, RunState.RUNNING):
        changed = world.change_run(run, state)
        assert changed.refused == "" and changed.row is not None
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
    assert row is not None and (row.state, row.seeding) == (RunState.COMPLETED, False)


def test_a_cancelled_run_skips_what_is_pending(world: World) -> None:
    """One row at first, the requests by sweeps; results in flight are dropped."""
    a, b, _ = world.submit(A, B, C).admitted
    world.finish(a, DEAD, reason="dns")
    row = world.change_run(a.run, RunState.CANCELLED).row
    assert row is not None and row.ended_at == world.now
    assert row.counters == RunCounters(admitted=3, failed=1, skipped=2)
    assert world.apply(world.change(b, DONE)).dispositions == [Disposition.DROPPED]
    expected = [(A, DEAD, "dns"), (B, SKIPPED, "cancelled"), (C, SKIPPED, "cancelled")]
    assert world.failures(a.run) == expected
    while world.sweep(a.run, 1).more:
        pass
    assert world.failures(a.run) == expected
    assert world.reload().sweeps == []
    assert world.do(RetryDead(1, a.run, 0, 10, 1.0), Retried).refused == "run_ended"


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
    world.change_run(first.run, RunState.DELETED)
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
    assert second.job > first.job and second.run > first.run
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


# ---------------------------------------------------------------- dead requests


def test_dead_requests_can_be_tried_again(world: World) -> None:
    """They are queued anew in pieces, and a completed run is running again."""
    rows = world.submit(A, B, C, D).admitted
    for row in rows[:3]:
        world.finish(row, DEAD, reason="dns", attempts=4, status=500)
    world.finish(rows[3], DONE)
    assert world.run_row(rows[0].run).state is RunState.COMPLETED
    first = world.do(RetryDead(1, rows[0].run, 0, 2, 1.0), Retried)
    assert (first.refused, first.rows, first.last, first.more) == ("", rows[:2], rows[1].seq, True)
    assert [host.id for host in first.hosts] == [rows[0].host]
    assert first.row is not None
    assert (first.row.state, first.row.ended_at, first.row.reason) == (RunState.RUNNING, 0.0, "")
    assert first.row.counters == RunCounters(4, 2, done=1, failed=1, items=1, bytes=10)
    assert world.tallies(rows[0].run).failed == {"dns": 1}
    second = world.do(RetryDead(1, rows[0].run, first.last, 2, 1.0), Retried)
    assert (second.rows, second.more) == ([rows[2]], False)
    assert world.do(RetryDead(1, 99, 0, 2, 1.0), Retried).refused == "no_such_run"
    assert world.finish(rows[0], DONE).runs[0].counters.done == 2


def test_a_retry_can_be_of_one_reason_or_one_host(world: World) -> None:
    """What failed for another reason, or elsewhere, stays dead."""
    elsewhere = "https://b.test/"
    a, b, c = world.submit(A, B, elsewhere).admitted
    world.finish(a, DEAD, reason="dns")
    world.finish(b, DEAD, reason="tls")
    world.finish(c, DEAD, reason="dns")
    found = world.ask(ReadFailed(a.run, 0, 9, "dns", a.host), Failures).rows
    assert [row.url for row in found] == [A]
    retried = world.do(RetryDead(1, a.run, 0, 10, 1.0, "dns", c.host), Retried)
    assert retried.rows == [c]
    retried = world.do(RetryDead(1, a.run, 0, 10, 1.0, reason="tls"), Retried)
    assert retried.rows == [b]
    assert world.failures(a.run) == [(A, DEAD, "dns")]


def test_a_run_gets_another_spec_while_it_goes_on(world: World) -> None:
    """An ended one does not, and nothing else of it changes."""
    row = world.submit(A).admitted[0]
    before = world.run_row(row.run)
    spec = b'{"politeness":{"rate":1}}'
    tuned = world.do(TuneRun(1, "q", row.run, spec), RunChanged)
    assert tuned.refused == "" and tuned.row == world.run_row(row.run)
    assert (world.run_row(row.run).spec, world.run_row(row.run).counters) == (spec, before.counters)
    assert world.reload().runs[0].spec == spec
    world.finish(row, DONE)
    assert world.do(TuneRun(1, "q", row.run, b"{}"), RunChanged).refused == "run_ended"
    assert world.do(TuneRun(1, "q", 99, b"{}"), RunChanged).refused == "no_such_run"


def test_the_newest_items_can_be_searched(world: World) -> None:
    """Newest first, by pages, of one run or of all, whatever the case of the letters."""
    rows = world.submit(A, B, C).admitted
    for n, row in enumerate(rows):
        world.finish(row, DONE, items=(b'{"title":"Page %d"}' % n, b'{"other":1}'))
    other = world.submit(D).admitted[0]
    world.finish(other, DONE, items=(b'{"title":"page of another"}',))
    newest = world.ask(FindItems(None, 1 << 60, 2), FoundItems)
    assert [(one.run, one.id) for one in newest.rows] == [(other.run, 7), (rows[0].run, 6)]
    assert (newest.last, newest.more) == (6, True)
    found = world.ask(FindItems(rows[0].run, 6, 9, "PAGE"), FoundItems)
    assert [one.id for one in found.rows] == [5, 3, 1]
    assert not found.more and found.last == 1


def test_retrying_nothing_leaves_a_run_completed(world: World) -> None:
    """A run without dead requests is not reopened."""
    row = world.submit(A).admitted[0]
    world.finish(row, DONE)
    retried = world.do(RetryDead(1, row.run, 5, 2, 1.0), Retried)
    assert (retried.rows, retried.last, retried.more) == ([], 5, False)
    assert retried.row is not None and retried.row.state is RunState.COMPLETED


def test_a_reopened_run_does_not_revive_what_it_had_skipped(world: World) -> None:
    """A stopped run that is retried before its sweep keeps its skipped requests skipped."""
    a = world.submit(A, B, C).admitted[0]
    world.finish(a, DEAD, reason="dns")
    world.change_run(a.run, RunState.COMPLETED, "stopped")
    retried = world.do(RetryDead(1, a.run, 0, 10, 1.0), Retried)
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
    assert counted is not None and counted.state is RunState.COMPLETED
    assert counted.counters == RunCounters(2, 0, done=1, failed=1, items=1, bytes=10)
    assert world.failures(a.run) == [(A, DEAD, "quarantined")]
    assert world.tallies(a.run).failed == {"quarantined": 1}
    assert world.do(CountCrash(1, a.seq, 4, True, 1.0), CrashCounted).row == counted
    assert world.do(CountCrash(1, 99, 1, True, 1.0), CrashCounted).row is None


# ---------------------------------------------------------------- output files


def test_the_cursor_of_an_output_file_is_stored_with_its_length(world: World) -> None:
    """A file is listed until its run has ended and it holds every item."""
    job = world.submit(A, B, output=("/out/x.jsonl", "jsonl"))
    world.submit(C)
    expected = OutputRow(job.run, "/out/x.jsonl", "jsonl", 0, 0, 0)
    assert world.ask(ReadOutputs(), Outputs).rows == [expected]
    for row in job.admitted:
        world.finish(row, DONE)
    items = world.ask(ReadItems(job.run, 0, 10), Items).rows
    world.do(AdvanceOutput(1, job.run, "/out/x.jsonl", items[0].id, 8), Done)
    world.do(AdvanceOutput(1, job.run, "/out/unknown", 9, 9), Done)
    expected = OutputRow(job.run, "/out/x.jsonl", "jsonl", items[0].id, 8, items[1].id, ended=True)
    assert world.ask(ReadOutputs(), Outputs).rows == [expected]
    world.do(AdvanceOutput(1, job.run, "/out/x.jsonl", items[1].id, 16), Done)
    assert world.ask(ReadOutputs(), Outputs).rows == []
    assert [row.length for row in world.ask(ReadOutputs(job.run), Outputs).rows] == [16]


def test_text_of_any_language_comes_back_as_it_was(world: World, store: Store) -> None:
    """URLs, reasons, names and paths are not changed by the store."""
    path = "/tmp/\udcff-ö.jsonl"  # a file name that is no UTF-8
    job = world.submit("https://a.test/ö?q=日本", name="Größe 🕷", output=(path, "jsonl"))
    row = job.admitted[0]
    world.finish(row, DEAD, reason="naïve 🕷")
    assert world.failures(row.run) == [("https://a.test/ö?q=日本", DEAD, "naïve 🕷")]
    assert world.run_row(row.run).name == "Größe 🕷"
    assert [out.path for out in world.ask(ReadOutputs(job.run), Outputs).rows] == [path]
    assert link("https://a.test/ö").origin == "https://a.test"


# ---------------------------------------------------------------- cookies


def test_a_runs_cookies_are_kept_by_host(world: World) -> None:
    """The newest of each host, in the same transaction as the page, and found by the next leader;
    another run has none of them."""
    done = world.submit(A, B, C)
    other = world.submit(A, name="other")
    a, b, c = done.admitted
    world.finish(a, DONE, cookies=("a.test", b'[["sid","1"]]'))
    world.finish(b, DONE, cookies=("b.test", b"[]"))
    world.finish(c, DONE, cookies=("a.test", b'[["sid","2"]]'))
    kept = world.run_row(done.run).cookies
    assert msgspec.json.decode(kept) == {"b.test": "[]", "a.test": '[["sid","2"]]'}
    assert world.run_row(other.run).cookies == b""


def test_cookies_have_a_bound() -> None:
    """A run on very many hosts forgets the jars that changed longest ago."""
    jar = b""
    for number in range(50):
        jar = merged(jar, f"h{number}.test", b"x" * 5_000)
    assert len(jar) <= 60_000
    assert list(msgspec.json.decode(jar)) == [f"h{n}.test" for n in range(39, 50)]
