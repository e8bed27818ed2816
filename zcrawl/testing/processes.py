"""Processes of a simulated world: the real machines, in processes that can crash and pause."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zcrawl.master.master import Master
from zcrawl.store.commands import Command
from zcrawl.testing.web import Visit
from zcrawl.worker.events import WorkerTicked
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
    def __init__(self, name: str, label_limits: Mapping[str, int] | None = None) -> None:
        super().__init__(name)
        self._label_limits = label_limits
        self.begin_process()
        self.writing = False
        self.commands: list[Command] = []

    def begin_process(self) -> None:
        """Start a process of this master."""
        self.machine = Master(self.name, seen_slots=64, label_limits=self._label_limits)


class SimWorker(Process):
    def __init__(self, name: str, labels: tuple[str, ...] = ()) -> None:
        super().__init__(name)
        self.node_life = 1  # of its supervisor
        self.labels = labels
        self.slowness = 1.0  # its fetches take so many times as long
        self.measured = WorkerTicked()  # what its clock tells the machine about the process
        self.begin_process(1, 0)
        self.visits: dict[int, Visit] = {}

    def begin_process(self, incarnation: int, replaces: int) -> None:
        """Start a process of this worker."""
        self.machine = WorkerMachine(
            self.name,
            incarnation,
            slots=4,
            task_slots=3,
            labels=self.labels,
            replaces=replaces,
            life=self.node_life,
        )

    @property
    def route(self) -> bytes:
        """Return the route of this process; another process of the same name has another one."""
        return f"the line of {self.name} in its life {self.life}".encode()
