"""The worker as a pure machine: what it reports, when it forgets, how it leaves."""

from __future__ import annotations

import pytest

from tests.unit.machine_tools import grant, link
from tests.unit.worker.test_worker_machine import Worker, of, sent, started
from zcrawl.mesh.messages import (
    LINKS_PER_RESULT,
    Ack,
    Beat,
    Bye,
    Cancel,
    Drain,
    Heartbeat,
    Hello,
    Reject,
    Rejection,
    Result,
    Stale,
    Welcome,
)
from zcrawl.model.states import Disposition, Outcome
from zcrawl.worker import events as w
from zcrawl.worker.machine import DUPLICATE_PATIENCE_S, LeaderLink

PAGE = [link("http://h1.test/a"), link("http://h1.test/b")]


def working(*seqs: int) -> Worker:
    """A worker that runs these requests."""
    worker = Worker()
    worker.welcome(grant(concurrency=4))
    worker.assign(*seqs)
    assert started(worker.effects) == list(seqs)
    return worker


def ack(upto: int, fate: Disposition, first: int = 1) -> Ack:
    return Ack(upto, first, bytes([int(fate)]) * (upto - first + 1), upto, [])


def test_results_are_numbered_published_and_kept() -> None:
    """Until somebody acks them."""
    worker = working(1, 2)
    effects = worker.end(2) + worker.end(1)
    out = of(effects, w.PublishToAll)
    assert [(effect.sequence, effect.subject) for effect in out] == [(1, 2), (2, 1)]
    assert len(worker.machine.outbox) == 2
    worker.say(ack(1, Disposition.APPLIED))
    assert len(worker.machine.outbox) == 1


def test_a_page_with_many_links_goes_in_parts() -> None:
    """Rule `many links`: the parts come first, the page last, and no link is lost."""
    worker = working(1)
    links = [link(f"http://h1.test/{n}") for n in range(2 * LINKS_PER_RESULT + 1)]
    bodies = sent(worker.end(1, links=links), Result)
    assert [body.outcome for body in bodies] == [Outcome.PART, Outcome.PART, Outcome.DONE]
    assert [page_link for body in bodies for page_link in body.links] == links
    assert max(len(body.links) for body in bodies) <= LINKS_PER_RESULT
    assert [bool(body.page) for body in bodies] == [False, False, True]
    assert [len(body.items) for body in bodies] == [0, 0, 1]


@pytest.mark.parametrize("fate", list(Disposition))
def test_links_are_known_only_after_an_ack_that_says_applied(fate: Disposition) -> None:
    """Rule `known links`: "already sent" is not "committed", and a duplicate or a drop admitted
    nothing."""
    worker = working(1, 2, 3)
    worker.end(1, links=PAGE)
    assert sent(worker.end(2, links=PAGE), Result)[0].links == PAGE, "sent is not committed"
    worker.say(ack(1, fate))
    expected = [] if fate is Disposition.APPLIED else PAGE
    assert sent(worker.end(3, links=PAGE), Result)[0].links == expected


def test_a_welcome_settles_results_without_making_their_links_known() -> None:
    """Its watermark tells that they are committed, not how."""
    worker = working(1, 2)
    worker.end(1, links=PAGE)
    worker.welcome(grant(concurrency=4, revision=9), epoch=2, watermark=1)
    assert len(worker.machine.outbox) == 0
    assert sent(worker.end(2, links=PAGE), Result)[0].links == PAGE


def test_a_cancelled_run_forgets_its_links_and_its_fetches() -> None:
    """A late end of a cancelled fetch is no result."""
    worker = working(1, 2)
    worker.end(1, links=PAGE)
    worker.say(ack(1, Disposition.APPLIED))
    effects = worker.say(Cancel([1]))
    assert of(effects, w.CancelFetch) == [w.CancelFetch(2)]
    assert worker.machine.known_links.unknown(1, PAGE) == PAGE
    assert not sent(worker.end(2), Result)


def test_only_what_was_not_received_is_resent() -> None:
    """Rule `result window`: a slow commit must not cause a storm."""
    worker = working(1, 2, 3)
    for seq in (1, 2, 3):
        worker.end(seq)
    worker.now += 1.5
    worker.beat(received=2)
    resent = [
        effect for effect in of(worker.tick(), w.SendToMaster) if isinstance(effect.body, Result)
    ]
    assert [effect.sequence for effect in resent] == [3]
    gap = worker.say(Ack(0, 1, b"", 0, [(1, 2)]))
    assert [effect.sequence for effect in of(gap, w.SendToMaster)] == [1, 2], "a gap that was named"


def test_a_new_leader_gets_everything_that_is_not_committed() -> None:
    """At once after its WELCOME."""
    worker = working(1, 2, 3)
    for seq in (1, 2, 3):
        worker.end(seq)
    worker.beat(received=3)
    effects = worker.welcome(epoch=2, watermark=1)
    assert [
        effect.sequence for effect in of(effects, w.SendToMaster) if isinstance(effect.body, Result)
    ] == [2, 3]


def test_an_ack_before_the_welcome_settles_nothing() -> None:
    """It may be of a leader that has not committed what a newer one will ask for."""
    worker = working(1)
    worker.end(1)
    worker.say(Beat("m2", 1.0, {}), epoch=2, leader="m2")
    worker.say(ack(1, Disposition.APPLIED), epoch=2)
    assert len(worker.machine.outbox) == 1


def test_heartbeats_tell_what_is_held() -> None:
    """Once a second, with the token and whether it has started."""
    worker = Worker(slots=1)
    worker.welcome(grant(concurrency=4))
    worker.assign(1, 2)
    beat = sent(worker.tick(1.0), Heartbeat)[0]
    assert sorted(beat.held) == [(1, 1, True), (1, 2, False)]
    assert (beat.vitals.running, beat.vitals.waiting, beat.sent_at) == (1, 1, worker.now)
    assert not sent(worker.tick(0.5), Heartbeat)


@pytest.mark.parametrize("event", [w.DrainAsked(), None], ids=["by-a-person", "by-the-leader"])
def test_a_drain_finishes_gives_back_says_bye_and_exits(event: w.DrainAsked | None) -> None:
    """In that order, and not before the last result is acked."""
    worker = Worker(slots=1)
    worker.welcome(grant(concurrency=4))
    worker.assign(1, 2)
    effects = worker.handle(event) if event else worker.say(Drain(True))
    assert sent(effects, Reject)[0].leases == [Rejection(1, 2, "draining")]
    assert sent(worker.assign(3), Reject)[0].leases == [Rejection(1, 3, "draining")]
    assert sent(worker.tick(), Heartbeat)[0].draining
    assert not of(worker.end(1), w.Exit), "its result is not acked yet"
    effects = worker.say(ack(1, Disposition.APPLIED))
    assert len(sent(effects, Bye)) == 1
    assert isinstance(effects[-1], w.Exit)
    assert not of(worker.tick(1.0), w.Exit), "once"


def test_a_worker_that_an_operator_drains_gives_back_and_stays() -> None:
    """It finishes what runs; what the leader sends it later, undrained, it takes."""
    worker = Worker(slots=1)
    worker.welcome(grant(concurrency=4))
    worker.assign(1, 2)
    effects = worker.say(Drain(False))
    assert sent(effects, Reject)[0].leases == [Rejection(1, 2, "draining")]
    effects = worker.end(1) + worker.say(ack(1, Disposition.APPLIED)) + worker.tick(1.0)
    assert not of(effects, w.Exit)
    assert not sent(effects, Bye)
    assert not any(beat.draining for beat in sent(effects, Heartbeat)), "its own word is another"
    assert started(worker.assign(3)) == [3]


def test_a_drained_worker_without_a_leader_just_exits() -> None:
    """There is nobody to say BYE to."""
    worker = Worker()
    effects = worker.handle(w.DrainAsked())
    assert len(of(effects, w.Exit)) == 1
    assert not sent(effects, Bye)


def test_a_duplicate_id_exits_after_patience() -> None:
    """Rule `watermarks`: a dead process of the same id is lost within it, a live one is not."""
    worker = Worker()
    worker.say(Beat("m1", 1.0, {}))
    for _ in range(round(DUPLICATE_PATIENCE_S) + 1):
        assert not of(worker.say(Stale("duplicate_id")), w.Exit)
        worker.tick(1.0)
    assert len(of(worker.say(Stale("duplicate_id")), w.Exit)) == 1


@pytest.mark.parametrize("reason", ["name_not_allowed", "key_not_allowed"])
def test_a_worker_whose_key_does_not_fit_ends_with_what_to_do(reason: str) -> None:
    """After patience, because lists are edited; one that was welcomed before asks again first."""
    worker = Worker()
    worker.say(Beat("m1", 1.0, {}))
    worker.say(Welcome(0, 1.0, 1, [], []))
    effects = worker.say(Stale(reason, "its key is w1"))
    assert sent(effects, Hello)
    assert not of(effects, w.Exit)
    for _ in range(round(DUPLICATE_PATIENCE_S) + 1):
        assert not of(worker.say(Stale(reason, "its key is w1")), w.Exit)
        worker.tick(1.0)
    (end,) = of(worker.say(Stale(reason, "its key is w1")), w.Exit)
    assert end == w.Exit("its key is w1", refused=True)


def test_a_welcome_ends_the_patience_with_a_duplicate() -> None:
    """The old process was lost meanwhile: this one counts now."""
    worker = Worker()
    worker.say(Beat("m1", 1.0, {}))
    worker.say(Stale("duplicate_id"))
    worker.tick(10.0)  # it greets again, under a new number
    worker.say(Welcome(0, 1.0, 2, [], []))
    assert worker.machine.link is LeaderLink.WELCOMED
    worker.say(Beat("m2", 1.0, {}), epoch=2, leader="m2")
    worker.tick(10.0)
    assert not of(worker.say(Stale("duplicate_id"), epoch=2), w.Exit)


def test_a_welcome_that_was_slept_over_grants_nothing() -> None:
    """It lay in the socket while the process was stopped: by now the leader has lost the worker
    and given its hosts to others. Only the answer to a new HELLO counts."""
    worker = Worker()
    worker.say(Beat("m1", 1.0, {}))
    worker.now += 20.0
    effects = worker.say(Welcome(0, 1.0, 1, [grant(concurrency=2)], []))
    assert worker.machine.link is LeaderLink.GREETING
    assert not worker.machine.intake.hosts
    assert [hello.hello for hello in sent(effects, Hello)] == [2]
    assert len(of(effects, w.SendToMaster)) == 1


def test_a_full_outbox_starts_nothing() -> None:
    """Backpressure reaches the frontier, never the memory: 500 results are the window."""
    worker = Worker(slots=100)
    worker.welcome(grant(concurrency=100))
    worker.assign(*range(1, 700))
    for seq in range(1, 501):
        assert worker.machine.intake.running <= 100
        worker.end(seq)
    assert len(worker.machine.outbox) == 500 == len(started(worker.effects))
    assert started(worker.tick()) == []
    worker.say(ack(150, Disposition.APPLIED))
    assert len(started(worker.effects)) == 600
