"""Simulated clusters with tasks that have no host: under faults each is done once, by priority."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from tests.simulation.worlds import run_world
from zcrawl.dispatch.task_planner import TaskPlanner
from zcrawl.model.rows import QueuedRow
from zcrawl.model.spec import Fetch, JobSpec
from zcrawl.testing.faults import CALM, LEADER_CHANGES_ONLY, LOST_ATTEMPTS_ONLY, Faults, draw
from zcrawl.testing.tasks import TaskJob
from zcrawl.testing.verify import nothing_was_fetched_twice
from zcrawl.testing.world import World
from zcrawl.worker.held_tasks import HeldTasks

SEEDS = 400
CHUNK = 50
MOST_SEEDS = 100


def job(name: str, **options: Any) -> JobSpec:
    return JobSpec(name, kind="sim", fetch=Fetch(retries=4, timeout=10.0), **options)


JOBS = (TaskJob(job("plain")), TaskJob(job("narrow", concurrency=2), tasks=8, after_s=1.0))


def run_tasks(seed: int, faults: Faults, *checks: Callable[[World], None], **more: Any) -> World:
    options = {"tasks": JOBS, "pages": 8, "runs": 1, **more}
    return run_world(seed, faults, *checks, **options)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_each_task_is_done_once_whatever_happens(first: int) -> None:
    """In the same worlds full of faults as crawls, beside a crawl."""
    for seed in range(first, first + CHUNK):
        run_tasks(seed, draw(random.Random(seed)))


@pytest.mark.parametrize("first", range(10_000, 10_100, CHUNK))
def test_a_new_leader_starts_no_task_that_a_live_worker_has(first: int) -> None:
    """Although the database does not say where tasks are: older ones wait for the greetings."""
    for seed in range(first, first + CHUNK):
        run_tasks(seed, LEADER_CHANGES_ONLY, nothing_was_fetched_twice)


def test_without_faults_tasks_use_all_workers_and_keep_the_limit_of_their_job() -> None:
    """Three workers with three slots: nine tasks at a time, and never more than `concurrency`."""
    for seed in range(20):
        tasks = (TaskJob(job("plain"), tasks=60, good=True), *JOBS[1:])
        world = run_tasks(seed, CALM, nothing_was_fetched_twice, tasks=tasks)
        plain, narrow = sorted(world.tasks.runs, key=lambda run: -world.tasks.runs[run].tasks)
        assert world.tasks.most_at_a_time(plain) > 6
        assert world.tasks.most_at_a_time(narrow) == 2
        workers = {visit.worker for visit in world.tasks.visits}
        assert len(workers) == 3


def test_a_task_that_kills_its_worker_is_found_and_the_others_are_done() -> None:
    """It is excused once, then tried alone, and ends as quarantined."""
    for seed in range(40):
        faults = dataclasses.replace(CALM, killers=True)
        run_tasks(seed, faults)


def test_an_attempt_at_a_task_that_a_worker_loses_is_tried_again() -> None:
    """Like an attempt at a page."""
    for seed in range(25):
        run_tasks(seed, LOST_ATTEMPTS_ONLY)


# ---------------------------------------------------------------- bugs planted on purpose


@contextlib.contextmanager
def lease_tasks_before_the_greetings() -> Iterator[None]:
    """A new leader gives tasks away that workers of the old one still run."""
    with mock.patch.object(TaskPlanner, "inherit", lambda self: None):
        yield


@contextlib.contextmanager
def forget_the_jobs_that_wait_for_their_concurrency() -> Iterator[None]:
    """A run at the limit of its job is not looked at again when a task ends."""
    with mock.patch.object(TaskPlanner, "lease_left", lambda self, row: None):
        yield


@contextlib.contextmanager
def forget_the_limit_of_a_job() -> Iterator[None]:
    """As many tasks as there are slots."""
    with mock.patch.object(TaskPlanner, "_has_room", lambda self, run: True):
        yield


@contextlib.contextmanager
def run_a_task_again_at_its_worker() -> Iterator[None]:
    """A worker keeps a task waiting that it has started."""
    start_due = HeldTasks.start_due

    def careless(self: HeldTasks, most: int) -> Iterator[int]:
        for seq in list(start_due(self, most)):
            self._waiting[seq] = 0.0
            yield seq

    with mock.patch.object(HeldTasks, "start_due", careless):
        yield


@contextlib.contextmanager
def excuse_every_suspect() -> Iterator[None]:
    """A task that kills workers is leased again like any other, for ever."""
    with mock.patch.object(TaskPlanner, "excuse", lambda self, seq: True):
        yield


@contextlib.contextmanager
def drop_a_suspect() -> Iterator[None]:
    """A suspect that waits for its trial is lost."""

    def forget(self: TaskPlanner, row: QueuedRow) -> None:
        pass

    with mock.patch.object(TaskPlanner, "put_on_trial", forget):
        yield


PLANTED = (
    lease_tasks_before_the_greetings,
    forget_the_jobs_that_wait_for_their_concurrency,
    forget_the_limit_of_a_job,
    run_a_task_again_at_its_worker,
    excuse_every_suspect,
    drop_a_suspect,
)


def limits_are_kept(world: World) -> None:
    for run, task_job in world.tasks.runs.items():
        most = task_job.spec.concurrency
        assert not most or world.tasks.most_at_a_time(run) <= most


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """Each breaks a promise in one of the first worlds."""
    with plant():
        for seed in range(MOST_SEEDS):
            try:
                run_tasks(seed, LEADER_CHANGES_ONLY, nothing_was_fetched_twice)
                run_tasks(seed, CALM, limits_are_kept)
                run_tasks(seed, dataclasses.replace(CALM, killers=True))
            except AssertionError:
                return
    raise AssertionError(f"{plant.__name__} was not noticed in {MOST_SEEDS} worlds")
