"""What every store remembers of pages across the runs of a job, and how a run starts from it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.contract.store_world import DEAD, DONE, SKIPPED, A, B, C, D, World, key_of, link, links
from zcrawl.frontier.recrawl import decode
from zcrawl.mesh.messages import Traits
from zcrawl.model.rows import KnownRow, LaneWant, QueuedRow, Refilled
from zcrawl.model.states import JobState, RequestState, RunState
from zcrawl.store.commands import AdmitKnown, KnownAdmitted, Submitted
from zcrawl.store.queries import KnownPages, ReadKnown, Refill

ONE, TWO = Traits('W/"1"', "yesterday", b"one"), Traits('"2"', "", b"two")
SAME = msgspec.structs.replace(ONE, unchanged=True)
INTERVAL_S = 1_000.0


def spec(**more: Any) -> bytes:
    recrawl = {"incremental": True, "interval": INTERVAL_S, "min_interval": 10.0}
    return msgspec.json.encode({"recrawl": recrawl, **more})


def first_run(world: World, *urls: str, **changes: Any) -> Submitted:
    """A run of the job "site" that has met what it remembers: nothing."""
    job = world.submit(*urls, **{"name": "site", "spec": spec(), **changes})
    recall(world, job.run)
    return job


def again(world: World, *urls: str, **changes: Any) -> Submitted:
    return world.submit(*urls, **{"name": "site", "mode": "again", **changes})


def known_rows(world: World, job: int, after: int = 0, limit: int = 100) -> list[KnownRow]:
    return world.ask(ReadKnown(job, after, limit), KnownPages).rows


def recall(world: World, run: int, limit: int = 100, **changes: Any) -> KnownAdmitted:
    """One chunk, as a leader would admit it."""
    row = world.run_row(run)
    rows = known_rows(world, row.job, row.recall or 0, limit)
    links = tuple(
        msgspec.structs.replace(link(page.url, page.depth), block=page.block, extra=page.extra)
        for page in rows
    )
    fields: dict[str, Any] = {
        "epoch": world.epoch,
        "run": run,
        "after": row.recall,
        "upto": rows[-1].id if rows else 0,
        "links": links,
        "last": len(rows) < limit,
        "now": world.now,
    }
    return world.do(AdmitKnown(**{**fields, **changes}), KnownAdmitted)


def lane(world: World, row: QueuedRow) -> list[QueuedRow]:
    want = LaneWant(row.run, row.host, None, 100)
    return world.ask(Refill((want,)), Refilled).lanes[0][1]


def test_a_job_that_does_not_ask_for_it_remembers_nothing(world: World) -> None:
    """Its runs share nothing but the spec."""
    job = world.submit(A, name="site")
    world.finish(job.admitted[0], DONE, traits=ONE)
    assert known_rows(world, job.job) == []
    row = world.run_row(job.run)
    assert (row.recall, row.state) == (None, "completed")
    assert again(world, A).admitted[0].known == b""


def test_a_new_run_starts_from_what_the_job_knows(world: World) -> None:
    """Seeds and links of the first run come with what their pages are recognised by, also from
    the database."""
    job = first_run(world, A)
    applied = world.finish(job.admitted[0], DONE, traits=ONE, links=links(B))
    world.finish(applied.admitted[0], DONE, traits=TWO)
    assert [
        (page.url, page.key, page.origin, page.depth) for page in known_rows(world, job.job)
    ] == [
        (A, key_of(A), "https://a.test", 0),
        (B, key_of(B), "https://a.test", 1),
    ]
    world.now += INTERVAL_S
    second = again(world, A)
    assert world.run_row(second.run).recall == 0
    (seed,) = second.admitted
    admitted = recall(world, second.run)
    assert [(row.url, row.depth, row.parent) for row in admitted.admitted] == [(B, 1, None)]
    assert [host.id for host in admitted.hosts] == [seed.host]
    rows = [seed, *admitted.admitted]
    assert [decode(row.known) for row in rows] == [ONE, TWO]
    assert lane(world, seed) == rows
    assert admitted.row is not None
    assert admitted.row.recalled


def test_a_run_does_not_complete_before_it_has_met_all_that_is_known(world: World) -> None:
    """Its seeds may be done before; a run with nothing due ends with the last chunk."""
    job = first_run(world, A)
    applied = world.finish(job.admitted[0], DONE, traits=ONE, links=links(B))
    world.finish(applied.admitted[0], DONE, traits=TWO)
    world.now += INTERVAL_S
    second = again(world, A)
    world.finish(second.admitted[0], DONE, traits=SAME, items=())
    assert world.run_row(second.run).state is RunState.RUNNING
    (row,) = recall(world, second.run).admitted
    world.finish(row, DONE, traits=TWO)
    assert world.run_row(second.run).state is RunState.COMPLETED
    third = again(world, A)
    assert third.admitted == []
    assert world.run_row(third.run).state is RunState.PENDING
    done = recall(world, third.run)
    assert done.row is not None
    assert done.row.state is RunState.COMPLETED
    assert world.tallies(third.run).skipped == {"not_due": 2}


def test_known_pages_come_in_chunks_and_each_once(world: World) -> None:
    """A chunk that is sent twice changes nothing and says so; the next one goes on behind it."""
    job = first_run(world, A, B, C)
    for row in job.admitted:
        world.finish(row, DONE, traits=ONE)
    world.now += INTERVAL_S
    second = again(world)
    first = recall(world, second.run, limit=2)
    assert [row.url for row in first.admitted] == [A, B]
    assert not first.repeated
    before = world.run_row(second.run)
    repeated = recall(world, second.run, limit=2, after=0)
    assert repeated.repeated
    assert repeated.admitted == []
    assert world.run_row(second.run) == before
    assert [row.url for row in recall(world, second.run, limit=2).admitted] == [C]
    assert world.run_row(second.run).recalled
    assert recall(world, second.run, after=before.recall).repeated
    assert world.run_row(second.run).counters.admitted == 3
    assert world.do(AdmitKnown(world.epoch, 99, 0, 1, (), True, 0.0), KnownAdmitted).row is None


def test_what_is_not_due_is_skipped_wherever_it_comes_from(world: World) -> None:
    """As a seed, as a known page, as a link of another page; and it counts."""
    job = first_run(world, A, B)
    for row in job.admitted:
        world.finish(row, DONE, traits=ONE)
    world.now += INTERVAL_S - 1
    second = again(world, A, C)
    assert [row.url for row in second.admitted] == [C]
    applied = world.finish(second.admitted[0], DONE, traits=TWO, links=links(B, D))
    assert [row.url for row in applied.admitted] == [D]
    assert recall(world, second.run).admitted == []
    assert world.failures(second.run) == [(A, SKIPPED, "not_due"), (B, SKIPPED, "not_due")]
    counters = world.run_row(second.run).counters
    assert (counters.admitted, counters.skipped, counters.pending) == (4, 2, 1)


def test_unchanged_pages_are_counted_as_such(world: World) -> None:
    """They are done, have no items, and keep what they are recognised by."""
    job = first_run(world, A, B)
    for row in job.admitted:
        world.finish(row, DONE, traits=ONE)
    world.now += INTERVAL_S
    second = again(world, A, B)
    first, other = second.admitted
    world.finish(first, DONE, traits=SAME, items=(), status=304, reason="unchanged")
    recall(world, second.run)
    world.finish(other, DONE, traits=TWO)
    counters = world.run_row(second.run).counters
    assert (counters.done, counters.unchanged, counters.items) == (2, 1, 1)
    world.now += INTERVAL_S / 2  # the changed one is due, the other is not
    third = again(world, A, B)
    assert [(row.url, decode(row.known)) for row in third.admitted] == [(B, TWO)]


def test_a_page_that_is_gone_is_no_start_and_a_failed_one_is(world: World) -> None:
    """404 and 410 end it; a server's failure leaves it due at once, with what was known."""
    job = first_run(world, A, B, C)
    a, b, c = job.admitted
    world.finish(a, DONE, traits=ONE)
    world.finish(b, DEAD, status=410, reason="http_410")
    world.finish(c, DEAD, status=500, reason="http_500")
    assert [page.url for page in known_rows(world, job.job)] == [A, C]
    world.now += 1
    second = again(world)
    assert [(row.url, row.known) for row in recall(world, second.run).admitted] == [(C, b"")]


def test_a_result_that_comes_twice_is_remembered_once(world: World) -> None:
    """A repeat of the batch changes nothing of what is known."""
    job = first_run(world, A, B)
    change = world.change(job.admitted[0], DONE, traits=ONE)
    world.apply(change)
    world.now += 5 * INTERVAL_S
    world.apply(change)
    assert [page.url for page in known_rows(world, job.job)] == [A]
    second = again(world, A)
    assert [decode(row.known) for row in second.admitted] == [ONE]
    world.now -= 5 * INTERVAL_S
    assert again(world, A).admitted == []  # checked then, not when the repeat came


def test_what_a_run_left_queued_is_a_start_of_the_next(world: World) -> None:
    """A run that was cancelled, or that reached its limit, is gone on with; sweeping tells."""
    limited = spec(scope={"max_pages": 1})
    job = first_run(world, A, B, spec=limited)
    world.finish(job.admitted[0], DONE, traits=ONE, links=links(C))
    while world.sweep(job.run, limit=1).more:
        pass
    assert [page.url for page in known_rows(world, job.job)] == [A, B, C]
    second = again(world, A)
    assert [row.url for row in recall(world, second.run).admitted] == [B, C]
    world.change_run(second.run, RunState.CANCELLED, "cancelled")
    world.sweep(second.run)
    assert len(known_rows(world, job.job)) == 3


def test_sitemaps_and_a_spiders_start_are_no_pages(world: World) -> None:
    """They are read again in every run."""
    job = first_run(world)
    start = "http://spider.invalid/start"
    second = again(world, start)
    applied = world.finish(
        second.admitted[0], SKIPPED, reason="start", links=(link(A).as_sitemap(),)
    )
    world.finish(applied.admitted[0], DEAD, status=404, reason="http_404")
    recall(world, second.run)
    assert known_rows(world, job.job) == []
    third = again(world, start)
    assert len(third.admitted) == 1
    applied = world.finish(third.admitted[0], DONE, links=(link(A).as_sitemap(),))
    assert len(applied.admitted) == 1


def test_labels_and_extras_come_back_with_known_pages(world: World) -> None:
    """A page is read by the block or handler that has read it before."""
    special = msgspec.structs.replace(link(B), block="détail", extra=b"extras")
    job = first_run(world, A)
    applied = world.finish(job.admitted[0], DONE, traits=ONE, links=(special,))
    world.finish(applied.admitted[0], DONE, traits=TWO)
    world.now += INTERVAL_S
    second = again(world)
    assert [(row.url, row.block, row.extra) for row in recall(world, second.run).admitted] == [
        (A, "", b""),
        (B, "détail", b"extras"),
    ]


def test_a_job_that_reads_pages_in_another_way_fetches_them_anew(world: World) -> None:
    """Whatever is due, and without conditions."""
    job = first_run(world, A)
    world.finish(job.admitted[0], DONE, traits=ONE)
    second = again(world, A, mode="update", spec=spec(scope={"max_depth": 3}))
    assert [row.known for row in second.admitted] == [b""]


def test_the_default_scope_of_the_last_run_is_inherited(world: World) -> None:
    """A seed that leads to another host may not be due; the pages there still belong to it."""
    job = first_run(world, A, seed_hosts=("a.test",))
    world.finish(job.admitted[0], SKIPPED, reason="redirected", seed_hosts=("www.a.test",))
    second = again(world, A, seed_hosts=("a.test",))
    assert world.run_row(second.run).seed_hosts == ("a.test", "www.a.test")


def test_a_run_that_ends_meets_no_more(world: World) -> None:
    """Cancelled or full, whatever comes later changes nothing; a retry opens it without more."""
    job = first_run(world, A, B)
    for row in job.admitted:
        world.finish(row, DONE, traits=ONE)
    world.now += INTERVAL_S
    second = again(world)
    world.change_run(second.run, RunState.CANCELLED, "cancelled")
    assert recall(world, second.run, after=0).repeated
    assert world.run_row(second.run).counters.admitted == 0
    third = again(world, C)
    recall(world, third.run)
    rows = lane(world, third.admitted[0])
    for row in rows:
        world.finish(row, DEAD, reason="http_500", status=500)
    assert world.run_row(third.run).state is RunState.FAILED
    retried = world.retry(third.run)
    assert {row.url for row in retried.rows} == {A, B, C}
    assert world.run_row(third.run).recalled


def test_what_is_known_goes_with_the_last_run_of_a_deleted_job(world: World) -> None:
    """In chunks like all rows; while the job lives, it stays, even if no run is left."""
    job = first_run(world, A, B, C)
    for row in job.admitted:
        world.finish(row, DONE, traits=ONE)
    second = again(world)
    recall(world, second.run)
    world.change_run(job.run, RunState.DELETED, "deleted")
    while world.sweep(job.run, limit=2).more:
        pass
    assert len(known_rows(world, job.job)) == 3
    assert [row.id for row in world.change_job(job.job, JobState.DELETED).runs] == [second.run]
    while world.sweep(second.run, limit=2).more:
        pass
    assert known_rows(world, job.job) == []


def test_a_takeover_finds_where_a_run_stands(world: World) -> None:
    """The next leader goes on with the chunk that the last one did not bring home."""
    job = first_run(world, A, B, C)
    for row in job.admitted:
        world.finish(row, DONE, traits=ONE)
    world.now += INTERVAL_S
    second = again(world)
    recall(world, second.run, limit=2)
    (run,) = world.reload().runs
    assert run.recall == known_rows(world, job.job)[1].id


@pytest.mark.parametrize("state", [DONE, SKIPPED])
def test_two_runs_of_one_job_can_remember_the_same_page_in_one_batch(
    world: World, state: RequestState
) -> None:
    """One row, and both looked at it."""
    first = first_run(world, A, B)
    second = again(world, A, B)
    recall(world, second.run)
    world.apply(
        world.change(first.admitted[0], state, traits=ONE),
        world.change(second.admitted[0], DONE, traits=TWO),
    )
    assert [page.url for page in known_rows(world, first.job)] == [A]
    world.now += INTERVAL_S / 2
    assert [decode(row.known) for row in again(world, A).admitted] == [TWO]
