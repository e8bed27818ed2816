"""What consoles do to a cluster that works: paces, owners, leaders, retries."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.desk_tools import FAILED, SLOW, answer, leading
from tests.unit.machine_tools import LeaderStory, heartbeat, result_of, urls
from zcrawl.errors import RetryClass
from zcrawl.mesh.messages import Assign
from zcrawl.model.process_name import ProcessName
from zcrawl.model.spec import Politeness


def test_a_runs_pace_can_be_changed_while_it_goes_on() -> None:
    """From a crawl to a run: the leader dispatches faster, the worker is told, it is stored."""
    story = leading(*urls(500), politeness=SLOW)
    story.wait(4.0, story.beat)
    slow = len(story.assigned())
    assert slow <= 6
    data = answer(story, "tune", ref="1", rate=0, concurrency=8)
    assert data["changed"] == 1
    for _ in range(40):
        for assignment in story.assigned()[slow:]:
            story.publish(result_of(assignment))
        slow = len(story.assigned())
        story.beat()
        story.tick(0.1)
    assert len(story.assigned()) > 20
    last = story.bodies(Assign)[-1].grants[0]
    assert (last.concurrency, last.interval_s) == (8, 0.0)
    again = LeaderStory(story.store, "m2", story.now).elect()
    assert again.leader.state.runs.active[1].spec.politeness.concurrency == 8
    story.store.check()


def test_a_pace_can_be_lowered_too() -> None:
    """The parts that were granted shrink; the invariants hold at every step."""
    story = leading(*urls(50), politeness=Politeness(robots=False, rate=0, concurrency=8))
    answer(story, "tune", ref="1", rate=1.0, concurrency=1)
    story.wait(2.0, story.beat)
    grant = story.bodies(Assign)[-1].grants[0]
    assert (grant.concurrency, grant.interval_s) == (1, 1.0)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"ref": "1"}, "bad_request"),
        ({"ref": "nobody", "rate": 1.0}, "no_such_job"),
        ({"ref": "1", "rate": -1.0}, "job"),
        ({"ref": "1", "concurrency": 0}, "job"),
        ({"ref": "1", "rate": "fast"}, "job"),
    ],
)
def test_a_bad_pace_is_refused(args: dict[str, Any], code: str) -> None:
    """By the same rules as a job file."""
    reply = leading(*urls(3)).ask("tune", **args)
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, code)


def owner(story: LeaderStory) -> str:
    story.tick(1.5)
    for name in ("w1", "w2"):
        story.beat(name)
    owner_name: str = answer(story, "hosts")["rows"][0]["owner"]
    return owner_name


def test_a_host_goes_to_the_worker_that_is_named() -> None:
    """When the one that has it has let go; and not before its owner is stored."""
    story = leading(*urls(200), politeness=Politeness(robots=False, rate=2.0, concurrency=2))
    story.join("w2")
    story.wait(1.0, lambda: story.beat_all("w1", "w2"))
    first = owner(story)
    other = "w2" if first == "w1" else "w1"
    assert answer(story, "reassign", host="http://a.test", node=other)["node"] == other

    def live() -> None:
        for name in ("w1", "w2"):
            story.beat(name)
            for assign in story.bodies(Assign, name):
                for grant in assign.grants:
                    story.leader.state.planner.granter.confirm(
                        ProcessName(f"{name}#1"), grant.host, grant.revision, story.now
                    )
        for assignment in story.assigned(first):
            story.publish(result_of(assignment), first)

    story.wait(5.0, live)
    assert owner(story) == other
    story.master.check(story.now)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({}, "bad_request"),
        ({"host": "http://nobody.test", "node": "w1"}, "no_such_host"),
        ({"host": "http://a.test", "node": "w9"}, "no_such_node"),
    ],
)
def test_a_bad_reassignment_is_refused(args: dict[str, Any], code: str) -> None:
    """By name."""
    story = leading(*urls(3))
    story.wait(3.25, lambda: story.beat_all(*story.leader.state.roster.workers))
    reply = story.ask("reassign", **args)
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, code)


def test_a_leader_steps_down_when_it_is_asked_to() -> None:
    """After it has answered."""
    story = leading(*urls(3))
    assert answer(story, "step_down", epoch=1) == {"leader": "m1", "epoch": 1, "now": 1}
    assert story.master.leader is None
    story.elect(alone=False)
    assert story.master.epoch == 2


def test_a_repeated_step_down_does_not_reach_the_next_leader() -> None:
    """A client asks again when the answer got lost; the epoch that it named is over by then."""
    story = leading(*urls(3))
    answer(story, "step_down", epoch=1)
    story.elect(alone=False)
    assert answer(story, "step_down", epoch=1) == {"leader": "m1", "epoch": 1, "now": 2}
    assert story.master.leader is not None


def test_a_retry_can_be_of_one_reason() -> None:
    """All that match, and no others."""
    story = leading(*urls(3))
    for n, assignment in enumerate(story.assigned()):
        reason = {"reason": "tls" if n else "dns"}
        story.report(result_of(assignment, retry=RetryClass.PERMANENT, **{**FAILED, **reason}))
    story.hear(heartbeat(story.now))
    data = answer(story, "act", ref="1", action="retry", reason="tls")
    assert data["changed"] == 2
    failed = answer(story, "failed", run=1)["rows"]
    assert [row["reason"] for row in failed] == ["dns"]
