"""The contract of a store: leadership, results and what they change."""

from __future__ import annotations

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
    key_of,
    link,
    links,
    timeless,
)
from zcrawl.errors import Fenced, StoreDataError
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import LaneCount, LaneWant, Refilled, RunCounters
from zcrawl.model.states import Disposition, RunState
from zcrawl.store.commands import (
    ApplyResults,
    ChangeRun,
    Done,
    ExtendLease,
    GrantHosts,
    Loaded,
    Reload,
    Sweep,
    TakeOver,
)
from zcrawl.store.queries import Items, ReadEpoch, ReadItems, Refill, StoredEpoch

FAR = "https://b.test/far"
APPLIED, DUPLICATE, DROPPED = Disposition.APPLIED, Disposition.DUPLICATE, Disposition.DROPPED


# ---------------------------------------------------------------- leadership


def test_a_takeover_raises_the_epoch_to_the_hint_or_by_one(world: World) -> None:
    """The epoch is max(stored + 1, hint), so it never goes back."""
    assert world.epoch == 1
    assert world.do(TakeOver("m2", 10, 1.0), Loaded).epoch == 10
    assert world.do(TakeOver("m1", 3, 1.0), Loaded).epoch == 11


def test_a_deposed_leader_can_write_nothing(world: World) -> None:
    """Every command of a lower epoch is Fenced and changes nothing (G4)."""
    run = world.submit(A).run
    row = world.submit(B).admitted[0]
    new = timeless(world.do(TakeOver("m2", 0, 1.0), Loaded))
    for command in (
        Reload(1, 1.0),
        ApplyResults(1, [world.change(row, DONE)], 1.0),
        ChangeRun(1, "r", run, RunState.CANCELLED, "", 1.0),
        Sweep(1, run, 10),
        GrantHosts(1, [(1, (ProcessName("w1"),))]),
        ExtendLease(1, 99.0),
    ):
        with pytest.raises(Fenced):
            world.store.execute(command)
    world.epoch = new.epoch
    assert world.reload() == new


def test_an_epoch_that_was_never_taken_is_fenced(world: World) -> None:
    """A higher epoch than the stored one means that the database is not the one it led."""
    with pytest.raises(Fenced):
        world.store.execute(Reload(world.epoch + 1, 1.0))


def test_the_stored_epoch_can_be_read_without_a_lock_and_is_the_newest(world: World) -> None:
    """A master that learns of another leader can read the newest epoch."""
    assert world.store.query(ReadEpoch()) == StoredEpoch(world.epoch)
    taken = world.do(TakeOver("m2", 77, 1.0), Loaded).epoch
    assert taken >= 77
    assert world.store.query(ReadEpoch()) == StoredEpoch(taken)


def test_a_leader_loads_what_its_predecessor_left(world: World) -> None:
    """Runs, lanes, hosts, owners, watermarks and the lease outlive a leader."""
    first = world.submit(A, B, FAR)
    world.finish(first.admitted[0], DONE)
    world.do(
        GrantHosts(
            1,
            [
                (first.admitted[2].host, (ProcessName("w1"), ProcessName("w2"))),
                (999, (ProcessName("w3"),)),
            ],
        ),
        Done,
    )
    world.do(ExtendLease(1, 50.0), Done)
    world.do(ExtendLease(1, 40.0), Done)
    loaded = world.do(TakeOver("m2", 0, 1.0), Loaded)
    near, far = first.admitted[1].host, first.admitted[2].host
    assert loaded.lanes == [LaneCount(first.run, near, 1), LaneCount(first.run, far, 1)]
    assert [(host.id, host.origin, host.owners) for host in loaded.hosts] == [
        (near, "https://a.test", ()),
        (far, "https://b.test", ("w1", "w2")),
    ]
    assert loaded.watermarks == {("w1", 7): 1}
    assert loaded.lease_until == 50.0
    assert [run.id for run in loaded.runs] == [first.run]
    assert loaded.sweeps == []
    assert loaded.newest_seq == max(row.seq for row in first.admitted)


def test_a_loaded_host_needs_a_lane_or_an_owner(world: World) -> None:
    """Hosts without work are left out, unless somebody may still start requests there."""
    row = world.submit(A).admitted[0]
    world.finish(row, DONE)
    assert world.reload().hosts == []
    world.do(GrantHosts(1, [(row.host, (ProcessName("w1"),))]), Done)
    assert [host.owners for host in world.reload().hosts] == [("w1",)]
    world.do(GrantHosts(1, [(row.host, ())]), Done)
    assert world.reload().hosts == []


# ---------------------------------------------------------------- results


def test_a_page_its_items_links_and_counters_are_committed_together(world: World) -> None:
    """One done result moves everything that belongs to it (G3)."""
    row = world.submit(A).admitted[0]
    applied = world.finish(row, DONE, links=links(B, FAR, A), items=(b"1", b"2"))
    assert [(q.url, q.parent, q.depth) for q in applied.admitted] == [(B, A, 1), (FAR, A, 1)]
    assert applied.seen == [(row.run, key_of(url)) for url in (B, FAR, A)]
    assert [host.origin for host in applied.hosts] == ["https://a.test", "https://b.test"]
    counters = RunCounters(admitted=3, pending=2, done=1, items=2, bytes=10)
    assert [run.counters for run in applied.runs] == [counters]
    assert world.run_row(row.run).counters == counters
    items = world.ask(ReadItems(row.run, 0, 10), Items).rows
    assert [item.data for item in items] == [b"1", b"2"]
    assert world.ask(ReadItems(row.run, items[0].id, 10), Items).rows == items[1:]
    assert world.ask(ReadItems(row.run, 0, 1), Items).rows == items[:1]


def test_a_result_is_applied_once(world: World) -> None:
    """Redelivery under the same number changes nothing."""
    row = world.submit(A, B).admitted[0]
    change = world.change(row, DONE, links=links(C))
    assert world.apply(change).dispositions == [APPLIED]
    before = world.reload()
    again = world.apply(change, change)
    assert (again.dispositions, again.admitted, again.seen) == ([DUPLICATE] * 2, [], [])
    assert (again.hosts, again.runs) == ([], [])
    assert world.reload() == before


def test_a_final_request_never_changes(world: World) -> None:
    """A second result, of another worker, for a final request is a duplicate."""
    row = world.submit(A, B).admitted[0]
    world.finish(row, DONE)
    late = world.apply(world.change(row, DEAD, worker="w2", links=links(C)))
    assert late.dispositions == [DUPLICATE]
    assert world.run_row(row.run).counters.failed == 0
    assert world.reload().watermarks == {("w1", 7): 1, ("w2", 7): 1}


def test_two_results_for_one_request_in_one_batch(world: World) -> None:
    """The first one wins, in list order."""
    row = world.submit(A, B).admitted[0]
    first, second = world.change(row, SKIPPED, reason="robots"), world.change(row, DONE)
    assert world.apply(first, second).dispositions == [APPLIED, DUPLICATE]
    assert world.failures(row.run) == [(A, SKIPPED, "robots")]


def test_a_gap_in_the_numbers_is_refused_whole(world: World) -> None:
    """Results are applied strictly in sequence: a gap is the caller's bug."""
    row, other = world.submit(A, B).admitted
    before = world.reload()
    changes = [world.change(row, DONE), world.change(other, DONE)]
    for batch in ([changes[1]], [changes[0], msgspec.structs.replace(changes[1], number=3)]):
        with pytest.raises(StoreDataError) as caught:
            world.apply(*batch)
        assert caught.value.code == "result_gap"
    assert world.reload() == before


def test_a_done_result_without_a_page_is_refused(world: World) -> None:
    """A done request has its page, always; a dropped result needs none."""
    row = world.submit(A).admitted[0]
    change = world.change(row, DONE, page=None)
    with pytest.raises(StoreDataError) as caught:
        world.apply(change)
    assert caught.value.code == "no_page"
    assert world.apply(msgspec.structs.replace(change, dropped=True)).dispositions == [DROPPED]


def test_incarnations_count_for_themselves(world: World) -> None:
    """A restarted worker begins at 1; its old watermark stays."""
    row, other = world.submit(A, B, C).admitted[:2]
    world.finish(row, DONE)
    world.finish(other, DONE, incarnation=8)
    assert world.reload().watermarks == {("w1", 7): 1, ("w1", 8): 1}


def test_a_dropped_result_only_moves_the_watermark(world: World) -> None:
    """Dropped beforehand, of an unknown run or of an unknown request: consumed, not applied."""
    row = world.submit(A, B).admitted[0]
    before = world.reload()
    applied = world.apply(
        world.change(row, DONE, dropped=True, links=links(C)),
        msgspec.structs.replace(world.change(row, DONE), run=99),
        msgspec.structs.replace(world.change(row, DONE), seq=99),
        world.change(row, DONE, dropped=True, host_next_at=77.0),
    )
    assert applied.dispositions == [DROPPED] * 4
    assert (applied.admitted, applied.seen, applied.runs) == ([], [], [])
    moved = {"watermarks": {("w1", 7): 4}, "moved": {("w1", 7): world.now}}
    assert world.reload() == msgspec.structs.replace(before, **moved)


def test_a_request_of_another_run_is_not_touched(world: World) -> None:
    """Seq and run must agree."""
    row, other = world.submit(A).admitted[0], world.submit(A).admitted[0]
    change = msgspec.structs.replace(world.change(row, DONE), run=other.run)
    assert world.apply(change).dispositions == [DROPPED]


def test_a_retry_stays_pending_with_its_due_time(world: World) -> None:
    """Attempts, reason, status and due time are stored; nothing counts as final."""
    row = world.submit(A).admitted[0]
    world.finish(row, QUEUED, attempts=2, due_at=500.0, reason="http_503", status=503)
    lane = LaneWant(row.run, row.host, None, 10)
    expected = msgspec.structs.replace(row, attempts=2, due_at=500.0)
    assert world.ask(Refill((lane,)), Refilled).lanes == [(lane, [expected], True)]
    assert world.run_row(row.run).counters == RunCounters(admitted=1, pending=1)
    assert world.tallies(row.run).statuses == {503: 1}


def test_a_part_admits_links_and_leaves_its_request_queued(world: World) -> None:
    """A page with too many links sends parts first (rule `many links`)."""
    row = world.submit(A).admitted[0]
    assert [q.url for q in world.finish(row, None, links=links(B)).admitted] == [B]
    applied = world.finish(row, DONE, links=links(B, C))
    assert [q.url for q in applied.admitted] == [C]
    assert applied.runs[0].counters == RunCounters(admitted=3, pending=2, done=1, items=1, bytes=10)


def test_a_skipped_request_can_hand_over_by_a_link(world: World) -> None:
    """A redirect to another host ends skipped and admits its target in one transaction."""
    row = world.submit(A).admitted[0]
    applied = world.finish(
        row, SKIPPED, reason="redirected", links=(link(FAR),), seed_hosts=("b.test",)
    )
    assert [q.url for q in applied.admitted] == [FAR]
    assert applied.runs[0].seed_hosts == ("b.test",)
    assert applied.runs[0].counters == RunCounters(admitted=2, pending=1, skipped=1)
    again = world.finish(applied.admitted[0], DONE, seed_hosts=("b.test",))
    assert again.runs[0].seed_hosts == ("b.test",)


def test_links_of_one_batch_are_admitted_once(world: World) -> None:
    """Two pages that link to the same new URL make one request, the first is its parent."""
    row, other = world.submit(A, B).admitted
    applied = world.apply(
        world.change(row, DONE, links=links(C, C, D)), world.change(other, DONE, links=links(D, C))
    )
    assert [(q.url, q.parent) for q in applied.admitted] == [(C, A), (D, A)]
    assert applied.seen == [(row.run, key_of(C)), (row.run, key_of(D))]


def test_two_origins_may_have_one_key(world: World) -> None:
    """Where variants collapse: the first link counts, whether its host is known already or not."""
    row = world.submit(A).admitted[0]
    collapsed = [
        msgspec.structs.replace(link(url), key=key_of(B)) for url in (B, "http://a.test/b", FAR)
    ]
    applied = world.apply(world.change(row, DONE, links=tuple(collapsed)))
    assert [q.url for q in applied.admitted] == [B]
    assert applied.admitted[0].host == row.host


def test_two_runs_may_know_the_same_url(world: World) -> None:
    """Keys are unique within a run only; hosts are shared."""
    first, second = world.submit(A), world.submit(A)
    assert first.admitted[0].seq != second.admitted[0].seq
    assert first.admitted[0].host == second.admitted[0].host
    assert world.finish(first.admitted[0], DONE, links=links(B)).admitted != []


def test_the_pace_of_a_host_only_moves_forward(world: World) -> None:
    """next_at is the maximum, a crawl delay is taken when it is given."""
    row = world.submit(A, B).admitted[0]
    for next_at, delay in ((50.0, 3.0), (40.0, 0.0)):
        world.finish(row, QUEUED, host_next_at=next_at, crawl_delay_s=delay)
    host = world.reload().hosts[0]
    assert (host.next_at, host.crawl_delay_s) == (50.0, 3.0)


def test_the_pace_of_a_host_is_the_latest_moment_of_a_batch(world: World) -> None:
    """Results of one host are committed in any order: an older one does not bring it forward."""
    rows = world.submit(A, B, C).admitted
    moments = (40.0, 50.0, 30.0)
    world.apply(
        *(world.change(row, QUEUED, host_next_at=at) for row, at in zip(rows, moments, strict=True))
    )
    (host,) = world.reload().hosts
    assert host.next_at == 50.0


def test_tallies_count_statuses_and_reasons(world: World) -> None:
    """Every answer's status and every end's reason is counted in the result transaction."""
    a, b, c, d = world.submit(A, B, C, D).admitted
    world.apply(
        world.change(a, QUEUED, status=500, reason="http_500"),
        world.change(a, DEAD, status=500, reason="http_500"),
        world.change(b, DEAD, reason="dns"),
        world.change(c, SKIPPED, reason="robots"),
        world.change(d, DONE),
    )
    tallies = world.tallies(a.run)
    assert tallies.statuses == {500: 2, 200: 1}
    assert tallies.failed == {"http_500": 1, "dns": 1}
    assert tallies.skipped == {"robots": 1}


def test_links_that_the_scope_dropped_are_counted_once(world: World) -> None:
    """Of pages that are kept and of pages that are skipped; a result that comes twice, and one
    whose request has ended, count nothing."""
    a, b, c = world.submit(A, B, C).admitted
    dropped = (("too_deep", 38), ("excluded", 4))
    change = world.change(a, DONE, links_dropped=dropped)
    late = world.change(a, DONE, links_dropped=dropped)
    world.apply(change, late)
    world.apply(change)
    world.apply(world.change(b, SKIPPED, reason="noindex", links_dropped=dropped[:1]))
    world.apply(world.change(c, DONE))
    assert world.tallies(a.run).dropped == {"too_deep": 76, "excluded": 4}


def test_a_lane_is_read_in_order_from_a_cursor(world: World) -> None:
    """Refills give (prio, depth, seq) order, only what sorts after the cursor, and the end."""
    row = world.submit(A).admitted[0]
    new = tuple(link(f"https://a.test/{i}", depth=3 - i % 3, prio=i % 2) for i in range(8))
    admitted = world.finish(row, DONE, links=(*new, link(FAR))).admitted
    mine = sorted((q for q in admitted if q.host == row.host), key=lambda q: q.order)
    assert mine[0].parent == A

    def lane(after: tuple[int, int, int] | None, limit: int) -> tuple[list[object], bool]:
        want = LaneWant(row.run, row.host, after, limit)
        ((got, rows, ends),) = world.ask(Refill((want,)), Refilled).lanes
        assert got == want
        return list(rows), ends

    assert lane(None, 8) == (mine, False)
    assert lane(None, 9) == (mine, True)
    assert lane(mine[2].order, 3) == (mine[3:6], False)
    assert lane(mine[-1].order, 3) == ([], True)


def test_an_empty_batch_is_harmless(world: World) -> None:
    """Nothing in, nothing out."""
    assert world.apply().dispositions == []
