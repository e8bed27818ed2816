"""Crash suspects on trial (rule 9): requests that had started when their worker died.

A part of the planner. A suspect is leased again, one such to a worker; if that worker dies as
well, it needs a worker with nothing else in its hands. Who fills it: the loss of a worker. Who
empties it: the planner, when it dispatches, and results that came after all.
"""

from __future__ import annotations

from collections.abc import Callable

from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.roster import Roster, WorkerInfo
from zcrawl.model.rows import QueuedRow


class Trials:
    def __init__(self, roster: Roster, may_start: Callable[[int, WorkerInfo], bool]) -> None:
        self.seqs: set[int] = set()  # of suspects that wait for a worker
        self.hosts: set[int] = set()  # that have one
        self._alone: set[int] = set()  # suspects that need a worker of their own
        self._roster, self._may_start = roster, may_start

    def put(self, host: HostState, row: QueuedRow, alone: bool) -> None:
        host.trials.append(row)
        self.seqs.add(row.seq)
        self.hosts.add(host.id)
        if alone:
            self._alone.add(row.seq)

    def forget(self, host: HostState, seq: int) -> QueuedRow | None:
        """A suspect whose result came, or whose run ended. None: it is another host's, and whoever
        reported it named the wrong one."""
        row = next((one for one in host.trials if one.seq == seq), None)
        if row is not None:
            self._take(host, row, None)
        return row

    def next_row(self, host: HostState, worker: WorkerInfo) -> QueuedRow | None:
        """The next suspect that this worker may get now."""
        if worker.on_trial:
            return None
        for row in host.trials:
            if not self._may_start(row.run, worker) or worker.reserved not in (0, row.seq):
                continue
            if row.seq in self._alone:
                if self._reserved_elsewhere(host, row.seq, worker):
                    continue
                worker.reserved = row.seq
                if worker.leases:
                    return None  # it gets nothing more until it is empty-handed
            worker.on_trial = row.seq
            self._take(host, row, worker)
            return row
        return None

    def _take(self, host: HostState, row: QueuedRow, taker: WorkerInfo | None) -> None:
        self.seqs.discard(row.seq)
        self._alone.discard(row.seq)
        host.trials.remove(row)
        for worker in self._roster.workers.values():
            if worker.reserved == row.seq and worker is not taker:
                worker.reserved = 0
        if not host.trials:
            self.hosts.discard(host.id)

    def _reserved_elsewhere(self, host: HostState, seq: int, worker: WorkerInfo) -> bool:
        for other in self._roster.workers.values():
            if other.reserved != seq or other is worker:
                continue
            part = host.parts.get(other.name)
            if other.usable and part is not None and part.granted:
                return True
            other.reserved = 0  # the host has moved on
        return False
