"""Processes of a simulated world: the real machines, in processes that can crash and pause."""

from __future__ import annotations

from collections.abc import Callable

from zcrawl.master.master import Master
from zcrawl.store.commands import Command
from zcrawl.testing.web import Visit
from zcrawl.worker.machine import WorkerMachine


class Process:
    """Something that can crash, be paused and be cut off."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused_until = 0.0
        self.life = 0  # events of an earlier life are void
        self.waiting: list[Callable[[], None]] = []


class SimMaster(Process):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.machine = Master(name, seen_slots=64)
        self.writing = False
        self.commands: list[Command] = []


class SimWorker(Process):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.node_life = 1  # of its supervisor
        self.machine = WorkerMachine(name, 1, slots=4, task_slots=3, life=self.node_life)
        self.visits: dict[int, Visit] = {}

    @property
    def route(self) -> bytes:
        """Return the route of this process; another process of the same name has another one."""
        return f"the line of {self.name} in its life {self.life}".encode()
