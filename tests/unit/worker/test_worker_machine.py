"""The worker as a pure machine: whom it follows, what it starts, what it forgets."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from tests.unit.machine_tools import assignment, attempt, grant, header
from zcrawl.mesh.messages import (
    Accept,
    Assign,
    Beat,
    Body,
    Cancel,
    Grant,
    Heartbeat,
    Hello,
    NotLeader,
    Rehello,
    Reject,
    Rejection,
    Result,
    RunConfig,
    RunConfigs,
    Stale,
    Welcome,
)
from zcrawl.mesh.timing import PERMISSION_S
from zcrawl.worker import events as w
from zcrawl.worker.held_requests import Intake
from zcrawl.worker.machine import (
    EPOCH_PATIENCE_S,
    HELLO_AGAIN_S,
    LOWER_BEATS,
    UNLISTED_S,
    LeaderLink,
    WorkerMachine,
)

T = TypeVar("T")


class Worker:
    """A worker machine, its clock, and what it wanted done."""

    def __init__(self, slots: int = 4) -> None:
        self.machine = WorkerMachine("w1", 1, slots=slots)
        self.now = 100.0
        self.number = 0
        self.effects: list[w.WorkerEffect] = []

    def handle(self, event: w.WorkerEvent) -> list[w.WorkerEffect]:
        effects = self.machine.handle(event, self.now)
        self.machine.check()
        self.effects += effects
        return effects

    def say(
        self, body: Body, *, epoch: int = 1, leader: str = "m1", number: int | None = None
    ) -> list[w.WorkerEffect]:
        if number is None:
            self.number += 1
            number = self.number
        return self.handle(
            w.MasterMessageCame(header(body, leader, 9, epoch=epoch, sequence=number), body)
        )

    def beat(self, echo: float | None = None, received: int = 0, epoch: int = 1) -> None:
        echo = self.now if echo is None else echo
        self.say(Beat("m1", 1.0, {"w1": (1, received, echo)}), epoch=epoch)

    def welcome(self, *grants: Grant, **changes: Any) -> list[w.WorkerEffect]:
        """Beat, greeting, welcome, the run's spec, and the permission to start."""
        epoch = changes.pop("epoch", 1)
        self.say(Beat("m1", 1.0, {}), epoch=epoch)
        fields = {"watermark": 0, "heartbeat_s": 1.0, "grants": list(grants), "keep": []}
        number = self.machine._hello_number
        effects = self.say(Welcome(hello=number, **{**fields, **changes}), epoch=epoch)
        self.say(RunConfigs([RunConfig(1, 1, b"{}", [])]), epoch=epoch)
        self.beat(epoch=epoch)
        return effects

    def assign(self, *seqs: int, host: int = 1, grants: list[Grant] | None = None) -> list[Any]:
        return self.say(Assign(grants or [], [assignment(seq, seq, host=host) for seq in seqs]))

    def tick(self, after_s: float = 0.0) -> list[w.WorkerEffect]:
        self.now += after_s
        return self.handle(w.WorkerTicked())

    def end(self, seq: int, **changes: Any) -> list[w.WorkerEffect]:
        return self.handle(w.FetchEnded(seq, attempt(seq, **changes)))


def link_of(worker: Worker) -> LeaderLink:
    return worker.machine.link


def sent(effects: list[w.WorkerEffect], kind: type[T]) -> list[T]:
    """Bodies of a kind among what goes out, to one master or to all."""
    out = (effect.body for effect in effects if isinstance(effect, w.SendToMaster | w.PublishToAll))
    return [body for body in out if isinstance(body, kind)]


def started(effects: list[w.WorkerEffect]) -> list[int]:
    return [effect.held.assignment.seq for effect in effects if isinstance(effect, w.StartFetch)]


def of(effects: list[w.WorkerEffect], kind: type[T]) -> list[T]:
    return [effect for effect in effects if isinstance(effect, kind)]


# ---------------------------------------------------------------- whom it follows


@pytest.mark.parametrize("body", [Beat("m0", 1.0, {}), Assign([grant()], []), Cancel([1])])
def test_a_lower_epoch_is_dropped_and_answered_stale(body: Body) -> None:
    """Rule `higher epoch`: a leader that was asleep learns that it leads no more."""
    worker = Worker()
    worker.welcome(grant(), epoch=5)
    effects = worker.say(body, epoch=4, leader="m0")
    assert [effect.body for effect in of(effects, w.SendToMaster)] == [Stale("stale_epoch")]
    assert of(effects, w.SendToMaster)[0].master == "m0"
    assert (worker.machine.epoch, worker.machine.leader) == (5, "m1")


def test_a_higher_epoch_is_adopted_by_its_beat_and_greeted() -> None:
    """Rule `higher epoch`: HELLO again, with everything in hand; nothing starts before the
    WELCOME."""
    worker = Worker()
    worker.welcome(grant(concurrency=1))
    worker.assign(1, 2)
    effects = worker.say(Beat("m2", 1.0, {"w1": (1, 0, worker.now)}), epoch=2, leader="m2")
    hello = sent(effects, Hello)[0]
    assert [(lease.assignment.seq, lease.started) for lease in hello.held] == [
        (1, True),
        (2, False),
    ]
    assert worker.machine.leader == "m2"
    assert worker.machine.link is LeaderLink.GREETING
    worker.end(1)
    assert started(worker.tick(1.0)) == []


def test_a_higher_epoch_counts_only_from_a_beat() -> None:
    """A leader announces itself before it does anything else."""
    worker = Worker()
    worker.welcome(grant())
    worker.say(Assign([grant(revision=9)], [assignment(1, 1)]), epoch=2)
    assert worker.machine.epoch == 1
    assert not worker.machine.intake.held


def test_a_follower_that_says_not_leader_changes_nothing() -> None:
    """The leader's own BEAT tells who leads."""
    worker = Worker()
    worker.welcome(grant())
    assert worker.say(NotLeader("m3")) == []
    assert worker.machine.link is LeaderLink.WELCOMED


@pytest.mark.parametrize("body", [Rehello("unknown", 1), Stale("stale_epoch")])
def test_rehello_and_stale_make_it_greet_anew(body: Body) -> None:
    """With a new number, so that an older WELCOME cannot answer it."""
    worker = Worker()
    worker.welcome(grant())
    assert sent(worker.say(body), Hello)[0].hello == 2
    worker.say(Welcome(0, 1.0, 1, [], []))
    assert worker.machine.link is LeaderLink.GREETING, "a WELCOME to the old HELLO is too late"


def test_many_rehellos_to_one_greeting_bring_one_new_greeting() -> None:
    """A link that stood still brings the answers to many old heartbeats together."""
    worker = Worker()
    worker.welcome(grant())
    greetings = [hello for _ in range(20) for hello in sent(worker.say(Rehello("lost", 1)), Hello)]
    assert [greeting.hello for greeting in greetings] == [2]
    assert sent(worker.say(Rehello("lost", 2)), Hello)[0].hello == 3, "that one was lost, too"


def test_a_worker_that_greets_a_new_leader_goes_on_with_what_it_holds() -> None:
    """Rules `permission` and `higher epoch`: within the permission that it has, under the grants
    that it has."""
    worker = Worker()
    worker.welcome(grant(concurrency=1))
    assert started(worker.assign(1, 2, 3)) == [1]
    worker.now += 2.0
    [hello] = sent(worker.say(Beat("m2", 1.0, {}), epoch=2, leader="m2"), Hello)
    assert len(hello.held) == 3
    assert hello.granted == [(1, 1)]
    assert worker.machine.link is LeaderLink.GREETING
    assert started(worker.end(1)) == [2], "it goes on"
    assert not started(worker.say(Assign([grant(2)], [assignment(9, 9, host=2)]), epoch=2))
    worker.now = 100.0 + PERMISSION_S + 0.01
    assert started(worker.end(2)) == [], "but not beyond the permission of before"


def test_a_welcome_ends_what_a_greeting_worker_went_on_with() -> None:
    """What the new leader does not grant is given back or forgotten; what runs is finished, and
    then the lowered grant is confirmed."""
    worker = Worker()
    worker.welcome(grant(concurrency=1))
    worker.assign(1, 2)
    worker.say(Beat("m2", 1.0, {}), epoch=2, leader="m2")
    welcome = Welcome(0, 1.0, 2, grants=[grant(concurrency=0, revision=5)], keep=[1, 2])
    effects = worker.say(welcome, epoch=2, leader="m2")
    assert sent(effects, Reject)[0].leases == [Rejection(1, 2, "no_grant")]
    assert not any(accept.grants for accept in sent(effects, Accept)), "1 still runs"
    effects = worker.end(1)
    assert not started(effects)
    assert [accept.grants for accept in sent(effects, Accept)] == [[(1, 5)]]


@pytest.mark.parametrize("received", [{}, {"w1": (2, 0, 0.0)}])
def test_a_worker_that_a_beat_does_not_list_greets_by_itself(received: dict[str, Any]) -> None:
    """The leader has forgotten it, or believes that it does not hear: there is no other way to
    tell it. A BEAT from before the WELCOME may come a little later, and means nothing."""
    worker = Worker()
    worker.welcome(grant())
    worker.now += UNLISTED_S
    assert not sent(worker.say(Beat("m1", 1.0, received)), Hello)
    assert link_of(worker) is LeaderLink.WELCOMED
    worker.now += 0.1
    assert sent(worker.say(Beat("m1", 1.0, received)), Hello)[0].hello == 2
    assert link_of(worker) is LeaderLink.GREETING


def test_it_says_how_far_it_has_heard_its_leader() -> None:
    """By HEARTBEAT and HELLO, of this epoch, whatever the message was; a new leader counts anew."""
    worker = Worker()
    worker.welcome(grant())
    worker.say(Cancel([7]), number=40)
    worker.say(Cancel([7]), number=12)
    worker.say(Beat("m1", 1.0, {"w1": (1, 0, worker.now)}), number=0)
    assert sent(worker.tick(1.0), Heartbeat)[0].heard == 40
    assert sent(worker.say(Rehello("deaf", 1), number=41), Hello)[0].heard == 41
    (greeting,) = sent(worker.say(Beat("m2", 1.0, {}), epoch=2, leader="m2", number=0), Hello)
    assert greeting.heard == 0


def test_what_was_said_to_a_predecessor_was_not_heard() -> None:
    """It has the same name and another number."""
    worker = Worker()
    worker.welcome(grant())
    before = sent(worker.tick(1.0), Heartbeat)[0].heard
    cancel = Cancel([7])
    worker.handle(w.MasterMessageCame(header(cancel, "m1", sequence=90, subject=5), cancel))
    assert sent(worker.tick(1.0), Heartbeat)[0].heard == before


def test_a_worker_is_not_stuck_in_an_epoch_that_nobody_leads_in() -> None:
    """A database that was restored may count from a lower one. As long as somebody may lead in
    ours the lower one is refused; after a minute the process makes room for a new one."""
    worker = Worker()
    worker.say(Beat("m1", 1.0, {}), epoch=1 << 40)
    lower = Beat("m2", 1.0, {})
    ends: list[w.Exit] = []
    began = worker.now
    while not ends:
        worker.now += 0.5
        effects = worker.say(lower, epoch=3, leader="m2")
        assert sent(effects, Stale)
        ends = [effect for effect in effects if isinstance(effect, w.Exit)]
    assert EPOCH_PATIENCE_S < worker.now - began < EPOCH_PATIENCE_S + 1
    assert "epoch 3" in ends[0].reason
    assert not ends[0].refused


def test_the_last_beat_of_a_master_that_led_once_ends_no_worker() -> None:
    """It is repeated to whoever subscribes; while nobody leads, results are kept."""
    worker = Worker()
    worker.welcome(grant(), epoch=5)
    worker.now += 10 * EPOCH_PATIENCE_S
    for _ in range(LOWER_BEATS):
        effects = worker.say(Beat("m2", 1.0, {}), epoch=3, leader="m2")
        assert not [effect for effect in effects if isinstance(effect, w.Exit)]
    worker.beat(epoch=5)
    assert worker.machine.epoch == 5
    effects = worker.say(Beat("m2", 1.0, {}), epoch=3, leader="m2")
    assert not [effect for effect in effects if isinstance(effect, w.Exit)]


def test_an_unanswered_hello_is_repeated_under_the_same_number() -> None:
    """Only a new HELLO voids an older WELCOME."""
    worker = Worker()
    worker.say(Beat("m1", 1.0, {}))
    assert [body.hello for body in sent(worker.tick(HELLO_AGAIN_S), Hello)] == [1]


# ---------------------------------------------------------------- what it starts


def test_nothing_starts_before_the_welcome() -> None:
    """An ASSIGN that comes first is rejected, so that it is not lost."""
    worker = Worker()
    worker.say(Beat("m1", 1.0, {"w1": (1, 0, worker.now)}))
    effects = worker.assign(1, grants=[grant()])
    assert sent(effects, Reject)[0].leases == [Rejection(1, 1, "not_welcomed")]
    assert started(worker.tick(1.0)) == []


def test_nothing_starts_without_an_echo_of_its_own_heartbeat() -> None:
    """A WELCOME alone is no permission."""
    worker = Worker()
    worker.say(Beat("m1", 1.0, {}))
    worker.say(Welcome(0, 1.0, 1, [grant()], []))
    worker.say(RunConfigs([RunConfig(1, 1, b"{}", [])]))
    assert started(worker.assign(1)) == []
    worker.say(Beat("m1", 1.0, {"w1": (2, 0, worker.now)}))
    assert started(worker.tick()) == [], "the echo of another incarnation is not ours"
    worker.beat()
    assert started(worker.effects) == [1]


def test_no_request_starts_later_than_seven_seconds_after_the_echoed_heartbeat() -> None:
    """Rule `permission`, also when an old BEAT arrives late: it carries an old echo."""
    worker = Worker()
    worker.welcome(grant(concurrency=1))
    echo = worker.now
    worker.assign(1, 2, 3)
    worker.now = echo + PERMISSION_S
    assert started(worker.end(1)) == [2], "up to the last moment"
    worker.now = echo + PERMISSION_S + 0.01
    assert started(worker.end(2)) == []
    worker.beat(echo)
    worker.tick()
    assert started(worker.effects) == [1, 2], "a BEAT that was long on its way permits nothing"
    worker.beat()
    assert started(worker.effects) == [1, 2, 3]


def test_hops_need_the_permission_too() -> None:
    """A redirect is a request like any other."""
    worker = Worker()
    worker.welcome(grant())
    worker.assign(1)
    worker.now += PERMISSION_S + 1.0
    worker.handle(w.HopWanted(1))
    assert not of(worker.effects, w.PermitHop)
    worker.beat()
    assert of(worker.effects, w.PermitHop) == [w.PermitHop(1)]


def test_a_hop_of_a_fetch_that_is_gone_is_cut_off() -> None:
    """After a cancel nothing more goes out."""
    worker = Worker()
    worker.welcome(grant())
    worker.assign(1)
    assert of(worker.say(Cancel([1])), w.CancelFetch) == [w.CancelFetch(1)]
    assert worker.handle(w.HopWanted(1)) == [w.CancelFetch(1)]


def test_slots_grants_and_pace_bound_what_runs() -> None:
    """Never more than the slots, never more of a host than its grant, never before its time."""
    worker = Worker(slots=3)
    worker.welcome(grant(1, 2), grant(2, 9), grant(3, 1, interval_s=5.0, next_in_s=4.0))
    worker.assign(1, 2, 3)
    assert started(worker.effects) == [1, 2]
    worker.assign(11, 12, host=2)
    assert started(worker.effects) == [1, 2, 11]
    worker.assign(21, 22, host=3)
    for seq in (1, 2, 11, 3, 12):
        worker.end(seq)
    assert 21 not in started(worker.effects)
    worker.now += 4.0
    worker.beat()
    assert started(worker.effects)[-1] == 21
    worker.end(21)
    assert started(worker.tick(4.9)) == []
    worker.beat()
    assert started(worker.tick(0.2)) == [22]


# ---------------------------------------------------------------- grants and assignments


def test_a_revoked_host_gives_back_what_has_not_started() -> None:
    """What runs is finished; the new part is confirmed when nothing runs any more."""
    worker = Worker()
    worker.welcome(grant(concurrency=1))
    worker.assign(1, 2, 3)
    effects = worker.say(Assign([grant(concurrency=0, revision=2)], []))
    assert [(rejection.epoch, rejection.n) for rejection in sent(effects, Reject)[0].leases] == [
        (1, 2),
        (1, 3),
    ]
    assert not any(accept.grants for accept in sent(effects, Accept))
    effects = worker.end(1)
    assert len(sent(effects, Result)) == 1
    assert [accept.grants for accept in sent(effects, Accept)] == [[(1, 2)]]


def test_an_assignment_that_a_revocation_overtook_is_rejected() -> None:
    """What was sent before the word and comes after it must not undo it."""
    worker = Worker()
    worker.welcome(grant())
    worker.say(Assign([grant(concurrency=0, revision=2)], []), number=50)
    effects = worker.say(Assign([grant(revision=1)], [assignment(1, 1)]), number=49)
    assert sent(effects, Reject)[0].leases == [Rejection(1, 1, "overtaken")]
    assert not worker.machine.intake.held


def test_an_assignment_that_a_welcome_overtook_is_rejected() -> None:
    """It was sent to the worker as it was before its HELLO."""
    worker = Worker()
    worker.say(Beat("m1", 1.0, {}))
    worker.say(Welcome(0, 1.0, 1, [grant()], []), number=50)
    effects = worker.say(Assign([], [assignment(1, 1)]), number=49)
    assert sent(effects, Reject)[0].leases == [Rejection(1, 1, "overtaken")]


@pytest.mark.parametrize(
    ("url", "reason"),
    [(assignment(1, 1, run=2), "unknown_run"), (assignment(1, 1, host=2), "no_grant")],
)
def test_an_assignment_that_cannot_be_done_is_rejected(url: Any, reason: str) -> None:
    """With the reason, so that the leader can mend it."""
    worker = Worker()
    worker.welcome(grant())
    assert sent(worker.say(Assign([], [url])), Reject)[0].leases == [Rejection(1, 1, reason)]


def test_an_assignment_that_comes_twice_is_fetched_once() -> None:
    """A newer lease only replaces the token."""
    worker = Worker()
    worker.welcome(grant())
    worker.assign(1)
    worker.assign(1)
    worker.say(Assign([], [assignment(77, 1)]))
    assert started(worker.effects) == [1]
    body = sent(worker.end(1), Result)[0]
    assert (body.lease_epoch, body.lease_n) == (1, 77)


def test_a_welcome_takes_away_what_it_does_not_keep() -> None:
    """Whatever is held beyond `grants` and `keep` must not start; what runs goes on."""
    worker = Worker()
    worker.welcome(grant(concurrency=1))
    worker.assign(1, 2, 3)
    worker.welcome(grant(concurrency=1, revision=5), epoch=2, keep=[2])
    assert sorted(worker.machine.intake.held) == [1, 2]
    worker.now += 0.1
    worker.end(1)
    assert started(worker.effects) == [1, 2]


def test_config_comes_once_per_revision() -> None:
    """A repeat or an older one changes nothing."""
    worker = Worker()
    worker.welcome(grant())
    worker.say(RunConfigs([RunConfig(1, 3, b"new", [])]))
    worker.say(RunConfigs([RunConfig(1, 2, b"old", [])]))
    assert [effect.config.revision for effect in of(worker.effects, w.AdoptRun)] == [1, 3]


def test_a_request_stays_with_its_host() -> None:
    """A newer lease that names another host is refused; what is held can still be cancelled."""
    intake = Intake()
    intake.adopt_grant(1, grant(), 0.0)
    assert intake.take(1, assignment(1, 7)) is None
    assert intake.take(1, assignment(2, 7, host=2)) == "another_host"
    assert intake.take(1, assignment(3, 7)) is None
    held = intake.finish(7)
    assert held is not None
    assert held.assignment.n == 3
    intake.check()
