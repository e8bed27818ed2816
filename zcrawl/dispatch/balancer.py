"""Move hosts between workers, so that no worker has too much to do.

A part of the planner, which lets it balance every BALANCE_S. The desk asks it for the moves that
pay and makes them (`zcrawl rebalance`). `balance` has the arithmetic, which reads only numbers;
here they are measured, and a move becomes the target of its host. The host goes there as soon as
its owner has released it (`host_owners`).
"""

from __future__ import annotations

import math

from zcrawl.dispatch.balance import (
    BALANCE_S,
    STAY_S,
    Capacity,
    HostLoad,
    HostMove,
    capacities,
    is_busy,
    plan_moves,
    smoothed,
    use_of,
)
from zcrawl.dispatch.candidates import Candidates
from zcrawl.dispatch.gates import Gates
from zcrawl.dispatch.host_owners import Granter
from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.roster import Roster, WorkerInfo


class Balancer:
    """Measure workers and hosts, and move hosts away from workers that are too busy."""

    def __init__(
        self, roster: Roster, granter: Granter, gates: Gates, candidates: Candidates
    ) -> None:
        self.due_at = -math.inf  # when loads are compared again
        self._roster, self._granter, self._gates = roster, granter, gates
        self._hosts = granter.hosts
        self._candidates = candidates

    def moves(self, now: float, *, only_busy: bool = False) -> list[HostMove]:
        """Return the moves of hosts that pay now, of all or of busy workers; change nothing."""
        usable = [worker for worker in self._roster.workers.values() if worker.usable]
        return plan_moves(
            self._host_loads(usable, now),
            capacities([(worker.name, worker.vitals) for worker in usable]),
            {worker.name for worker in usable if is_busy(worker.vitals)} if only_busy else None,
        )

    def move_hosts(self, moves: list[HostMove], now: float) -> None:
        """Move hosts to their new workers, as soon as the former ones have released them."""
        for move in moves:
            host = self._hosts.get(move.host)
            if host is not None:
                host.move_to(move.target, now)
                self._granter.dirty[host.id] = None

    def worker_use(self, now: float) -> list[tuple[Capacity, float]]:
        """Return the capacity of each worker and how much of it its hosts may use."""
        usable = [worker for worker in self._roster.workers.values() if worker.usable]
        workers = capacities([(worker.name, worker.vitals) for worker in usable])
        use = use_of(self._host_loads(usable, now), workers)
        return [(worker, use[worker.name]) for worker in workers]

    def balance(self, now: float) -> None:
        """Renew the capacities, and move hosts away from workers that are too busy."""
        is_first, self.due_at = self.due_at == -math.inf, now + BALANCE_S
        workers = [worker for worker in self._roster.workers.values() if worker.usable]
        measured = capacities([(worker.name, worker.vitals) for worker in workers])
        self._granter.capacity = smoothed(self._granter.capacity, measured)
        if not is_first and len(workers) > 1:
            self.move_hosts(self.moves(now, only_busy=True), now)

    def _host_loads(self, usable: list[WorkerInfo], now: float) -> list[HostLoad]:
        """Return the hosts with work that one worker owns and that may move."""
        everybody = frozenset(worker.name for worker in usable)
        is_choosy = self._candidates.is_choosy(usable)
        loads = []
        for host in self._hosts.values():
            if host.demand.spread or host.clan is not None or host.turn or host.wanted_owner:
                continue
            owners = [name for name, part in host.parts.items() if part.granted]
            if host.target in everybody:
                owners = [host.target]  # it may be on its way
            if len(owners) != 1 or not self._gates.has_rows(host):
                continue
            able = everybody
            if is_choosy:
                able = frozenset(worker.name for worker in self._candidates.able(host, usable))
            is_new = now - host.moved_at < STAY_S
            load = self._load_of(host)
            loads.append(HostLoad(host.id, host.origin, owners[0], load, able, is_new))
        return loads

    def _load_of(self, host: HostState) -> float:
        """Return how many requests per second a host may get: its rate, or one per slot."""
        most = float(host.demand.concurrency)
        return min(most, 1.0 / host.interval_s) if host.interval_s > 0 else most
