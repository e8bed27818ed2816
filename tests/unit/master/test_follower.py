"""A master that does not lead: what it forwards, what it answers itself, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.machine_tools import UTC, header, heartbeat, hello, result
from zcrawl.errors import StoreUnavailable
from zcrawl.master import events as m
from zcrawl.master.follower import FORGET_EPOCH_S, FORWARD_PATIENCE_S, LEADER_SILENT_S
from zcrawl.master.master import TAKEOVER_PATIENCE_S, Master
from zcrawl.mesh.messages import (
    Beat,
    Body,
    ClientRequest,
    Message,
    NotLeader,
    Reloaded,
    ReloadNode,
    Reply,
    Snapshot,
)
from zcrawl.model.reload_report import ReloadReport
from zcrawl.model.snapshot import PublishedSnapshot, WorkerView
from zcrawl.store.commands import TakeOver
from zcrawl.store.queries import FindJob, JobList, ListJobs

REQUEST = ClientRequest("q1", "jobs", {}, by="ann@desk")


class Story:
    """A Master at some moment; what it wants done is kept."""

    def __init__(self) -> None:
        self.master = Master("m2", seen_slots=64)
        self.now = 100.0
        self.effects: m.MasterEffects = []

    def handle(self, event: m.MasterEvent) -> m.MasterEffects:
        self.effects = self.master.handle(event, self.now, UTC + self.now)
        self.master.check(self.now)
        return self.effects

    def hear(self, body: Body, source: str = "m1", epoch: int = 5) -> m.MasterEffects:
        message = Message(header(body, source, epoch=epoch), body)
        return self.handle(m.MessageCame(message, b"line", source.startswith("m")))

    def ask(self, request: ClientRequest = REQUEST) -> m.MasterEffects:
        return self.handle(m.ClientAsked(b"client", request))

    def replies(self) -> list[tuple[bytes, bool, Any]]:
        return [
            (effect.client, effect.reply.ok, effect.reply.data.get("code"))
            for effect in self.effects
            if isinstance(effect, m.ReplyTo)
        ]


def led() -> Story:
    story = Story()
    story.hear(Beat("m1", 1.0, {}))
    return story


def test_a_follower_reloads_when_the_leader_names_it_and_publishes_its_report() -> None:
    """Not when another master is named, and not for an older leader or a worker."""
    story = led()
    assert story.hear(ReloadNode("r", ["m3"])) == []
    assert story.hear(ReloadNode("r", ["m2"]), source="w1") == []
    assert story.hear(ReloadNode("r", ["m2"]), epoch=4) == []
    assert story.hear(ReloadNode("r", ["m2"])) == [m.ReloadConfig("r")]
    report = ReloadReport(changed=["log.level: info → error"])
    assert story.handle(m.ConfigReloaded("r", report)) == [m.Publish(Reloaded("r", "m2", report))]


def test_a_request_goes_to_the_leader_once_and_its_answer_comes_back() -> None:
    """Any master takes any request; who asked and through whom travels along."""
    story = led()
    (forward,) = story.ask()
    assert isinstance(forward, m.Forward)
    assert forward.master == "m1"
    assert forward.request == ClientRequest("q1", "jobs", {}, True, "ann@desk", "m2")
    answer = Reply("q1", True, {"jobs": []})
    assert story.handle(m.ReplyCame(answer)) == [m.ReplyTo(b"client", answer)]
    assert story.handle(m.ReplyCame(answer)) == [], "an answer is given once"


def test_a_forwarded_request_is_not_forwarded_again() -> None:
    """Two followers that hold each other for the leader must not play ball with a request."""
    story = led()
    story.ask(ClientRequest("q1", "jobs", {}, forwarded=True))
    assert story.replies() == [(b"client", False, "no_leader")]


def test_a_worker_is_told_who_leads() -> None:
    """NOT_LEADER names the leader, and nobody once it has gone silent."""
    story = led()
    (sent,) = story.hear(hello(), source="w1")
    assert isinstance(sent, m.SendToWorker)
    assert sent.body == NotLeader("m1")
    story.now += LEADER_SILENT_S + 1
    (sent,) = story.hear(hello(), source="w1")
    assert isinstance(sent, m.SendToWorker)
    assert sent.body == NotLeader(None)


def test_only_masters_say_who_leads() -> None:
    """A BEAT that came over a line of workers and clients changes nothing: requests would go
    nowhere."""
    story = led()
    beat = Beat("w1", 1.0, {})
    story.handle(m.MessageCame(Message(header(beat, "w1", epoch=1 << 40), beat), b"line"))
    assert (story.master.follower.leader, story.master.follower.epoch) == ("m1", 5)


def test_a_lower_epoch_is_believed_when_nobody_leads_in_the_higher_one() -> None:
    """A restored database may count from there."""
    story = led()
    story.now += FORGET_EPOCH_S
    story.hear(Beat("m3", 1.0, {}), "m3", epoch=2)
    assert story.master.follower.leader == "m1"
    story.now += 0.1
    story.hear(Beat("m3", 1.0, {}), "m3", epoch=2)
    assert (story.master.follower.leader, story.master.follower.epoch) == ("m3", 2)


def test_a_worker_is_answered_by_the_line_of_its_hello_if_it_has_any() -> None:
    """A follower remembers no routes."""
    story = led()
    (sent,) = story.hear(hello(), source="w1")
    assert isinstance(sent, m.SendToWorker)
    assert sent.route == b"line"
    body = hello()
    assert story.handle(m.MessageCame(Message(header(body, "w1"), body))) == []


def test_a_result_that_a_follower_hears_is_nothing_to_it() -> None:
    """Rule `followers`: it acks nothing, commits nothing, and tells nobody that a page is done."""
    story = led()
    story.hear(Snapshot(PublishedSnapshot("m1", 5, workers=(WorkerView(id="w1"),))))
    for body in (result(), heartbeat(99.0, produced=7)):
        assert story.hear(body, source="w1") == []
    assert story.handle(m.MasterTicked()) == []
    story.now += LEADER_SILENT_S + 1
    (answered,) = story.ask(ClientRequest("q2", "nodes", {}))
    assert isinstance(answered, m.ReplyTo)
    assert [worker["id"] for worker in answered.reply.data["workers"]] == ["w1"], (
        "what the leader said last"
    )


def test_without_a_leader_reads_are_answered_from_the_database_and_say_so() -> None:
    """A read needs no leader; the mark says that none stands behind it."""
    story = led()
    story.now += LEADER_SILENT_S + 1
    (ask,) = story.ask()
    assert ask == m.Ask(ListJobs(), "q1")
    story.handle(m.QueryDone(ListJobs(), "q1", JobList([])))
    (answered,) = story.effects
    assert isinstance(answered, m.ReplyTo)
    assert answered.reply.ok
    stale = {"answered_by": "m2", "leader_silent_s": LEADER_SILENT_S + 1, "why": ""}
    assert answered.reply.data == {"jobs": [], "stale": stale}


def test_a_leader_that_does_not_answer_costs_a_read_its_patience_only() -> None:
    """After the follower's patience the database answers."""
    story = led()
    story.ask()
    story.now += FORWARD_PATIENCE_S
    assert story.handle(m.MasterTicked()) == [m.Ask(ListJobs(), "q1")]


def test_the_database_may_fail_a_read_too() -> None:
    """The client hears the store's own error, not silence."""
    story = Story()
    story.ask()
    story.handle(m.QueryFailed(ListJobs(), "q1", StoreUnavailable("away")))
    assert story.replies() == [(b"client", False, "store_unavailable")]


@pytest.mark.parametrize("has_leader", [True, False])
def test_actions_are_refused_without_a_leader_and_the_client_asks_again(has_leader: bool) -> None:
    """`no_leader` is the one refusal after which the same id is sent again."""
    story = led() if has_leader else Story()
    request = ClientRequest("q2", "act", {"ref": "docs", "action": "pause"})
    if has_leader:
        story.ask(request)
        story.handle(m.ReplyCame(Reply("q2", False, {"code": "no_leader"})))
    else:
        story.ask(request)
    assert story.replies() == [(b"client", False, "no_leader")]


def test_nodes_come_from_the_last_snapshot_when_nobody_leads() -> None:
    """Who lived last is better than nothing, with its age beside it."""
    story = led()
    story.hear(Snapshot(PublishedSnapshot("m1", 5, workers=(WorkerView(id="w1"),))))
    entry = m.NodeEntry("m1", False, "TTL expired", "host", "1", 7)
    story.handle(m.CatalogueSeen(masters=(entry,)))
    story.now += 10
    story.ask(ClientRequest("q3", "nodes", {}))
    (answered,) = story.effects
    assert isinstance(answered, m.ReplyTo)
    data = answered.reply.data
    assert [node["id"] for node in data["workers"]] == ["w1"]
    assert data["stale"]["leader_silent_s"] == 10.0
    assert [(node["id"], node["healthy"]) for node in data["masters"]] == [("m1", False)]


def test_bad_arguments_are_refused_with_their_name() -> None:
    """A request without its arguments is told so (G7)."""
    story = Story()
    story.ask(ClientRequest("q4", "job", {}))
    assert story.replies() == [(b"client", False, "bad_request")]


def test_a_read_of_an_unknown_job_is_refused() -> None:
    """Also a follower knows what does not exist."""
    story = Story()
    story.ask(ClientRequest("q5", "job", {"ref": "nothing"}))
    story.handle(m.QueryDone(FindJob("nothing"), "q5", JobList([])))
    assert story.replies() == [(b"client", False, "no_such_job")]


def test_a_beat_of_an_older_leader_changes_nothing() -> None:
    """A lower epoch is nobody's word any more."""
    story = led()
    story.hear(Beat("m3", 1.0, {}), source="m3", epoch=4)
    (forward,) = story.ask()
    assert isinstance(forward, m.Forward)
    assert forward.master == "m1"


def test_a_master_that_cannot_reach_the_database_gives_the_lock_to_another() -> None:
    """It may be away only from here; but a master that is alone keeps trying."""
    for alone in (False, True):
        story = Story()
        (execute,) = story.handle(m.Elected(7, alone=alone))
        assert isinstance(execute, m.Execute)
        assert isinstance(execute.command, TakeOver)
        story.now += TAKEOVER_PATIENCE_S + 1
        story.handle(m.CommandFailed(execute.command, StoreUnavailable("away")))
        stepped = [effect for effect in story.effects if isinstance(effect, m.StepDown)]
        assert bool(stepped) is not alone
