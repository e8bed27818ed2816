"""A job has several runs: a request that names one of them is about that one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.machine_tools import LeaderStory, spec, urls
from zcrawl.mesh.messages import Reply
from zcrawl.model.states import RunState
from zcrawl.store.commands import ChangeJob

SUBMIT = {"spec": msgspec.to_builtins(spec()), "mode": "again", "seeds": urls(2)}


def two_runs() -> LeaderStory:
    """A leader with a job whose first run goes on while the second does, too."""
    story = LeaderStory().elect()
    story.submit(*urls(3))
    ask(story, "submit", **SUBMIT)
    return story


def ask(story: LeaderStory, op: str, **args: Any) -> Reply:
    reply = story.ask(op, f"{op}-{len(story.replies)}", **args)
    assert reply is not None
    return reply


def states(story: LeaderStory) -> dict[int, RunState]:
    return {row.id: row.state for row in story.store.runs()}


@pytest.mark.parametrize(
    ("action", "state"), [("pause", "paused"), ("cancel", "cancelled"), ("delete", "deleted")]
)
def test_an_older_run_can_be_acted_on(action: str, state: str) -> None:
    """The newest run goes on as before."""
    story = two_runs()
    reply = ask(story, "act", ref="job", action=action, run=1)
    assert reply.ok
    assert (reply.data["run"], reply.data["changed"]) == (1, 1)
    assert states(story).get(1, RunState.DELETED) is RunState(state)  # deleted ones are swept
    assert states(story)[2] is RunState.PENDING


def test_without_a_number_all_live_runs_are_meant_and_all_runs_by_delete() -> None:
    """An older run that is live is paused, too; delete ends the job with all its runs."""
    story = two_runs()
    assert ask(story, "act", ref="job", action="pause").data["changed"] == 2
    assert set(states(story).values()) == {RunState.PAUSED}
    assert ask(story, "act", ref="job", action="delete").data["changed"] == 2
    assert set(states(story).values()) <= {RunState.DELETED}


def test_a_job_is_shown_with_the_run_that_was_named() -> None:
    """Its counters, its state and its spec; `runs` has all of them."""
    story = two_runs()
    ask(story, "tune", ref="job", run=1, rate=7.5)
    view = ask(story, "job", ref="job", run=1).data
    assert (view["run"], view["admitted"], view["spec"]["politeness"]["rate"]) == (1, 3, 7.5)
    assert [run["run"] for run in view["runs"]] == [2, 1]
    newest = ask(story, "job", ref="job").data
    assert (newest["run"], newest["admitted"]) == (2, 2)
    assert newest["spec"]["politeness"]["rate"] != 7.5


@pytest.mark.parametrize("op", ["job", "act", "tune"])
def test_a_run_that_the_job_does_not_have_is_refused(op: str) -> None:
    """With the numbers that it has; a deleted run is not there any more."""
    story = two_runs()
    args: dict[str, Any] = {"ref": "job", "action": "cancel", "rate": 1.0}
    reply = ask(story, op, **args, run=9)
    assert not reply.ok
    assert reply.data["code"] == "no_such_run"
    assert "2, 1" in reply.data["message"]
    ask(story, "act", ref="job", action="delete", run=2)
    assert ask(story, op, **args, run=2).data["code"] == "no_such_run"
    assert ask(story, "job", ref="job").data["run"] == 1


def test_a_job_is_deleted_only_with_the_runs_that_the_client_has_seen() -> None:
    """A run that the request does not name is kept, and so are all others."""
    story = two_runs()
    reply = ask(story, "act", ref="job", action="delete", runs=[1])
    assert not reply.ok
    assert reply.data["code"] == "unseen_runs"
    assert "run 2" in reply.data["message"]
    assert "nothing was deleted" in reply.data["message"]
    assert set(states(story).values()) == {RunState.PENDING}
    assert ask(story, "act", ref="job", action="delete", runs=[1, 2]).data["changed"] == 2


def test_a_run_that_is_gone_already_does_not_stop_a_deletion() -> None:
    """Nothing is lost that the client has not seen."""
    story = two_runs()
    ask(story, "act", ref="job", action="delete", run=1)
    assert ask(story, "act", ref="job", action="delete", runs=[1, 2]).ok
    assert set(states(story).values()) <= {RunState.DELETED}


def test_a_run_that_starts_while_a_deletion_is_stored_prevents_it() -> None:
    """The transaction that deletes compares the runs that were seen with those that are there."""
    story = two_runs()
    story.hold = lambda what: isinstance(what, ChangeJob)
    story.ask("act", "delete", ref="job", action="delete", runs=[1, 2])
    (command,) = story.held
    story.held = []
    ask(story, "submit", **SUBMIT)
    story.run(command)
    assert story.replies[-1].data["code"] == "unseen_runs"
    assert set(states(story).values()) == {RunState.PENDING}


@pytest.mark.parametrize(
    "args",
    [
        {"action": "pause", "runs": [2]},
        {"action": "delete", "run": 2, "runs": [2]},
        {"action": "delete", "runs": ["x"]},
        {"action": "delete", "runs": 2},
    ],
)
def test_runs_go_with_the_deletion_of_a_whole_job(args: dict[str, Any]) -> None:
    """A list that would not be checked is refused, and so is one that is not of numbers."""
    story = two_runs()
    reply = ask(story, "act", ref="job", **args)
    assert reply.data.get("code") == "bad_request"
    assert set(states(story).values()) == {RunState.PENDING}
