"""Simulated clusters whose workers have labels: every job that some worker serves is done.

Two jobs need different workers for one host. If its concurrency allows it they share the host,
otherwise they have it in turn. The host is never asked more at a time than it may (G5).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from tests.simulation.worlds import run_world
from zcrawl.dispatch import candidates as candidates_module
from zcrawl.dispatch.candidates import Candidates
from zcrawl.dispatch.placement import can_serve
from zcrawl.model.spec import Fetch, JobSpec, Placement, Politeness
from zcrawl.testing.faults import CALM, LEADER_CHANGES_ONLY, draw
from zcrawl.testing.tasks import TaskJob
from zcrawl.testing.verify import nothing_was_fetched_twice
from zcrawl.testing.world import World

HOST = "http://h0.site.test"
SHARED = Politeness(rate=4, concurrency=2, robots=False)
SINGLE = Politeness(rate=4, concurrency=1, robots=False)
GROUPED = Politeness(rate=4, concurrency=4, domain_rate=3, domain_concurrency=2, robots=False)
KINDS = {"shared": SHARED, "single": SINGLE, "grouped": GROUPED}
LABELS = (("eu",), ("us", "gpu"), ("us",))


def job(name: str, politeness: Politeness, *require: str, tasks: int = 20, **more: Any) -> TaskJob:
    spec = JobSpec(
        name,
        kind="sim",
        politeness=politeness,
        placement=Placement(require),
        fetch=Fetch(retries=4, timeout=10.0),
    )
    return TaskJob(spec, tasks, host=HOST, takes_s=0.4, good=True, **more)


def jobs(politeness: Politeness) -> tuple[TaskJob, ...]:
    return (
        job("europe", politeness, "eu"),
        job("america", politeness, "us"),
        job("graphics", politeness, "us", "gpu", tasks=8, after_s=2.0),
    )


def run_labels(seed: int, kind: str, faults: Any, *checks: Any, **more: Any) -> World:
    options = {"tasks": jobs(KINDS[kind]), "labels": LABELS, "politeness": KINDS[kind]}
    return run_world(seed, faults, *checks, **{**options, "pages": 4, "runs": 1, **more})


def each_ran_at_a_worker_that_serves_it(world: World) -> None:
    for visit in world.tasks.visits:
        required = set(world.tasks.runs[visit.run].spec.placement.require)
        assert required <= set(world.workers[visit.worker].labels)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [0, 40])
def test_jobs_that_need_different_workers_for_one_host_are_done(kind: str, first: int) -> None:
    """Under all faults: none starves, and the host is treated politely."""
    for seed in range(first, first + 40):
        # A worker that never hears a master cannot do what only it could do.
        faults = dataclasses.replace(draw(random.Random(seed)), deaf_for_ever=0)
        run_labels(seed, kind, faults, each_ran_at_a_worker_that_serves_it)


@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_share_a_host_go_on_under_a_new_leader(kind: str) -> None:
    """Nothing is fetched twice when only leaders change."""
    for seed in range(25):
        run_labels(seed, kind, LEADER_CHANGES_ONLY, nothing_was_fetched_twice)


def longest_wait(world: World) -> float:
    """Return the longest time in which a job with work got nothing, while others did."""
    waits = [0.0]
    for run in world.tasks.runs:
        starts = [visit.started for visit in world.tasks.visits if visit.run == run]
        waits += [later - start for start, later in itertools.pairwise(starts)]
    return max(waits)


def test_a_host_that_can_be_shared_is_shared_at_once() -> None:
    """Both jobs get requests all the time."""
    for seed in range(10):
        world = run_labels(seed, "shared", CALM)
        assert longest_wait(world) < 8.0


def test_a_host_that_cannot_be_shared_has_its_workers_in_turn() -> None:
    """A turn is 30 s at most, and ends when its worker has nothing to do."""
    for seed in range(5):
        long = (job("europe", SINGLE, "eu", tasks=200), job("america", SINGLE, "us", tasks=200))
        world = run_labels(seed, "single", CALM, tasks=long)
        wait = longest_wait(world)
        assert 20.0 < wait < 36.0, wait


def test_a_job_waits_for_a_worker_with_its_label_and_says_so() -> None:
    """The log names the label, and the nearest one that exists."""
    lost = TaskJob(JobSpec("lost", kind="sim", placement=Placement(("eux",))), 3, good=True)
    world = World(1, CALM, tasks=(lost,), labels=LABELS, pages=3, runs=1)

    def label_it() -> None:
        worker = world.workers["w2"]
        worker.labels = ("us", "eux")
        from zcrawl.worker.events import SettingsChanged

        world.tell_worker(worker, SettingsChanged(4, worker.labels))

    world.at(20.0, label_it)
    world.run()
    world.tasks.verify()
    said = [what for _, what in world.trace if "run_unplaced" in what]
    assert len(said) == 1
    assert "no worker with label eux; did you mean 'eu'?" in said[0]
    assert any("run_placed" in what for _, what in world.trace)
    assert min(visit.started for visit in world.tasks.visits) > 120.0


# ---------------------------------------------------------------- bugs planted on purpose


@contextlib.contextmanager
def give_the_host_to_whom_some_run_suits() -> Iterator[None]:
    """As it was: if no worker serves all runs, any of the workers owns the host for good."""

    def careless(self: Candidates, host: Any, usable: list[Any], now: float) -> list[Any]:
        needs = self.needs(host)
        able = [w for w in usable if all(can_serve(run, w) for run in needs)]
        return able or usable

    with mock.patch.object(Candidates, "choose", careless):
        yield


@contextlib.contextmanager
def let_turns_last_for_ever() -> Iterator[None]:
    """The first worker keeps the host while it has work, which does not end."""
    with mock.patch.object(candidates_module, "TURN_S", 1e9):
        yield


PLANTED = (give_the_host_to_whom_some_run_suits, let_turns_last_for_ever)


def nobody_starves(world: World) -> None:
    assert longest_wait(world) < 40.0
    firsts: dict[int, float] = {}
    for visit in world.tasks.visits:
        firsts.setdefault(visit.run, visit.started)
    assert max(firsts.values()) < 100.0 + 50.0, "a job waits for ever"


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_starvation_is_caught(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """One of two jobs gets nothing for long."""
    long = (job("europe", SINGLE, "eu", tasks=300), job("america", SINGLE, "us", tasks=300))
    run_labels(0, "single", CALM, nobody_starves, tasks=long)
    with plant(), pytest.raises(AssertionError):
        for seed in range(20):
            run_labels(seed, "single", CALM, nobody_starves, tasks=long)
