"""The fake store's own tools: injected failures, poison, history, invariants."""

from __future__ import annotations

import pytest

from tests.contract.store_world import World, links
from zcrawl.errors import CommitUnknown, Fenced, StoreDataError, StoreUnavailable
from zcrawl.model.states import RequestState
from zcrawl.store.commands import ApplyResults, Loaded, SubmitJob, TakeOver
from zcrawl.store.queries import ListJobs
from zcrawl.testing.store.store import FakeStore, Fault

A, B = "https://a.test/a", "https://a.test/b"
DONE = RequestState.DONE


@pytest.mark.parametrize(
    ("fault", "error", "applied"),
    [
        ("fail", StoreUnavailable, False),
        ("data_error", StoreDataError, False),
        ("unknown_lost", CommitUnknown, False),
        ("unknown_applied", CommitUnknown, True),
    ],
)
def test_a_fault_applies_the_command_or_does_not(
    fault: Fault, error: type[Exception], applied: bool
) -> None:
    """Each kind of failure leaves the store as its name says."""
    store = FakeStore()
    world = World(store)
    row = world.submit(A).admitted[0]
    store.faults = lambda command: fault
    with pytest.raises(error):
        world.apply(world.change(row, DONE, links=links(B)))
    store.faults = None
    assert (store.request(row.run, B) is not None) == applied
    assert list(store.pages(row.run)) == ([A] if applied else [])
    assert len(store.items(row.run)) == int(applied)
    store.check()


def test_a_poisoned_item_refuses_its_whole_batch() -> None:
    """Nothing of the batch is applied, so that it can be bisected."""
    store = FakeStore()
    world = World(store)
    a, b = world.submit(A, B).admitted
    good, bad = world.change(a, DONE), world.change(b, DONE, items=(b"<poison>",))
    before = world.reload()
    with pytest.raises(StoreDataError):
        world.apply(good, bad)
    assert world.reload() == before
    assert world.apply(good).runs[0].counters.done == 1


def test_history_tells_what_was_applied_under_which_epoch() -> None:
    """Failed and fenced commands are not in it."""
    store = FakeStore()
    world = World(store)
    world.submit(A)
    store.execute(TakeOver("m2", 9, 1.0))
    with pytest.raises(Fenced):
        world.apply()
    assert store.history == [(1, TakeOver), (1, SubmitJob), (9, TakeOver)]
    store.faults = lambda command: "fail" if isinstance(command, ApplyResults) else None
    world.epoch = 9
    with pytest.raises(StoreUnavailable):
        world.apply()
    assert len(store.history) == 3


def test_a_lost_commit_of_a_deposed_leader_is_fenced() -> None:
    """The epoch check comes first: it would never have reached its commit."""
    store = FakeStore()
    world = World(store)
    assert isinstance(store.execute(TakeOver("m2", 9, 1.0)), Loaded)
    store.faults = lambda command: "unknown_lost"
    with pytest.raises(Fenced):
        world.submit(A)


def test_queries_can_fail_too() -> None:
    """The reader's connection has its own bad days."""
    store = FakeStore()
    store.query_faults = lambda query: True
    with pytest.raises(StoreUnavailable):
        store.query(ListJobs())


def test_check_finds_a_broken_counter() -> None:
    """The invariants are looked at, not only written down."""
    store = FakeStore()
    run = World(store).submit(A).run
    store.check()
    store.tables.runs[run].pending += 1
    with pytest.raises(AssertionError):
        store.check()
