"""Jobs with schedules in simulated clusters full of faults: whoever leads, each due time starts one
run, and each run of a parent starts one run of its child.

The world goes on until all due times are over and every child has followed its parents.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import msgspec
import pytest

from tests.simulation.worlds import run_world
from zcrawl.master import events as m
from zcrawl.master.firing import Firing
from zcrawl.mesh.messages import ClientRequest
from zcrawl.model.spec import After, Fetch, JobSpec, Schedule, Scope
from zcrawl.model.states import RunCause, RunState
from zcrawl.store.commands import FireJob
from zcrawl.testing.faults import CALM, Faults, draw
from zcrawl.testing.store import firing as fake_firing
from zcrawl.testing.store.tables import FakeRun
from zcrawl.testing.world import START_UTC, World

SEEDS = 24
CHUNK = 6
MOST_SEEDS = 100
FIRST_S, LAST_S = 6.0, 48.0  # due times, since the world began; faults end at 40
EVERY_S = 6
TIMED = ("beat", "lists")  # the jobs with due times
LEADERS_DIE = Faults(
    leader_changes=6,
    master_crashes=4,
    store_fails=0.1,
    store_unknown=0.15,
    longest_delay_s=0.5,
)


class ScheduledWorld(World):
    """A world whose user also submits jobs that run by themselves."""

    def __init__(self, seed: int, faults: Faults, **options: Any) -> None:
        super().__init__(seed, faults, **options)
        self.fired: Counter[tuple[int, float]] = Counter()
        moments = [START_UTC + self.now + moment for moment in (FIRST_S, LAST_S)]
        start, end = (datetime.fromtimestamp(int(at), UTC).isoformat() for at in moments)
        timed = Schedule(every=f"{EVERY_S}s", start=start, end=end, catch_up="all")
        allow = msgspec.structs.replace(timed, overlap="allow")
        after = Schedule(after=(After("lists", "end"),), after_mode="any")
        last = Schedule(after=(After("child", "end"), After("lists", "end")))
        self.specs = [
            self._spec("beat", allow),
            self._spec("lists", msgspec.structs.replace(allow, jitter="3s")),
            self._spec("child", after),
            self._spec("last", last),
        ]
        begin, stop = (int(moment) for moment in moments)
        self.due = [float(due) for due in range(begin, stop + 1, EVERY_S)]
        for spec in self.specs:
            self.at(0.05, lambda spec=spec: self._submit(spec))  # type: ignore[misc]

    def _spec(self, name: str, schedule: Schedule) -> JobSpec:
        return JobSpec(
            name,
            seeds=(self.web.seed,),
            schedule=schedule,
            scope=Scope(hosts=tuple(self.web.hosts), max_depth=0),
            politeness=self.politeness,
            fetch=Fetch(retries=1, timeout=10.0),
            fail_above=1.0,
        )

    def _submit(self, spec: JobSpec) -> None:
        if any(job.name == spec.name for job in self.store.tables.jobs.values()):
            return
        args = {"spec": msgspec.to_builtins(spec), "mode": "new", "no_run": True, "seeds": []}
        request = ClientRequest(f"schedule-{spec.name}", "submit", args)
        for master in self.masters.values():
            self.tell_master(master, m.ClientAsked(request.id.encode(), request))
        self.at(1.0, lambda: self._submit(spec))

    def runs_of(self, name: str) -> list[FakeRun]:
        return [run for run in self.store.tables.runs.values() if run.job.name == name]

    def _finished(self) -> bool:
        if self.now < self.began + LAST_S + 10.0 or not self._all_fired():
            return False
        live = [run for run in self.store.tables.runs.values() if not run.state.ended]
        return not live and super()._finished()

    def _all_fired(self) -> bool:
        jobs = {job.name: job.id for job in self.store.tables.jobs.values()}
        lists = self.runs_of("lists")
        unused = [
            sum((jobs["last"], run.id) not in self.store.tables.run_parents for run in runs)
            for runs in (lists, self.runs_of("child"))
        ]
        followed = all((jobs["child"], run.id) in self.store.tables.run_parents for run in lists)
        fired = all(len(self.runs_of(name)) >= len(self.due_of(name)) for name in TIMED)
        return fired and followed and not all(unused)

    def due_of(self, name: str) -> list[float]:
        """The due times of a job: those after its submission was stored."""
        job = next(job for job in self.store.tables.jobs.values() if job.name == name)
        return [due for due in self.due if due > job.schedule_from]


def each_due_time_started_one_run(world: World) -> None:
    """No due time has two runs, and none is left out."""
    assert isinstance(world, ScheduledWorld)
    for name in TIMED:
        due = sorted(run.start_facts.due_at or 0.0 for run in world.runs_of(name))
        assert due == world.due_of(name), f"{name}: {due}, and due were {world.due_of(name)}"


def each_run_of_a_parent_was_used_once(world: World) -> None:
    """A child has a run for each; the one that waits for both uses each once; chains are named."""
    assert isinstance(world, ScheduledWorld)
    tables = world.store.tables
    lists = {run.id for run in world.runs_of("lists")}
    children = world.runs_of("child")
    starts = Counter(parent for (_, parent), run in tables.run_parents.items() if run)
    assert lists <= set(starts)
    started = [run for run in tables.run_parents.values() if run in {r.id for r in children}]
    assert sorted(started) == sorted(run.id for run in children), "one parent for each"
    assert len(children) == len(lists)
    assert all(run.start_facts.chain in lists for run in (*children, *world.runs_of("last")))
    causes = {run.start_facts.cause for run in children}
    assert causes == {RunCause.DEPENDENCY}


def runs_that_may_not_overlap_do_not(world: World) -> None:
    """A child waits for the end of its own run, so no two of its runs are alive together."""
    assert isinstance(world, ScheduledWorld)
    for name in ("child", "last"):
        spans = sorted((run.created_at, run.ended_at) for run in world.runs_of(name))
        for (_, ended), (created, _) in itertools.pairwise(spans):
            assert created >= ended, f"{name}: {spans}"


CHECKS = (
    each_due_time_started_one_run,
    each_run_of_a_parent_was_used_once,
    runs_that_may_not_overlap_do_not,
)


def run_scheduled(seed: int, faults: Faults) -> World:
    # Pages that kill workers make each of 30 runs slow, one after the other.
    faults = dataclasses.replace(faults, killers=False, pauses_by_operator=0)
    faults = dataclasses.replace(faults, retries=0, drains=0, moves=0)
    with mock.patch("tests.simulation.worlds.World", ScheduledWorld):
        return run_world(seed, faults, *CHECKS, pages=4, hosts=2, runs=1)


def test_a_calm_world_fires_each_job_when_it_is_due() -> None:
    """Within a second of its due time, or of its start with jitter."""
    world = run_scheduled(1, CALM)
    assert isinstance(world, ScheduledWorld)
    for run in world.runs_of("beat"):
        assert 0 <= run.created_at - (run.start_facts.due_at or 0.0) < 1.0
    for run in world.runs_of("lists"):
        assert 0 <= run.created_at - (run.start_facts.due_at or 0.0) < 4.0
    assert world.due_of("beat") == world.due_of("lists") == world.due
    assert all(run.state is RunState.COMPLETED for run in world.store.tables.runs.values())


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_each_due_time_fires_once_in_worlds_full_of_faults(first: int) -> None:
    """Leaders die, sleep and lose their commits around due times."""
    for seed in range(first, first + CHUNK):
        run_scheduled(seed, draw(random.Random(seed)))
        run_scheduled(seed, LEADERS_DIE)


# ---------------------------------------------------------------- bugs planted on purpose


@contextlib.contextmanager
def due_times_are_not_dealt_with() -> Iterator[None]:
    """A run is stored without its due time, so the next leader fires it again."""
    fire_job = fake_firing.fire_job

    def forgetful(tables: Any, command: FireJob) -> Any:
        job = tables.jobs.get(command.job)
        done = job.due_done if job is not None else 0.0
        outcome = fire_job(tables, command)
        if job is not None:
            job.due_done = done
        return outcome

    with mock.patch.object(fake_firing, "fire_job", forgetful):
        yield


@contextlib.contextmanager
def a_new_leader_begins_at_its_own_time() -> Iterator[None]:
    """Due times that passed while nobody led are nobody's."""
    load = Firing.load

    def late(self: Firing, rows: Any, now: float, effects: Any) -> None:
        utc = self._state.utc(now)
        load(self, [msgspec.structs.replace(row, schedule_from=utc) for row in rows], now, effects)

    with mock.patch.object(Firing, "load", late):
        yield


NEVER_BEHIND = property(lambda self: False, lambda *_: None)


@contextlib.contextmanager
def overlap_is_decided_by_memory_alone() -> Iterator[None]:
    """A run whose commit was not answered is not known, and another one starts beside it."""
    command = Firing._command

    def careless(self: Firing, *arguments: Any, **options: Any) -> FireJob:
        return msgspec.structs.replace(command(self, *arguments, **options), beside=None)

    with (
        mock.patch.object(Firing, "_command", careless),
        mock.patch.object(Firing, "_is_behind", NEVER_BEHIND, create=True),
    ):
        yield


@contextlib.contextmanager
def parents_are_used_again() -> Iterator[None]:
    """What a child has used is not stored."""
    fire_job = fake_firing.fire_job

    def forgetful(tables: Any, command: FireJob) -> Any:
        outcome = fire_job(tables, command)
        if tables.sequences.get("runs", 0) % 5 == 0:
            for parent in command.used:
                tables.run_parents.pop((command.job, parent), None)
        return outcome

    with mock.patch.object(fake_firing, "fire_job", forgetful):
        yield


PLANTED = (
    due_times_are_not_dealt_with,
    a_new_leader_begins_at_its_own_time,
    overlap_is_decided_by_memory_alone,
    parents_are_used_again,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """Each breaks a promise in one of the first worlds."""
    with plant():
        for seed in range(MOST_SEEDS):
            try:
                run_scheduled(seed, LEADERS_DIE)
            except AssertionError:
                return
    raise AssertionError(f"no world of {MOST_SEEDS} has caught {plant.__name__}")
