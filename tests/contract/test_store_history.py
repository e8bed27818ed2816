"""The contract of a store: what charts show is kept for a day, and outlives its leader."""

from __future__ import annotations

import pytest

from tests.contract.store_world import World
from zcrawl.errors import Fenced
from zcrawl.model.history import HistoryCounts, HistoryEntry, HistoryPoint
from zcrawl.store.commands import Done, Loaded, SaveHistory, TakeOver
from zcrawl.store.queries import HistoryPoints, ReadHistory

AT = 1_700_000_040.0  # the beginning of a minute


def counts(pages: int, queued: int = 0, **latencies: int) -> HistoryCounts:
    by_class = {int(name[1:]): number for name, number in latencies.items()}
    return HistoryCounts(pages, 1, 100 * pages, queued, 4, 3, 2, by_class)


def entry(pages: int, queued: int = 0) -> HistoryEntry:
    whole = counts(pages, queued, c9=pages)
    return HistoryEntry(10.0, whole, {7: whole}, {3: counts(pages)})


def save(world: World, at: float, saved: HistoryEntry) -> None:
    world.do(SaveHistory(world.epoch, at, saved), Done)


def read(world: World, step: int = 10, limit: int = 1_000, **series: int) -> list[HistoryPoint]:
    outcome = world.store.query(ReadHistory(step, limit, **series))
    assert isinstance(outcome, HistoryPoints)
    return outcome.points


def next_leader(world: World) -> None:
    world.epoch = world.do(TakeOver("m2", 0, world.now), Loaded).epoch


def test_a_row_for_ten_seconds_and_their_sum_for_a_minute(world: World) -> None:
    """Counts add up; what is queued and in flight is that of the end."""
    save(world, AT, entry(5, queued=90))
    save(world, AT + 10, entry(7, queued=80))
    assert [(point.at, point.seconds) for point in read(world)] == [(AT, 10.0), (AT + 10, 10.0)]
    (minute,) = read(world, 60)
    assert (minute.at, minute.seconds) == (AT, 20.0)
    assert minute.counts == HistoryCounts(12, 2, 1_200, 80, 4, 3, 2, {9: 12})


def test_a_minute_that_two_leaders_wrote_is_complete(world: World) -> None:
    """Also ten seconds in which the leader changed."""
    save(world, AT, entry(5))
    next_leader(world)
    save(world, AT, entry(1))
    save(world, AT + 50, entry(2))
    assert [point.counts.pages for point in read(world) if point.counts] == [6, 2]
    assert [point.counts.pages for point in read(world, 60) if point.counts] == [8]


def test_an_older_leader_writes_nothing(world: World) -> None:
    """G4: it is fenced, as with every command."""
    stale = world.epoch
    next_leader(world)
    with pytest.raises(Fenced):
        world.store.execute(SaveHistory(stale, AT, entry(5)))
    assert read(world) == []


def test_a_series_is_of_a_run_or_of_a_host(world: World) -> None:
    """One that was not among the busiest has no counts, which is not the same as zero."""
    save(world, AT, entry(5))
    (of_run,) = read(world, run=7)
    (of_host,) = read(world, host=3)
    assert of_run.counts == counts(5, c9=5)
    assert of_host.counts == counts(5)
    assert [point.counts for point in read(world, run=8) + read(world, host=4)] == [None, None]


def test_old_rows_are_removed(world: World) -> None:
    """Ten seconds for an hour, minutes for a day, and a little more."""
    save(world, AT, entry(1))
    save(world, AT + 3_700, entry(2))
    assert [point.at for point in read(world)] == [AT, AT + 3_700]
    save(world, AT + 3_800, entry(3))
    assert [point.at for point in read(world)] == [AT + 3_700, AT + 3_800]
    assert len(read(world, 60)) == 3
    save(world, AT + 86_400 + 3_800, entry(4))
    assert [point.counts.pages for point in read(world, 60) if point.counts] == [3, 4]


def test_the_newest_rows_are_read_oldest_first(world: World) -> None:
    """A chart asks for as many as it shows."""
    for n in range(5):
        save(world, AT + 10 * n, entry(n))
    assert [point.at for point in read(world, limit=2)] == [AT + 30, AT + 40]


def test_only_the_busiest_hosts_of_a_minute_are_kept(world: World) -> None:
    """However many hosts its parts name."""
    for part in range(2):
        hosts = {1_000 * part + n: counts(n) for n in range(150)}
        save(world, AT + 10 * part, HistoryEntry(10.0, counts(1), {}, hosts))
    kept = [host for host in range(2_000) for point in read(world, 60, host=host) if point.counts]
    assert len(kept) == 200
    assert min(host % 1_000 for host in kept) == 50
