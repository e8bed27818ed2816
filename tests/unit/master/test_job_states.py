"""The leader and the states of jobs and runs: how runs begin, how many an action is about."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.unit.machine_tools import LeaderStory, result_of, spec, urls
from zcrawl.master.events import Execute
from zcrawl.mesh.messages import Accept, Cancel, Reply
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import RunState
from zcrawl.store.commands import BeginRuns
from zcrawl.testing.store.store import Fault

PLAIN = msgspec.to_builtins(spec())
SUBMIT: dict[str, Any] = {"spec": PLAIN, "mode": "again", "seeds": urls(3)}


def ask(story: LeaderStory, op: str, **args: Any) -> Reply:
    reply = story.ask(op, f"{op}-{len(story.replies)}", **args)
    assert reply is not None
    return reply


def states(story: LeaderStory) -> dict[int, str]:
    return {row.id: str(row.state) for row in story.store.runs()}


def test_a_run_begins_when_a_worker_accepts_its_work() -> None:
    """An assignment that was only sent may be lost."""
    story = LeaderStory().elect()
    story.submit(*urls(3))
    story.join()
    story.tick()
    assert story.assigned()
    assert states(story) == {1: "pending"}
    story.hear(Accept(1, []))
    assert states(story) == {1: "running"}
    assert story.leader.state.runs.pending == {}


def test_a_begin_that_the_store_refused_is_repeated() -> None:
    """The database may be away for a moment."""
    story = LeaderStory().elect()
    story.submit(*urls(3))
    story.join()
    story.tick()
    failures: list[Fault] = ["fail", "unknown_lost"]
    story.store.faults = lambda command: (
        failures.pop(0) if isinstance(command, BeginRuns) and failures else None
    )
    story.hear(Accept(1, []))
    assert states(story) == {1: "pending"}
    story.wait(3.0)
    assert failures == []
    assert states(story) == {1: "running"}


def test_actions_are_about_all_live_runs() -> None:
    """Of three runs the oldest has ended; the answer counts those that changed."""
    story = LeaderStory().elect()
    for _ in range(3):
        assert ask(story, "submit", **SUBMIT).ok
    assert ask(story, "act", ref="job", action="cancel", run=1).data["changed"] == 1
    assert ask(story, "act", ref="job", action="pause").data["changed"] == 2
    assert ask(story, "act", ref="job", action="pause").data["changed"] == 0
    assert states(story) == {1: "cancelled", 2: "paused", 3: "paused"}
    assert ask(story, "act", ref="job", action="resume").data["changed"] == 2
    assert ask(story, "act", ref="job", action="cancel").data["changed"] == 2
    refused = ask(story, "act", ref="job", action="pause")
    assert refused.data["code"] == "run_ended"


def test_a_new_run_replaces_the_live_ones() -> None:
    """With `restart`: workers are told that the old runs ended."""
    story = LeaderStory().elect()
    ask(story, "submit", **SUBMIT)
    ask(story, "submit", **SUBMIT)
    story.join()
    story.tick()
    assert ask(story, "submit", **SUBMIT, restart=True).data["run"] == 3
    assert states(story) == {1: "cancelled", 2: "cancelled", 3: "pending"}
    assert {run for body in story.bodies(Cancel) for run in body.runs} == {1, 2}
    assert set(story.leader.state.runs.active) == {3}


def test_live_runs_get_a_new_spec() -> None:
    """With `live`: no run starts, the run is of the new version, and workers are told."""
    story = LeaderStory().elect()
    ask(story, "submit", **SUBMIT)
    story.join()
    story.tick()
    slower = {**PLAIN, "priority": 7, "politeness": {**PLAIN["politeness"], "rate": 2.0}}
    reply = ask(story, "submit", spec=slower, mode="update", seeds=[], live=True)
    assert (reply.data["run"], reply.data["changed"]) == (0, 1)
    (run,) = story.store.runs()
    assert (run.version, run.id) == (2, 1)
    active = story.leader.state.runs.active[1]
    assert (active.spec.priority, active.spec.politeness.rate) == (7, 2.0)


def test_what_cannot_change_in_a_live_run_is_refused_by_name() -> None:
    """Nothing is stored then."""
    story = LeaderStory().elect()
    ask(story, "submit", **SUBMIT)
    other = {**PLAIN, "fetch": {**PLAIN["fetch"], "engine": "httpx"}, "priority": 3}
    reply = ask(story, "submit", spec=other, mode="update", seeds=[], live=True)
    assert reply.data["code"] == "not_live"
    assert "fetch.engine cannot change" in reply.data["message"]
    assert ask(story, "versions", ref="job").data["versions"][0]["version"] == 1
    assert story.store.runs()[0].version == 1


def test_a_job_that_is_only_stored_starts_nothing() -> None:
    """`jobs` shows it with its own state, `versions` what changed since."""
    story = LeaderStory().elect()
    assert ask(story, "submit", **{**SUBMIT, "mode": "new"}, no_run=True).data["run"] == 0
    assert story.store.runs() == []
    (view,) = ask(story, "jobs").data["jobs"]
    assert (view["state"], view["run"], view["version"]) == ("active", None, 1)
    other = {**PLAIN, "politeness": {**PLAIN["politeness"], "rate": 2.0}}
    ask(story, "submit", spec=other, mode="update", seeds=urls(1))
    newest, oldest = ask(story, "versions", ref="job").data["versions"]
    assert (newest["version"], newest["changes"]) == (2, ["politeness.rate: 0.0 → 2.0"])
    assert (oldest["version"], oldest["changes"]) == (1, [])


def test_an_archived_job_is_hidden_and_can_be_taken_back() -> None:
    """Its runs and its name stay."""
    story = LeaderStory().elect()
    ask(story, "submit", **SUBMIT)
    assert ask(story, "change_job", ref="job", state="archived").data["state"] == "archived"
    assert ask(story, "jobs").data["jobs"] == []
    (view,) = ask(story, "jobs", archived=True).data["jobs"]
    assert view["job_state"] == "archived"
    assert ask(story, "submit", **SUBMIT).data["code"] == "job_archived"
    assert ask(story, "change_job", ref="job", state="active").data["changed"] == 1
    assert ask(story, "submit", **SUBMIT).ok
    assert ask(story, "change_job", ref="job", state="sleeping").data["code"] == "bad_request"


def test_runs_are_shown_by_their_number_alone() -> None:
    """Of all jobs, or of one."""
    story = LeaderStory().elect()
    ask(story, "submit", **SUBMIT)
    ask(story, "submit", spec=msgspec.to_builtins(JobSpec("other")), mode="new", seeds=urls(1))
    rows = ask(story, "runs").data["runs"]
    assert [(row["run"], row["name"], row["cause"]) for row in rows] == [
        (2, "other", "submitted"),
        (1, "job", "submitted"),
    ]
    assert [row["run"] for row in ask(story, "runs", ref="job").data["runs"]] == [1]
    assert ask(story, "run", run=2).data["name"] == "other"
    assert ask(story, "run", run=7).data["code"] == "no_such_run"


def test_a_run_fails_at_its_longest_time() -> None:
    """The time counts from its begin, and the reason names the limit."""
    story = LeaderStory().elect()
    story.submit(*urls(3), of=msgspec.structs.replace(spec(), max_runtime=60.0))
    story.wait(70.0)
    assert states(story) == {1: "pending"}
    story.join()
    story.tick()
    story.hear(Accept(1, []))
    story.wait(55.0, lambda: story.beat())
    assert states(story) == {1: "running"}
    story.wait(10.0, lambda: story.beat())
    (run,) = story.store.runs()
    assert (run.state, run.reason) == (RunState.FAILED, "runtime_exceeded: not done after 60 s")
    assert not [effect for effect in story.held if isinstance(effect, Execute)]


def test_a_run_that_expired_starts_nothing_more_and_ends_when_the_last_request_has() -> None:
    """What was queued is skipped with the reason; no worker is needed for that."""
    story = LeaderStory().elect()
    story.join(slots=1)
    story.submit(*urls(40), of=msgspec.structs.replace(spec(), expires=30.0))
    story.tick()
    held = len(story.assigned())
    assert held
    running = [(1, assignment.n, True) for assignment in story.assigned()]
    story.wait(40.0, lambda: story.beat(held=running))
    assert states(story) == {1: "running"} or states(story) == {1: "pending"}
    story.submit(*urls(1, "b.test"), of=msgspec.structs.replace(spec(), name="other"))
    for assignment in story.assigned()[:held]:
        story.report(result_of(assignment))
    story.wait(3.0, lambda: story.beat())
    first, second = story.store.runs()
    assert first.state is RunState.COMPLETED
    assert first.reason == f"expired: not started within 30 s: {40 - held}"
    assert {assignment.run for assignment in story.assigned()[held:]} == {second.id}


def test_a_run_that_expires_before_anything_of_it_ran_failed() -> None:
    """Nobody was there to do it."""
    story = LeaderStory().elect()
    story.submit(*urls(2), of=msgspec.structs.replace(spec(), expires=5.0))
    story.wait(4.0)
    assert states(story) == {1: "pending"}
    story.wait(3.0)
    (run,) = story.store.runs()
    assert (run.state, run.counters.skipped) == (RunState.FAILED, 2)
