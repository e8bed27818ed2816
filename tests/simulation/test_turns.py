"""No run starves beside others of the same priority, and a higher priority goes first.

Every request that a leader sends is watched: a run that could have sent one in its place waits for
a bounded number of turns. The bound holds in worlds full of faults; planted bugs break it.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from tests.simulation.test_task_worlds import job
from tests.simulation.worlds import run_world
from zcrawl.dispatch.gates import could_start
from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.planner import Planner
from zcrawl.dispatch.task_planner import TaskPlanner
from zcrawl.model.rows import QueuedRow
from zcrawl.model.spec import Politeness
from zcrawl.testing.faults import CALM, draw
from zcrawl.testing.tasks import TaskJob
from zcrawl.testing.world import World

MOST_TURNS = 8  # of others, in a row; there are at most four runs on a host
SLOW = Politeness(rate=4, concurrency=2, robots=False)
TASKS = (
    TaskJob(job("first"), tasks=40, good=True),
    TaskJob(job("second"), tasks=40, good=True),
    TaskJob(job("urgent", priority=10), tasks=10, good=True, after_s=1.0),
    TaskJob(job("idle", priority=-10), tasks=5, good=True, after_s=0.8),
)


@contextlib.contextmanager
def watched() -> Iterator[Counter[str]]:
    """Watch every request that is sent; count what was compared."""
    send, send_task = Planner._send, Planner._send_task
    waits: Counter[tuple[int, int, int]] = Counter()  # (planner, host, run) → turns of others
    seen: Counter[str] = Counter()

    def check(self: Planner, worker: Any, row: QueuedRow, verdict: str) -> None:
        host = self.hosts.get(row.host)
        runs = self.tasks.runs if host is None else host.runs
        for run in runs if not (verdict or row.crashes) else ():
            ready = self.frontier.has_ready((run, row.host))
            if run == row.run or not ready or not could_start(self.gates._tables, run, worker):
                continue
            if host is not None and ((run, host.id) in self.leases.by_lane) != (
                (row.run, host.id) in self.leases.by_lane
            ):
                continue  # the one without a request there goes first, whatever its turn
            if host is None and (
                self.tasks._task_runs[run].is_inherited or not self.tasks._has_room(run)
            ):
                continue
            mine, its = self._priority(run), self._priority(row.run)
            seen["compared"] += 1
            assert mine <= its or row.seq in suspects, f"{row} goes before run {run}"
            if mine == its:
                waits[(id(self), row.host, run)] += 1
                number = waits[(id(self), row.host, run)]
                assert number <= MOST_TURNS, f"run {run} waits at host {row.host} for ever"
        waits[(id(self), row.host, row.run)] = 0

    def checked(
        self: Planner,
        host: Any,
        worker: Any,
        part: Any,
        row: QueuedRow,
        now: float,
        verdict: str = "",
        **more: Any,
    ) -> None:
        check(self, worker, row, verdict)
        send(self, host, worker, part, row, now, verdict, **more)

    def checked_task(self: Planner, worker: Any, row: QueuedRow, now: float, verdict: str) -> None:
        check(self, worker, row, verdict)
        send_task(self, worker, row, now, verdict)

    suspects: set[int] = set()
    put_on_trial = Planner.put_on_trial

    def suspected(self: Planner, row: QueuedRow, alone: bool) -> None:
        suspects.add(row.seq)
        put_on_trial(self, row, alone)

    with (
        mock.patch.object(Planner, "_send", checked),
        mock.patch.object(Planner, "_send_task", checked_task),
        mock.patch.object(Planner, "put_on_trial", suspected),
    ):
        yield seen


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_runs_of_equal_priority_take_turns_whatever_happens(first: int) -> None:
    """On hosts and between tasks; a higher priority goes first."""
    with watched() as seen:
        for seed in range(first, first + 25):
            run_world(seed, draw(random.Random(seed)), tasks=TASKS, runs=2, pages=15)
    assert seen["compared"] > 500


def test_an_urgent_job_is_done_before_those_that_came_earlier() -> None:
    """And one of the lowest priority comes last."""
    for seed in range(10):
        world = run_world(seed, CALM, tasks=TASKS, runs=1, pages=5)
        ends = {
            world.tasks.runs[run].spec.name: world.store.tables.runs[run].ended_at
            for run in world.tasks.runs
        }
        assert ends["urgent"] < ends["first"]
        assert ends["urgent"] < ends["second"]
        assert abs(ends["first"] - ends["second"]) < 4.0
        last = [visit.started for visit in world.tasks.visits if visit.url.startswith("idle")]
        assert min(last) > 100.0 + 5.0


# ---------------------------------------------------------------- bugs planted on purpose


@contextlib.contextmanager
def keep_the_first_run_of_a_host_first() -> Iterator[None]:
    """A run that sent a request stays where it is."""
    with mock.patch.object(HostState, "took_turn", lambda self, run: None):
        yield


@contextlib.contextmanager
def keep_the_first_run_of_tasks_first() -> Iterator[None]:
    """All runs have the same turn for ever."""
    dispatch = TaskPlanner._dispatch

    def careless(self: TaskPlanner, run: int, *rest: Any) -> None:
        self._turn = -1
        dispatch(self, run, *rest)

    with mock.patch.object(TaskPlanner, "_dispatch", careless):
        yield


PLANTED = (keep_the_first_run_of_a_host_first, keep_the_first_run_of_tasks_first)


def busy_world(seed: int) -> World:
    return run_world(seed, CALM, tasks=TASKS, runs=2, pages=60, hosts=1, politeness=SLOW)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """A run starves in one of the first worlds."""
    with plant(), watched():
        for seed in range(30):
            try:
                busy_world(seed)
            except AssertionError as error:
                assert "for ever" in str(error)
                return
    raise AssertionError(f"{plant.__name__} was not noticed")


def test_lost_assignments_do_not_move_the_pace_of_a_host_ahead() -> None:
    """Two runs on one host, a worker that hears a third of its messages: each lost assignment took
    a start of the pace, until the host waited for a quarter of an hour."""
    run_world(722, draw(random.Random(722)))
