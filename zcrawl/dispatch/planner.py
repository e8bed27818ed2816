"""Which request goes to which worker now: the planner, and the plans that it makes.

Called by the leader after every event. Hosts with work stand in a heap by the moment at which
their pace allows the next dispatch, so picking the next due host costs O(log hosts). URLs are
sent up to LOOKAHEAD_S ahead of the pace, so that workers go on while another leader takes over;
those have a credit of their own, and where it is used up a URL goes NEAR_S before it can start. A
run that has nothing at the owner of a host is not kept waiting by what others have there ahead:
the worker takes runs in turn. A host that cannot go on leaves the heap and is woken by what it
waits for:

| waits for            | woken by                                   |
|----------------------|--------------------------------------------|
| ready rows           | insert, refill, a retry's due time         |
| room at its owner    | a received result, a reject                |
| its owner's credit   | parked at the worker, `_call_parked`       |
| a suspect owner      | parked at the worker, until it is heard    |
| a grant              | join, confirmation, loss                   |
| its stored owners    | `owners_stored`                            |
| a worker for suspect | every plan: such hosts are few             |
| another's suspect    | parked at the worker that is kept free     |
| its run              | resume, a slot of max_pages given back     |
| its hours            | the moment at which they begin             |
| its groups           | stands in their line, `shared_limits.due`  |

The planner changes leases and grants; sending is its caller's effect.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import math

import msgspec

from zcrawl.dispatch.crash_suspects import Claim, Trials
from zcrawl.dispatch.early_ends import Verdicts
from zcrawl.dispatch.host_owners import Granter
from zcrawl.dispatch.host_state import HostState, Part
from zcrawl.dispatch.leases import Lease, Leases
from zcrawl.dispatch.roster import Roster, WorkerInfo
from zcrawl.dispatch.runs import Runs
from zcrawl.dispatch.shared_limits import NEAR_S
from zcrawl.frontier.frontier import Frontier
from zcrawl.frontier.pace import opens_in_s
from zcrawl.mesh.messages import Assignment
from zcrawl.mesh.timing import LOOKAHEAD_S
from zcrawl.model.host import Manner
from zcrawl.model.process_name import ProcessName, worker_of
from zcrawl.model.reasons.failure import ATTEMPT_OVERDUE
from zcrawl.model.rows import QueuedRow


class WorkerBatch(msgspec.Struct):
    """What one worker is to be sent now."""

    worker: WorkerInfo
    number: int
    urls: list[Assignment] = msgspec.field(default_factory=list)
    hosts: dict[int, None] = msgspec.field(default_factory=dict)


class DispatchPlan(msgspec.Struct):
    sendings: dict[ProcessName, WorkerBatch] = msgspec.field(default_factory=dict)
    owners: list[tuple[int, tuple[ProcessName, ...]]] = msgspec.field(default_factory=list)


class Gate(enum.Enum):
    """What keeps the planner from sending a request of a host, in the order in which it asks."""

    STORING = enum.auto()  # its owners are being committed
    NO_ROWS = enum.auto()  # nothing that could be sent is in memory
    INHERITED = enum.auto()  # a previous leader's owner may still fetch
    ENDING = enum.auto()  # its rows end without a request, as soon as its owner takes them
    HOURS = enum.auto()  # outside the hours of its jobs
    PACE = enum.auto()  # too far ahead of its pace
    SHARED = enum.auto()  # a limit that it shares with other hosts
    NO_OWNER = enum.auto()  # no usable worker has a part of it
    CREDIT = enum.auto()  # its owners take no more requests
    ROOM = enum.auto()  # its owners hold as many requests of it as they may
    TRIAL = enum.auto()  # crash suspects wait for a worker, one such to each
    RUNS = (
        enum.auto()
    )  # no run with rows may start one: page limits, a pause, or what its owner lacks
    OPEN = enum.auto()  # nothing: a request is sent


class Choice(msgspec.Struct):
    """Which owners of a host have room for its next request; without any, what is lacking."""

    gate: Gate = Gate.NO_OWNER
    owners: list[tuple[WorkerInfo, Part]] = msgspec.field(default_factory=list)  # the best first
    waited_for: list[ProcessName] = msgspec.field(default_factory=list)  # no credit, or suspect


LONG_WAIT_S = 5.0  # of a host, beyond its pace


class Planner:
    def __init__(
        self, epoch: int, roster: Roster, leases: Leases, frontier: Frontier, runs: Runs
    ) -> None:
        self.epoch = epoch
        self.granter = Granter(roster, runs, first_revision=epoch << 32)
        self.hosts = self.granter.hosts
        self.groups = self.granter.groups
        self.verdicts = Verdicts(self.hosts, leases, runs, self.wake)
        self._trials = Trials(roster, self._may_start, self._could_start)
        self.trials = self._trials.seqs  # of crash suspects that wait for a worker
        self.roster, self.leases = roster, leases
        self.frontier, self.runs = frontier, runs
        self._due: list[tuple[float, int, int]] = []  # (moment, turn, host)
        self._turn = 0
        self._parked: dict[ProcessName, dict[int, None]] = {}  # → hosts that wait for it
        self._capped: set[int] = set()  # runs that have reserved all of their max_pages
        self._plan = DispatchPlan()
        self.overdue: set[int] = set()  # requests whose attempts were all lost: they end

    # ------------------------------------------------------------ hosts and runs

    def lane_opened(self, run: int, host_id: int) -> None:
        """A run has rows of a host: its demand counts from now on."""
        host = self.hosts[host_id]
        if run not in host.runs:
            host.add_run(run)
            self.granter.renew_demand(host)
        self.wake(host_id)

    def run_ended(self, run: int) -> None:
        for host in self.hosts.values():
            if run in host.runs:
                host.run_ended(run)
                self.verdicts.run_ended(run)
                for row in list(host.trials):
                    if row.run == run:
                        self.forget_trial(host.id, row.seq)
                self.granter.renew_demand(host)

    def run_freed(self, run: int) -> None:
        """A run was resumed, or has a slot of max_pages again."""
        for host in self.hosts.values():
            if run in host.runs:
                self.wake(host.id)

    def learn_pace(
        self, host_id: int, next_at: float, crawl_delay_s: float, manner: Manner | None = None
    ) -> None:
        host = self.hosts.get(host_id)
        if host is None:
            return
        host.put_off_until(next_at)
        if host.learn_crawl_delay(crawl_delay_s):
            self.granter.renew_demand(host)
        if manner is not None:
            self.verdicts.learn_manner(host, manner)

    def learn_wait(self, host_id: int, now: float, next_in_s: float) -> None:
        """A worker says when its host may be asked again: a long wait holds up what runs, too."""
        if next_in_s > LONG_WAIT_S:
            host = self.hosts.get(host_id)
            if host is not None and next_in_s > LONG_WAIT_S + 2 * host.interval_s:
                host.pause_until(now + next_in_s)

    def wake(self, host_id: int) -> None:
        host = self.hosts.get(host_id)
        if host is not None:
            # What only has to end waits for no pace.
            at_once = host.verdicts or (len(host.runs) > 1 and self._kept_waiting(host))
            self._push(host, -math.inf if at_once else host.pace.ready_at() - LOOKAHEAD_S)

    def _push(self, host: HostState, moment: float) -> None:
        """Stand in the heap for `moment`, or for an earlier one already agreed."""
        if host.schedule(moment):
            self._turn += 1
            heapq.heappush(self._due, (moment, self._turn, host.id))

    def next_due_at(self) -> float:
        return min(self._due[0][0] if self._due else math.inf, self.groups.next_due_at())

    # ------------------------------------------------------------ workers

    def process_joined(self, name: ProcessName, now: float) -> None:
        self.granter.process_joined(name, now)
        for host in self.hosts.values():
            self.wake(host.id)

    def process_gone(self, name: ProcessName, now: float) -> None:
        """A process is certainly dead: replaced, or it said BYE."""
        self.granter.process_gone(name, now)
        self._unpark(name)

    def process_lost(self, name: ProcessName, last_start_at: float) -> None:
        """A process may live, but starts nothing after `last_start_at`."""
        self.granter.process_lost(name, last_start_at)
        self._unpark(name)

    def _unpark(self, name: ProcessName) -> None:
        for host_id in self._parked.pop(name, {}):
            self.wake(host_id)

    def worker_drained(self, worker: WorkerInfo) -> None:
        """It gets no work any more, or some again: then every host may be better placed."""
        for host in self.hosts.values():
            if not worker.drained or worker.name in host.parts:
                self.granter.dirty[host.id] = None
                self.wake(host.id)

    def worker_lacks(self, run: int) -> None:
        """A worker cannot do a run's requests: their hosts go to one that can."""
        for host in self.hosts.values():
            if run in host.runs:
                self.granter.dirty[host.id] = None

    def _call_parked(self) -> bool:
        """One host for each credit, and once in a plan: 80 results together call 80 hosts. Return
        whether there was one to call."""
        called = False
        for name, hosts in self._parked.items():
            worker = self.roster.workers.get(worker_of(name))
            if hosts and worker is not None and worker.name == name and worker.usable:
                for host_id in list(itertools.islice(hosts, max(0, worker.credit))):
                    del hosts[host_id]
                    self.wake(host_id)
                    called = True
        return called

    def owners_stored(self, owners: list[tuple[int, tuple[ProcessName, ...]]]) -> None:
        """Nothing was sent of these hosts meanwhile, and it may be that no part of them changes."""
        self.granter.owners_stored(owners)
        for host_id, _ in owners:
            self.wake(host_id)

    # ------------------------------------------------------------ leases

    def close_lease(self, lease: Lease) -> None:
        """Whatever became of it: with max_pages the hosts of its run may go on; and maybe it was
        all that its run had at the owner of its host, while others have more there."""
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
        """Its run ended; its request may still run until the worker hears of it."""
        host = self.hosts.get(lease.row.host)
        if host is not None and not lease.received and lease.worker.name in host.parts:
            host.parts[lease.worker.name].lease_cancelled(now)
        self.close_lease(lease)

    def lease_left(self, worker: WorkerInfo, row: QueuedRow) -> None:
        """A lease of this host is no longer in the worker's hands."""
        host = self.hosts.get(row.host)
        if host is None:
            return
        if (part := host.parts.get(worker.name)) is not None:
            part.lease_left()
        self.groups.leased(host, -1)
        self.wake(row.host)

    def taken_back(self, host_id: int) -> None:
        """A URL that was sent comes back and was never started."""
        host = self.hosts.get(host_id)
        if host is not None:
            host.taken_back()

    def is_closed(self, host_id: int, now: float) -> bool:
        """Whether the hours of its jobs forbid to ask the host now."""
        host = self.hosts.get(host_id)
        return host is not None and self.closed_s(host, now) > 0

    def closed_s(self, host: HostState, now: float) -> float:
        """Return for how long the hours of its jobs forbid to ask the host; 0: they do not."""
        return opens_in_s(host.demand.hours, now + self.granter.clock_offset)

    def lease_adopted(self, worker: WorkerInfo, row: QueuedRow) -> None:
        host = self.hosts[row.host]
        self.groups.leased(host, +1)
        if (part := host.parts.get(worker.name)) is not None:
            part.lease_opened()

    # ------------------------------------------------------------ trials (rule `crashes`)

    def put_on_trial(self, row: QueuedRow, alone: bool) -> None:
        """It had started when its worker died: it is leased again, one such to a worker; if that
        one died as well, with nothing else in its worker's hands."""
        host = self.hosts.get(row.host)
        if host is not None:
            self._trials.put(host, row, alone)
            self.wake(row.host)

    def forget_trial(self, host_id: int, seq: int) -> QueuedRow | None:
        host = self.hosts.get(host_id)
        return None if host is None or seq not in self.trials else self._trials.forget(host, seq)

    # ------------------------------------------------------------ planning

    def plan(self, now: float) -> DispatchPlan:
        self._plan = DispatchPlan()
        for run, host_id in self.frontier.mature(now):
            self.lane_opened(run, host_id)
        self._settle_dirty(now)
        for host_id, name in self.granter.unconfirmed(now):
            self._tell(self.hosts[host_id], name)
        if self.granter.news:
            for host_id in self.granter.news:
                for name in self.hosts[host_id].parts:
                    self._tell(self.hosts[host_id], name)
            self.granter.news.clear()
        for host_id in (*self.groups.due(now), *self._trials.hosts):
            self.wake(host_id)
        while self._call_parked() or self._is_one_due(now):  # who is called may have no use for it
            while self._is_one_due(now):
                moment, _, host_id = heapq.heappop(self._due)
                host = self.hosts[host_id]
                if host.due_at == moment:  # else it was called earlier, and has been looked at
                    host.unschedule()
                    self._dispatch(host, now)
            self._settle_dirty(now)  # hosts that turned out to have no owner
        return self._plan

    def _is_one_due(self, now: float) -> bool:
        return bool(self._due) and self._due[0][0] <= now

    def _settle_dirty(self, now: float) -> None:
        if not self.granter.dirty:
            return
        usable = [worker for worker in self.roster.workers.values() if worker.usable]
        dirty, self.granter.dirty = self.granter.dirty, {}
        for host_id in dirty:
            host = self.hosts[host_id]
            if not self._has_rows(host) and not host.parts:
                continue  # it gets an owner when it has work
            able = [worker for worker in usable if worker.lacks.keys().isdisjoint(host.runs)]
            result = self.granter.settle(host, able or usable, now)
            for name in result.lowered:
                self._tell(host, name)
            if result.owners:
                self._plan.owners.append((host.id, result.owners))
            if result.raised:
                self.wake(host.id)
            if result.look_again_at < math.inf:
                self._push(host, result.look_again_at)

    def _tell(self, host: HostState, name: ProcessName) -> None:
        worker = self.roster.workers.get(worker_of(name))
        if worker is not None and worker.name == name:
            self._sending(worker).hosts[host.id] = None

    def _sending(self, worker: WorkerInfo) -> WorkerBatch:
        sending = self._plan.sendings.get(worker.name)
        if sending is None:
            sending = self._plan.sendings[worker.name] = WorkerBatch(worker, worker.next_number())
        return sending

    def _dispatch(self, host: HostState, now: float) -> None:
        """Send one URL of this host, if anything allows it, and stand in the heap again."""
        if host.storing or not self._has_rows(host):
            return
        if host.is_inherited(now):
            self._push(host, host.inherited_until)  # who has not said HELLO may hold its rows
            return
        if host.verdicts and self._end_a_row(host, now):
            self._push(host, now)
            return
        ready_at = host.pace.ready_at()
        if host.demand.hours:
            opens_at = self._opens_at(host, now, ready_at)
            if opens_at > now:
                self._push(host, opens_at)
                return
        waiting: list[int] = []  # runs that have nothing there yet
        if ready_at - LOOKAHEAD_S > now:
            waiting = self._kept_waiting(host) if len(host.runs) > 1 else []
            if not waiting:
                self._push(host, ready_at - LOOKAHEAD_S)
                return
        if host.groups and not self.groups.admits(host, now):
            return
        ready_at = self._ready_at(host)
        ahead = ready_at - NEAR_S > now and not waiting
        owners = self._choose_owners(host, ahead)
        if not owners and ahead:
            self._push(host, ready_at - NEAR_S)
        for worker, part in owners:
            row = self._next_row(host, worker, waiting or host.runs)
            if row is None:
                if worker.reserved:  # for a suspect: it has no credit until it is free
                    self._parked.setdefault(worker.name, {})[host.id] = None
                continue
            verdict = ATTEMPT_OVERDUE if row.seq in self.overdue else ""
            self._send(host, worker, part, row, now, verdict, ahead=ahead)
            host.request_sent(now)
            self.groups.sent(host, now)
            self._push(host, host.pace.ready_at() - LOOKAHEAD_S)
            return

    def gate(self, host: HostState, now: float) -> Gate:
        """Return what keeps a request of the host from being sent now: the questions of
        `_dispatch` in its order, without what it does about them. For people and checks."""
        if host.storing:
            return Gate.STORING
        if not self._has_rows(host):
            return Gate.NO_ROWS
        if host.is_inherited(now):
            return Gate.INHERITED
        if self._ending_run(host) is not None:
            return Gate.ENDING
        ready_at = host.pace.ready_at()
        if host.demand.hours and self._opens_at(host, now, ready_at) > now:
            return Gate.HOURS
        waiting: list[int] = []
        if ready_at - LOOKAHEAD_S > now:
            waiting = self._kept_waiting(host) if len(host.runs) > 1 else []
            if not waiting:
                return Gate.PACE
        if self.groups.obstacle(host, now) is not None:
            return Gate.SHARED
        ahead = self._ready_at(host) - NEAR_S > now and not waiting
        choice = self._choice(host, ahead)
        gates = []
        claimed: set[int] = set()  # suspects for which one of the owners before is kept free
        for worker, _ in choice.owners:
            gate = self._row_gate(host, worker, waiting or host.runs, claimed)
            if gate is Gate.OPEN:
                return gate
            gates.append(gate)
        return gates[0] if gates else choice.gate

    def _row_gate(
        self, host: HostState, worker: WorkerInfo, runs: list[int], claimed: set[int]
    ) -> Gate:
        """The questions of `_next_row`."""
        claim = Claim.NONE
        if host.trials:
            claim, seq = self._trials.claim_on(worker, host, claimed)
            if claim is Claim.KEPT_FREE:
                claimed.add(seq)
        if claim is Claim.SUSPECT:
            return Gate.OPEN
        if worker.reserved or claim is Claim.KEPT_FREE:
            return Gate.TRIAL
        ready = [run for run in runs if self.frontier.has_ready((run, host.id))]
        for run in ready:
            if self._could_start(run, worker) and self.verdicts.has_room(run, host):
                return Gate.OPEN
        return Gate.RUNS if ready else Gate.TRIAL

    def _ready_at(self, host: HostState) -> float:
        """The earliest start of a request, by the pace of the host and of its groups."""
        ready_at = host.pace.ready_at()
        if host.groups:
            ready_at = max(ready_at, *(group.pace.ready_at() for group in host.groups))
        return ready_at

    def _opens_at(self, host: HostState, now: float, ready_at: float) -> float:
        """When a URL may be sent, by the hours of its jobs: not before it could start in them."""
        opens_at = now + self.closed_s(host, now)
        if opens_at <= now < ready_at - NEAR_S and self.closed_s(host, ready_at) > 0:
            return ready_at - NEAR_S  # it closes before
        return opens_at

    def _kept_waiting(self, host: HostState) -> list[int]:
        """Runs that have rows of the host and nothing at any worker, while others have."""
        held = self.leases.by_lane
        return [
            run
            for run in host.runs
            if (run, host.id) not in held
            and self.frontier.has_ready((run, host.id))
            and (active := self.runs.get(run)) is not None
            and active.dispatches
        ]

    def _end_a_row(self, host: HostState, now: float) -> bool:
        """Rows of a run that is done with this host end without a request, at no pace: a worker
        reports them, so that their end is a result like any other."""
        run = self._ending_run(host)
        if run is None:
            return False
        owners = self._choose_owners(host)
        row = self.frontier.pop((run, host.id)) if owners else None
        if row is None:
            return False
        self._send(host, *owners[0], row, now, verdict=host.verdicts[run])
        return True

    def _ending_run(self, host: HostState) -> int | None:
        """A run that is done with this host and has rows of it."""
        for run in host.verdicts:
            active = self.runs.get(run)
            ready = self.frontier.has_ready((run, host.id))
            if active is not None and active.dispatches and ready:
                return run
        return None

    def _has_rows(self, host: HostState) -> bool:
        return bool(host.trials) or any(
            self.frontier.has_ready((run, host.id)) for run in host.runs
        )

    def _choose_owners(self, host: HostState, ahead: bool = False) -> list[tuple[WorkerInfo, Part]]:
        choice = self._choice(host, ahead)
        for name in choice.waited_for:
            self._parked.setdefault(name, {})[host.id] = None
        if choice.gate is Gate.NO_OWNER:
            self.granter.dirty[host.id] = None
        return choice.owners

    def _choice(self, host: HostState, ahead: bool) -> Choice:
        """The granted workers with room, first who has the least of its part in hand. Who is kept
        free for a suspect, and is free now, comes before all."""
        choice = Choice()
        reserved: list[tuple[WorkerInfo, Part]] = []
        beside = len(host.runs) - 1  # a run that has nothing there yet may have one in any case
        for name, part in host.parts.items():
            worker = self.roster.workers.get(worker_of(name))
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
                continue  # it is asked again when the URL can start
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

    def _next_row(self, host: HostState, worker: WorkerInfo, runs: list[int]) -> QueuedRow | None:
        """Of these runs, in turn; crash suspects first."""
        row = self._trials.next_row(host, worker) if host.trials else None
        if row is not None or worker.reserved:
            return row
        for _ in range(len(host.runs)):
            run = host.next_run()
            if run not in runs:
                continue
            may = self._may_start(run, worker) and self.verdicts.may_have_more(run, host)
            row = self.frontier.pop((run, host.id)) if may else None
            if row is not None:
                return row
        return None

    def _may_start(self, run: int, worker: WorkerInfo) -> bool:
        if self._could_start(run, worker):
            return True
        active = self.runs.get(run)
        if active is not None and active.dispatches and run not in worker.lacks:
            self._capped.add(run)
        return False

    def _could_start(self, run: int, worker: WorkerInfo) -> bool:
        active = self.runs.get(run)
        if active is None or not active.dispatches or run in worker.lacks:
            return False
        return active.may_start(self.leases.by_run.get(run, 0))

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
        sending = self._sending(worker)
        n = self.leases.next_n()
        self.leases.open((self.epoch, n), row, worker, sending.number, now, ahead=ahead)
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
                label=row.label,
                verdict=verdict,
                extra=row.extra,
                known=row.known,
            )
        )
        sending.hosts[host.id] = None
        part.lease_opened()
        self.groups.leased(host, +1)

    def _oversleeps(self, host: HostState, now: float) -> bool:
        """Whether a request could be sent, and nothing brings the host here in time for it."""
        in_time = max(now, self._ready_at(host) - NEAR_S)
        if host.due_at <= in_time or self.gate(host, now) is not Gate.OPEN:
            return False
        if any(host.id in group.waiting for group in host.groups):
            return False  # it stands in a line that is called
        # It waits for somebody's credit, and could be sent ahead only, because its pace fell back.
        parked = any(host.id in hosts for hosts in self._parked.values())
        return not parked or bool(self._choice(host, ahead=False).owners)

    def check_awake(self, now: float) -> None:
        """After a plan: what a host waits for will bring it back."""
        for host in self.hosts.values():
            assert not self._oversleeps(host, now), f"host {host.id} sleeps with an open gate"

    def check(self) -> None:
        self.granter.check()
        waiting = {row.seq for host in self.hosts.values() for row in host.trials}
        assert waiting == self.trials, "trials are counted"
