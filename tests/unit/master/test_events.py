"""Events of the leader: sentences about what happened, and nothing about who only looked."""

from __future__ import annotations

from tests.unit.desk_tools import answer, leading
from tests.unit.machine_tools import LeaderStory, urls
from zcrawl.master import events as m
from zcrawl.mesh.messages import ClientRequest


def texts(story: LeaderStory) -> dict[str, str]:
    return {note.name: note.detail for note in story.notes}


def test_an_action_is_told_as_a_sentence() -> None:
    """Who did what to which job."""
    story = leading(*urls(3))
    args = {"ref": "job", "action": "pause"}
    request = ClientRequest("q", "act", args, by="root@vm")
    story.handle(m.ClientAsked(b"c", request))
    story.tick()
    assert texts(story)["run_paused"] == "root@vm paused job (run 1)"
    answer(story, "act", ref="job", action="cancel")
    assert texts(story)["run_cancelled"] == "somebody cancelled job (run 1)"
    assert texts(story)["run_ended"] == "job cancelled: 0 pages, 0 failed (run 1)"
    assert texts(story)["worker_joined"] == "w1 joined with 4 slots"


def test_polls_of_a_console_are_no_events() -> None:
    """Neither when they are answered nor when they are refused; a refused action is one."""
    story = leading(*urls(1))
    before = len(story.notes)
    for _ in range(3):
        assert story.ask("overview") is not None
        assert story.ask("depths", run="x") is not None
        story.wait(1.0, story.beat)
    assert [note.name for note in story.notes[before:]] == []
    story.ask("act", ref="job", action="nonsense")
    assert "request_refused" in [note.name for note in story.notes[before:]]
