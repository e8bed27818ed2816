"""Collect the messages of one planning round: one batch for each worker.

A part of the planner, which decides what is sent. A request gets its lease here, in the same step
as its place in a batch. The leader stores the owners that the plan names, and sends the batches.
"""

from __future__ import annotations

import msgspec

from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.roster import Roster, WorkerInfo
from zcrawl.mesh.messages import Assignment
from zcrawl.model.process_name import ProcessName, worker_of
from zcrawl.model.rows import QueuedRow


class WorkerBatch(msgspec.Struct):
    """The messages for one worker: requests to fetch, and hosts whose grants changed."""

    worker: WorkerInfo
    number: int
    urls: list[Assignment] = msgspec.field(default_factory=list)
    hosts: dict[int, None] = msgspec.field(default_factory=dict)


class DispatchPlan(msgspec.Struct):
    """The result of one planning round: batches to send, and host owners to store first."""

    sendings: dict[ProcessName, WorkerBatch] = msgspec.field(default_factory=dict)
    owners: list[tuple[int, tuple[ProcessName, ...]]] = msgspec.field(default_factory=list)


class Batches:
    """Open leases, and put requests and grants into the batches of the present plan."""

    def __init__(self, epoch: int, roster: Roster, leases: Leases) -> None:
        self._epoch, self._roster, self._leases = epoch, roster, leases
        self.plan = DispatchPlan()

    def begin(self) -> None:
        """Begin a new plan."""
        self.plan = DispatchPlan()

    def add_grant(self, host: HostState, name: ProcessName) -> None:
        """Add the grant of a host for a process, if it is still the current one."""
        worker = self._roster.workers.get(worker_of(name))
        if worker is not None and worker.name == name:
            self._batch_for(worker).hosts[host.id] = None

    def _batch_for(self, worker: WorkerInfo) -> WorkerBatch:
        """Return the batch of a worker in this plan, a new one if it has none."""
        sending = self.plan.sendings.get(worker.name)
        if sending is None:
            sending = self.plan.sendings[worker.name] = WorkerBatch(worker, worker.next_number())
        return sending

    def lease(
        self,
        worker: WorkerInfo,
        row: QueuedRow,
        now: float,
        verdict: str = "",
        *,
        ahead: bool = False,
    ) -> WorkerBatch:
        """Open a lease and return the worker's batch with its assignment."""
        sending = self._batch_for(worker)
        n = self._leases.next_n()
        self._leases.open((self._epoch, n), row, worker, sending.number, now, ahead=ahead)
        sending.urls.append(
            Assignment(
                n=n,
                seq=row.seq,
                run=row.run,
                host=row.host,
                url=row.url,
                depth=row.depth,
                attempt=row.attempts + 1,
                parent=row.parent,
                prio=row.prio,
                crashes=row.crashes,
                block=row.block,
                verdict=verdict,
                extra=row.extra,
                known=row.known,
            )
        )
        return sending
