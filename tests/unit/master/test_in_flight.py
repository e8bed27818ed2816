"""One meaning of "in flight": fetching, waiting at a worker, uncommitted, the same everywhere."""

from __future__ import annotations

from typing import Any

from tests.unit.desk_tools import answer
from tests.unit.machine_tools import LeaderStory, result_of, spec, urls
from zcrawl.model.spec import Politeness
from zcrawl.store.commands import ApplyResults

FAST = Politeness(robots=False, rate=0, concurrency=4)
THREE = ("fetching", "waiting", "uncommitted")


def numbers(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[name] for name in THREE)


def busy() -> LeaderStory:
    """A worker with four requests: one is fetched, two wait, the result of one is not committed."""
    story = LeaderStory().elect()
    story.submit(*urls(9), of=spec(FAST))
    story.join("w1", slots=4)
    story.tick()
    story.hold = lambda what: isinstance(what, ApplyResults)
    first, *others = story.assigned("w1")[:4]
    story.report(result_of(first))
    held = [(1, assignment.n, n == 0) for n, assignment in enumerate(others)]
    story.beat("w1", held=held, running=1, waiting=2, produced=1)
    story.tick()
    return story


def test_every_display_has_the_same_three_numbers() -> None:
    """Snapshot, job, hosts, queues by job, tag and host, and the lanes of a run agree."""
    story = busy()
    snapshot = story.leader.current_snapshot(story.now)
    (run,), (worker,) = snapshot.runs, snapshot.workers
    shown = (run.fetching, run.waiting, run.uncommitted)
    assert (run.fetching, run.uncommitted) == (1, 1)
    assert run.in_flight == sum(shown)
    assert run.queued + run.in_flight == 9
    assert (worker.running, worker.uncommitted) == (1, 1)
    assert worker.running <= worker.slots
    job = answer(story, "job", ref="job")
    assert numbers(job) == numbers(job["runs"][0]) == shown
    questions: tuple[tuple[str, dict[str, Any]], ...] = (
        ("hosts", {}),
        ("lanes", {"run": 1}),
        *(("queues", {"by": by}) for by in ("job", "tag", "host")),
    )
    for op, args in questions:
        (row,) = answer(story, op, **args)["rows"]
        assert numbers(row) == shown, (op, args)


def test_a_request_in_flight_says_which_of_the_three_it_is() -> None:
    """The list of open requests uses the same words."""
    rows = answer(busy(), "in_flight")["rows"]
    states = [row["state"] for row in rows]
    assert (states.count("fetching"), states.count("uncommitted")) == (1, 1)
    assert set(states) == set(THREE)


def test_a_worker_that_has_finished_since_its_heartbeat_is_not_counted_twice() -> None:
    """Fetching is never more than the open requests."""
    story = busy()
    for assignment in story.assigned("w1")[1:]:
        story.publish(result_of(assignment))
    run = story.leader.current_snapshot(story.now).runs[0]
    assert run.uncommitted == len(story.assigned("w1"))
    assert (run.fetching, run.waiting) == (0, 0)


def test_a_drained_worker_is_drained_when_it_has_finished() -> None:
    """Until then it is draining; undrained, it works again."""
    story = LeaderStory().elect()
    story.submit(*urls(9), of=spec(FAST))
    story.join("w1", slots=4)
    story.tick()
    leases = story.assigned("w1")
    assert answer(story, "drain", node="w1")["state"] == "draining"
    for assignment in leases:
        story.report(result_of(assignment))
    story.beat("w1", produced=len(leases))
    story.tick()
    (view,) = answer(story, "nodes")["workers"]
    assert (view["state"], view["drained"]) == ("drained", True)
    assert answer(story, "undrain", node="w1")["state"] == "idle"


def test_a_deleted_job_vanishes_from_the_snapshot() -> None:
    """Its rows may still be swept; no display shows it."""
    story = LeaderStory().elect()
    story.submit(*urls(3), of=spec(FAST))
    answer(story, "act", ref="job", action="delete")
    assert story.leader.current_snapshot(story.now).runs == ()


def test_the_cpu_of_a_worker_and_of_the_leader_is_shown() -> None:
    """A worker of an older version reports none: None, not 0."""
    story = LeaderStory().elect()
    story.join("w1")
    story.beat("w1", cpu_percent=42.5)
    snapshot = story.leader.current_snapshot(story.now)
    assert snapshot.workers[0].cpu_percent == 42.5
    assert snapshot.process.cpu_percent is None
