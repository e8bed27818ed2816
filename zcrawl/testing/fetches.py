"""The fetches of simulated workers: visits of the fake web that take time and end.

A part of the world. If a worker got the address of a host, it visits the host only there, like the
real wire; if the host has another address, it reports that and visits nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zcrawl.errors import AddressMoved
from zcrawl.frontier.url import origin_of
from zcrawl.testing.processes import SimWorker
from zcrawl.testing.web import Visit
from zcrawl.worker import events as w
from zcrawl.worker.held_requests import Held
from zcrawl.worker.results.attempt import Attempt

if TYPE_CHECKING:
    from zcrawl.testing.world import World

LONGEST_S = 6.0  # less than the time limit of the world's job


class Fetches:
    def __init__(self, world: World) -> None:
        self._world = world
        self.to_lose = 0  # number of next fetches whose results are lost
        self.lost: set[str] = set()  # URLs that this happened to, each once

    def start(self, worker: SimWorker, held: Held) -> None:
        world, assignment = self._world, held.assignment
        if world.tasks.is_of(assignment.run):
            world.tasks.start(worker, held)
            return
        if held.address is not None:
            address = world.web.address_of(origin_of(assignment.url), world.now)
            if address != held.address:
                attempt = Attempt(assignment).failed_with(AddressMoved(assignment.url, address))
                ended = w.FetchEnded(assignment.seq, attempt)
                world.happens_to(worker, 0.01, lambda: world.tell_worker(worker, ended))
                return
        visit = world.web.start(assignment.url, worker.name, world.now)
        visit.run = assignment.run
        worker.visits[assignment.seq] = visit
        took = world.rng.uniform(0.01, 0.4) if world.rng.random() < 0.9 else LONGEST_S
        took = min(took * worker.slowness, LONGEST_S)
        world.at(took, lambda: self.end_visit(visit))
        world.happens_to(worker, took, lambda: self._fetched(worker, assignment.seq))

    def cancel(self, worker: SimWorker, seq: int) -> None:
        cut = worker.visits.pop(seq, None)
        if cut is not None:
            self.end_visit(cut)

    def end_visit(self, visit: Visit) -> None:
        if visit.ended is None:
            visit.ended = self._world.now

    def _fetched(self, worker: SimWorker, seq: int) -> None:
        world = self._world
        visit = worker.visits.pop(seq, None)
        held = worker.machine.intake.held.get(seq)
        if visit is None or held is None:
            return
        if world.web.page_behind(visit.url).kills:
            world.chaos.crash_worker(worker)
            return
        if self.to_lose and visit.url not in self.lost:
            self.to_lose -= 1
            self.lost.add(visit.url)
            world.trace.append((world.now, f"{worker.name} loses {visit.url}"))
            return
        attempt = world.web.answer(held.assignment, world.now)
        world.tell_worker(worker, w.FetchEnded(seq, attempt))
