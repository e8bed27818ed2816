"""Leases: which worker holds which request. In the leader's memory only (rule `leases`).

A lease is *open* from ASSIGN until its result is received, and then *received* until the result is
committed. A received lease uses no credit, but its request must not be leased again.

Leases are opened by the planner, and when a worker says HELLO with requests that it still holds.
They end by a committed result, a reject, the loss of the worker, or the end of the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import NO_HOST, QueuedRow

Token = tuple[int, int]  # (epoch, n)


class Lease(msgspec.Struct):
    """One request in the hands of one worker."""

    token: Token
    row: QueuedRow
    worker: WorkerInfo
    number: int  # number of the ASSIGN message that carried it
    sent_at: float
    received: bool = False
    started_at: float | None = None  # when its worker started it, moved later by pauses
    recalled_at: float | None = None  # when its worker was last asked to give it up
    ahead: bool = False  # sent long before its host's pace allows it: uses no credit


class Leases:
    """All leases, indexed by request, worker, run and lane."""

    def __init__(self) -> None:
        self.by_seq: dict[int, Lease] = {}
        self.by_worker: dict[ProcessName, dict[int, Lease]] = {}  # process name → seq → lease
        self.by_run: dict[int, int] = {}
        self.by_lane: dict[tuple[int, int], int] = {}  # (run, host) → leases
        self.received_by_lane: dict[tuple[int, int], int] = {}  # those whose result is here
        self._next_n = 1

    def next_n(self) -> int:
        """Return a new lease number."""
        n = self._next_n
        self._next_n += 1
        return n

    def holds(self, seq: int) -> bool:
        """Return whether a worker has this request."""
        return seq in self.by_seq

    def open(
        self,
        token: Token,
        row: QueuedRow,
        worker: WorkerInfo,
        number: int,
        now: float,
        *,
        ahead: bool = False,
    ) -> Lease:
        """Open the lease of a request that is sent to a worker."""
        assert row.seq not in self.by_seq, "a request has at most one lease"
        lease = Lease(token, row, worker, number, now, ahead=ahead)
        self.by_seq[row.seq] = lease
        self.by_worker.setdefault(worker.name, {})[row.seq] = lease
        self.by_run[row.run] = self.by_run.get(row.run, 0) + 1
        lane = (row.run, row.host)
        self.by_lane[lane] = self.by_lane.get(lane, 0) + 1
        worker.leases += 1
        worker.ahead += ahead
        worker.tasks += row.host == NO_HOST
        return lease

    def receive(self, lease: Lease, now: float = math.inf) -> None:
        """Note that its result arrived: the worker's credit returns (rule `credit`)."""
        if not lease.received:
            lease.received = True
            lease.worker.leases -= 1
            lease.worker.ahead -= lease.ahead
            if lease.row.host == NO_HOST:
                lease.worker.tasks -= 1
                lease.worker.task_ended(now - lease.sent_at)
            lease.worker.uncommitted += 1
            lane = (lease.row.run, lease.row.host)
            self.received_by_lane[lane] = self.received_by_lane.get(lane, 0) + 1
            self._end_trial(lease)

    def close(self, seq: int) -> Lease | None:
        """Remove the lease of a request and return it."""
        lease = self.by_seq.pop(seq, None)
        if lease is None:
            return None
        held = self.by_worker[lease.worker.name]
        del held[seq]
        if not held:
            del self.by_worker[lease.worker.name]
        self.by_run[lease.row.run] -= 1
        if not self.by_run[lease.row.run]:
            del self.by_run[lease.row.run]
        lane = (lease.row.run, lease.row.host)
        self.by_lane[lane] -= 1
        if not self.by_lane[lane]:
            del self.by_lane[lane]
        if lease.received:
            lease.worker.uncommitted -= 1
            self.received_by_lane[lane] -= 1
            if not self.received_by_lane[lane]:
                del self.received_by_lane[lane]
        else:
            lease.worker.leases -= 1
            lease.worker.ahead -= lease.ahead
            lease.worker.tasks -= lease.row.host == NO_HOST
        self._end_trial(lease)
        return lease

    def _end_trial(self, lease: Lease) -> None:
        """Free the worker that held this crash suspect."""
        worker, seq = lease.worker, lease.row.seq
        if worker.on_trial == seq:
            worker.on_trial = 0
        if worker.reserved == seq:
            worker.reserved = 0

    def of_worker(self, worker: WorkerInfo) -> list[Lease]:
        """Return the leases of a worker's process."""
        return list(self.by_worker.get(worker.name, {}).values())

    def of_run(self, run: int) -> list[Lease]:
        """Return the leases of a run."""
        return [lease for lease in self.by_seq.values() if lease.row.run == run]

    def lost_on_the_way(
        self,
        worker: WorkerInfo,
        held: Mapping[Token, bool],
        assigned: int,
        all_received: bool,
        now: float,
        patience_s: float,
    ) -> list[Lease]:
        """Return the leases that a heartbeat proves lost.

        The ASSIGN arrived or is long overdue, the worker does not hold the request, and all its
        results are here. `held` maps what the worker holds to whether it has started. The worker
        keeps how many requests of each lane it is fetching, for displays.
        """
        lost = []
        fetching: dict[tuple[int, int], int] = {}
        for lease in self.by_worker.get(worker.name, {}).values():
            started = held.get(lease.token)
            if started and lease.started_at is None:
                lease.started_at = now
            if started and not lease.received:
                lane = (lease.row.run, lease.row.host)
                fetching[lane] = fetching.get(lane, 0) + 1
            if lease.received or started is not None or not all_received:
                continue
            if lease.number <= assigned or now - lease.sent_at > patience_s:
                lost.append(lease)
        worker.fetching = fetching
        return lost

    def extend_by_pause(self, worker: WorkerInfo, gap_s: float) -> None:
        """Move the starts of a worker's attempts later: it was silent and may have stood still."""
        for lease in self.by_worker.get(worker.name, {}).values():
            if lease.started_at is not None:
                lease.started_at += gap_s
        worker.strays = {token: since + gap_s for token, since in worker.strays.items()}

    def check(self) -> None:
        listed = received = 0
        for name, leases in self.by_worker.items():
            opened = ahead = tasks = 0
            for seq, lease in leases.items():
                assert lease.row.seq == seq
                assert lease.worker.name == name and self.by_seq.get(seq) is lease, (
                    "a lease is listed under its worker"
                )
                if not lease.received:
                    opened += 1
                    ahead += lease.ahead
                    tasks += lease.row.host == NO_HOST
            for lease in leases.values():
                worker = lease.worker
                assert worker.leases == opened, "a worker's open leases are counted"
                assert worker.ahead == ahead, "a worker's early leases are counted"
                assert worker.tasks == tasks, "a worker's tasks are counted"
            listed += len(leases)
            received += len(leases) - opened
        assert listed == len(self.by_seq), "every lease is listed under its worker"
        assert sum(self.by_run.values()) == listed
        assert sum(self.by_lane.values()) == listed
        assert sum(self.received_by_lane.values()) == received, "received leases are counted"
