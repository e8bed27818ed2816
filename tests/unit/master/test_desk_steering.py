"""What consoles do to a cluster that works: paces, owners, leaders, retries."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.desk_tools import FAILED, SLOW, answer, leading
from tests.unit.machine_tools import LeaderStory, heartbeat, result_of, urls
from tests.unit.machine_tools import spec as of_run
from zcrawl.errors import RetryClass
from zcrawl.master import events as m
from zcrawl.mesh.messages import Assign, Cancel, Reloaded, ReloadNode, RunConfigs
from zcrawl.model.process_name import ProcessName
from zcrawl.model.reload_report import ReloadReport
from zcrawl.model.spec import Politeness, Scope
from zcrawl.submit.shell_rights import NO_COMMANDS


def test_a_runs_pace_can_be_changed_while_it_goes_on() -> None:
    """From a crawl to a run: the leader dispatches faster, the worker is told, it is stored."""
    story = leading(*urls(500), politeness=SLOW)
    story.wait(4.0, story.beat)
    slow = len(story.assigned())
    # One that is sent again, because this worker never says that it came, takes no new start.
    assert len({assignment.seq for assignment in story.assigned()}) <= 6
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
        ({"ref": "1", "max_depth": -1}, "job"),
        ({"ref": "1", "max_pages": -5}, "job"),
        ({"ref": "1", "max_pages_per_host": 5}, "bad_request"),
        ({"ref": "1", "tags": ["Not A Tag"]}, "job"),
        ({"ref": "1", "tags": "eu"}, "job"),
    ],
)
def test_a_bad_pace_is_refused(args: dict[str, Any], code: str) -> None:
    """By the same rules as a job file."""
    reply = leading(*urls(3)).ask("tune", **args)
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, code)


def test_other_limits_reach_workers_at_once() -> None:
    """Not only with the next URL of the run: a worker that parses a page now goes by them."""
    story = leading(*urls(3))
    assert story.assigned()
    before = len(story.bodies(RunConfigs))
    answer(story, "tune", ref="1", max_depth=1, tags=["eu"])
    (config,) = story.bodies(RunConfigs)[before].runs
    spec = msgspec.json.decode(config.spec)
    assert (spec["scope"]["max_depth"], spec["tags"]) == (1, ["eu"])
    assert story.leader.state.runs.active[1].revision == config.revision
    answer(story, "tune", ref="1", max_depth=1)
    assert len(story.bodies(RunConfigs)) == before + 1, "nothing has changed"
    story.store.check()


def test_a_run_that_waits_at_its_limit_goes_on_when_it_is_raised() -> None:
    """By `max_pages`, which 0 lifts; its hosts are woken."""
    story = leading(*urls(9), politeness=Politeness(robots=False, rate=0, concurrency=8))
    answer(story, "tune", ref="1", max_pages=20)
    assert story.leader.state.runs.active[1].spec.scope.max_pages == 20
    answer(story, "tune", ref="1", max_pages=0)
    assert story.leader.state.runs.active[1].spec.scope.max_pages is None


def test_the_limit_of_a_host_can_be_raised_while_the_run_goes_on() -> None:
    """Pages of the host are counted; what was skipped already stays skipped."""
    limited = msgspec.structs.replace(
        of_run(Politeness(robots=False, rate=0, concurrency=1)), scope=Scope(max_pages_per_host=1)
    )
    story = LeaderStory().elect()
    story.submit(*urls(3), of=limited)
    story.join()
    story.tick()
    (first,) = story.assigned()
    answer(story, "tune", ref="1", max_pages_per_host=2)
    story.report(result_of(first))
    story.wait(2.0, story.beat)
    assert len(story.assigned()) == 2
    story.report(result_of(story.assigned()[1]))
    story.wait(2.0, story.beat)
    assert sorted(story.states().values()).count("DONE") == 2
    story.store.check()


def test_a_lowered_limit_of_a_host_ends_the_rest_of_its_pages() -> None:
    """At once, also if no page is in flight: otherwise they would wait for the pace."""
    slow = Politeness(robots=False, rate=0.01, concurrency=1)
    limited = msgspec.structs.replace(of_run(slow), scope=Scope(max_pages_per_host=3))
    story = LeaderStory().elect()
    story.submit(*urls(4), of=limited)
    story.join()
    story.tick()
    (first,) = story.assigned()
    story.report(result_of(first))
    answer(story, "tune", ref="1", max_pages_per_host=1)
    story.wait(1.0, story.beat)
    assert {assignment.verdict for assignment in story.assigned()[1:]} == {"host_page_limit"}


def test_a_right_that_is_taken_away_is_taken_from_workers_too() -> None:
    """The run's new form, without private addresses, goes to each worker that has the run."""
    story = leading(*urls(3))
    before = len(story.bodies(RunConfigs))
    story.handle(m.RightsChanged(private=True, code=False, shell=NO_COMMANDS))
    story.handle(m.RightsChanged(private=False, code=False, shell=NO_COMMANDS))
    assert len(story.bodies(RunConfigs)) == before + 2
    assert not story.leader.state.allow_private
    again = LeaderStory(story.store, "m2", story.now).elect()
    assert not again.leader.state.allow_private


def test_a_reload_goes_to_every_worker_and_to_the_leader_itself() -> None:
    """It is sent again to those who have not answered, and only to them."""
    story = leading(*urls(3))
    story.join("w2")
    assert answer(story, "reload", reload="r")["waiting"] == ["m1", "w1", "w2"]
    story.handle(m.ConfigReloaded("r", ReloadReport(changed=["log.level: info → error"])))
    story.hear(Reloaded("r", "w1", ReloadReport()))
    assert answer(story, "reloaded", reload="r")["waiting"] == ["w2"]
    story.wait(1.5, lambda: story.beat_all("w1", "w2"))
    assert len(story.bodies(ReloadNode, "w1")) == 1
    assert len(story.bodies(ReloadNode, "w2")) == 2
    story.wait(10.0, lambda: story.beat_all("w1", "w2"))
    view = answer(story, "reloaded", reload="r")
    assert [(row["node"], row["error"]) for row in view["nodes"]] == [
        ("m1", ""),
        ("w1", ""),
        ("w2", "no answer within 10 s"),
    ]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({}, "bad_request"),
        ({"reload": ""}, "bad_request"),
        ({"reload": "x" * 65}, "bad_request"),
        ({"reload": "r", "node": "w9"}, "no_such_node"),
    ],
)
def test_a_bad_reload_is_refused(args: dict[str, Any], code: str) -> None:
    """A name that nobody has, once every worker must have joined."""
    story = leading(*urls(3))
    story.wait(5.0, story.beat)
    reply = story.ask("reload", **args)
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, code)


def test_a_deleted_run_is_cancelled_again_while_a_worker_holds_requests() -> None:
    """One lost message would let it fetch on; after three seconds it has surely heard."""
    story = leading(*urls(3))
    held = [(1, assignment.n, True) for assignment in story.assigned()]
    assert held
    answer(story, "act", ref="1", action="delete")
    assert story.bodies(Cancel)[-1].runs == [1]
    before = len(story.bodies(Cancel))
    story.wait(2.0, lambda: story.beat(held=held))
    assert len(story.bodies(Cancel)) > before
    assert {tuple(body.runs) for body in story.bodies(Cancel)[before:]} == {(1,)}
    story.wait(2.0, lambda: story.beat(held=held))
    before = len(story.bodies(Cancel))
    story.wait(2.0, lambda: story.beat(held=held))
    assert len(story.bodies(Cancel)) == before


def test_a_run_that_goes_on_again_is_not_cancelled() -> None:
    """A late CANCEL would take its requests away from the worker."""
    story = leading(*urls(1))
    (assignment,) = story.assigned()
    story.report(result_of(assignment, **FAILED, retry=RetryClass.PERMANENT))
    assert story.states() == {assignment.url: "DEAD"}
    answer(story, "act", ref="1", action="retry")
    before = len(story.bodies(Cancel))
    story.wait(2.0, lambda: story.beat(held=[(1, 2, True)]))
    assert len(story.bodies(Cancel)) == before


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
