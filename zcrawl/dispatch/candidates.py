"""Choose the workers among which the owners of a host are chosen, if jobs need certain workers.

A part of the planner. While all workers can serve all runs, they all are candidates and nothing
here is asked for a host. Otherwise a host goes to a worker that serves all its runs. If there is
none, several workers share the host, or have it in turn, each for TURN_S at most. `placement`
says which worker can serve a run; `host_owners` chooses the owners among the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from zcrawl.dispatch.gates import LeaderTables
from zcrawl.dispatch.host_owners import Granter
from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.placement import can_serve, cover, preferred
from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.dispatch.runs import ActiveRun
from zcrawl.model.process_name import NOBODY, ProcessName, worker_of

TURN_S = 30.0  # how long a worker has a host that others must have as well, and cannot share


class Candidates:
    """The workers that may own each host, and whose turn it is to have one."""

    def __init__(self, tables: LeaderTables, granter: Granter) -> None:
        self._roster, self._leases = tables.roster, tables.leases
        self._frontier, self._runs = tables.frontier, tables.runs
        self._granter, self._hosts = granter, granter.hosts
        self._turns: dict[int, None] = {}  # hosts that workers have in turn

    def is_choosy(self, workers: list[WorkerInfo]) -> bool:
        """Return whether a run may need something that one of these workers does not have."""
        return any(worker.lacks for worker in workers) or any(
            active.require or active.spec.placement.prefer for active in self._runs.active.values()
        )

    def choose(self, host: HostState, usable: list[WorkerInfo], now: float) -> list[WorkerInfo]:
        """Return the workers among which the owners of a host are chosen.

        If no worker serves all its runs, as few as possible share it; if its limits cannot be
        divided, they have it in turn, each for TURN_S at most.
        """
        hosts = [host] if host.clan is None else [self._hosts[id] for id in host.clan.hosts]
        by_run = {active.row.id: active for member in hosts for active in self.needs(member)}
        needs = list(by_run.values())
        able = _able(needs, usable)
        if able:
            self._divide(host, False)
            self._end_turns(hosts)
            return able
        servers = {
            active.row.id: [worker.name for worker in usable if can_serve(active, worker)]
            for active in needs
        }
        names = cover(servers, lambda name: (name not in host.counted, name))
        by_name = {worker.name: worker for worker in usable}
        chosen = [by_name[ProcessName(name)] for name in names]
        if len(chosen) < 2:
            self._divide(host, False)
            self._end_turns(hosts)
            return preferred(needs, chosen) or usable
        shares = host.clan is None and not host.pins and host.demand.concurrency >= len(chosen)
        self._divide(host, shares)
        if shares:
            self._end_turns(hosts)
            serve = {name for names in servers.values() for name in names} - {*names}
            others = [worker for worker in usable if worker.name in serve]
            beside = host.demand.concurrency - len(chosen) if self._is_spread(needs) else 0
            return chosen + others[:beside]
        return [self._worker_in_turn(hosts, chosen, servers, now)]

    def able(self, host: HostState, usable: list[WorkerInfo]) -> list[WorkerInfo]:
        """Return the workers that serve all runs of a host, those that its runs prefer."""
        return _able(self.needs(host), usable)

    def needs(self, host: HostState) -> list[ActiveRun]:
        """Return the runs that have requests of the host, queued or at workers."""
        lanes, leased = self._frontier.lanes, self._leases.by_lane
        trials = {row.run for row in host.trials}
        return [
            active
            for run in host.runs
            if ((run, host.id) in lanes or (run, host.id) in leased or run in trials)
            and (active := self._runs.get(run)) is not None
            and active.dispatches
        ]

    def _is_spread(self, needs: list[ActiveRun]) -> bool:
        """Return whether all these jobs allow that workers share a host."""
        return all(active.spec.politeness.spread for active in needs)

    def _is_turn_idle(self, host: HostState) -> bool:
        """Return whether the worker in turn can do nothing for the host, and another one could."""
        worker = self._roster.workers.get(worker_of(host.turn))
        waiting = [active for active in self.needs(host) if self._has_ready(active, host)]
        return bool(waiting) and not any(
            worker is not None and can_serve(active, worker)
            for active in (*waiting, *self._leased(host))
        )

    def _has_ready(self, active: ActiveRun, host: HostState) -> bool:
        return self._frontier.has_ready((active.row.id, host.id))

    def _leased(self, host: HostState) -> list[ActiveRun]:
        leased = self._leases.by_lane
        return [active for active in self.needs(host) if (active.row.id, host.id) in leased]

    def _divide(self, host: HostState, divided: bool) -> None:
        """Let several workers share the host, or one worker have it again."""
        if host.divided is not divided:
            host.divide(divided)
            self._granter.renew_demand(host)
            self._granter.dirty.pop(host.id, None)  # it is reviewed just now

    def _worker_in_turn(
        self,
        hosts: list[HostState],
        chosen: list[WorkerInfo],
        servers: Mapping[int, Sequence[str]],
        now: float,
    ) -> WorkerInfo:
        """Return the worker whose turn it is to have these hosts; the next one if it is over."""
        names = [worker.name for worker in chosen]
        turn, until = hosts[0].turn, hosts[0].turn_until
        if turn not in names or now >= until or all(self._is_turn_idle(host) for host in hosts):
            at = names.index(turn) + 1 if turn in names else 0
            turn, until = names[at % len(names)], now + TURN_S
        for host in hosts:
            host.give_turn(turn, until)
            self._turns[host.id] = None
        return chosen[names.index(turn)]

    def _end_turns(self, hosts: list[HostState]) -> None:
        for host in hosts:
            if host.turn:
                host.give_turn(NOBODY, math.inf)
                self._turns.pop(host.id, None)

    # ------------------------------------------------------------ turns that end

    def turn_over_at(self) -> float:
        """Return when the first turn is over."""
        return min((self._hosts[host_id].turn_until for host_id in self._turns), default=math.inf)

    def review_turns(self, now: float) -> None:
        """Let the granter review the hosts whose turn is over, or is of no use."""
        for host_id in self._turns:
            host = self._hosts[host_id]
            if host.turn_until <= now or self._is_turn_idle(host):
                self._granter.dirty[host_id] = None

    def check(self) -> None:
        in_turn = {host.id for host in self._hosts.values() if host.turn}
        assert in_turn == self._turns.keys(), "the hosts with a turn are those that have turns"


def _able(needs: Sequence[ActiveRun], usable: list[WorkerInfo]) -> list[WorkerInfo]:
    """Return the workers that serve all these runs, those that the runs prefer; none serves all:
    empty."""
    able = [worker for worker in usable if all(can_serve(active, worker) for active in needs)]
    return preferred(needs, able)
