"""A master: follower or leader, and what a leader does when its store fails."""

from __future__ import annotations

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
from zcrawl.errors import RetryClass
from zcrawl.master import events as m
from zcrawl.master.commits import RETRY_LEAST_S
from zcrawl.master.master import TAKEOVER_AGAIN_S, MasterState
from zcrawl.mesh.messages import (
    Ack,
    Assignment,
    Beat,
    Message,
    Rehello,
    Stale,
    Welcome,
)
from zcrawl.model.states import Disposition, NodeState, Outcome
from zcrawl.store.commands import ApplyResults, TakeOver
from zcrawl.testing.store.store import Fault

APPLIED, DROPPED = int(Disposition.APPLIED), int(Disposition.DROPPED)


def working(count: int = 5) -> tuple[LeaderStory, list[Assignment]]:
    """A leader whose worker has all the requests of one run in hand."""
    story = LeaderStory().elect()
    story.submit(*urls(count))
    story.join()
    story.tick()
    assert len(story.assigned()) == count
    return story, story.assigned()


def applies(fault: Fault, times: int = 1) -> object:
    """A fault that hits the next result commits."""
    left = [times]

    def choose(command: object) -> Fault | None:
        if not isinstance(command, ApplyResults) or not left[0]:
            return None
        left[0] -= 1
        return fault

    return choose


def role_of(story: LeaderStory) -> MasterState:
    return story.master.role


def dispositions(story: LeaderStory) -> list[int]:
    """The dispositions that the worker was told, in the order of its results."""
    return [fate for ack in story.bodies(Ack) for fate in ack.dispositions]


# ---------------------------------------------------------------- roles


def test_a_takeover_raises_the_epoch_and_beats() -> None:
    """Rule `takeover`: lock, epoch in the database, load, announce."""
    story = LeaderStory()
    assert role_of(story) is MasterState.FOLLOWER
    story.elect()
    assert role_of(story) is MasterState.LEADER
    assert story.master.epoch == 1
    story.tick()
    assert any(isinstance(body, Beat) for body in story.published)
    second = LeaderStory(story.store, "m2").elect()
    assert second.master.epoch == 2


def test_the_lock_services_number_is_a_lower_bound_of_the_epoch() -> None:
    """Epoch = max(db + 1, LockIndex)."""
    story = LeaderStory()
    story.handle(m.Elected(41, alone=True))
    assert story.master.epoch == 41


def test_a_failed_takeover_is_tried_again() -> None:
    """The lock is ours: giving up would leave the cluster without a leader."""
    story = LeaderStory()
    story.store.faults = lambda command: "fail"
    story.elect()
    assert role_of(story) is MasterState.TAKING_OVER
    story.store.faults = None
    story.tick(TAKEOVER_AGAIN_S)
    assert story.master.role is MasterState.LEADER


def test_whoever_drives_a_master_hears_by_effects_of_its_own_how_a_takeover_went() -> None:
    """Not by the name of a log event: that is for people, and may be called otherwise."""
    story = LeaderStory()
    story.store.faults = lambda command: "fail"
    story.elect()
    assert len(story.takeovers) == 1
    assert isinstance(story.takeovers[0], m.TakeoverFailed)
    (note,) = (note for note in story.notes if note.name == "takeover_failed")
    assert story.takeovers[0].reason == note.detail
    story.store.faults = None
    story.tick(TAKEOVER_AGAIN_S)
    assert story.takeovers[1:] == [m.LeadershipBegan()]


def test_a_takeover_of_unknown_outcome_only_costs_an_epoch() -> None:
    """It may have been applied; the second try raises the epoch once more."""
    story = LeaderStory()
    faults: list[Fault | None] = ["unknown_applied"]
    story.store.faults = lambda command: faults.pop() if faults else None
    story.elect()
    assert story.master.role is MasterState.LEADER
    assert story.master.epoch == 2


def test_the_answer_to_an_older_takeover_counts_no_more() -> None:
    """Deposed meanwhile: it must not lead by an answer that comes late."""
    story = LeaderStory()
    story.hold = lambda what: isinstance(what, TakeOver)
    story.handle(m.Elected(0, alone=True))
    story.handle(m.Deposed("lost the lock"))
    story.release()
    assert story.master.role is MasterState.FOLLOWER
    assert story.master.leader is None


def test_a_fenced_leader_steps_down() -> None:
    """G4: a leader that was paused can do no harm when it wakes."""
    story, assigned = working()
    LeaderStory(story.store, "m2").elect()
    story.report(result_of(assigned[0]))
    assert story.master.role is MasterState.FOLLOWER
    assert set(story.states().values()) == {"QUEUED"}


# ---------------------------------------------------------------- commits


def test_a_result_is_acked_after_its_commit_and_not_before() -> None:
    """Rule `result window`: commit, then ack; until then it only counts as received."""
    story, assigned = working()
    story.hold = lambda what: isinstance(what, ApplyResults)
    story.report(result_of(assigned[0]))
    assert story.bodies(Ack) == []
    assert set(story.states().values()) == {"QUEUED"}
    story.wait(1.0)
    beat = [body for body in story.published if isinstance(body, Beat)][-1]
    assert beat.received["w1"][:2] == (1, 1)
    story.release()
    assert story.bodies(Ack) == [Ack(1, 1, bytes([APPLIED]), 1, [])]


def test_a_result_waits_for_company_only_while_some_can_come() -> None:
    """The last result of all that run is committed in the same moment, with those that wait."""
    story, assigned = working(3)
    began = story.now
    for assignment in assigned[:2]:
        story.publish(result_of(assignment))
        story.tick(0.0)
        assert dispositions(story) == []
    story.publish(result_of(assigned[2]))
    story.tick(0.0)
    assert dispositions(story) == [APPLIED] * 3
    assert story.now == began


def test_a_repeated_result_is_acked_again_and_changes_nothing() -> None:
    """G3: redelivery changes nothing; a lost ack is repaired."""
    story, assigned = working()
    body = result_of(assigned[0])
    story.report(body)
    for _ in range(3):
        story.hear(body, sequence=1, subject=body.seq)
        story.tick()
    assert [ack.upto for ack in story.bodies(Ack)] == [1, 1, 1, 1]
    assert dispositions(story) == [APPLIED]
    assert len(story.store.items(1)) == 1


def test_an_unavailable_store_gets_the_same_batch_again() -> None:
    """Nothing was applied, nothing is lost, nothing is acked meanwhile."""
    story, assigned = working()
    story.store.faults = applies("fail", 3)  # type: ignore[assignment]
    for assignment in assigned[:3]:
        story.publish(result_of(assignment))
    story.tick()
    assert story.bodies(Ack) == []
    for _ in range(3):
        story.tick(RETRY_LEAST_S * 8)
    assert dispositions(story) == [APPLIED] * 3
    assert list(story.states().values()).count("DONE") == 3
    story.store.check()


@pytest.mark.parametrize("fault", ["unknown_applied", "unknown_lost"])
def test_the_watermark_decides_a_commit_of_unknown_outcome(fault: Fault) -> None:
    """Rule `plan, then commit`: reload; what was applied is acked, what was not is committed
    again."""
    story, assigned = working()
    story.store.faults = applies(fault)  # type: ignore[assignment]
    story.publish(result_of(assigned[0], links=[link("http://a.test/new")]))
    story.publish(result_of(assigned[1]))
    story.wait(1.0)
    assert story.bodies(Ack)[-1].upto == 2
    applied = fault == "unknown_applied"
    assert dispositions(story) == ([] if applied else [APPLIED, APPLIED]), (
        "how is not known any more"
    )
    assert list(story.states().values()).count("DONE") == 2
    assert len(story.store.items(1)) == 2
    assert "http://a.test/new" in {assignment.url for assignment in story.assigned()}, (
        "its link goes on"
    )
    story.store.check()


def test_a_retry_of_unknown_outcome_is_not_lost() -> None:
    """Its row is read again, and fetched again when it is due."""
    story, assigned = working(1)
    story.store.faults = applies("unknown_applied")  # type: ignore[assignment]
    failure = result_of(
        assigned[0], outcome=Outcome.FAILED, page=None, items=[], retry=RetryClass.TRANSIENT
    )
    story.report(failure)
    story.wait(2.0, story.beat)
    assert [assignment.attempt for assignment in story.assigned()] == [1, 2]


def test_bad_data_is_bisected_and_only_the_culprit_dies() -> None:
    """Rule `bad results`: it ends dead and is acked as dropped, the others are applied."""
    story, assigned = working()
    for n, assignment in enumerate(assigned):
        story.publish(result_of(assignment, items=[b"poison" if n == 3 else b"{}"]))
    for _ in range(12):
        story.tick()
    assert dispositions(story) == [APPLIED, APPLIED, APPLIED, DROPPED, APPLIED]
    assert list(story.states().values()) == ["DONE", "DONE", "DONE", "DEAD", "DONE"]
    assert story.store.requests(1)[3].reason == "bad_result"
    story.store.check()


def test_an_unreadable_result_is_consumed() -> None:
    """Its request ends dead, and the results behind it are not held up."""
    story, assigned = working()
    story.spoilt(assigned[0].seq)
    story.report(result_of(assigned[1]))
    assert dispositions(story) == [DROPPED, APPLIED]
    assert list(story.states().values())[:2] == ["DEAD", "DONE"]


# ---------------------------------------------------------------- workers


def test_a_new_leader_adopts_what_workers_hold() -> None:
    """Rule `takeover`: what is running is not repeated, and its results count."""
    story, assigned = working()
    second = LeaderStory(story.store, "m2", story.now + 1.0).elect(alone=False)
    second.join(held=held_leases(assigned, 1, started=True))
    second.wait(2.0, lambda: second.beat(held=[(1, assignment.n, True) for assignment in assigned]))
    assert second.assigned() == []
    assert sorted(second.bodies(Welcome)[0].keep) == [assignment.seq for assignment in assigned]
    for assignment in assigned:
        second.report(result_of(assignment))
    assert set(second.states().values()) == {"DONE"}


def test_a_result_may_overtake_the_hello() -> None:
    """Rule `leases`: an unknown lease is not stale."""
    story, assigned = working()
    second = LeaderStory(story.store, "m2", story.now + 1.0).elect(alone=False)
    second.report(result_of(assigned[0]))
    assert list(second.states().values()).count("DONE") == 1


def test_a_worker_that_was_lost_is_asked_to_say_hello() -> None:
    """A heartbeat alone makes nobody known; who was never known has no way to be asked by."""
    story = LeaderStory().elect()
    story.beat("w7")
    assert not story.bodies(Rehello)
    assert not story.leader.state.roster.workers
    story.join("w7")
    story.wait(11.0)
    story.beat("w7")
    assert story.bodies(Rehello, "w7") == [Rehello("unknown", 1)]


def test_a_second_live_process_of_the_same_id_is_refused() -> None:
    """Rule `watermarks`; the first one keeps its work."""
    story, _ = working()
    story.hear(hello(), incarnation=2)
    assert story.bodies(Stale) == [Stale("duplicate_id", "pid 7 on here")]
    assert story.leader.state.roster.workers["w1"].incarnation == 1


def test_the_work_of_a_lost_worker_goes_elsewhere() -> None:
    """G2: after ten silent seconds and the longest attempt its requests are leased again."""
    story, assigned = working()
    story.join("w2")
    story.wait(11.0, lambda: story.beat("w2"))
    assert story.leader.state.roster.workers["w1"].state is NodeState.LOST
    done: set[int] = set()

    def work() -> None:
        story.beat("w2")
        for assignment in story.assigned("w2"):
            if assignment.seq not in done:
                done.add(assignment.seq)
                story.publish(result_of(assignment), "w2")

    story.wait(30.0, work)
    assert done == {assignment.seq for assignment in assigned}
    assert set(story.states().values()) == {"DONE"}


def test_the_wall_clock_is_read_at_takeover_only() -> None:
    """A clock that jumps does not move the stored times of this leader."""
    story, assigned = working()
    failure = result_of(
        assigned[0], outcome=Outcome.FAILED, page=None, items=[], retry=RetryClass.TRANSIENT
    )
    head = header(failure, epoch=story.master.epoch, sequence=1, subject=failure.seq)
    body = m.MessageCame(Message(head, failure))
    story.master.handle(body, story.now, UTC + story.now + 1e6)
    story.tick()
    assert story.store.requests(1)[0].due_at < UTC + story.now + 10.0
