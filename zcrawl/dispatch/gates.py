"""Decide whether a request of a host can be sent now, and name the obstacle if not.

The planner asks these questions before it sends a request; `why` and the tests ask them to explain
why a host waits. Everything here only reads. The planner acts on the answers: it sends, parks the
host at a worker, or schedules it for later.
"""

from __future__ import annotations

import enum

import msgspec

from zcrawl.dispatch.crash_suspects import Claim, Trials
from zcrawl.dispatch.early_ends import Verdicts
from zcrawl.dispatch.host_owners import Granter
from zcrawl.dispatch.host_state import HostState, Part
from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.placement import can_serve
from zcrawl.dispatch.roster import Roster, WorkerInfo
from zcrawl.dispatch.runs import Runs
from zcrawl.dispatch.shared_limits import NEAR_S
from zcrawl.frontier.frontier import Frontier
from zcrawl.frontier.pace import opens_in_s
from zcrawl.mesh.timing import LOOKAHEAD_S
from zcrawl.model.process_name import ProcessName, worker_of


class Gate(enum.Enum):
    """The first obstacle to sending a request of a host, in the order in which they are checked."""

    STORING = enum.auto()  # its owners are being written to the database
    NO_ROWS = enum.auto()  # no row in memory can be sent
    INHERITED = enum.auto()  # an owner chosen by the previous leader may still fetch
    ENDING = enum.auto()  # its rows end without a request once its owner accepts them
    HOURS = enum.auto()  # outside the hours of its jobs
    PACE = enum.auto()  # too early for its pace
    SHARED = enum.auto()  # a limit that it shares with other hosts
    NO_OWNER = enum.auto()  # no usable worker has a part of it
    CREDIT = enum.auto()  # its owners accept no more requests
    ROOM = enum.auto()  # its owners already hold the most requests of it that they may
    TRIAL = enum.auto()  # crash suspects wait for a worker, which tries one at a time
    RUNS = enum.auto()  # no run may start a row: page limit, pause, or the owner lacks its code
    OPEN = enum.auto()  # no obstacle: a request can be sent


class Choice(msgspec.Struct):
    """The owners of a host that have room for its next request, or the obstacle if none has."""

    gate: Gate = Gate.NO_OWNER
    owners: list[tuple[WorkerInfo, Part]] = msgspec.field(default_factory=list)  # best first
    waited_for: list[ProcessName] = msgspec.field(default_factory=list)  # no credit, or suspect


class LeaderTables(msgspec.Struct, frozen=True):
    """The tables of the leader that planning reads."""

    roster: Roster
    leases: Leases
    frontier: Frontier
    runs: Runs


def could_start(tables: LeaderTables, run: int, worker: WorkerInfo) -> bool:
    """Return whether a run may start one more request at this worker."""
    active = tables.runs.get(run)
    if active is None or not active.dispatches or not can_serve(active, worker):
        return False
    return active.may_start(tables.leases.by_run.get(run, 0))


class Gates:
    def __init__(
        self, tables: LeaderTables, granter: Granter, trials: Trials, verdicts: Verdicts
    ) -> None:
        self._tables = tables
        self._roster, self._leases = tables.roster, tables.leases
        self._frontier, self._runs = tables.frontier, tables.runs
        self._granter, self._groups = granter, granter.groups
        self._trials, self._verdicts = trials, verdicts

    def gate(self, host: HostState, now: float) -> Gate:
        """Return the first obstacle to sending a request of the host now.

        The checks are those of `Planner._dispatch`, in the same order; a test compares both.
        """
        if host.storing:
            return Gate.STORING
        if not self.has_rows(host):
            return Gate.NO_ROWS
        if host.is_inherited(now):
            return Gate.INHERITED
        if self.ending_run(host) is not None:
            return Gate.ENDING
        ready_at = host.pace.ready_at()
        if host.demand.hours and self.opens_at(host, now, ready_at) > now:
            return Gate.HOURS
        waiting: list[int] = []
        if ready_at - LOOKAHEAD_S > now:
            waiting = self.runs_without_lease(host) if len(host.runs) > 1 else []
            if not waiting:
                return Gate.PACE
        if self._groups.obstacle(host, now) is not None:
            return Gate.SHARED
        ahead = self.ready_at(host) - NEAR_S > now and not waiting
        choice = self.choice(host, ahead)
        gates = []
        claimed: set[int] = set()  # suspects for which an earlier owner of the loop is kept free
        for worker, _ in choice.owners:
            gate = self._row_gate(host, worker, waiting or host.runs, claimed)
            if gate is Gate.OPEN:
                return gate
            gates.append(gate)
        return gates[0] if gates else choice.gate

    def _row_gate(
        self, host: HostState, worker: WorkerInfo, runs: list[int], claimed: set[int]
    ) -> Gate:
        """Return the obstacle to sending a row of these runs to the worker (`_next_row`)."""
        claim = Claim.NONE
        if host.trials:
            claim, seq = self._trials.claim_on(worker, host, claimed)
            if claim is Claim.KEPT_FREE:
                claimed.add(seq)
        if claim is Claim.SUSPECT:
            return Gate.OPEN
        if worker.reserved or claim is Claim.KEPT_FREE:
            return Gate.TRIAL
        ready = [run for run in runs if self._frontier.has_ready((run, host.id))]
        for run in ready:
            if could_start(self._tables, run, worker) and self._verdicts.has_room(run, host):
                return Gate.OPEN
        return Gate.RUNS if ready else Gate.TRIAL

    def choice(self, host: HostState, ahead: bool) -> Choice:
        """Return the owners that can take a request of the host, the least loaded first.

        A worker that is kept free for a crash suspect, and is free now, comes before the others.
        `ahead` means that the request is sent early and waits at the worker for the host's pace.
        """
        choice = Choice()
        reserved: list[tuple[WorkerInfo, Part]] = []
        beside = len(host.runs) - 1  # each run without a request there may always have one
        for name, part in host.parts.items():
            worker = self._roster.workers.get(worker_of(name))
            if part.granted == 0 or worker is None or worker.name != name:
                continue
            if not worker.usable:
                choice.waited_for.append(name)
                continue
            if choice.gate is Gate.NO_OWNER:
                choice.gate = Gate.CREDIT
            if worker.reserved and worker.leases == 0 and host.trials:
                reserved.append((worker, part))
                continue
            if ahead and worker.credit_ahead <= 0:
                continue  # tried again when the request can start
            if not ahead and worker.credit <= 0:
                choice.waited_for.append(name)
            elif part.held >= host.hold_limit(part, worker.vitals.rate) + beside:
                choice.gate = Gate.ROOM
            else:
                choice.owners.append((worker, part))
        if len(choice.owners) > 1:
            choice.owners.sort(key=lambda owner: owner[1].held / owner[1].granted)
        choice.owners[:0] = reserved
        return choice

    # ------------------------------------------------------------ rows and runs

    def has_rows(self, host: HostState) -> bool:
        """Return whether a row of the host in memory can be sent, or a crash suspect waits."""
        if host.trials:
            return True
        for run in host.runs:  # noqa: SIM110 - for each request: a generator costs as much again
            if self._frontier.has_ready((run, host.id)):
                return True
        return False

    def rank(self, host: HostState) -> int:
        """Return the highest priority of the runs that can send a row of the host."""
        if not host.priorities:
            return 0
        return max(
            (host.priorities.get(run, 0) for run in host.runs if self._can_send(run, host)),
            default=0,
        )

    def _can_send(self, run: int, host: HostState) -> bool:
        active = self._runs.get(run)
        return active is not None and active.dispatches and self._frontier.has_ready((run, host.id))

    def ending_run(self, host: HostState) -> int | None:
        """Return a run whose rows of this host end without a request and that still has some."""
        for run in host.verdicts:
            active = self._runs.get(run)
            ready = self._frontier.has_ready((run, host.id))
            if active is not None and active.dispatches and ready:
                return run
        return None

    def runs_without_lease(self, host: HostState) -> list[int]:
        """Return the runs that have rows of the host, but no request of it at any worker."""
        held = self._leases.by_lane
        return [
            run
            for run in host.runs
            if (run, host.id) not in held
            and self._frontier.has_ready((run, host.id))
            and (active := self._runs.get(run)) is not None
            and active.dispatches
            and self.is_served(host, run)
        ]

    def is_served(self, host: HostState, run: int) -> bool:
        """Return whether an owner of the host has what the run needs, or it has no owner yet."""
        active = self._runs.get(run)
        has_owner = False
        for name, part in host.parts.items():
            worker = self._roster.workers.get(worker_of(name))
            if part.granted and worker is not None:
                has_owner = True
                if active is None or can_serve(active, worker):
                    return True
        return not has_owner

    # ------------------------------------------------------------ time

    def ready_at(self, host: HostState) -> float:
        """Return the earliest start of a request by the paces of the host and of its groups."""
        ready_at = host.pace.ready_at()
        if host.groups:
            ready_at = max(ready_at, *(group.pace.ready_at() for group in host.groups))
        return ready_at

    def closed_s(self, host: HostState, now: float) -> float:
        """Return for how many seconds the hours of its jobs still forbid requests; 0: allowed."""
        return opens_in_s(host.demand.hours, now + self._granter.clock_offset)

    def opens_at(self, host: HostState, now: float, ready_at: float) -> float:
        """Return when a request may be sent by the hours of its jobs.

        A request that is sent early must still start within the hours.
        """
        opens_at = now + self.closed_s(host, now)
        if opens_at <= now < ready_at - NEAR_S and self.closed_s(host, ready_at) > 0:
            return ready_at - NEAR_S  # the hours end before the pace allows the start
        return opens_at
