"""What every store makes of pages that redirects have led to: each counts once in its run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.contract.store_world import (
    DEAD,
    DONE,
    QUEUED,
    SKIPPED,
    A,
    B,
    C,
    D,
    World,
    client_action,
    link,
    links,
)
from zcrawl.mesh.messages import Traits
from zcrawl.model.reasons.skip import REDIRECT_TARGET
from zcrawl.model.rows import LaneWant, QueuedRow, Refilled
from zcrawl.model.states import Disposition, Kept, RequestState, RunState
from zcrawl.store.commands import AdmitKnown, Applied, KnownAdmitted, Retried, RetryDead
from zcrawl.store.queries import (
    Failures,
    Items,
    KnownPages,
    ReadFailed,
    ReadItems,
    ReadKnown,
    Refill,
)

T = "https://a.test/target"
T_SKIPPED = (T, SKIPPED, REDIRECT_TARGET)
INCREMENTAL = b'{"recrawl":{"incremental":true,"interval":0,"min_interval":0}}'


def duplicate_of(url: str) -> str:
    return f"duplicate of {url}"


def to(url: str, **more: Any) -> dict[str, Any]:
    """A result whose page came from there."""
    return {"final": link(url, depth=0), **more}


def items(world: World, run: int) -> int:
    """How many there are; the run's own count must agree."""
    count = len(world.ask(ReadItems(run, 0, 100), Items).rows)
    assert world.run_row(run).counters.items == count
    return count


def sums_up(world: World, run: int, **expected: int) -> None:
    """G2: what was admitted is pending or final; and the counts that a test names."""
    counters = world.run_row(run).counters
    final = counters.done + counters.failed + counters.skipped
    assert counters.admitted == counters.pending + final
    assert sum(world.tallies(run).skipped.values()) == counters.skipped
    assert sum(world.tallies(run).failed.values()) == counters.failed
    assert {name: getattr(counters, name) for name in expected} == expected


def test_a_target_that_nobody_has_found_is_seen_from_then_on(world: World) -> None:
    """The redirected request is done. A later link to its target is not admitted: it is there."""
    a, b = world.submit(A, B).admitted
    assert world.finish(a, DONE, **to(T)).skipped == []
    assert world.failures(a.run) == [T_SKIPPED]
    applied = world.finish(b, DONE, links=links(T))
    assert applied.admitted == []
    assert applied.runs[0].state is RunState.COMPLETED
    assert items(world, a.run) == 2
    assert world.seeds(a.run, T).refused == "run_ended"
    sums_up(world, a.run, admitted=3, done=2, skipped=1)


@pytest.mark.parametrize("state", [QUEUED, DONE])
def test_a_redirect_to_a_page_of_the_run_is_its_duplicate(
    world: World, state: RequestState
) -> None:
    """Whether that one waits, was tried, or is done: no items, and the links are admitted."""
    a, b = world.submit(A, B).admitted
    world.finish(b, state)
    applied = world.finish(a, DONE, links=links(C), **to(B))
    assert applied.skipped == [a.seq]
    assert [row.url for row in applied.admitted] == [C]
    assert world.failures(a.run) == [(A, SKIPPED, duplicate_of(B))]
    assert world.tallies(a.run).skipped == {"duplicate": 1}
    rows = world.ask(ReadFailed(a.run, 0, 9, "duplicate"), Failures).rows
    assert [row.url for row in rows] == [A]
    if state is QUEUED:
        world.finish(b, DONE)
    assert items(world, a.run) == 1
    sums_up(world, a.run, admitted=3, done=1, skipped=1, pending=1)


@pytest.mark.parametrize("target_first", [True, False])
def test_target_and_redirect_in_one_commit_give_one_page(world: World, target_first: bool) -> None:
    """In either order, and the run completes with them."""
    a, b = world.submit(A, B).admitted
    rows: list[tuple[QueuedRow, dict[str, Any]]] = [(a, to(B)), (b, {})]
    rows = rows[::-1] if target_first else rows
    applied = world.apply(*(world.change(row, DONE, **more) for row, more in rows))
    assert applied.skipped == [a.seq]
    assert [run.state for run in applied.runs] == [RunState.COMPLETED]
    assert items(world, a.run) == 1
    sums_up(world, a.run, admitted=2, done=1, skipped=1)


@pytest.mark.parametrize("batches", [1, 2])
def test_two_redirects_to_one_target_give_one_page(world: World, batches: int) -> None:
    """The first is done and stands for the target; the second is the target's duplicate."""
    a, b, c = world.submit(A, B, C).admitted
    first, second = world.change(a, DONE, **to(T)), world.change(b, DONE, **to(T))
    if batches == 1:
        skipped = world.apply(first, second).skipped
    else:
        skipped = [*world.apply(first).skipped, *world.apply(second).skipped]
    assert skipped == [b.seq]
    assert world.failures(a.run) == [(B, SKIPPED, duplicate_of(T)), T_SKIPPED]
    assert items(world, a.run) == 1
    world.finish(c, DONE)
    sums_up(world, a.run, admitted=4, done=2, skipped=2, pending=0)


def test_a_target_that_the_same_commit_admits_is_a_page_of_the_run(world: World) -> None:
    """As a link of another page, before or after; as a trap it is not, and the redirect is done."""
    for order in (0, 1):
        a, b = world.submit(A, B).admitted
        rows: list[tuple[QueuedRow, dict[str, Any]]] = [(a, {"links": links(T)}), (b, to(T))]
        rows = rows if order == 0 else rows[::-1]
        applied = world.apply(*(world.change(row, DONE, **more) for row, more in rows))
        assert [row.url for row in applied.admitted] == ([T] if order == 0 else [])
        assert applied.skipped == ([b.seq] if order == 0 else [])
        sums_up(world, a.run, admitted=3, pending=1 - order, skipped=1)
    a, b = world.submit(A, B).admitted
    trap = msgspec.structs.replace(link(T), skip="trap_segments")
    world.apply(world.change(a, DONE, links=(trap,)), world.change(b, DONE, **to(T)))
    assert world.failures(a.run) == [T_SKIPPED]
    assert world.tallies(a.run).skipped == {REDIRECT_TARGET: 1}
    assert items(world, a.run) == 2
    sums_up(world, a.run, admitted=3, done=2, skipped=1)


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize(("state", "reason"), [(DEAD, "dns"), (SKIPPED, "robots")])
def test_a_target_that_ended_without_items_gets_them_by_the_redirect(
    world: World, state: RequestState, reason: str, batches: int
) -> None:
    """It is a target from then on: a second redirect is its duplicate, and no retry fetches it."""
    a, b, c, d = world.submit(A, B, C, D).admitted
    ended = world.change(d, state, reason=reason, status=0, attempts=2)
    first, second = world.change(a, DONE, **to(D)), world.change(b, DONE, **to(D))
    if batches == 1:
        world.apply(ended, first, second)
    else:
        for change in (ended, first, second):
            world.apply(change)
    assert world.failures(a.run) == [
        (B, SKIPPED, duplicate_of(D)),
        (D, SKIPPED, REDIRECT_TARGET),
    ]
    assert items(world, a.run) == 1
    sums_up(world, a.run, admitted=4, done=1, failed=0, skipped=2, pending=1)
    retried = world.do(RetryDead(world.epoch, a.run, 9, 1.0, client_action("r1")), Retried)
    assert retried.rows == []
    world.finish(c, DONE)
    assert world.run_row(a.run).state is RunState.COMPLETED


def test_pages_that_redirect_to_each_other_leave_one(world: World) -> None:
    """A leads to B and B to A, one after the other: nobody waits for a page that never comes."""
    a, b, c = world.submit(A, B, C).admitted
    assert world.finish(a, DONE, **to(B)).skipped == [a.seq]
    assert world.finish(b, DONE, **to(A)).skipped == []
    assert world.finish(c, DONE, **to(A)).skipped == [c.seq], "its items are there, by B"
    assert items(world, a.run) == 1
    assert world.run_row(a.run).state is RunState.COMPLETED
    sums_up(world, a.run, admitted=3, done=1, skipped=2)


def test_a_request_that_lands_at_its_own_key_is_a_page(world: World) -> None:
    """Where variants collapse, http and https have one key."""
    (a,) = world.submit(A).admitted
    assert world.finish(a, DONE, **to(A)).skipped == []
    assert items(world, a.run) == 1


def test_a_redirected_result_that_comes_twice_changes_nothing(world: World) -> None:
    """Delivered again as it is, and again as another attempt's."""
    a, b, c = world.submit(A, B, C).admitted
    change = world.change(a, DONE, **to(T))
    late = world.change(a, DONE, **to(T))
    other = world.change(b, DONE, **to(T))
    world.apply(change)
    assert world.apply(change).dispositions == [Disposition.DUPLICATE]
    assert world.apply(late, other, other).dispositions == [
        Disposition.DUPLICATE,
        Disposition.APPLIED,
        Disposition.DUPLICATE,
    ]
    assert items(world, a.run) == 1
    sums_up(world, a.run, admitted=4, done=1, skipped=2, pending=1)
    assert c.run == a.run


def test_only_a_page_makes_a_target(world: World) -> None:
    """A failure, a skip, a retry and a part change nothing of where they led."""
    a, b, c, d = world.submit(A, B, C, D).admitted
    world.apply(
        world.change(a, DEAD, reason="dns", **to(T)),
        world.change(b, SKIPPED, reason="noindex", **to(T)),
        world.change(c, QUEUED, **to(T)),
        world.change(d, None, **to(T)),
    )
    sums_up(world, a.run, admitted=4, pending=2)


def test_duplicates_do_not_count_as_pages_of_a_limited_run(world: World) -> None:
    """max_pages is reached by pages; a batch ends with the one that reaches it."""
    a, b, c, d = world.submit(A, B, C, D, spec=b'{"scope":{"max_pages":2}}').admitted
    world.apply(world.change(a, DONE, **to(B)), world.change(b, DONE))
    assert world.run_row(a.run).state is RunState.RUNNING
    applied = world.apply(world.change(c, DONE, **to(T)), world.change(d, DONE, **to(T)))
    assert applied.dispositions == [Disposition.APPLIED, Disposition.DROPPED]
    assert world.run_row(a.run).reason == "max_pages"
    assert items(world, a.run) == 2
    sums_up(world, a.run, admitted=5, done=2, skipped=3)


def test_runs_do_not_know_each_others_targets(world: World) -> None:
    """The same page counts once in each run."""
    runs = [world.submit(A, B).admitted for _ in range(2)]
    changes = [world.change(row, DONE, **to(T)) for rows in runs for row in rows]
    applied = world.apply(*changes)
    assert applied.skipped == sorted([runs[0][1].seq, runs[1][1].seq])
    assert [items(world, rows[0].run) for rows in runs] == [1, 1]


def test_a_duplicate_keeps_its_exchange_for_archives(world: World) -> None:
    """Reports about items go with the items."""
    a, b = world.submit(A, B).admitted
    others = ((Kept.CAPTURE, b"{}"), (Kept.REJECTED, b"{}"), (Kept.PROBLEM, b"{}"))
    tallies = (("filled", "title", 1),)
    world.finish(a, DONE, others=others, tallies=tallies, **to(B))
    kinds = (Kept.CAPTURE, Kept.REJECTED, Kept.PROBLEM)
    rows = [world.ask(ReadItems(a.run, 0, 9, kind), Items).rows for kind in kinds]
    assert [len(kind_rows) for kind_rows in rows] == [1, 0, 0]
    assert world.tallies(a.run).filled == {}
    assert b.run == a.run


def known_urls(world: World, job: int) -> set[str]:
    return {row.url for row in world.ask(ReadKnown(job, 0, 9), KnownPages).rows}


def admit_known(world: World, run: int, *urls: str, after: int = 0, last: bool = True) -> list[str]:
    command = AdmitKnown(world.epoch, run, after, 9, links(*urls), last, world.now)
    return [row.url for row in world.do(command, KnownAdmitted).admitted]


def queued(world: World, row: QueuedRow) -> dict[str, QueuedRow]:
    """The rows of a host's lane, by URL."""
    want = LaneWant(row.run, row.host, None, 9)
    ((_, rows, _),) = world.ask(Refill((want,)), Refilled).lanes
    return {request.url: request for request in rows}


def test_a_job_that_remembers_asks_for_a_target_by_itself_the_next_time(world: World) -> None:
    """In the first run the redirect gives the page. In the next one the target is asked for with
    what is known of it, and the redirect is its duplicate, whoever comes first."""
    first = world.submit(A, spec=INCREMENTAL)
    admit_known(world, first.run)
    world.finish(first.admitted[0], DONE, traits=Traits(content=b"1"), **to(T))
    assert known_urls(world, first.job) == {A, T}
    assert world.run_row(first.run).state is RunState.COMPLETED
    second = world.submit(A, name="job1", mode="again", spec=INCREMENTAL)
    admit_known(world, second.run, A, T)
    target = queued(world, second.admitted[0])[T]
    assert target.known, "its content is known"
    applied = world.finish(second.admitted[0], DONE, traits=Traits(content=b"1"), **to(T))
    assert applied.skipped == [second.admitted[0].seq]
    unchanged = Traits(content=b"1", unchanged=True)
    world.finish(target, DONE, items=(), traits=unchanged, reason="unchanged")
    assert items(world, second.run) == 0
    sums_up(world, second.run, admitted=2, done=1, unchanged=1, skipped=1)


def test_a_redirect_that_comes_before_the_recall_of_its_target_gives_the_page(world: World) -> None:
    """The run finds the page seen when it recalls it: it is there once, and it is not lost."""
    first = world.submit(A, T, spec=INCREMENTAL)
    admit_known(world, first.run)
    a, t = first.admitted
    world.finish(t, DONE, traits=Traits(content=b"1"))
    world.finish(a, DONE, **to(T))
    second = world.submit(A, name="job1", mode="again", spec=INCREMENTAL)
    applied = world.finish(second.admitted[0], DONE, **to(T))
    assert applied.skipped == []
    assert items(world, second.run) == 1
    assert admit_known(world, second.run, A, T) == []
    sums_up(world, second.run, admitted=2, done=1, skipped=1, pending=0)


def test_a_target_that_is_not_due_is_no_reason_to_give_its_items_again(world: World) -> None:
    """An earlier run has them, and this run does not look."""
    spec = b'{"recrawl":{"incremental":true,"interval":1000,"min_interval":1000}}'
    first = world.submit(A, T, spec=spec)
    admit_known(world, first.run)
    a, t = first.admitted
    world.finish(t, DONE, traits=Traits(content=b"1"))
    world.finish(a, DEAD, reason="timeout")
    second = world.submit(A, name="job1", mode="again", spec=spec)
    (row,) = second.admitted
    assert admit_known(world, second.run, A, T) == []
    assert world.finish(row, DONE, **to(T)).skipped == [row.seq]
    assert world.tallies(second.run).skipped == {"duplicate": 1, "not_due": 1}
    assert items(world, second.run) == 0
    assert isinstance(world.apply(), Applied)
