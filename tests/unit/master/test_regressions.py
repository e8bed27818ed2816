"""Bugs that a review found, each with the story that showed it."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from tests.unit.machine_tools import (
    LeaderStory,
    assignment,
    grant,
    heartbeat,
    hello,
    result_of,
    row,
    spec,
    urls,
)
from tests.unit.worker.test_worker_machine import Worker, of, started
from zcrawl.errors import RetryClass
from zcrawl.frontier.frontier import Frontier
from zcrawl.frontier.seen import SeenTable
from zcrawl.master import events as m
from zcrawl.master.catalogue import Catalogue
from zcrawl.master.leader import Leader
from zcrawl.mesh import codec
from zcrawl.mesh.messages import (
    PROTOCOL_VERSION,
    Ack,
    BadBody,
    Cancel,
    Header,
    HeldLease,
    MessageKind,
    Stale,
)
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import HostRow, LaneCount, RunCounters, RunRow
from zcrawl.model.spec import Politeness, Scope
from zcrawl.model.states import Outcome, RunState
from zcrawl.store.commands import ApplyResults, ChangeRun, Loaded, RetryDead
from zcrawl.worker import events as w


def test_what_was_said_to_a_predecessor_is_ignored() -> None:
    """An ACK for a dead process of the same id settles nothing of the new one."""
    worker = Worker()
    worker.welcome(grant())
    worker.assign(1)
    worker.end(1)
    ack = Ack(upto=1, first=1, dispositions=b"\0", received=1, missing=[])
    other = worker.machine.incarnation + 1
    worker.handle(
        w.MasterMessageCame(
            Header(PROTOCOL_VERSION, MessageKind.ACK, 0, 1, "m1", 9, 50, other), ack
        )
    )
    assert len(worker.machine.outbox) == 1


def test_an_ack_names_the_incarnation_that_sent_the_results() -> None:
    """The leader addresses the process whose results it settled, not whoever has its id now: to
    that one's line nothing of it goes."""
    story = LeaderStory().elect()
    story.submit(*urls(8))
    story.join("w1", 1)
    story.tick()
    story.hold = lambda command: isinstance(command, ApplyResults)
    for request in story.assigned()[:4]:
        story.publish(result_of(request))
    story.tick()
    story.hear(hello(1, replaces=1), "w1", 2)
    count = len(story.sent)
    story.release()
    story.tick()
    assert [stream.committed for stream in story.leader.state.receiver.streams.values()] == [4, 0]
    assert not [sent for sent in story.sent[count:] if isinstance(sent.body, Ack)]


def test_a_hop_is_not_starved_by_a_host_that_waits_for_a_slot() -> None:
    """A fetch that waits for its next hop holds the only slot: it must get its permit."""
    worker = Worker(slots=1)
    worker.welcome(grant(1, 1, interval_s=0.1), grant(2, 1))
    worker.assign(1, host=1)
    worker.assign(2, host=2)
    worker.now += 0.5
    worker.handle(w.HopWanted(1))
    worker.tick(1.0)
    assert of(worker.effects, w.PermitHop)


def test_memory_is_bounded_when_seeds_stream_in_before_the_cursor() -> None:
    """G6: a lane that was cut once can be cut again."""
    frontier = Frontier()
    for n in range(3_000):
        frontier.insert(row(n + 1, depth=1))
    for n in range(20_000):
        frontier.insert(row(10_000 + n, depth=0))
    frontier.check()
    assert frontier.rows < 5_000


def test_a_refill_of_an_earlier_load_that_fails_late_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the newest generation's refills may be asked again."""
    story = LeaderStory().elect()
    story.submit(*urls(3))
    frontier = story.leader.state.frontier
    failures: list[Any] = []
    monkeypatch.setattr(frontier, "refill_failed", failures.append)
    from zcrawl.errors import StoreUnavailable
    from zcrawl.store.queries import Refill

    tag = f"{story.master.epoch}.{frontier.generation - 1}"
    late = m.QueryFailed(Refill(()), tag, StoreUnavailable("late"))
    story.leader.handle(late, story.now)
    assert failures == []


def test_a_cancel_of_unknown_outcome_and_a_reload_leave_no_leases() -> None:
    """A run that ended while the leader did not hear of it ends in memory too."""
    story = LeaderStory().elect()
    story.submit(*urls(30))
    story.join("w1")
    story.tick()
    leased = story.assigned()
    kinds = (ChangeRun, ApplyResults)
    story.store.faults = lambda command: "unknown_applied" if isinstance(command, kinds) else None
    story.ask("act", ref="1", action="cancel")
    story.report(result_of(leased[0]))
    story.store.faults = None
    held = [(1, request.n, True) for request in leased[1:]]
    story.wait(2, lambda: story.beat("w1", held=held))
    assert not story.leader.state.leases.by_seq
    assert story.bodies(Cancel)


@pytest.mark.parametrize(
    "args",
    [
        {"op": "act", "ref": "1"},
        {"op": "act", "ref": "1", "action": ["x"]},
        {"op": "add_seeds", "run": math.inf, "seeds": [], "last": True},
        {"op": "submit", "mode": "again", "seeds": ["http://a.test/"], "output": ["x"]},
    ],
)
def test_bad_arguments_get_one_refusal(args: dict[str, Any]) -> None:
    """G7: whatever a client sends, it gets exactly one answer and the desk stands."""
    story = LeaderStory().elect()
    story.submit(*urls(1))
    given = {**args}
    op = given.pop("op")
    if op == "submit":
        given["spec"] = msgspec.to_builtins(spec())
    count = len(story.replies)
    story.ask(op, **given)
    assert [reply.ok for reply in story.replies[count:]] == [False]


@pytest.mark.parametrize("rate", [math.inf, math.nan, -1.0])
def test_an_impossible_rate_is_no_message(rate: float) -> None:
    """The codec refuses numbers that no worker can mean."""
    body = heartbeat(200.0, rate=rate)
    header = Header(PROTOCOL_VERSION, MessageKind.HEARTBEAT, 0, 1, "w1", 1, 0)
    assert isinstance(codec.decode(codec.encode(header, body)), BadBody)


def test_a_held_request_of_an_unknown_host_is_not_adopted() -> None:
    """A HELLO may name anything; the leader goes on."""
    story = LeaderStory().elect()
    story.submit(*urls(9))
    story.join("w1")
    story.hear(hello(2, held=[HeldLease(1, True, assignment(1, 77, host=999))]), "w1")
    story.tick()
    assert not story.leader.state.leases.holds(77)


def test_two_retries_at_once_get_their_own_answers() -> None:
    """Each client hears of its own run."""
    story = LeaderStory().elect()
    for n, name in ((1, "one"), (2, "two")):
        story.submit(*urls(2, f"h{n}.test"), of=msgspec.structs.replace(spec(), name=name))
    story.join("w1")
    story.tick()
    for request in story.assigned():
        dead = result_of(
            request,
            outcome=Outcome.FAILED,
            reason="x",
            page=None,
            items=[],
            status=500,
            retry=RetryClass.PERMANENT,
        )
        story.report(dead)
    story.hold = lambda command: isinstance(command, RetryDead)
    story.ask("act", id="A", ref="one", action="retry")
    story.ask("act", id="B", ref="two", action="retry")
    held, story.held = story.held, []
    for command in reversed(held):
        story.run(command)
    story.release()
    answers = {reply.id: reply.data["run"] for reply in story.replies[-2:]}
    assert answers == {"A": 1, "B": 2}


def test_a_welcomed_worker_does_not_exit_because_a_duplicate_was_refused() -> None:
    """Only the process that is refused gives up."""
    worker = Worker()
    worker.welcome(grant())
    effects = worker.say(Stale("duplicate_id"))
    worker.now += 500
    effects += worker.say(Stale("duplicate_id"))
    assert not of(effects, w.Exit)


def test_a_row_that_was_delayed_twice_matures_at_the_later_moment() -> None:
    """The earlier moment is void once the row has left."""
    frontier = Frontier()
    frontier.insert(row(1), 100.0)
    frontier.remove(1, 1, 1)
    frontier.insert(row(1), 200.0)
    assert frontier.mature(100.0) == []
    assert frontier.mature(200.0) == [(1, 1)]


def test_many_slots_start_at_once() -> None:
    """The outbox's window limits starts by its room, not to one at a time."""
    worker = Worker(slots=600)
    worker.welcome(grant(concurrency=1_000))
    worker.assign(*range(1, 400))
    assert len(started(worker.effects)) == 399


def test_max_pages_reached_by_a_commit_of_unknown_outcome_ends_the_run() -> None:
    """Whether the commit was applied or lost, the run ends and its workers hear of it."""
    for fault in ("unknown_applied", "unknown_lost"):
        story = LeaderStory().elect()
        story.submit(*urls(9), of=spec(scope=Scope(max_pages=2)))
        story.join("w1")
        story.tick()
        leased = story.assigned()
        assert len(leased) == 2
        faults = [fault]

        def once(command: Any, faults: list[Any] = faults) -> Any:
            return faults.pop() if isinstance(command, ApplyResults) and faults else None

        story.store.faults = once
        for request in leased:
            story.publish(result_of(request))
        story.wait(2, story.beat)
        assert story.bodies(Cancel)


def test_the_pace_survives_a_restart_whose_last_request_was_never_reported() -> None:
    """Killed right after a start: the next cluster waits one interval before it asks again."""
    now, utc = 100.0, 1_700_000_100.0
    slow = spec(politeness=Politeness(rate=0.1, concurrency=1))
    run = RunRow(
        id=1,
        job=1,
        name="slow",
        state=RunState.RUNNING,
        reason="",
        spec=msgspec.json.encode(slow),
        seed_hosts=("h1.test",),
        seeding=False,
        counters=RunCounters(admitted=1, pending=1),
        created_at=utc,
        started_at=utc,
        ended_at=0.0,
    )
    loaded = Loaded(
        epoch=2,
        lease_until=utc + 15,
        runs=[run],
        lanes=[LaneCount(1, 1, 1)],
        hosts=[HostRow(1, "http://h1.test", (ProcessName("w1#7"),), 0.0, 0.0)],
        watermarks={},
        sweeps=[],
    )
    leader = Leader("m1", loaded, utc, now, alone=True, seen=SeenTable(64), catalogue=Catalogue())
    assert leader.state.planner.hosts[1].pace.ready_at() == pytest.approx(now + 10)
