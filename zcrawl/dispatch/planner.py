"""Plan which request goes to which worker now.

The leader calls the planner after every event. The planner takes the hosts whose moment has come
(`due_hosts`) and sends a request of each of them if nothing forbids it (`gates`).

Requests are sent up to LOOKAHEAD_S before their host's pace allows the start. So workers have work
while another leader takes over. Such early requests have their own credit; when it is used up, a
request is sent only NEAR_S before it can start. Other runs' early requests do not delay a run that
has no request at the owner of a host, because the worker takes runs in turn.

The planner changes leases and grants. Its caller sends the messages (`batches`).
"""

from __future__ import annotations

import heapq
import math
from functools import partial

from zcrawl.dispatch.balancer import Balancer
from zcrawl.dispatch.batches import Batches, DispatchPlan
from zcrawl.dispatch.candidates import Candidates
from zcrawl.dispatch.crash_suspects import Trials
from zcrawl.dispatch.due_hosts import DueHosts
from zcrawl.dispatch.early_ends import Verdicts
from zcrawl.dispatch.gates import Gate, Gates, LeaderTables, could_start
from zcrawl.dispatch.host_owners import Granter
from zcrawl.dispatch.host_state import HostState, Part
from zcrawl.dispatch.leases import Lease, Leases
from zcrawl.dispatch.parking import Parking
from zcrawl.dispatch.placement import can_serve
from zcrawl.dispatch.roster import Roster, WorkerInfo
from zcrawl.dispatch.runs import Runs
from zcrawl.dispatch.shared_limits import NEAR_S
from zcrawl.dispatch.task_planner import TaskPlanner
from zcrawl.frontier.frontier import Frontier
from zcrawl.mesh.timing import LOOKAHEAD_S
from zcrawl.model.host import Manner
from zcrawl.model.process_name import ProcessName
from zcrawl.model.reasons.failure import ATTEMPT_OVERDUE
from zcrawl.model.rows import NO_HOST, QueuedRow
from zcrawl.model.states import NodeState

SUSPECT_LOOK_S = 1.0  # between two looks of a host whose only workers are suspect
LONG_WAIT_S = 5.0  # a wait beyond the host's pace that counts as a long one


class Planner:
    """Send requests to the owners of their hosts as early as pace, limits and credit allow."""

    def __init__(
        self, epoch: int, roster: Roster, leases: Leases, frontier: Frontier, runs: Runs
    ) -> None:
        self.granter = Granter(roster, runs, first_revision=epoch << 32)
        self.hosts = self.granter.hosts
        self.groups = self.granter.groups
        self.verdicts = Verdicts(self.hosts, leases, runs, self.wake)
        tables = LeaderTables(roster, leases, frontier, runs)
        self._could_start = partial(could_start, tables)
        self._trials = Trials(roster, self._may_start, self._could_start)
        self.gates = Gates(tables, self.granter, self._trials, self.verdicts)
        self.candidates = Candidates(tables, self.granter)
        self.balancer = Balancer(roster, self.granter, self.gates, self.candidates)
        self.trials = self._trials.seqs  # crash suspects that wait for a worker
        self.roster, self.leases = roster, leases
        self.frontier, self.runs = frontier, runs
        self._due = DueHosts(self.hosts)
        self._parking = Parking()  # hosts that wait for a process
        self._has_priorities = False  # a run with a priority other than 0 was seen
        self._has_needs = False  # a run needs or prefers certain workers, or did
        self._capped: set[int] = set()  # runs that have reserved all of their max_pages
        self._batches = Batches(epoch, roster, leases)
        self.overdue: set[int] = set()  # requests to end, because all their attempts were lost
        self.tasks = TaskPlanner(
            tables, self._trials, self._may_start, self.overdue, self._send_task
        )

    # ------------------------------------------------------------ hosts and runs

    def lane_opened(self, run: int, host_id: int) -> None:
        """Count a run's demand on a host, because the run has rows of it now."""
        if host_id == NO_HOST:
            self.tasks.lane_opened(run)
            return
        host = self.hosts[host_id]
        if run not in host.runs:
            host.add_run(run, self._priority(run))
            self.granter.renew_demand(host)
        elif self._has_needs and host.parts and not self.gates.is_served(host, run):
            self.granter.dirty[host_id] = None
        self.wake(host_id)

    def priority_changed(self, run: int) -> None:
        """Apply the new priority of a run's job."""
        priority = self._priority(run)
        for host in self.hosts.values():
            if run in host.runs:
                host.set_priority(run, priority)
                self.wake(host.id)
        self.tasks.run_freed(run)

    def _priority(self, run: int) -> int:
        active = self.runs.get(run)
        priority = 0 if active is None else active.spec.priority
        self._has_priorities = self._has_priorities or priority != 0
        if active is not None and (active.require or active.spec.placement.prefer):
            self._has_needs = True
        return priority

    def run_ended(self, run: int) -> None:
        """Remove an ended run from all hosts."""
        self.tasks.run_ended(run)
        for host in self.hosts.values():
            if run in host.runs:
                host.run_ended(run)
                self.verdicts.run_ended(run)
                for row in list(host.trials):
                    if row.run == run:
                        self.forget_trial(host.id, row.seq)
                self.granter.renew_demand(host)

    def run_freed(self, run: int) -> None:
        """Wake the hosts of a run that was resumed or may fetch more of its max_pages."""
        self.tasks.run_freed(run)
        for host in self.hosts.values():
            if run in host.runs:
                self.wake(host.id)

    def learn_pace(
        self, host_id: int, next_at: float, crawl_delay_s: float, manner: Manner | None = None
    ) -> None:
        """Store what a result says about a host: next start, crawl delay, health."""
        host = self.hosts.get(host_id)
        if host is None:
            return
        host.put_off_until(next_at)
        if host.learn_crawl_delay(crawl_delay_s):
            self.granter.renew_demand(host)
        if manner is not None:
            self.verdicts.learn_manner(host, manner)

    def learn_wait(self, host_id: int, now: float, next_in_s: float) -> None:
        """Pause a host for which a worker reported a long wait.

        Attempts that run on the host wait as well, so they must not count as overdue.
        """
        if next_in_s > LONG_WAIT_S:
            host = self.hosts.get(host_id)
            if host is not None and next_in_s > LONG_WAIT_S + 2 * host.interval_s:
                host.pause_until(now + next_in_s)

    def wake(self, host_id: int) -> None:
        """Put a host into the heap for the moment at which its next request may be sent."""
        host = self.hosts.get(host_id)
        if host is not None:
            # Rows that end without a request do not wait for the pace.
            at_once = host.verdicts or (len(host.runs) > 1 and self.gates.runs_without_lease(host))
            self._due.push(host, -math.inf if at_once else host.pace.ready_at() - LOOKAHEAD_S)

    def next_due_at(self) -> float:
        """Return when `plan` has to be called again."""
        due_at = self._due.next_at()
        turn_over_at = self.candidates.turn_over_at()
        return min(due_at, turn_over_at, self.groups.next_due_at(), self.tasks.next_due_at())

    # ------------------------------------------------------------ workers

    def process_joined(self, name: ProcessName, now: float) -> None:
        """Look at all hosts again, because the new process may own some of them."""
        self.granter.process_joined(name, now)
        self.tasks.workers_changed()
        for host in self.hosts.values():
            self.wake(host.id)

    def process_gone(self, name: ProcessName, now: float) -> None:
        """Free the hosts of a process that is certainly dead: it said BYE or was replaced."""
        self.granter.process_gone(name, now)
        self._unpark(name)

    def process_lost(self, name: ProcessName, last_start_at: float) -> None:
        """Free the hosts of a silent process, which starts nothing after `last_start_at`."""
        self.granter.process_lost(name, last_start_at)
        self._unpark(name)

    def _unpark(self, name: ProcessName) -> None:
        """Wake the hosts that wait for a process."""
        for host_id in self._parking.take_all(name):
            self.wake(host_id)

    def worker_drained(self, worker: WorkerInfo) -> None:
        """Move hosts away from a drained worker, or back after it was undrained."""
        self.tasks.workers_changed()
        for host in self.hosts.values():
            if not worker.drained or worker.name in host.parts:
                self.granter.dirty[host.id] = None
                self.wake(host.id)

    def worker_lacks(self, run: int) -> None:
        """Review the hosts of a run, because a worker lacks the run's code or plugin."""
        self._has_needs = True
        self.tasks.workers_changed()
        for host in self.hosts.values():
            if run in host.runs:
                self.granter.dirty[host.id] = None

    def _wake_parked(self) -> bool:
        """Wake one parked host for each free credit; return whether any was woken."""
        woken = self._parking.take_for_credit(self.roster)
        for host_id in woken:
            self.wake(host_id)
        return bool(woken)

    def owners_stored(self, owners: list[tuple[int, tuple[ProcessName, ...]]]) -> None:
        """Wake hosts whose owners are in the database now: they may get requests."""
        self.granter.owners_stored(owners)
        for host_id, _ in owners:
            self.wake(host_id)

    # ------------------------------------------------------------ leases

    def close_lease(self, lease: Lease) -> None:
        """Close a lease, and wake the hosts that may have waited for its end.

        A run with max_pages may start another request. A run that has nothing left at the host's
        owner may send a request early.
        """
        run, host_id = lease.row.run, lease.row.host
        self.leases.close(lease.row.seq)
        if not lease.received:
            self.lease_left(lease.worker, lease.row)
        if run in self._capped:
            self._capped.discard(run)
            self.run_freed(run)
        host = self.hosts.get(host_id)
        if host is not None and len(host.runs) > 1:
            self.wake(host_id)
        self.verdicts.lease_closed(run, host_id)

    def cancel_lease(self, lease: Lease, now: float) -> None:
        """Close the lease of an ended run; the worker may run the request a little longer."""
        host = self.hosts.get(lease.row.host)
        if host is not None and not lease.received and lease.worker.name in host.parts:
            host.parts[lease.worker.name].lease_cancelled(now)
        self.close_lease(lease)

    def lease_left(self, worker: WorkerInfo, row: QueuedRow) -> None:
        """Note that a worker no longer holds a request of a host."""
        if row.host == NO_HOST:
            self.tasks.lease_left(row)
            return
        host = self.hosts.get(row.host)
        if host is None:
            return
        if (part := host.parts.get(worker.name)) is not None:
            part.lease_left()
        self.groups.leases_changed(host, -1)
        self.wake(row.host)

    def take_back_start(self, host_id: int) -> None:
        """Give the start time of a request back to the pace: it was sent and never started."""
        host = self.hosts.get(host_id)
        if host is not None:
            host.take_back_start()

    def is_closed(self, host_id: int, now: float) -> bool:
        """Return whether the hours of its jobs forbid requests to the host now."""
        host = self.hosts.get(host_id)
        return host is not None and self.gates.closed_s(host, now) > 0

    def lease_adopted(self, worker: WorkerInfo, row: QueuedRow) -> None:
        """Count a request that a worker already held when it joined."""
        if row.host == NO_HOST:
            return
        host = self.hosts[row.host]
        self.groups.leases_changed(host, +1)
        if (part := host.parts.get(worker.name)) is not None:
            part.lease_opened()

    # ------------------------------------------------------------ trials (rule `crashes`)

    def put_on_trial(self, row: QueuedRow, alone: bool) -> None:
        """Queue a request again that had started when its worker died.

        A worker gets one such suspect at a time. `alone` means that a second worker died, so the
        next one must hold nothing else.
        """
        host = self.hosts.get(row.host)
        if row.host == NO_HOST:
            self._trials.put(self.tasks, row, alone)
        elif host is not None:
            self._trials.put(host, row, alone)
            self.wake(row.host)

    def forget_trial(self, host_id: int, seq: int) -> QueuedRow | None:
        """Take a suspect out of the trials and return its row, if it waits there."""
        if host_id == NO_HOST:
            return self._trials.forget(self.tasks, seq) if seq in self.trials else None
        host = self.hosts.get(host_id)
        return None if host is None or seq not in self.trials else self._trials.forget(host, seq)

    # ------------------------------------------------------------ planning

    def plan(self, now: float) -> DispatchPlan:
        """Plan all requests that can be sent now."""
        self._batches.begin()
        for run, host_id in self.frontier.mature(now):
            self.lane_opened(run, host_id)
        if now >= self.balancer.due_at:
            self.balancer.balance(now)
        self.candidates.review_turns(now)
        self._settle_dirty(now)
        for host_id, name in self.granter.overdue_confirmations(now):
            self._batches.add_grant(self.hosts[host_id], name)
        if self.granter.news:
            for host_id in self.granter.news:
                for name in self.hosts[host_id].parts:
                    self._batches.add_grant(self.hosts[host_id], name)
            self.granter.news.clear()
        for host_id in (*self.groups.due(now), *self._trials.hosts):
            self.wake(host_id)
        # A woken host may not use the credit, so the parked ones are asked again.
        while self._wake_parked() or self._due.is_due(now):
            if self._has_priorities:
                self._dispatch_by_priority(now)
            while (host := self._due.take(now)) is not None:
                self._dispatch(host, now)
            self._settle_dirty(now)  # hosts for which no owner was found
        self.tasks.plan(now)
        return self._batches.plan

    def _dispatch_by_priority(self, now: float) -> None:
        """Dispatch the hosts that are due, the highest priority of their ready runs first.

        So a scarce credit goes to them. It costs more than to take the hosts by their moments.
        """
        ready: list[tuple[int, int, int]] = []
        turn = 0
        while ready or self._due.is_due(now):
            while (host := self._due.take(now)) is not None:
                turn += 1
                heapq.heappush(ready, (-self.gates.rank(host), turn, host.id))
            if ready:
                self._dispatch(self.hosts[heapq.heappop(ready)[2]], now)

    def _settle_dirty(self, now: float) -> None:
        """Choose owners for the hosts whose parts may have to change."""
        if not self.granter.dirty:
            return
        usable = [worker for worker in self.roster.workers.values() if worker.usable]
        # A suspect worker that speaks again changes no host, so hosts without an owner look for it.
        awaited = any(worker.state is NodeState.SUSPECT for worker in self.roster.workers.values())
        is_choosy = self.candidates.is_choosy(usable)
        dirty, self.granter.dirty = self.granter.dirty, {}
        for host_id in dirty:
            host = self.hosts[host_id]
            if not self.gates.has_rows(host) and not host.parts:
                continue  # it gets an owner when it has work
            able = self.candidates.choose(host, usable, now) if is_choosy else usable
            result = self.granter.settle(host, able, now)
            for name in result.lowered:
                self._batches.add_grant(host, name)
            if result.owners:
                self._batches.plan.owners.append((host.id, result.owners))
            if result.raised:
                self.wake(host.id)
            if result.look_again_at < math.inf:
                self._due.push(host, result.look_again_at)
            elif awaited and not host.parts and not result.owners:
                self._due.push(host, now + SUSPECT_LOOK_S)

    def _dispatch(self, host: HostState, now: float) -> None:
        """Send one request of the host if nothing forbids it, and put it into the heap again."""
        if host.storing or not self.gates.has_rows(host):
            return
        if host.is_inherited(now):
            self._due.push(
                host, host.inherited_until
            )  # its owner may hold its rows until it says HELLO
            return
        if host.verdicts and self._end_row(host, now):
            self._due.push(host, now)
            return
        ready_at = host.pace.ready_at()
        if host.demand.hours:
            opens_at = self.gates.opens_at(host, now, ready_at)
            if opens_at > now:
                self._due.push(host, opens_at)
                return
        waiting: list[int] = []  # runs that have no request there yet
        if ready_at - LOOKAHEAD_S > now:
            waiting = self.gates.runs_without_lease(host) if len(host.runs) > 1 else []
            if not waiting:
                self._due.push(host, ready_at - LOOKAHEAD_S)
                return
        if host.groups and not self.groups.admits(host, now):
            return
        ready_at = self.gates.ready_at(host)
        ahead = ready_at - NEAR_S > now and not waiting
        owners = self._choose_owners(host, ahead)
        for worker, part in owners:
            row = self._next_row(host, worker, waiting or host.runs)
            if row is None:
                if worker.reserved:  # kept free for a suspect: no credit until then
                    self._parking.park(worker.name, host.id, self.gates.rank(host))
                continue
            verdict = ATTEMPT_OVERDUE if row.seq in self.overdue else ""
            self._send(host, worker, part, row, now, verdict, ahead=ahead)
            host.request_sent(now)
            self.groups.sent(host, now)
            self._due.push(host, host.pace.ready_at() - LOOKAHEAD_S)
            return
        if waiting:  # none of these runs could start a request; the others may soon send one early
            self._due.push(host, host.pace.ready_at() - LOOKAHEAD_S)
        if ahead:  # another owner may only have no credit for early requests
            self._due.push(host, ready_at - NEAR_S)

    def _end_row(self, host: HostState, now: float) -> bool:
        """Send a row that ends without a request, at once and outside the pace.

        A worker reports its end, so that the end is stored like any other result.
        """
        run = self.gates.ending_run(host)
        if run is None:
            return False
        owners = self._choose_owners(host)
        row = self.frontier.pop((run, host.id)) if owners else None
        if row is None:
            return False
        self._send(host, *owners[0], row, now, verdict=host.verdicts[run])
        return True

    def _choose_owners(self, host: HostState, ahead: bool = False) -> list[tuple[WorkerInfo, Part]]:
        """Return the owners that can take a request; park the host at those that cannot."""
        choice = self.gates.choice(host, ahead)
        for name in choice.waited_for:
            self._parking.park(name, host.id, self.gates.rank(host))
        if choice.gate is Gate.NO_OWNER:
            self.granter.dirty[host.id] = None
        return choice.owners

    def _next_row(self, host: HostState, worker: WorkerInfo, runs: list[int]) -> QueuedRow | None:
        """Return the next row for the worker: a crash suspect, or else of these runs, by priority
        and in turn."""
        row = self._trials.next_row(host, worker) if host.trials else None
        if row is not None or worker.reserved:
            return row
        for run in host.turns():
            if run not in runs:
                continue
            may = self._may_start(run, worker) and self.verdicts.may_reserve_page(run, host)
            row = self.frontier.pop((run, host.id)) if may else None
            if row is not None:
                host.took_turn(run)
                return row
        return None

    def _may_start(self, run: int, worker: WorkerInfo) -> bool:
        """Return whether a run may start a request; remember runs that reached max_pages."""
        if self._could_start(run, worker):
            return True
        active = self.runs.get(run)
        if active is not None and active.dispatches and can_serve(active, worker):
            self._capped.add(run)
        return False

    def _send(
        self,
        host: HostState,
        worker: WorkerInfo,
        part: Part,
        row: QueuedRow,
        now: float,
        verdict: str = "",
        *,
        ahead: bool = False,
    ) -> None:
        """Open a lease for the row of a host and add its assignment to the worker's batch."""
        sending = self._batches.lease(worker, row, now, verdict, ahead=ahead)
        sending.hosts[host.id] = None
        part.lease_opened()
        self.groups.leases_changed(host, +1)

    def _send_task(self, worker: WorkerInfo, row: QueuedRow, now: float, verdict: str) -> None:
        """Open a lease for a task and add its assignment to the worker's batch."""
        self._batches.lease(worker, row, now, verdict)

    def _is_forgotten(self, host: HostState, now: float) -> bool:
        """Return whether a request could be sent, but nothing will wake the host in time."""
        if host.due_at <= now:
            return False
        in_time = max(now, self.gates.ready_at(host) - NEAR_S)
        if host.due_at <= in_time or self.gates.gate(host, now) is not Gate.OPEN:
            return False
        if any(host.id in group.waiting for group in host.groups):
            return False  # a shared limit wakes it
        # A parked host may only be able to send early, because its pace went back.
        parked = self._parking.has(host.id)
        return not parked or bool(self.gates.choice(host, ahead=False).owners)

    def check_awake(self, now: float) -> None:
        """Assert after a plan that every host with an open gate will be woken."""
        for host in self.hosts.values():
            assert not self._is_forgotten(host, now), (
                f"host {host.id} has an open gate, and nothing wakes it"
            )
        self.tasks.check_awake(now)

    def check(self) -> None:
        self.granter.check()
        self.candidates.check()
        self._due.check()
        self.tasks.check()
        waiting = {row.seq for host in self.hosts.values() for row in host.trials}
        waiting.update(row.seq for row in self.tasks.trials)
        assert waiting == self.trials, "the set of trials has exactly the suspects of all hosts"
