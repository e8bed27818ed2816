"""The contract of a store: what people asked for outlives the leader that was asked."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.contract.store_world import DEAD, DONE, A, B, C, D, World, client_action
from zcrawl.errors import Fenced
from zcrawl.model.states import RunState
from zcrawl.store.commands import (
    ChangeRun,
    DrainRow,
    DrainSet,
    Loaded,
    RetryRow,
    RunChanged,
    SetDrain,
    SetWish,
    TakeOver,
    WishRow,
    WishSet,
)
from zcrawl.store.queries import FindReply, FoundReply


def drain(
    world: World, request: str = "", worker: str = "w1", on: bool = True, life: int = 7
) -> DrainSet:
    """By a person, or without a request by the leader that meets the worker."""
    by = client_action(request) if request else None
    command = SetDrain(world.epoch, worker, on, life, world.now, "draining", by)
    return world.do(command, DrainSet)


def wish(world: World, request: str, host: int, worker: str, *others: int) -> WishSet:
    reply = msgspec.json.encode({"node": worker})
    command = SetWish(world.epoch, host, worker, reply, client_action(request), others)
    return world.do(command, WishSet)


def next_leader(world: World) -> Loaded:
    loaded = world.do(TakeOver("m2", 0, world.now), Loaded)
    world.epoch = loaded.epoch
    return loaded


def changed(reply: bytes) -> int:
    return int(msgspec.json.decode(reply)["changed"])


# ---------------------------------------------------------------- drains


def test_a_drain_is_stored_until_it_is_ended(world: World) -> None:
    """By the worker's id; the next leader loads it. Ids differ by case and by spaces at the end."""
    set_by = drain(world, "d")
    assert set_by.row == DrainRow("w1", 7)
    assert msgspec.json.decode(set_by.reply) == {"node": "w1", "state": "draining", "changed": 1}
    drain(world, "e", worker="W1 ")
    assert next_leader(world).drains == [DrainRow("W1 ", 7), DrainRow("w1", 7)]
    assert drain(world, "u", on=False).row is None
    assert next_leader(world).drains == [DrainRow("W1 ", 7)]


def test_a_drain_and_its_end_are_answered_with_what_they_changed(world: World) -> None:
    """A request that changes nothing is not an error."""
    assert changed(drain(world, "u1", on=False).reply) == 0
    assert changed(drain(world, "d1").reply) == 1
    assert changed(drain(world, "d2").reply) == 0
    assert changed(drain(world, "u2", on=False).reply) == 1


def test_a_late_copy_of_a_drain_changes_nothing(world: World) -> None:
    """It gets the first answer, and the worker stays as it is by then."""
    first = drain(world, "d")
    drain(world, "u", on=False)
    again = drain(world, "d")
    assert (again.reply, again.row) == (first.reply, None)
    assert world.reload().drains == []


def test_a_node_that_was_started_anew_ends_its_drain(world: World) -> None:
    """A child that its supervisor starts again has the same life, and stays drained."""
    drain(world, "d", life=7)
    assert drain(world, on=False, life=7).row == DrainRow("w1", 7)
    assert drain(world, on=False, life=8).row is None
    assert drain(world, on=False, life=8).row is None, "a repeat does nothing"


def test_a_drain_of_a_worker_that_was_away_learns_its_life_once(world: World) -> None:
    """The first life that is met counts, and only another one ends the drain."""
    drain(world, "d", life=0)
    assert drain(world, on=False, life=7).row == DrainRow("w1", 0)
    assert drain(world, on=True, life=7).row == DrainRow("w1", 7)
    assert drain(world, on=True, life=8).row == DrainRow("w1", 7)
    assert drain(world, on=True, life=8, worker="w2").row is None, "nobody drained it"


def test_a_drain_that_is_asked_for_again_is_of_the_life_that_is_there_now(world: World) -> None:
    """Otherwise a repeated request of an earlier life would end the drain."""
    drain(world, "d", life=7)
    drain(world, "e", life=8)
    assert drain(world, on=False, life=8).row == DrainRow("w1", 8)


# ---------------------------------------------------------------- wishes


def test_a_wish_for_a_host_is_stored_until_the_next_one(world: World) -> None:
    """One for each host; the next leader loads them."""
    wish(world, "a", 5, "w1")
    wish(world, "b", 3, "w2")
    assert wish(world, "c", 5, "w3").wishes == [WishRow(3, "w2"), WishRow(5, "w3")]
    again = wish(world, "a", 5, "w1")
    assert msgspec.json.decode(again.reply) == {"node": "w1"}, "the answer that it got"
    assert next_leader(world).wishes == [WishRow(3, "w2"), WishRow(5, "w3")]


def test_a_wish_takes_the_place_of_those_of_hosts_that_share_its_limits(world: World) -> None:
    """One worker has them all, so the newest wish decides."""
    wish(world, "a", 5, "w1")
    wish(world, "b", 3, "w2")
    assert wish(world, "c", 4, "w3", 5).wishes == [WishRow(3, "w2"), WishRow(4, "w3")]


# ---------------------------------------------------------------- retries


def dead_rows(world: World, *urls: str) -> int:
    rows = world.submit(*urls).admitted
    for row in rows:
        world.finish(row, DEAD, reason="dns")
    return rows[0].run


def test_the_next_leader_goes_on_where_a_retry_stands(world: World) -> None:
    """Rows that died again meanwhile are not tried a second time; the answer counts all parts."""
    rows = world.submit(A, B, C, D).admitted
    for row in rows:
        world.finish(row, DEAD, reason="dns")
    run = rows[0].run
    assert world.retry(run, 2, reason="dns").rows == rows[:2]
    world.finish(rows[0], DEAD, reason="dns")
    (stands,) = next_leader(world).retries
    assert stands == RetryRow(client_action("r", changed=2), run, "dns", 0, rows[1].seq)
    assert world.retry(run, 2, reason="dns").rows == rows[2:]
    last = world.retry(run, 2, reason="dns")
    assert (last.rows, last.changed, last.more) == ([], 4, False)
    reply = world.ask(FindReply("r"), FoundReply).reply
    assert reply is not None
    assert msgspec.json.decode(reply)["changed"] == 4
    assert next_leader(world).retries == []
    assert world.run_row(run).counters.failed == 1


def test_a_retry_whose_run_was_ended_is_answered_with_what_it_did(world: World) -> None:
    """Not refused: something was done. What did nothing is refused, and leaves nothing behind."""
    run = dead_rows(world, A, B, C)
    world.retry(run, 1)
    world.change_run(run, RunState.CANCELLED)
    assert world.retry(run, 1, request="late").refused == "run_ended"
    ended = world.retry(run, 1)
    assert (ended.refused, ended.rows, ended.changed, ended.more) == ("", [], 1, False)
    reply = world.ask(FindReply("r"), FoundReply).reply
    assert reply is not None
    assert msgspec.json.decode(reply) == {"job": 1, "run": run, "state": "cancelled", "changed": 1}
    assert world.reload().retries == []


def test_a_retry_of_a_run_that_is_gone_is_forgotten(world: World) -> None:
    """It was deleted and swept in the middle."""
    run = dead_rows(world, A, B)
    world.retry(run, 1)
    world.change_run(run, RunState.DELETED)
    while world.sweep(run).more:
        pass
    assert world.retry(run, 1).refused == "no_such_run"
    assert world.reload().retries == []


def test_two_retries_do_not_disturb_each_other(world: World) -> None:
    """Each has its own place and its own count."""
    run = dead_rows(world, A, B, C)
    assert len(world.retry(run, 1, request="one").rows) == 1
    assert len(world.retry(run, 2, request="two").rows) == 2
    assert [
        (retry.client_action.request, retry.client_action.changed)
        for retry in world.reload().retries
    ] == [
        ("one", 1),
        ("two", 2),
    ]
    assert (
        world.retry(run, 1, request="one").changed,
        world.retry(run, 2, request="two").changed,
    ) == (
        1,
        2,
    )


# ---------------------------------------------------------------- whole jobs


def test_all_runs_of_a_job_are_deleted_in_one_transaction(world: World) -> None:
    """One that has ended, one that goes on; a run that is not there is left out."""
    first = world.submit(A)
    world.finish(first.admitted[0], DONE)
    second = world.submit(B, mode="again")
    by = client_action("x", changed=2)
    command = ChangeRun(
        world.epoch, "x", second.run, RunState.DELETED, "deleted", 1.0, by, (first.run, 99)
    )
    done = world.do(command, RunChanged)
    assert done.row is not None
    assert done.row.id == second.run
    assert [row.id for row in done.others] == [first.run]
    assert {row.state for row in (done.row, *done.others)} == {RunState.DELETED}
    assert world.reload().sweeps == [first.run, second.run]


@pytest.mark.parametrize("what", ["drain", "wish", "retry"])
def test_an_older_leader_can_store_nothing(world: World, what: str) -> None:
    """G4: what it was asked for is refused, and has no effect."""
    run = dead_rows(world, A)
    old = world.epoch
    next_leader(world)
    new, world.epoch = world.epoch, old
    attempts: dict[str, Callable[[], object]] = {
        "drain": lambda: drain(world, "d"),
        "wish": lambda: wish(world, "w", 1, "w1"),
        "retry": lambda: world.retry(run),
    }
    with pytest.raises(Fenced):
        attempts[what]()
    world.epoch = new
    loaded = world.reload()
    assert (loaded.drains, loaded.wishes, loaded.retries) == ([], [], [])
