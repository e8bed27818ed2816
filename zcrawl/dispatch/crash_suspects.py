"""Handle requests that may have crashed their worker, and requests that never end.

Heartbeats say which leases have started. When a worker is gone, `membership` calls `suspects` to
get the requests that may have killed it. `overdue` calls `longest_attempt_s` to know how long an
attempt may last.

Suspects are tried again (`Trials`, a part of the planner; rule `crashes`): a worker gets one
suspect at a time. If that worker dies as well, the suspect needs a worker that holds nothing else.
A suspect leaves the trials when the planner sends it, or when a late result of it arrives. Pure.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Protocol

from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.leases import Lease
from zcrawl.dispatch.roster import Roster, WorkerInfo
from zcrawl.mesh.timing import PERMISSION_S
from zcrawl.model.rows import QueuedRow
from zcrawl.model.spec import JobSpec

TRANSIT_S = 1.0  # usual longest age of a heartbeat when it arrives

# An attempt is one page, and before or beside it: robots.txt, a login, a probe for soft 404s, the
# page's parser, spider or plugin. Each has the time limit of a page; redirects are part of it.
STEPS = 10
REQUESTS_BESIDE = 12  # robots.txt and its redirects, login, probe: all wait for the pace
OVERDUE_FACTOR = 2.0
OVERDUE_LEAST_S = 600.0  # for delays unknown to the leader, such as slow blob stores


def suspects(
    leases: Sequence[Lease], hosts: Mapping[int, HostState], worker: WorkerInfo, now: float
) -> set[int]:
    """Return the requests that may have been running when their worker died.

    These are the requests that its last heartbeat reported as started, and for each host as many
    more as its pace allowed since then.
    """
    window_s = min(PERMISSION_S, now - worker.beat_at + TRANSIT_S)
    seqs = {worker.on_trial, worker.reserved}
    waiting: dict[int, list[Lease]] = {}
    for lease in leases:
        if lease.started_at is not None:
            seqs.add(lease.row.seq)
        else:
            waiting.setdefault(lease.row.host, []).append(lease)
    for host_id, queue in waiting.items():
        host = hosts.get(host_id)
        interval_s = 0.0 if host is None else host.interval_s
        most = len(queue)
        if host is not None and interval_s > 0:
            most = min(most, host.demand.burst + math.ceil(window_s / interval_s))
        queue.sort(key=lambda lease: lease.token)  # as they came in
        seqs.update(lease.row.seq for lease in queue[:most])
    return seqs


def longest_attempt_s(spec: JobSpec, host: HostState | None, slots: int) -> float:
    """Return how long an attempt of a healthy worker can last, with a wide margin."""
    fetch, polite = spec.fetch, spec.politeness
    requests = REQUESTS_BESIDE + fetch.max_redirects
    steps = STEPS + requests * len(spec.middlewares)
    if fetch.proxies and fetch.proxy_limit:
        steps += slots  # others may have the proxies
    page_s = max(spec.attempt_s, spec.spider_limits.timeout if spec.spider else 0.0)
    pace_s = 0.0 if host is None else host.interval_s * max(1, host.demand.concurrency)
    for rate in (polite.domain_rate, polite.address_rate):
        if rate > 0:
            pace_s = max(pace_s, slots / rate)
    return OVERDUE_LEAST_S + OVERDUE_FACTOR * (steps * page_s + requests * pace_s)


class Claim(enum.Enum):
    """What the suspects of a host need from a worker."""

    NONE = "none"
    SUSPECT = "suspect"  # it gets one of them
    KEPT_FREE = "kept_free"  # it gets nothing until it holds nothing


class SuspectPlace(Protocol):
    """Where suspects wait: a host, or the queue of tasks without a host."""

    @property
    def id(self) -> int: ...

    @property
    def trials(self) -> list[QueuedRow]: ...

    def put_on_trial(self, row: QueuedRow) -> None: ...

    def end_trial(self, row: QueuedRow) -> None: ...

    def is_open_to(self, worker: WorkerInfo) -> bool:
        """Return whether the worker may still get requests of this place."""


class Trials:
    """Crash suspects that wait for a worker."""

    def __init__(
        self,
        roster: Roster,
        may_start: Callable[[int, WorkerInfo], bool],
        could_start: Callable[[int, WorkerInfo], bool],
    ) -> None:
        """Take two predicates: `may_start` may change the planner, `could_start` only reads."""
        self.seqs: set[int] = set()  # suspects that wait for a worker
        self.hosts: set[int] = set()  # hosts of these suspects; NO_HOST: tasks
        self._alone: set[int] = set()  # suspects that need a worker of their own
        self._roster = roster
        self._may_start, self._could_start = may_start, could_start

    def put(self, host: SuspectPlace, row: QueuedRow, alone: bool) -> None:
        """Add a suspect; with `alone` it needs a worker that holds nothing else."""
        host.put_on_trial(row)
        self.seqs.add(row.seq)
        self.hosts.add(host.id)
        if alone:
            self._alone.add(row.seq)

    def forget(self, host: SuspectPlace, seq: int) -> QueuedRow | None:
        """Remove a suspect whose result arrived or whose run ended, and return its row.

        Return None if the host has no such suspect; then the reporter named the wrong host.
        """
        row = next((suspect for suspect in host.trials if suspect.seq == seq), None)
        if row is not None:
            self._take(host, row, None)
        return row

    def next_row(
        self, host: SuspectPlace, worker: WorkerInfo, full: Set[int] = frozenset()
    ) -> QueuedRow | None:
        """Return the next suspect that this worker may get now, and reserve the worker for it.

        Suspects of the runs in `full` wait: a limit of their runs has no room.
        """
        if worker.on_trial:
            return None
        for row in host.trials:
            if row.run in full:
                continue
            if not self._may_start(row.run, worker) or worker.reserved not in (0, row.seq):
                continue
            if row.seq in self._alone:
                if self._drop_stale_reserves(host, row.seq, worker):
                    continue
                worker.reserved = row.seq
                if worker.leases:
                    return None  # it gets nothing more until it holds nothing
            worker.on_trial = row.seq
            self._take(host, row, worker)
            return row
        return None

    def claim_on(self, worker: WorkerInfo, host: HostState, claimed: Set[int]) -> tuple[Claim, int]:
        """Return what `next_row` would do with this worker now, and for which suspect.

        `claimed` are suspects for which another worker would be kept free just before.
        """
        if worker.on_trial:
            return Claim.NONE, 0
        for row in host.trials:
            if not self._could_start(row.run, worker) or worker.reserved not in (0, row.seq):
                continue
            if row.seq in self._alone:
                if row.seq in claimed or self._is_reserved_elsewhere(host, row.seq, worker):
                    continue
                return (Claim.KEPT_FREE if worker.leases else Claim.SUSPECT), row.seq
            return Claim.SUSPECT, row.seq
        return Claim.NONE, 0

    def _take(self, host: SuspectPlace, row: QueuedRow, taker: WorkerInfo | None) -> None:
        """Remove a suspect and free the workers that were reserved for it, except `taker`."""
        self.seqs.discard(row.seq)
        self._alone.discard(row.seq)
        host.end_trial(row)
        for worker in self._roster.workers.values():
            if worker.reserved == row.seq and worker is not taker:
                worker.reserved = 0
        if not host.trials:
            self.hosts.discard(host.id)

    def _is_reserved_elsewhere(self, host: SuspectPlace, seq: int, worker: WorkerInfo) -> bool:
        """Return whether another owner of the host is kept free for this suspect."""
        return any(
            other.reserved == seq and other is not worker and host.is_open_to(other)
            for other in self._roster.workers.values()
        )

    def _drop_stale_reserves(self, host: SuspectPlace, seq: int, worker: WorkerInfo) -> bool:
        """Free other workers that lost the host; return whether one still has it."""
        for other in self._roster.workers.values():
            if other.reserved != seq or other is worker:
                continue
            if host.is_open_to(other):
                return True
            other.reserved = 0  # the host has another owner now
        return False
