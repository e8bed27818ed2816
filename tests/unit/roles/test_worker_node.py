"""The process that watches a host's workers: what goes wrong around it must not end them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from zcrawl.config import Config, resolve
from zcrawl.coord.ports import (
    Condition,
    Health,
    MastersChanged,
    Member,
    MemberRole,
    OnEvent,
    Sighting,
)
from zcrawl.mesh.ports import Endpoints
from zcrawl.roles import worker_files
from zcrawl.roles.worker_node import WorkerNode
from zcrawl.runtime.notify import Notify
from zcrawl.telemetry.logs.files import EventLog

ENDPOINTS = Endpoints("m1", "tcp://10.0.0.1:1", "tcp://10.0.0.1:2", "tcp://10.0.0.1:3")


class SlowToLeave:
    """A coordinator whose farewell waits for those of the others."""

    def __init__(self, together: asyncio.Barrier) -> None:
        self._together = together

    def start(self, me: Member, on_event: OnEvent) -> None: ...

    def loop_alive(self) -> None: ...

    def update(self, condition: Condition) -> None: ...

    def resign(self) -> None: ...

    async def close(self) -> None:
        await self._together.wait()


def node(data: Path, notes: list[str], coordinator: Any = None) -> WorkerNode:
    def log(name: str, detail: str = "") -> None:
        notes.append(name)

    return WorkerNode(Config(), data, 3, log, Notify(), coordinator=coordinator)  # type: ignore[arg-type]


async def test_a_configuration_that_changes_before_there_are_processes_is_used(
    tmp_path: Path,
) -> None:
    """SIGHUP may come while the node still asks Consul whether its name is free."""
    log = EventLog(tmp_path / "log", "w")
    new = resolve("[worker]\nslots = 5\n", "x", {}).config
    worker = WorkerNode(Config(), tmp_path, 1, log, Notify(), coordinator=None, read=lambda: new)
    worker.reload()
    log.close()
    assert worker._spec(7)["slots"] == 5


async def test_all_workers_leave_the_catalogue_at_once(tmp_path: Path) -> None:
    """While Consul is away each farewell takes a second, and a host may have a hundred cores."""
    together = asyncio.Barrier(3)
    worker = node(tmp_path, [], lambda: SlowToLeave(together))
    for id in worker.ids:
        worker._register(id)
    async with asyncio.timeout(60):
        await worker._leave_catalogue()


async def test_masters_that_cannot_be_written_down_are_told(tmp_path: Path) -> None:
    """A full disk, or a folder that is gone: the workers go on with the masters they know."""
    notes: list[str] = []
    worker = node(tmp_path / "gone", notes)
    member = Member(MemberRole.MASTER, "m1", "c", "1", "here", 7, 9, endpoints=ENDPOINTS)
    seen = Sighting(member, Health.PASSING, leads=True, condition=Condition())
    worker._on_coordination(worker.ids[0], MastersChanged((seen,)))
    assert notes == ["masters_not_kept"]


def test_a_pulse_that_cannot_be_left_ends_no_worker(tmp_path: Path) -> None:
    """It is taken for silent, which the catalogue shows."""
    worker_files.touch(tmp_path / "gone", "w1")
    pulses = worker_files.Pulses(tmp_path / "gone")
    assert pulses.is_alive("w1", 0.0)
    assert not pulses.is_alive("w1", worker_files.SILENT_S)
