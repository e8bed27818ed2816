"""Submissions that wait for a live run, in simulated clusters full of faults: each that was
answered has its run in the end, and only one, whoever leads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import msgspec
import pytest

from tests.simulation.test_schedule_worlds import LEADERS_DIE
from tests.simulation.worlds import run_world
from zcrawl.master import events as m
from zcrawl.master.firing import Firing
from zcrawl.mesh.messages import ClientRequest, Reply
from zcrawl.model.reasons.cluster import START_IS_HELD
from zcrawl.model.spec import Fetch, JobSpec, Schedule, Scope
from zcrawl.model.states import RunCause
from zcrawl.store.commands import FireJob, SubmitJob
from zcrawl.testing.clients import Clients
from zcrawl.testing.faults import CALM, Faults, draw
from zcrawl.testing.store import commands as fake_commands
from zcrawl.testing.store import firing as fake_firing
from zcrawl.testing.store.tables import FakeRun
from zcrawl.testing.world import World

SEEDS = 24
CHUNK = 6
MOST_SEEDS = 100
SUBMISSIONS = 12
PAUSE_S = 3.0  # at most, between two submissions
AGAIN_S = 1.0


class HeldWorld(World):
    """A world with a user who submits one job again and again; its overlap is `queue`."""

    def __init__(self, seed: int, faults: Faults, **options: Any) -> None:
        super().__init__(seed, faults, **options)
        self.spec = JobSpec(
            "queued",
            seeds=(self.web.seed,),
            schedule=Schedule(every="30d", overlap="queue"),
            scope=Scope(hosts=tuple(self.web.hosts), max_depth=0),
            politeness=self.politeness,
            fetch=Fetch(retries=1, timeout=10.0),
            fail_above=1.0,
        )
        self.replies: dict[str, Reply] = {}
        self.at(0.05, lambda: self._submit(0))

    def _submit(self, number: int) -> None:
        args: dict[str, Any] = {"mode": "again", "ref": "queued", "seeds": []}
        if number == 0:
            args = {"spec": msgspec.to_builtins(self.spec), "mode": "new", "seeds": []}
        self._ask(number, ClientRequest(f"queued-{number}", "submit", args))

    def _ask(self, number: int, request: ClientRequest) -> None:
        if request.id in self.replies:
            if number + 1 < SUBMISSIONS:
                self.at(self.rng.uniform(0.0, PAUSE_S), lambda: self._submit(number + 1))
            return
        master = self.rng.choice(list(self.masters.values()))
        if self.copies():
            self.tell_master(master, m.ClientAsked(request.id.encode(), request))
        self.at(AGAIN_S, lambda: self._ask(number, request))

    def take(self, reply: Reply) -> None:
        final = reply.ok or reply.data["code"] in (START_IS_HELD, "name_exists")
        if reply.id.startswith("queued-") and final and self.copies():
            self.replies.setdefault(reply.id, reply)

    def runs_of_job(self) -> list[FakeRun]:
        return [run for run in self.store.tables.runs.values() if run.job.name == "queued"]

    def _finished(self) -> bool:
        """Called after each event: never are two runs of the job alive together."""
        live = [run.id for run in self.runs_of_job() if not run.state.ended]
        assert len(live) < 2, f"runs {live} are alive together"
        jobs = [job for job in self.store.tables.jobs.values() if job.name == "queued"]
        if len(self.replies) < SUBMISSIONS or any(job.held for job in jobs):
            return False
        return all(run.state.ended for run in self.runs_of_job()) and super()._finished()


def each_answered_submission_has_one_run(world: World) -> None:
    """G1: none that was answered is lost. G10: no run has another beside it for one submission."""
    assert isinstance(world, HeldWorld)
    runs = {run.id for run in world.runs_of_job()}
    answered = {
        reply.data.get("held_run") or reply.data["run"]
        for reply in world.replies.values()
        if reply.ok
    }
    assert answered <= runs, f"lost: {answered - runs}"
    answers = world.store.tables.answers
    submitted = [answer.run for id, answer in answers.items() if id.startswith("queued-")]
    assert sorted(submitted) == sorted(runs), "one run for each submission"
    assert {run.start_facts.cause for run in world.runs_of_job()} == {RunCause.SUBMITTED}


def run_held(seed: int, faults: Faults) -> HeldWorld:
    # Retries reopen runs, and pauses and killed workers make each run slow.
    faults = dataclasses.replace(faults, killers=False, pauses_by_operator=0)
    faults = dataclasses.replace(faults, retries=0, drains=0, moves=0)
    take = Clients.take

    def heard(self: Clients, reply: Reply) -> None:
        take(self, reply)
        assert isinstance(self._world, HeldWorld)
        self._world.take(reply)

    with (
        mock.patch("tests.simulation.worlds.World", HeldWorld),
        mock.patch.object(Clients, "take", heard),
    ):
        world = run_world(
            seed, faults, each_answered_submission_has_one_run, pages=4, hosts=2, runs=1
        )
    assert isinstance(world, HeldWorld)
    return world


def held_in(world: HeldWorld) -> int:
    """How many submissions were answered with `held`."""
    return sum(reply.ok and "held" in reply.data for reply in world.replies.values())


def test_a_calm_world_holds_submissions() -> None:
    """And refuses those that come while one is held: both happen, so the worlds test something."""
    worlds = [run_held(seed, CALM) for seed in range(CHUNK)]
    assert sum(map(held_in, worlds)) > 0
    assert any(not reply.ok for world in worlds for reply in world.replies.values())


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_each_held_submission_starts_once_in_worlds_full_of_faults(first: int) -> None:
    """Leaders die, sleep and lose their commits while submissions are held."""
    for seed in range(first, first + CHUNK):
        run_held(seed, draw(random.Random(seed)))
        run_held(seed, LEADERS_DIE)


# ---------------------------------------------------------------- bugs planted on purpose


@contextlib.contextmanager
def a_held_submission_stays_after_its_start() -> Iterator[None]:
    """The leader that started it knows better; the next one starts it again."""
    fire_job = fake_firing.fire_job

    def forgetful(tables: Any, command: FireJob) -> Any:
        job = tables.jobs.get(command.job)
        held = job.held if job is not None else None
        outcome = fire_job(tables, command)
        if held is not None and outcome.row is not None and command.held_run:
            job.held = msgspec.structs.replace(held, run=tables.next_id("runs"))
        return outcome

    with mock.patch.object(fake_firing, "fire_job", forgetful):
        yield


@contextlib.contextmanager
def a_held_submission_is_only_in_memory() -> Iterator[None]:
    """Its client has the answer, and the next leader knows nothing of it."""
    submit_job = fake_commands.submit_job

    def forgetful(tables: Any, command: SubmitJob) -> Any:
        outcome = submit_job(tables, command)
        if outcome.held_run and outcome.definition is not None:
            tables.jobs[outcome.job].held = None
        return outcome

    with mock.patch.object(fake_commands, "submit_job", forgetful):
        yield


@contextlib.contextmanager
def the_leader_decides_by_its_memory() -> Iterator[None]:
    """A held submission starts beside a run that only the store knows."""
    fire_job = fake_firing.fire_job

    def careless(tables: Any, command: FireJob) -> Any:
        return fire_job(tables, msgspec.structs.replace(command, beside=None))

    with (
        mock.patch.object(fake_firing, "fire_job", careless),
        mock.patch.object(Firing, "_live", lambda self, job: []),
    ):
        yield


PLANTED = (
    a_held_submission_stays_after_its_start,
    a_held_submission_is_only_in_memory,
    the_leader_decides_by_its_memory,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """Each breaks a promise in one of the first worlds."""
    with plant():
        for seed in range(MOST_SEEDS):
            try:
                run_held(seed, LEADERS_DIE)
            except AssertionError:
                return
    raise AssertionError(f"no world of {MOST_SEEDS} has caught {plant.__name__}")
