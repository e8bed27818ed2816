"""The tasks of a simulated world: jobs that are no crawls, and what their tasks do.

A part of the world. Its tasks have no host, so they test the task planner under all faults. What
they do comes from a generator of their own, so that the stories of crawls stay the same.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from collections import Counter
from typing import TYPE_CHECKING

from zcrawl.errors import RetryClass
from zcrawl.master import events as m
from zcrawl.mesh.messages import ClientRequest, PageRecord, Reply
from zcrawl.model.reasons.failure import EXECUTOR_ERROR, QUARANTINED
from zcrawl.model.rows import NO_HOST
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import RequestState
from zcrawl.submit.read import to_dict
from zcrawl.testing.processes import SimWorker
from zcrawl.testing.web import Visit
from zcrawl.worker import events as w
from zcrawl.worker.held_requests import Held
from zcrawl.worker.results.attempt import Attempt

if TYPE_CHECKING:
    from zcrawl.testing.world import World

AGAIN_S = 2.0
SLACK_S = 1e-6


@dataclasses.dataclass(frozen=True)
class TaskJob:
    """A job of the world that is submitted when the world is `after_s` old."""

    spec: JobSpec
    tasks: int = 12
    after_s: float = 0.2
    takes_s: float = 2.0  # a task at most
    good: bool = False  # no task fails or kills its worker
    host: str = ""  # its tasks are URLs of this host, instead of ids


class SimTasks:
    def __init__(self, world: World, seed: int, jobs: tuple[TaskJob, ...]) -> None:
        self.jobs = jobs
        self.visits: list[Visit] = []
        self.runs: dict[int, TaskJob] = {}
        self._world = world
        self._rng = random.Random(f"tasks {seed}")
        self._tries: Counter[tuple[int, str]] = Counter()
        self._fails = {
            (number, id): self._fate(job) for number, job in enumerate(jobs) for id in _ids(job)
        }
        self._number_of: dict[int, int] = {}  # run → number of its job

    def _fate(self, job: TaskJob) -> str:
        dice = self._rng.random()
        if job.good or dice > 0.25:
            return ""
        if dice > 0.2 and self._world.faults.killers:
            return "kills"
        return "dead" if dice > 0.15 else "fails first"

    # ------------------------------------------------------------ submissions

    def begin(self) -> None:
        for number, job in enumerate(self.jobs):
            self._world.at(job.after_s, functools.partial(self._submit, number))

    def _submit(self, number: int) -> None:
        if number in self._number_of.values():
            return
        job = self.jobs[number]
        args = {"spec": to_dict(job.spec), "mode": "new", "seeds": _ids(job), "seeding": False}
        request = ClientRequest(f"tasks-{number}", "submit", {**args, "output": None})
        master = self._rng.choice(list(self._world.masters.values()))
        self._world.tell_master(master, m.ClientAsked(request.id.encode(), request))
        self._world.at(AGAIN_S, lambda: self._submit(number))

    def take(self, reply: Reply) -> None:
        kind, _, number = reply.id.partition("-")
        if kind == "tasks" and reply.ok:
            run = reply.data["run"]
            self.runs[run], self._number_of[run] = self.jobs[int(number)], int(number)

    @property
    def done(self) -> bool:
        runs = self._world.store.tables.runs
        ended = all(run in runs and runs[run].state.ended for run in self.runs)
        return len(self.runs) == len(self.jobs) and ended

    # ------------------------------------------------------------ at workers

    def start(self, worker: SimWorker, held: Held) -> None:
        world, assignment = self._world, held.assignment
        host = str(assignment.run)
        visit = Visit(assignment.url, host, worker.name, world.now, run=assignment.run)
        if assignment.host != NO_HOST:
            visit = world.web.start(assignment.url, worker.name, world.now)
            visit.run = assignment.run
        self.visits.append(visit)
        worker.visits[assignment.seq] = visit
        job = self._job_of(assignment.run)
        took = self._rng.uniform(0.01, job.takes_s)
        world.at(took, lambda: world.fetches.end_visit(visit))
        world.happens_to(worker, took, lambda: self._ended(worker, assignment.seq, visit))

    def is_of(self, run: int) -> bool:
        """Return whether a run is of one of these jobs."""
        name = self._world.store.tables.runs[run].job.name
        return any(job.spec.name == name for job in self.jobs)

    def _job_of(self, run: int) -> TaskJob:
        name = self._world.store.tables.runs[run].job.name
        return next(job for job in self.jobs if job.spec.name == name)

    def _ended(self, worker: SimWorker, seq: int, visit: Visit) -> None:
        world = self._world
        held = worker.machine.intake.held.get(seq)
        if worker.visits.get(seq) is not visit or held is None:
            return
        del worker.visits[seq]
        assignment = held.assignment
        number = self.jobs.index(self._job_of(assignment.run))
        fate = self._fails[(number, assignment.url)]
        if fate == "kills":
            world.chaos.crash_worker(worker)
            return
        attempt = Attempt(assignment)
        place = (assignment.run, assignment.url)
        self._tries[place] += 1
        if fate == "dead":
            attempt.failed(EXECUTOR_ERROR, RetryClass.PERMANENT)
        elif fate == "fails first" and self._tries[place] == 1:
            attempt.failed(EXECUTOR_ERROR, RetryClass.TRANSIENT)
        else:
            page = PageRecord(assignment.url, None, "", 0, world.now, 1.0)
            attempt.done(page, 0, [json.dumps({"task": assignment.url}).encode()])
        world.tell_worker(worker, w.FetchEnded(seq, attempt))

    # ------------------------------------------------------------ what must be true

    def verify(self) -> None:
        """Each task of each job ended once, with its item if it is done, and with its reason."""
        for run, job in self.runs.items():
            requests = self._world.store.requests(run)
            assert sorted(request.url for request in requests) == sorted(_ids(job))
            items = Counter(json.loads(i.data)["task"] for i in self._world.store.items(run))
            for request in requests:
                fate = self._fails[(self._number_of[run], request.url)]
                done = request.state is RequestState.DONE
                assert items[request.url] == done, f"{request.url}: {items[request.url]} items"
                spoilt = request.seq in self._world.spoilt
                good = fate in ("", "fails first") and not spoilt
                assert done or not good, f"{request.url} ended {request.state}: {request.reason}"
                if fate == "kills" and not spoilt:
                    assert request.reason == QUARANTINED, request.reason

    def none_ran_twice(self) -> None:
        """For worlds in which no worker ever died or was cut off."""
        ran = Counter((visit.run, visit.url) for visit in self.visits)
        for run in self.runs:
            for id in _ids(self.runs[run]):
                fate = self._fails[(self._number_of[run], id)]
                most = 2 if fate == "fails first" else 1
                assert ran[(run, id)] <= most, f"{id} ran {ran[(run, id)]} times"

    def most_at_a_time(self, run: int) -> int:
        """Return how many tasks of a run ran at the same time."""
        return self._most([visit for visit in self.visits if visit.run == run])

    def most_with_label(self, label: str) -> int:
        """Return how many tasks of jobs that need a label ran at the same time."""
        runs = {run for run, job in self.runs.items() if label in job.spec.placement.require}
        return self._most([visit for visit in self.visits if visit.run in runs])

    def _most(self, visits: list[Visit]) -> int:
        return max(
            sum(
                other.started <= visit.started + SLACK_S
                and (other.ended is None or other.ended > visit.started + SLACK_S)
                for other in visits
            )
            for visit in visits
        )


def _ids(job: TaskJob) -> list[str]:
    first = f"{job.host}/{job.spec.name}-" if job.host else f"{job.spec.name} number "
    return [f"{first}{number}" for number in range(job.tasks)]
