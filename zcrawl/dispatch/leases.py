"""Leases: which worker has which request. In the leader's memory only (rule `leases`).

A lease is *open* from ASSIGN until its result is received, and then *received* until the result
is committed: a received lease takes no credit, but its request must not be leased again.

Who makes leases: the planner, and adoption on HELLO. Who ends them: a committed result, a reject,
the loss of the worker, the end of the run.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import QueuedRow

Token = tuple[int, int]  # (epoch, n)


class Lease(msgspec.Struct):
    token: Token
    row: QueuedRow
    worker: WorkerInfo
    number: int  # of the ASSIGN that carried it
    sent_at: float
    received: bool = False
    started_at: float | None = None  # since when its worker says that it runs, less its pauses
    recalled_at: float | None = None  # it is overdue, and its worker was told so last
    ahead: bool = False  # sent long before its host's pace allows it: takes none of the credit


class Leases:
    def __init__(self) -> None:
        self.by_seq: dict[int, Lease] = {}
        self.by_worker: dict[ProcessName, dict[int, Lease]] = {}  # process name → seq → lease
        self.by_run: dict[int, int] = {}
        self.by_lane: dict[tuple[int, int], int] = {}  # (run, host) → leases
        self._next_n = 1

    def next_n(self) -> int:
        n = self._next_n
        self._next_n += 1
        return n

    def holds(self, seq: int) -> bool:
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
        assert row.seq not in self.by_seq, "a request has one lease"
        lease = Lease(token, row, worker, number, now, ahead=ahead)
        self.by_seq[row.seq] = lease
        self.by_worker.setdefault(worker.name, {})[row.seq] = lease
        self.by_run[row.run] = self.by_run.get(row.run, 0) + 1
        lane = (row.run, row.host)
        self.by_lane[lane] = self.by_lane.get(lane, 0) + 1
        worker.leases += 1
        worker.ahead += ahead
        return lease

    def receive(self, lease: Lease) -> None:
        """Its result is here: the credit returns (rule `credit`)."""
        if not lease.received:
            lease.received = True
            lease.worker.leases -= 1
            lease.worker.ahead -= lease.ahead
            self._end_trial(lease)

    def close(self, seq: int) -> Lease | None:
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
        if not lease.received:
            lease.worker.leases -= 1
            lease.worker.ahead -= lease.ahead
        self._end_trial(lease)
        return lease

    def _end_trial(self, lease: Lease) -> None:
        worker, seq = lease.worker, lease.row.seq
        if worker.on_trial == seq:
            worker.on_trial = 0
        if worker.reserved == seq:
            worker.reserved = 0

    def of_worker(self, worker: WorkerInfo) -> list[Lease]:
        return list(self.by_worker.get(worker.name, {}).values())

    def of_run(self, run: int) -> list[Lease]:
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
        """Leases that a heartbeat proves lost: the ASSIGN arrived or is long overdue, the worker
        does not hold the request, and every result that it produced is here. `held`: what it holds,
        and whether that has started."""
        lost = []
        for lease in self.by_worker.get(worker.name, {}).values():
            started = held.get(lease.token)
            if started and lease.started_at is None:
                lease.started_at = now
            if lease.received or started is not None or not all_received:
                continue
            if lease.number <= assigned or now - lease.sent_at > patience_s:
                lost.append(lease)
        return lost

    def slept(self, worker: WorkerInfo, gap_s: float) -> None:
        """Nothing was heard of the worker for so long: its attempts may have stood still."""
        for lease in self.by_worker.get(worker.name, {}).values():
            if lease.started_at is not None:
                lease.started_at += gap_s
        worker.strays = {token: since + gap_s for token, since in worker.strays.items()}

    def check(self) -> None:
        counted: dict[ProcessName, int] = {}
        ahead: dict[ProcessName, int] = {}
        for seq, lease in self.by_seq.items():
            assert lease.row.seq == seq
            assert self.by_worker[lease.worker.name][seq] is lease, "each lease is its worker's"
            if not lease.received:
                counted[lease.worker.name] = counted.get(lease.worker.name, 0) + 1
                ahead[lease.worker.name] = ahead.get(lease.worker.name, 0) + lease.ahead
        for leases in self.by_worker.values():
            for lease in leases.values():
                assert lease.worker.leases == counted.get(lease.worker.name, 0), "credit is counted"
                assert lease.worker.ahead == ahead.get(lease.worker.name, 0), "ahead is counted"
        assert sum(self.by_run.values()) == len(self.by_seq)
        assert sum(self.by_lane.values()) == len(self.by_seq)
