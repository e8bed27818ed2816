"""Simulated clusters whose masters limit how many tasks that need a label run at a time.

The bound is checked at the starts and ends of the tasks at the workers, not at the leader's counts.
A worker that was lost may still run what others have got since. So the bound holds in worlds in
which leaders change, and in those full of faults each task is done once.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from tests.simulation.worlds import run_world
from zcrawl.dispatch.label_limits import LabelLimits
from zcrawl.dispatch.task_planner import TaskPlanner
from zcrawl.model.spec import Fetch, JobSpec, Placement
from zcrawl.testing.faults import CALM, LEADER_CHANGES_ONLY, Faults, draw
from zcrawl.testing.tasks import TaskJob
from zcrawl.testing.verify import nothing_was_fetched_twice
from zcrawl.testing.world import World

LIMITS = {"gpu": 3, "licence": 1}
LABELS = (("gpu", "licence"),) * 3


def job(name: str, *require: str, after_s: float = 0.2, tasks: int = 12) -> TaskJob:
    spec = JobSpec(
        name, kind="sim", placement=Placement(require), fetch=Fetch(retries=4, timeout=10.0)
    )
    return TaskJob(spec, tasks, after_s=after_s, takes_s=4.0, good=True)


JOBS = (
    job("first", "gpu"),
    job("second", "gpu", after_s=3.0),
    job("third", "gpu", after_s=9.0),
    job("both", "gpu", "licence", tasks=4),
    job("free"),
)


def run_limited(seed: int, faults: Faults, *checks: Callable[[World], None]) -> World:
    options: dict[str, Any] = {"tasks": JOBS, "labels": LABELS, "label_limits": LIMITS}
    return run_world(seed, faults, *checks, pages=4, runs=1, **options)


def labels_keep_their_limits(world: World) -> None:
    for label, limit in LIMITS.items():
        most = world.tasks.most_with_label(label)
        assert most <= limit, f"{most} tasks ran at a time that need {label}"


def test_without_faults_the_limits_are_kept_and_used() -> None:
    """Over three workers with three slots each, and four jobs."""
    for seed in range(20):
        world = run_limited(seed, CALM, labels_keep_their_limits, nothing_was_fetched_twice)
        assert world.tasks.most_with_label("gpu") == LIMITS["gpu"]
        everything = [run for run, job in world.tasks.runs.items() if job.spec.name == "free"]
        assert world.tasks.most_at_a_time(everything[0]) > LIMITS["gpu"]


@pytest.mark.parametrize("first", [0, 50])
def test_a_new_leader_keeps_the_limits_with_the_tasks_that_it_adopts(first: int) -> None:
    """Workers bring their tasks with HELLO, and jobs are submitted meanwhile."""
    for seed in range(first, first + 50):
        run_limited(seed, LEADER_CHANGES_ONLY, labels_keep_their_limits)


@pytest.mark.parametrize("first", [0, 50])
def test_under_all_faults_each_task_is_done(first: int) -> None:
    """No task waits for ever for room. The leader asserts its own counts."""
    for seed in range(first, first + 50):
        run_limited(seed, draw(random.Random(seed)))


# ---------------------------------------------------------------- bugs planted on purpose


@contextlib.contextmanager
def count_only_what_this_leader_has_sent() -> Iterator[None]:
    """Tasks that workers bring with their HELLO are not counted."""

    def careless(self: LabelLimits) -> dict[str, int]:
        counts = dict.fromkeys(self.limits, 0)
        for seq, labels in self._sent.items():
            for label in labels if self._leases.holds(seq) else ():
                counts[label] += 1
        return counts

    with mock.patch.object(LabelLimits, "running", careless):
        yield


@contextlib.contextmanager
def count_each_job_alone() -> Iterator[None]:
    """The limit of a label is used as one of each job."""

    def careless(self: LabelLimits, run: int, counts: Any = None) -> str:
        mine = self._leases.by_lane.get((run, 0), 0)
        return next((name for name in self.labels_of(run) if mine >= self.limits[name]), "")

    with (
        mock.patch.object(LabelLimits, "obstacle", careless),
        mock.patch.object(LabelLimits, "check", lambda self: None),
    ):
        yield


@contextlib.contextmanager
def forget_the_runs_that_wait() -> Iterator[None]:
    """A run that waits for room is not looked at again."""
    with mock.patch.object(TaskPlanner, "_wake_label_waiting", lambda self: None):
        yield


PLANTED = (
    count_only_what_this_leader_has_sent,
    count_each_job_alone,
    forget_the_runs_that_wait,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """In the first hundred worlds in which leaders change."""
    with plant(), pytest.raises(AssertionError):
        for seed in range(100):
            run_limited(seed, LEADER_CHANGES_ONLY, labels_keep_their_limits)
