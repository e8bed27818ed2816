"""The faults of a simulated world: crashes, pauses, partitions, at times given by the seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zcrawl.mesh.messages import Beat, Body, Stale
from zcrawl.model.reasons.cluster import STALE_EPOCH
from zcrawl.testing.processes import Process, SimMaster, SimWorker

if TYPE_CHECKING:
    from zcrawl.testing.world import World

BOGUS_EPOCH = 1 << 40
ABSENCE_S = 45.0  # more than the stored lease (20 s) and the timeout of the world's job (10 s)


class Chaos:
    def __init__(self, world: World) -> None:
        self._world = world
        self._life_serial = 1

    def plan(self) -> None:
        rng, faults = self._world.rng, self._world.faults
        plans: list[tuple[int, Callable[[], None]]] = [
            (faults.worker_crashes, lambda: self.crash_worker(self._any(self._world.workers))),
            (faults.worker_pauses, lambda: self._pause(self._any(self._world.workers))),
            (faults.master_crashes, lambda: self._crash_master(self._any(self._world.masters))),
            (faults.master_pauses, lambda: self._pause(self._any(self._world.masters))),
            (faults.absences, self._leave_without_masters),
            (faults.leader_changes, self._world.pass_lock),
            (faults.partitions, self._partition),
            (faults.stalls, self._stall),
            (faults.pauses_by_operator, self._world.clients.pause_run),
            (faults.drains, self._world.operators.drain),
            (faults.moves, self._world.operators.move_host),
            (faults.retries, self._world.operators.retry),
            (faults.deaf_workers, self._deafen),
            (faults.bogus_epochs, self._bogus_epoch),
            (faults.lost_attempts, self._lose_an_attempt),
        ]
        for name in list(self._world.workers)[: faults.deaf_for_ever]:
            self._world.deaf[name] = float("inf")
        for count, action in plans:
            for _ in range(count):
                self._world.at(rng.uniform(0.5, faults.until_s), action)

    def _any(self, processes: dict[str, SimWorker] | dict[str, SimMaster]) -> Process:
        return self._world.rng.choice(list(processes.values()))

    def crash_worker(self, process: Process) -> None:
        if not process.alive or not isinstance(process, SimWorker):
            return
        self._world.trace.append((self._world.now, f"{process.name} crashes"))
        for visit in process.visits.values():
            self._world.fetches.end_visit(visit)
        process.visits.clear()
        self._end(process)
        supervised = self._world.rng.random() < 0.7
        old = process.machine.incarnation

        def restart() -> None:
            self._life_serial += 1
            if not supervised:
                process.node_life += 1
                self._world.operators.started_anew(process.name)
            process.begin_process(self._life_serial, old if supervised else 0)
            self._begin(process)

        self._world.at(self._world.rng.uniform(0.1, 2.0), restart)

    def _leave_without_masters(self) -> None:
        for master in self._world.masters.values():
            self._crash_master(master, ABSENCE_S)

    def _crash_master(self, process: Process, away_s: float = 0.0) -> None:
        if not process.alive or not isinstance(process, SimMaster):
            return
        self._world.trace.append((self._world.now, f"{process.name} crashes"))
        self._end(process)
        process.commands.clear()
        process.writing = False

        def restart() -> None:
            process.begin_process()
            self._begin(process)

        self._world.at(away_s + self._world.rng.uniform(0.1, 3.0), restart)

    def _end(self, process: Process) -> None:
        process.alive = False
        process.life += 1
        process.waiting.clear()
        process.paused_until = 0.0
        self._world.wakes.pop(process.name, None)

    def _begin(self, process: Process) -> None:
        process.alive = True
        self._world.wake(process, 0.0)

    def _pause(self, process: Process) -> None:
        if process.alive and process.paused_until <= self._world.now:
            self.pause(process, self._world.rng.choice([2.0, 5.0, 12.0, 20.0]))

    def pause(self, process: Process, for_s: float) -> None:
        if not process.alive or process.paused_until > self._world.now:
            return
        self._world.trace.append((self._world.now, f"{process.name} is paused for {for_s} s"))
        process.paused_until = self._world.now + for_s
        life = process.life

        def resume() -> None:
            if process.life == life:
                waiting, process.waiting = process.waiting, []
                for action in waiting:
                    action()

        self._world.at(for_s, resume)

    def _deafen(self) -> None:
        """Make a worker deaf: it receives nothing from masters, but still sends."""
        worker = self._any(self._world.workers)
        until = self._world.now + self._world.rng.choice([2.0, 8.0, 30.0])
        self._world.trace.append((self._world.now, f"{worker.name} is deaf until {until}"))
        self._world.deaf[worker.name] = max(until, self._world.deaf.get(worker.name, 0.0))

    def _lose_an_attempt(self) -> None:
        self._world.fetches.to_lose += 1

    def _bogus_epoch(self) -> None:
        worker = self._any(self._world.workers)
        if worker.alive and isinstance(worker, SimWorker):
            bodies: list[Body] = [Stale(STALE_EPOCH), Beat(worker.name, 1.0, {})]
            self._world.publish(worker, BOGUS_EPOCH, self._world.rng.choice(bodies))

    def _a_link(self) -> tuple[Process, Process]:
        """Return a random link between a master and another process."""
        master = self._any(self._world.masters)
        others = {**self._world.workers, **self._world.masters}
        del others[master.name]
        return master, self._world.rng.choice(list(others.values()))

    def _stall(self) -> None:
        """Stall a link, one way or both, like lost packets on a connection that stays open."""
        world = self._world
        master, other = self._a_link()
        until = world.now + world.rng.choice([4.0, 15.0, 30.0])
        ways = [(master.name, other.name), (other.name, master.name)]
        for source, target in world.rng.choice([ways, ways[:1], ways[1:]]):
            world.trace.append((world.now, f"{source} to {target} stalls until {until}"))
            world.stalls[source, target] = until

    def _partition(self) -> None:
        master, other = self._a_link()
        until = self._world.now + self._world.rng.choice([1.0, 4.0, 15.0])
        self._world.trace.append(
            (self._world.now, f"{master.name} and {other.name} are cut until {until}")
        )
        self._world.cuts[frozenset((master.name, other.name))] = until
