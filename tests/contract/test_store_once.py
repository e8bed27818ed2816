"""The contract of a store: answers that are kept, and what may be forgotten."""

from __future__ import annotations

import msgspec
import pytest

from tests.contract.store_world import World, client_action
from zcrawl.errors import Fenced
from zcrawl.model.rows import QueuedRow
from zcrawl.model.states import Disposition, RequestState, RunState
from zcrawl.store.commands import (
    ChangeRun,
    ClientAction,
    Forget,
    Forgotten,
    RunChanged,
    SetWish,
    TuneRun,
    WishSet,
)
from zcrawl.store.queries import ActionRow, FindReply, FoundReply

A, B, C = (f"https://a.test/{name}" for name in "abc")


def reply_to(world: World, request: str) -> dict[str, object] | None:
    reply = world.ask(FindReply(request), FoundReply).reply
    return None if reply is None else dict(msgspec.json.decode(reply))


def do_something(world: World, action: ClientAction) -> bytes:
    """Any action that keeps its answer."""
    return world.do(SetWish(1, 1, "w1", b"{}", action), WishSet).reply


def test_the_answer_to_an_action_is_stored_with_it(world: World) -> None:
    """And the same command once more does nothing: the run stays as it is by then."""
    run = world.submit(A).run
    paused = RunState.PAUSED
    command = ChangeRun(1, "p", run, paused, "", 1.0, client_action("p", changed=1))
    assert reply_to(world, "p") is None
    assert world.do(command, RunChanged).reply == b""
    reply = {"job": 1, "run": run, "state": "paused", "changed": 1}
    assert reply_to(world, "p") == reply
    world.change_run(run, RunState.RUNNING)
    again = world.do(command, RunChanged)
    assert (msgspec.json.decode(again.reply), again.refused) == (reply, "")
    assert again.row == world.run_row(run)
    assert world.run_row(run).state is RunState.PENDING


def test_a_refusal_is_not_stored(world: World) -> None:
    """It may be asked again when it fits."""
    run = world.submit(A).run
    world.change_run(run, RunState.CANCELLED)
    for command in (
        ChangeRun(1, "p", run, RunState.PAUSED, "", 1.0, client_action("p")),
        TuneRun(1, "p", run, b"{}", client_action("p")),
        ChangeRun(1, "p", 99, RunState.PAUSED, "", 1.0, client_action("p")),
    ):
        assert world.do(command, RunChanged).refused
    assert world.retry(run, request="p").refused
    assert reply_to(world, "p") is None


def test_an_end_that_was_there_is_answered_and_stored(world: World) -> None:
    """Cancelling twice is not an error, and each request has its answer."""
    run = world.submit(A).run
    for request, changed in (("one", 1), ("two", 0)):
        action = client_action(request, changed=changed)
        command = ChangeRun(1, request, run, RunState.CANCELLED, "", 1.0, action)
        assert world.do(command, RunChanged).refused == ""
        assert reply_to(world, request) == {
            "job": 1,
            "run": run,
            "state": "cancelled",
            "changed": changed,
        }


def test_an_answer_outlives_its_run(world: World) -> None:
    """A delete that is repeated finds nothing to delete, and its answer."""
    run = world.submit(A).run
    command = ChangeRun(1, "d", run, RunState.DELETED, "", 1.0, client_action("d", changed=1))
    world.do(command, RunChanged)
    while world.sweep(run).more:
        pass
    again = world.do(command, RunChanged)
    assert again.row is None
    assert msgspec.json.decode(again.reply)["state"] == "deleted"
    assert world.retry(run, request="d").reply == again.reply


def test_a_tuned_run_is_not_tuned_again(world: World) -> None:
    """By the same request."""
    run = world.submit(A, spec=b'{"name":"x"}').run
    tune = TuneRun(1, "t", run, b'{"name":"y"}', client_action("t"))
    assert world.do(tune, RunChanged).reply == b""
    world.do(TuneRun(1, "u", run, b'{"name":"z"}', client_action("u")), RunChanged)
    assert world.do(tune, RunChanged).reply
    assert world.run_row(run).spec == b'{"name":"z"}'


def test_a_retry_is_answered_when_its_last_part_is_done(world: World) -> None:
    """With all that it queued; from then on it queues nothing."""
    rows = world.submit(A, B, C).admitted
    for row in rows:
        world.finish(row, RequestState.DEAD, reason="x")
    first = world.retry(rows[0].run, 2)
    assert (len(first.rows), first.more, reply_to(world, "r")) == (2, True, None)
    assert len(world.retry(rows[0].run, 2).rows) == 1
    reply = reply_to(world, "r")
    assert reply is not None
    assert reply["changed"] == 3
    world.finish(rows[0], RequestState.DEAD, reason="x")
    again = world.retry(rows[0].run, 2)
    assert (again.rows, again.refused, msgspec.json.decode(again.reply)) == ([], "", reply)
    assert world.run_row(rows[0].run).counters.failed == 1


def test_a_submission_has_its_answer_too(world: World) -> None:
    """The stored answer has job and run, which a repeat gets."""
    done = world.submit(A, request="s", by="ann@laptop", via="m2")
    assert reply_to(world, "s") == {"job": done.job, "run": done.run}


def test_long_words_of_a_client_do_not_fail_the_action(world: World) -> None:
    """They are cut."""
    long = ClientAction("l", "x" * 300, "ä" * 300, "m" * 300, 1.0)
    assert do_something(world, long) == b"{}"
    assert reply_to(world, "l") == {}


# ---------------------------------------------------------------- forgetting


def forget(world: World, *streams: tuple[str, int], limit: int = 500) -> bool:
    before = world.now - 50.0
    return world.do(Forget(1, streams, before, before, limit), Forgotten).more


def finish_by(world: World, row: QueuedRow, worker: str, incarnation: int) -> None:
    world.finish(row, RequestState.DONE, worker=worker, incarnation=incarnation)


def test_only_named_watermarks_that_have_not_moved_are_forgotten(world: World) -> None:
    """A name alone is not enough, and an age alone neither."""
    rows = world.submit(A, B, C).admitted
    finish_by(world, rows[0], "w1", 1)
    finish_by(world, rows[1], "w1", 2)
    world.now += 100.0
    finish_by(world, rows[2], "w2", 1)
    loaded = world.reload()
    assert loaded.moved == {("w1", 1): 100.0, ("w1", 2): 100.0, ("w2", 1): 200.0}
    assert not forget(world, ("w1", 1), ("w2", 1), ("w9", 1))
    assert world.reload().watermarks == {("w1", 2): 1, ("w2", 1): 1}
    assert set(world.reload().moved) == {("w1", 2), ("w2", 1)}


def test_a_watermark_that_moves_again_stays(world: World) -> None:
    """Its age is that of its last move, not of its first."""
    rows = world.submit(A, B).admitted
    finish_by(world, rows[0], "w1", 1)
    world.now += 100.0
    finish_by(world, rows[1], "w1", 1)
    forget(world, ("w1", 1))
    assert world.reload().watermarks == {("w1", 1): 2}


def test_pages_do_not_come_twice_when_their_watermark_is_gone(world: World) -> None:
    """If a worker comes back late and sends its results again, the rows are already final (G3)."""
    (row,) = world.submit(A).admitted
    change = world.change(row, RequestState.DONE)
    world.seeds(row.run, B)
    world.apply(change)
    world.now += 100.0
    forget(world, (change.worker, change.incarnation))
    before = world.run_row(row.run).counters
    assert world.apply(change).dispositions[0] is not Disposition.APPLIED
    assert world.run_row(row.run).counters == before


def test_old_answers_are_forgotten_a_few_at_a_time(world: World) -> None:
    """Young ones stay, whatever their number."""
    for number in range(5):
        do_something(world, client_action(f"old{number}", at=10.0))
        do_something(world, client_action(f"new{number}", at=100.0))
    world.submit(A, request="s", now=10.0)
    assert [forget(world, limit=2) for _ in range(4)] == [True, True, True, False]
    assert [reply_to(world, f"old{n}") for n in range(5)] == [None] * 5
    assert [reply_to(world, f"new{n}") for n in range(5)] == [{}] * 5
    assert reply_to(world, "s") is None


def test_forgetting_is_fenced(world: World) -> None:
    """Like every command of a leader."""
    do_something(world, client_action("k", at=1.0))
    with pytest.raises(Fenced):
        world.store.execute(Forget(99, (), world.now, world.now, 5))
    assert reply_to(world, "k") == {}


# ---------------------------------------------------------------- who asked


def test_the_latest_actions_on_a_run_are_told(world: World) -> None:
    """Newest first, at most five, without the pieces of its seeds."""
    run = world.submit(A, by="ann@laptop", via="m1", now=1.0, seeding=True).run
    world.submit(A)
    world.seeds(run, B)
    (first,) = world.tallies(run).actions
    assert first == ActionRow(1.0, "submit new", "ann@laptop", "m1")
    for number in range(6):
        state = RunState.RUNNING if number % 2 else RunState.PAUSED
        action = client_action(f"p{number}", at=200.0 + number)
        world.do(ChangeRun(1, action.request, run, state, "", 1.0, action), RunChanged)
    actions = world.tallies(run).actions
    assert [action.at for action in actions] == [205.0, 204.0, 203.0, 202.0, 201.0]
    assert actions[0] == ActionRow(205.0, "pause", "ann@laptop", "m2")
