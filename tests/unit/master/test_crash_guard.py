"""A bug in the leader: its memory is loaded anew, and what brought it about does not come back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.machine_tools import (
    UTC,
    LeaderStory,
    header,
    held_leases,
    hello,
    link,
    result_of,
    urls,
)
from zcrawl.master import events as m
from zcrawl.master.commits import Commits
from zcrawl.master.crash_guard import CALM_S, IGNORED_S, LONGEST_WAIT_S, Mishaps
from zcrawl.master.desk.desk import Desk
from zcrawl.master.membership import Membership
from zcrawl.mesh.messages import Ack, Bye, ClientRequest, Message, Result, Welcome
from zcrawl.result.plan import ResultPlanner


class Bug(Exception):
    """What no code raises on purpose."""


class Stumbling(LeaderStory):
    """A master whose failures are handled as `driver.loop` does, and which leads again at once."""

    failures = 0

    def handle(self, event: m.MasterEvent) -> None:
        try:
            super().handle(event)
        except Bug as error:
            self.failures += 1
            for effect in self.master.failed(event, f"Bug: {error}", self.now):
                self._do(effect)
            super().handle(m.Elected(0, alone=False))


def stumbling() -> Stumbling:
    story = Stumbling()
    story.elect()
    return story


def fails(*args: Any, **named: Any) -> Any:
    raise Bug("planted")


def test_a_result_at_which_the_leader_fails_is_consumed_when_it_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It costs one epoch, its request ends dead by name, and its sender hears that it is settled:
    otherwise it would be sent, and fail, without end."""
    story = stumbling()
    story.submit(*urls(3))
    story.join()
    story.tick()
    first, *others = story.assigned()
    real = Commits._note_arrival

    def arrival(self: Commits, delivery: Any, now: float) -> None:
        if isinstance(delivery.result, Result) and delivery.seq == first.seq:
            raise Bug("planted")
        real(self, delivery, now)

    monkeypatch.setattr(Commits, "_note_arrival", arrival)
    story.publish(result_of(first))
    assert (story.failures, story.master.epoch) == (1, 2)
    held = held_leases(others, 1, started=True)
    story.join(number=2, held=held, produced=1, reported=[(1, first.run, first.host, first.seq)])
    for again in range(3):
        story.numbers[("w1", 1)] = 0
        story.publish(result_of(first))
        story.tick()
        assert story.failures == 1, f"repeat {again}"
    assert story.states()[first.url] == "DEAD"
    assert story.bodies(Ack)[-1].upto == 1
    for assignment in others:
        story.report(result_of(assignment))
    assert sorted(story.states().values()) == ["DEAD", "DONE", "DONE"]


def test_a_result_that_cannot_be_planned_is_bad_and_costs_no_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planning changes nothing: the others of its batch are committed as if it were not there."""
    story = stumbling()
    story.submit(*urls(3))
    story.join()
    story.tick()
    bad = story.assigned()[1]
    real = ResultPlanner._links

    def links(self: ResultPlanner, result: Result, active: Any) -> Any:
        return fails() if result.seq == bad.seq else real(self, result, active)

    monkeypatch.setattr(ResultPlanner, "_links", links)
    for assignment in story.assigned():
        story.publish(result_of(assignment, links=[link(f"http://a.test/{assignment.seq}/more")]))
    story.tick()
    assert (story.failures, story.master.epoch) == (0, 1)
    states = story.states()
    assert states.pop(bad.url) == "DEAD"
    assert sorted(states.values()) == ["DONE", "DONE", "QUEUED", "QUEUED"]
    assert "plan_error" in {note.name for note in story.notes}


def test_other_messages_are_ignored_for_a_while_when_they_have_failed_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of that process and kind: the others are heard, and so is it later."""
    story = stumbling()
    with monkeypatch.context() as planted:
        planted.setattr(Membership, "hello", fails)
        for _ in range(5):
            story.hear(hello())
            story.tick()
    assert story.failures == 2
    story.hear(hello())
    story.hear(hello(), "w2")
    assert {message.worker for message in story.sent if isinstance(message.body, Welcome)} == {"w2"}
    story.wait(IGNORED_S + 1)
    story.hear(hello())
    assert [message.worker for message in story.sent if isinstance(message.body, Welcome)][
        -1
    ] == "w1"


def test_a_client_is_told_and_others_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose request it was hears `internal_error`, which is final; who waited hears `no_leader`."""
    story = stumbling()
    story.hold = lambda what: True
    story.ask("jobs", id="waits")
    monkeypatch.setattr(Desk, "ask", fails)
    story.handle(m.ClientAsked(b"c", ClientRequest("fails", "nodes", {})))
    codes = [(reply.id, reply.data["code"]) for reply in story.replies]
    assert codes == [("fails", "internal_error"), ("waits", "no_leader")]


def test_failures_in_a_row_wait_longer_and_a_calm_time_ends_the_row() -> None:
    """0.2 s, doubled each time, to half a minute; one failure now and then is none of it."""
    mishaps, now = Mishaps(), 0.0
    waits = []
    for n in range(12):
        mishaps.happened(m.MasterTicked(), f"error {n}", now)
        waits.append(mishaps.wait_s(now))
        assert mishaps.in_row(now) == n + 1
        now += waits[-1]
        mishaps.led(now)
        now += 0.1
    assert waits[:4] == [0.2, 0.4, 0.8, 1.6]
    assert waits[-1] == LONGEST_WAIT_S
    assert "12 times in a row" in mishaps.why(now)
    assert "error 11" in mishaps.why(now)
    now += CALM_S
    assert (mishaps.in_row(now), mishaps.why(now)) == (0, "")
    mishaps.happened(m.MasterTicked(), "once more", now)
    assert (mishaps.wait_s(now), mishaps.total, mishaps.why(now)) == (0.2, 13, "")


def test_a_leader_that_keeps_failing_says_so_to_whoever_asks() -> None:
    """`nodes` has the figures; a job's reason tells why nothing moves, also while nobody leads."""
    story = stumbling()
    story.submit(*urls(1))
    for _ in range(3):
        for effect in story.master.failed(m.MasterTicked(), "Bug: planted", story.now):
            story._do(effect)
        shown = story.ask("nodes")
        assert shown is not None
        assert shown.data["leader"]["id"] == ""
        story.handle(m.Elected(0, alone=False))
    why = "the leader has failed 3 times in a row by an error of its own: Bug: planted"
    shown = story.ask("nodes")
    assert shown is not None
    assert shown.data["mishaps"] == {"total": 3, "in_row": 3, "last": "Bug: planted"}
    story.ask("job", ref="1")
    assert story.replies[-1].data["reason"] == why
    story.master.handle(m.Deposed("elsewhere"), story.now, UTC)
    story.ask("job", ref="1")
    assert story.replies[-1].data["stale"]["why"] == why


def test_what_was_never_bad_passes_unchanged() -> None:
    """The same object: nothing is copied on the way of every message."""
    mishaps = Mishaps()
    bad, good = (m.MessageCame(Message(header(body), body)) for body in (hello(), Bye("x")))
    for _ in range(2):
        mishaps.happened(bad, "x", 0.0)
    assert mishaps.filter_event(good, 0.0) is good
    assert mishaps.filter_event(bad, 0.0) is None
    assert mishaps.filter_event(m.MasterTicked(), 0.0) == m.MasterTicked()
