"""What people ask for is stored before it is done, and the next leader goes on with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.unit.machine_tools import LeaderStory, hello, result_of, spec, urls
from zcrawl.errors import RetryClass
from zcrawl.master.desk import actions
from zcrawl.mesh.messages import Bye, Drain, Reply
from zcrawl.model.states import NodeState, Outcome, RequestState
from zcrawl.store.commands import ChangeJob, ChangeRun, RetryDead, SetDrain, SetWish, SubmitJob
from zcrawl.testing.store.store import Fault

FAILED: dict[str, Any] = {"outcome": Outcome.FAILED, "page": None, "items": [], "reason": "x"}
LIFE = 70


def leading(*workers: str, pages: int = 3) -> LeaderStory:
    """A leader with one running job and workers of one life."""
    story = LeaderStory().elect()
    story.submit(*urls(pages))
    for worker in workers:
        story.join(worker, life=LIFE)
    story.tick()
    return story


def next_leader(old: LeaderStory) -> LeaderStory:
    """Another master takes over; nobody has said HELLO to it yet."""
    return LeaderStory(old.store, "m2", old.now + 1.0).elect(alone=False)


def done(story: LeaderStory, op: str, **args: Any) -> dict[str, Any]:
    reply = story.ask(op, f"{op}-{story.now}", **args)
    assert reply is not None, reply
    assert reply.ok, reply
    return reply.data


def fault_on(story: LeaderStory, kind: type[object], *faults: Fault | None) -> list[Fault | None]:
    """The first commands of a kind meet these; what is left is returned."""
    left = list(faults)
    story.store.faults = lambda command: left.pop(0) if isinstance(command, kind) and left else None
    return left


def drained(story: LeaderStory, worker: str = "w1") -> bool:
    return story.leader.state.roster.workers[worker].drained


# ---------------------------------------------------------------- drains


def test_a_drain_takes_effect_after_its_commit() -> None:
    """Before it the worker gets work as ever; then it is told, and gets nothing."""
    story = leading("w1")
    story.hold = lambda what: isinstance(what, SetDrain)
    assert story.ask("drain", node="w1") is None
    assert not drained(story)
    assert story.bodies(Drain) == []
    story.release()
    assert story.replies[-1].data == {"node": "w1", "state": "draining", "changed": 1}
    assert drained(story)
    assert story.bodies(Drain, "w1") == [Drain(False)]
    (view,) = done(story, "nodes")["workers"]
    assert view["state"] == "draining"


def test_a_drain_that_cannot_be_stored_is_refused_and_not_done() -> None:
    """What was refused may be asked for again, and must not have happened."""
    story = leading("w1")
    fault_on(story, SetDrain, "fail")
    reply = story.ask("drain", node="w1")
    assert reply is not None
    assert reply.data["code"] == "store_unavailable"
    assert not drained(story)
    assert story.bodies(Drain) == []


@pytest.mark.parametrize("fault", ["unknown_applied", "unknown_lost"])
def test_a_drain_whose_commit_is_uncertain_is_carried_out(fault: Fault) -> None:
    """It is repeated until the store tells what it holds."""
    story = leading("w1")
    fault_on(story, SetDrain, fault)
    story.ask("drain", node="w1")
    story.wait(1.0, story.beat)
    assert [reply.ok for reply in story.replies[-1:]] == [True]
    assert drained(story)


@pytest.mark.parametrize("kind", [SetDrain, ChangeRun, SubmitJob])
def test_what_may_have_been_applied_is_not_refused(kind: type[object]) -> None:
    """The commit was applied and its answer lost; then the store is away for a moment. A refusal
    would be a lie, and the leader would not know what it has stored."""
    story = leading("w1")
    fault_on(story, kind, "unknown_applied", "fail", "unknown_lost", "fail")
    if kind is SetDrain:
        story.ask("drain", "same", node="w1")
    elif kind is ChangeRun:
        story.ask("act", "same", ref="1", action="pause")
    else:
        submit = {"spec": msgspec.to_builtins(spec()), "mode": "again", "seeds": urls(2)}
        story.ask("submit", "same", **submit)
    story.wait(4.0, story.beat)
    assert [reply.ok for reply in story.replies if reply.id == "same"] == [True]
    if kind is SetDrain:
        assert drained(story)


def test_a_node_that_was_started_anew_before_it_was_drained_stays_drained() -> None:
    """The leader takes it for a double of the process that it has not seen die, and refuses it for
    some seconds; the drain of that time is about the node as it is by then."""
    story = leading("w1")
    story.hear(hello(life=LIFE + 1), "w1", 2)
    done(story, "drain", node="w1")
    story.wait(15.0)
    story.join("w1", 2, life=LIFE + 1, number=2)
    assert drained(story)
    assert set(story.store.tables.drains) == {"w1"}


def test_a_worker_that_left_is_drained_for_the_life_that_comes() -> None:
    """It was stopped, and drained before it is started again: that start does not end it."""
    story = leading("w1")
    story.hear(Bye("drained"), "w1")
    assert done(story, "drain", node="w1")["state"] == "offline"
    story.join("w1", 2, life=LIFE + 1)
    assert drained(story)
    assert story.store.tables.drains["w1"].life == LIFE + 1


def test_a_drain_holds_for_the_next_process_of_the_worker() -> None:
    """Its supervisor starts one when it died: nobody asked for that."""
    story = leading("w1")
    done(story, "drain", node="w1")
    story.sent.clear()
    story.join("w1", 2, replaces=1, life=LIFE)
    story.wait(2.0, lambda: story.beat("w1", 2))
    assert drained(story)
    assert story.assigned() == []


def test_a_drain_of_a_worker_whose_process_has_just_died_holds() -> None:
    """The leader may know of the death already, and the new process not be here yet."""
    story = leading("w1", "w2")
    story.wait(15.0, lambda: story.beat("w2"))
    assert story.leader.state.roster.workers["w1"].state is NodeState.LOST
    assert done(story, "drain", node="w1")["state"] == "lost"
    story.sent.clear()
    story.join("w1", 2, replaces=1, life=LIFE)
    assert drained(story)
    assert story.assigned("w1") == []


def test_a_node_that_a_person_starts_anew_works_again() -> None:
    """Another life of the supervisor ends the drain, in the database too."""
    story = leading("w1")
    done(story, "drain", node="w1")
    fault_on(story, SetDrain, "fail")
    story.join("w1", 2, replaces=1, life=LIFE + 1)
    assert drained(story), "it is not stored yet"
    story.wait(1.0, lambda: story.beat("w1", 2))
    assert not drained(story)
    assert story.store.tables.drains == {}
    assert {assignment.url for assignment in story.assigned()[-3:]} == set(urls(3))


def test_a_drain_holds_at_the_next_leader_until_it_is_ended() -> None:
    """Then the worker gets work again."""
    old = leading("w1")
    done(old, "drain", node="w1")
    story = next_leader(old)
    story.join("w1", life=LIFE)
    story.wait(2.0, story.beat)
    assert drained(story)
    assert story.assigned() == []
    assert done(story, "nodes")["drained"] == ["w1"]
    assert done(story, "undrain", node="w1") == {"node": "w1", "state": "idle", "changed": 1}
    story.wait(1.0, story.beat)
    assert not drained(story)
    assert len(story.assigned()) == 3


def test_a_drain_by_a_leader_that_is_fenced_is_not_done() -> None:
    """The next leader's database decides."""
    old = leading("w1")
    story = next_leader(old)
    old.ask("drain", node="w1")
    assert old.master.leader is None, "it steps down"
    story.join("w1", life=LIFE)
    assert not drained(story)


def test_a_worker_that_leaves_by_itself_is_not_undrained_by_a_word() -> None:
    """SIGTERM: it ends soon, whatever is stored."""
    story = leading("w1")
    story.beat(draining=True)
    assert done(story, "undrain", node="w1")["state"] == "draining"
    assert not story.leader.state.roster.workers["w1"].usable


# ---------------------------------------------------------------- right after a takeover


def wait_for_reply(story: LeaderStory, seconds: float) -> Reply | None:
    before = len(story.replies)
    story.wait(seconds)
    return story.replies[-1] if len(story.replies) > before else None


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("drain", {"node": "w1"}),
        ("undrain", {"node": "w1"}),
        ("reassign", {"host": "http://a.test", "node": "w1"}),
        ("node", {"node": "w1"}),
    ],
)
def test_a_node_is_waited_for_after_a_takeover(op: str, args: dict[str, Any]) -> None:
    """Whoever lives says HELLO within seconds: until then nobody is told that there is no such
    node."""
    story = next_leader(leading("w1"))
    assert story.ask(op, "asked", **args) is None
    assert wait_for_reply(story, 1.0) is None
    story.join("w1", life=LIFE)
    assert story.replies, story.replies
    assert story.replies[-1].ok, story.replies


@pytest.mark.parametrize("op", ["drain", "undrain", "reassign", "node"])
def test_a_node_that_does_not_come_is_refused_when_the_wait_is_over(op: str) -> None:
    """Once, with the names that are there."""
    story = next_leader(leading("w1"))
    story.join("w2")
    assert story.ask(op, "asked", node="w9", host="http://a.test") is None
    reply = wait_for_reply(story, 3.5)
    assert reply is not None
    assert reply.data["code"] == "no_such_node"
    assert "w2" in reply.data["message"]
    assert wait_for_reply(story, 3.0) is None


def test_a_worker_that_the_database_knows_can_be_drained_before_it_comes() -> None:
    """It gets nothing when it does, and its life is learnt for the day it is started anew."""
    old = leading("w1")
    old.report(result_of(old.assigned()[0]))
    story = next_leader(old)
    assert done(story, "drain", node="w1") == {"node": "w1", "state": "offline", "changed": 1}
    story.join("w1", life=LIFE)
    story.tick()
    assert drained(story)
    assert story.store.tables.drains["w1"].life == LIFE


# ---------------------------------------------------------------- wishes


def test_a_wish_for_a_host_holds_at_the_next_leader() -> None:
    """Also for a host whose rows come later; the newest wish counts."""
    old = leading("w1", "w2")
    for node in ("w1", "w2"):
        assert done(old, "reassign", host="http://a.test", node=node)["node"] == node
    story = next_leader(old)
    (host,) = story.leader.state.planner.hosts.values()
    assert host.wanted_owner == "w2"


def test_a_wish_that_cannot_be_stored_is_refused_and_not_granted() -> None:
    """The host stays where it is."""
    story = leading("w1", "w2")
    fault_on(story, SetWish, "fail")
    reply = story.ask("reassign", host="http://a.test", node="w2")
    assert reply is not None
    assert not reply.ok
    (host,) = story.leader.state.planner.hosts.values()
    assert host.wanted_owner == ""


# ---------------------------------------------------------------- retries


@pytest.fixture
def parts_of_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A retry of few rows has several parts."""
    monkeypatch.setattr(actions, "RETRY_ROWS", 2)
    yield


def all_dead(pages: int) -> LeaderStory:
    """A leader of a run whose pages have all failed."""
    story = leading("w1", pages=pages)
    while any(row.state is RequestState.QUEUED for row in story.store.requests(1)):
        for assignment in story.assigned():
            story.publish(result_of(assignment, retry=RetryClass.PERMANENT, **FAILED))
        story.sent.clear()
        story.wait(0.25, story.beat)
    return story


def hold_after(story: LeaderStory, parts: int) -> None:
    """The leader's retry gets no further than this many parts."""
    count = 0

    def hold(what: object) -> bool:
        nonlocal count
        count += isinstance(what, RetryDead)
        return isinstance(what, RetryDead) and count > parts

    story.hold = hold


@pytest.mark.usefixtures("parts_of_two")
def test_the_next_leader_finishes_a_retry_and_answers_with_the_whole() -> None:
    """From the row where it stands, whether its client asks again or not."""
    old = all_dead(7)
    hold_after(old, 2)
    assert old.ask("act", "r", ref="1", action="retry") is None
    assert [row.state for row in old.store.requests(1)].count(RequestState.QUEUED) == 4
    for row in old.store.requests(1)[:2]:  # they have failed again meanwhile
        assignment = next(assignment for assignment in old.assigned() if assignment.seq == row.seq)
        old.publish(result_of(assignment, retry=RetryClass.PERMANENT, **FAILED))
        old.tick()
    story = next_leader(old)
    story.wait(0.5)
    states = [row.state for row in story.store.requests(1)]
    assert states == [RequestState.DEAD] * 2 + [RequestState.QUEUED] * 5, "each is tried once more"
    reply = story.ask("act", "r", ref="1", action="retry")
    assert reply is not None
    assert reply.ok
    assert reply.data["changed"] == 7
    assert story.store.tables.retries == {}


@pytest.mark.usefixtures("parts_of_two")
def test_a_client_that_asks_the_next_leader_meanwhile_gets_the_whole_count() -> None:
    """Its repeat does not begin a second retry."""
    old = all_dead(7)
    hold_after(old, 2)
    old.ask("act", "r", ref="1", action="retry")
    story = LeaderStory(old.store, "m2", old.now + 1.0)
    hold_after(story, 1)
    story.elect(alone=False)
    assert story.ask("act", "r", ref="1", action="retry") is None
    assert [type(what) for what in story.held] == [RetryDead]
    story.release()
    assert [(reply.id, reply.data["changed"]) for reply in story.replies] == [("r", 7)]


@pytest.mark.usefixtures("parts_of_two")
def test_a_part_of_a_retry_that_cannot_be_stored_is_tried_again() -> None:
    """The first one is stored: to refuse the rest would be a lie."""
    story = all_dead(7)
    left = fault_on(story, RetryDead, None, "fail", None, "unknown_applied", "unknown_lost")
    assert story.ask("act", "r", ref="1", action="retry") is None
    story.wait(3.0, story.beat)
    assert left == []
    assert [(reply.id, reply.ok, reply.data.get("changed")) for reply in story.replies[-1:]] == [
        ("r", True, 7)
    ]
    story.store.check()


# ---------------------------------------------------------------- whole jobs


def test_a_job_is_deleted_whole_or_not_at_all() -> None:
    """One transaction for all its runs: a leader that dies leaves no half of it."""
    story = LeaderStory().elect()
    submit = {"spec": msgspec.to_builtins(spec()), "mode": "again", "seeds": urls(2)}
    for _ in range(3):
        done(story, "submit", **submit)
    story.hold = lambda what: isinstance(what, ChangeJob)
    story.ask("act", ref="job", action="delete")
    (command,) = story.held
    assert isinstance(command, ChangeJob)
    story.release()
    assert story.replies[-1].data["changed"] == 3


def test_a_hello_of_an_older_worker_has_no_life() -> None:
    """Its drain ends by `undrain` only."""
    story = leading()
    story.join("w1")
    done(story, "drain", node="w1")
    story.hear(hello(replaces=1), "w1", 2)
    assert drained(story)
