"""Who may depose a leader: the database, and masters; a worker's word is only a hint."""

from __future__ import annotations

import pytest

from tests.unit.machine_tools import LeaderStory, header, heartbeat, hello, result
from zcrawl.master import events as m
from zcrawl.master.master import MasterState
from zcrawl.master.takeover import CHECK_AGAIN_S
from zcrawl.mesh.messages import BadBody, Beat, Body, Bye, LogRecords, Message, MessageKind, Stale
from zcrawl.store.queries import ReadEpoch

BOGUS = 1 << 40
WORDS: list[Body] = [
    hello(),
    heartbeat(),
    Bye(""),
    Stale("stale_epoch"),
    result(),
    LogRecords([]),
    Beat("w1", 1.0, {}),
]


def role_of(story: LeaderStory) -> MasterState:
    return story.master.role


def hint_count(story: LeaderStory) -> int:
    return sum(note.name == "higher_epoch_heard" for note in story.notes)


@pytest.mark.parametrize("body", WORDS, ids=lambda body: type(body).__name__)
@pytest.mark.parametrize("alone", [True, False])
def test_no_word_of_a_worker_deposes_a_leader(body: Body, alone: bool) -> None:
    """One small frame would be enough otherwise. The embedded form is no exception."""
    story = LeaderStory().elect(alone=alone)
    story.hear(body, epoch=BOGUS)
    story.tick()
    assert role_of(story) is MasterState.LEADER
    assert story.master.epoch == 1
    assert hint_count(story) == 1


def test_a_frame_with_an_unreadable_body_is_no_exception() -> None:
    """Its header is read first."""
    story = LeaderStory().elect()
    story.handle(m.MessageCame(BadBody(header(MessageKind.RESULT, epoch=BOGUS), "spoilt"), b"line"))
    assert role_of(story) is MasterState.LEADER
    assert hint_count(story) == 1


def test_what_is_said_in_another_epoch_is_not_heard() -> None:
    """Its sender follows somebody else, or nobody."""
    story = LeaderStory().elect()
    story.hear(hello(), epoch=BOGUS)
    story.tick()
    assert not story.leader.state.roster.workers
    assert not story.sent


def test_the_database_is_asked_at_most_once_a_second() -> None:
    """A flood of such frames costs one small read a second, and as many lines in the log."""
    story = LeaderStory().elect()
    began, seconds = story.now, 10
    while story.now < began + seconds:
        story.hear(heartbeat(), epoch=BOGUS)
        story.tick(0.01)
    assert seconds - 1 <= hint_count(story) <= seconds / CHECK_AGAIN_S + 1
    assert role_of(story) is MasterState.LEADER


def test_no_second_question_before_the_first_is_answered() -> None:
    """A database that hangs does not gather questions."""
    story = LeaderStory().elect()
    story.hold = lambda what: isinstance(what, ReadEpoch)
    for _ in range(20):
        story.hear(heartbeat(), epoch=BOGUS)
        story.tick(CHECK_AGAIN_S)
    assert len(story.held) == 1
    story.release()
    assert role_of(story) is MasterState.LEADER


def test_a_hint_that_the_database_confirms_deposes() -> None:
    """Somebody has taken over, and the workers follow the new leader."""
    story = LeaderStory().elect()
    LeaderStory(story.store, "m2").elect()
    story.hear(heartbeat(story.now), epoch=2)
    assert role_of(story) is MasterState.FOLLOWER


def test_a_question_that_fails_is_asked_again_with_the_next_hint() -> None:
    """The database may be away for a moment."""
    story = LeaderStory().elect()
    LeaderStory(story.store, "m2").elect()
    story.store.query_faults = lambda query: isinstance(query, ReadEpoch)
    story.hear(heartbeat(story.now), epoch=2)
    assert role_of(story) is MasterState.LEADER
    assert "epoch_check_failed" in {note.name for note in story.notes}
    story.store.query_faults = None
    story.now += CHECK_AGAIN_S
    story.hear(heartbeat(story.now), epoch=2)
    assert role_of(story) is MasterState.FOLLOWER


def test_a_master_is_believed() -> None:
    """It holds the masters' key; nothing has to be asked."""
    story = LeaderStory().elect()
    beat = Beat("m2", 1.0, {})
    story.handle(m.MessageCame(Message(header(beat, "m2", epoch=2), beat), by_master=True))
    assert role_of(story) is MasterState.FOLLOWER
    assert not hint_count(story)
