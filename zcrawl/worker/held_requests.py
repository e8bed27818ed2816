"""The requests that a worker holds, queued per host and started at the host's pace.

ASSIGN fills the queues. `start_due` takes requests out when a slot is free, the host's pace allows
it, its grant has room and the permission to start is fresh. A cancel, a drain or a lost grant
removes them too.

The run whose job has the highest priority goes first on a host, and runs of equal priority take
turns. Requests of a run are ordered by their own priority, attempt, depth and number, because a
request that arrives later may be more urgent. Hosts that may start at the same moment take turns
too, unless their runs differ in priority.

A request is held once, even if several assignments named it; a newer lease replaces the token. A
lowered grant is in force, and is confirmed, when no more than that many of the host's requests run.

Invariants, asserted by `check()`:
- running requests of a host never exceed the largest grant that has been in force
- the pace of a host is the slowest of its grant, its robots.txt and its manners
- a held request is queued or running, never both
- running requests of a group (`shared_limits`) are those that were started under it
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque

import msgspec

from zcrawl.frontier.pace import Pace
from zcrawl.mesh.messages import Assignment, Grant, HeldLease
from zcrawl.model.host import Manner
from zcrawl.model.reasons.cluster import ANOTHER_HOST, NO_GRANT, OVER_CAPACITY
from zcrawl.model.rows import NO_HOST
from zcrawl.worker.held_tasks import HeldTasks
from zcrawl.worker.host_health import HostManners
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.shared_limits import GroupBook, Keys

MOST_HELD = 8_192  # far above any credit: a bound against a confused leader
LONGEST_WAIT_S = 7.0  # requests that wait longer are given back, so that they use no credit
LONGEST_TOLD_S = 100_000.0  # the longest reported wait of a host; a RESULT with more is refused
STALLED_S = 1.0  # after this, a request to a host that never answered uses no slot
MOST_STALLED = 4  # times the slots, of such requests
STOOD_STILL_S = 2.0  # beyond the usual pause between two turns of the loop


NO_KEY = (0, 0, 0, 0, 0)


def _key(assignment: Assignment) -> tuple[int, int, int, int, int]:
    """Return the sort key of a request within its host.

    Requests that failed before come after untried ones. Otherwise a host that is probed with one
    request at a time would only get pages that hang.
    """
    return assignment.run, assignment.prio, assignment.attempt, assignment.depth, assignment.seq


class Held(msgspec.Struct):
    """One assignment in the worker's hands."""

    assignment: Assignment
    epoch: int  # of the lease token
    started: bool = False
    started_at: float = 0.0
    groups: Keys = ()  # that it was started under
    address: str | None = None  # the only one to connect to; empty: to be found out

    def as_message(self) -> HeldLease:
        return HeldLease(self.epoch, self.started, self.assignment)


class HostWork(msgspec.Struct):
    grant: Grant
    grant_epoch: int
    pace: Pace
    manners: HostManners = msgspec.field(default_factory=HostManners)
    crawl_delay_s: float = 0.0  # from robots.txt, before the leader has put it into a grant
    queue: deque[int] = msgspec.field(default_factory=deque)
    last_key: tuple[int, int, int, int, int] = NO_KEY  # of the newest in the queue
    mixed: bool = False  # the queue is not in the order in which it is to be worked off
    turns: dict[int, int] = msgspec.field(default_factory=dict)  # run → its last turn, if mixed
    hops: deque[int] = msgspec.field(default_factory=deque)  # running, wait for a hop
    running: int = 0
    scheduled: bool = False  # is in the heap of hosts with a request to start
    hop_scheduled: bool = False  # is in the heap of hosts with a hop to start
    groups: Keys = ()

    @property
    def has_room(self) -> bool:
        most = 1 if self.manners.breaker.one_at_a_time else self.grant.concurrency
        return self.running < min(most, self.grant.concurrency)

    def renew_interval(self) -> None:
        """Apply the interval; a longer one counts from the last start on."""
        interval_s = max(self.grant.interval_s, self.crawl_delay_s, self.manners.throttle.slow_s)
        self.pace.next_at += max(0.0, interval_s - self.pace.interval_s)
        self.pace.interval_s = interval_s


class Intake:
    def __init__(self, task_slots: int = 0) -> None:
        self.held: dict[int, Held] = {}
        self.hosts: dict[int, HostWork] = {}
        self.tasks = HeldTasks(task_slots)  # those of `held` without a host
        self.priorities: dict[int, int] = {}  # run → priority of its job, if it is not 0
        self.running = 0  # without tasks
        self.groups = GroupBook()
        self._first_asked: dict[
            int, float
        ] = {}  # running, of hosts that never answered: since when
        self._timers: list[tuple[float, int, int]] = []  # (moment, turn, host)
        self._hop_timers: list[tuple[float, int, int]] = []
        self._turn = 0
        self._unconfirmed: set[int] = set()  # hosts whose newest grant was not confirmed yet
        self._turned_at = math.inf
        self._stood_still_until = -math.inf

    # ------------------------------------------------------------ taking in

    def adopt_grant(self, epoch: int, grant: Grant, now: float) -> None:
        """Apply a grant; the newest (epoch, revision) wins, and the next start never moves
        earlier."""
        host = self.hosts.get(grant.host)
        if host is None:
            pace = Pace(grant.interval_s, grant.burst, now + grant.next_in_s)
            host = self.hosts[grant.host] = HostWork(grant, epoch, pace)
            self._unconfirmed.add(grant.host)
            self._adopt_manner(host, grant.manner)
            host.groups = self.groups.adopt(epoch, grant.groups, now)
            return
        if (epoch, grant.revision) < (host.grant_epoch, host.grant.revision):
            return
        self._unconfirmed.add(grant.host)
        host.grant, host.grant_epoch = grant, epoch
        host.pace.burst = grant.burst
        host.renew_interval()
        host.pace.next_at = max(host.pace.next_at, now + grant.next_in_s)
        self._adopt_manner(host, grant.manner)
        host.groups = self.groups.adopt(epoch, grant.groups, now)
        self._schedule(grant.host)

    def _adopt_manner(self, host: HostWork, manner: Manner | None) -> None:
        if manner is not None:
            host.manners.adopt(manner)
            host.renew_interval()

    def set_priority(self, run: int, priority: int) -> None:
        """Set the priority of a run's job; 0 is usual, and is not stored."""
        if priority:
            self.priorities[run] = priority
        else:
            self.priorities.pop(run, None)

    def void_grants(self) -> None:
        """Forget all grants so far."""
        for host in self.hosts.values():
            host.grant = msgspec.structs.replace(host.grant, concurrency=0)
        self._unconfirmed.clear()

    def take(self, epoch: int, assignment: Assignment, now: float = 0.0) -> str | None:
        """Take a request; return None, or the reason of a REJECT."""
        held = self.held.get(assignment.seq)
        if held is not None:
            if assignment.host != held.assignment.host:
                return ANOTHER_HOST  # a confused leader: a request stays with its host
            if (epoch, assignment.n) > (held.epoch, held.assignment.n):
                held.epoch, held.assignment = epoch, assignment
            return None
        host = self.hosts.get(assignment.host)
        if assignment.host == NO_HOST:
            if len(self.held) >= MOST_HELD or not self.tasks.slots:
                return OVER_CAPACITY
            self.held[assignment.seq] = Held(assignment, epoch)
            priority = self.priorities.get(assignment.run, 0)
            self.tasks.take(assignment.seq, priority, now)
            return None
        if host is None or host.grant.concurrency == 0:
            return NO_GRANT
        if len(self.held) >= MOST_HELD:
            return OVER_CAPACITY
        self.held[assignment.seq] = Held(assignment, epoch)
        key = _key(assignment)
        if not host.queue:
            host.mixed = False
        elif key[0] != host.last_key[0] or key < host.last_key:
            host.mixed = True
        host.last_key = key
        host.queue.append(assignment.seq)
        self._schedule(assignment.host)
        return None

    # ------------------------------------------------------------ starting and ending

    def start_due(self, now: float, most: int) -> tuple[list[Held], list[int]]:
        """Return up to `most` requests to start now, and running ones whose next hop may start.

        Running requests have a slot already, so their hops come first and have no limit.
        """
        hops: list[int] = []
        while (host_id := self._next_due(self._hop_timers, now)) is not None:
            host = self.hosts[host_id]
            host.hop_scheduled = False
            if host.hops:
                host.pace.take(now)
                seq = host.hops.popleft()
                self.groups.hop(self.held[seq].groups, now)
                hops.append(seq)
            self._schedule(host_id)
        if self.priorities:
            return self._start_by_priority(now, most), hops
        started: list[Held] = []
        while len(started) < most:
            host_id = self._next_due(self._timers, now)
            if host_id is None:
                break
            self._start_one(host_id, now, started)
        return started, hops

    def _start_one(self, host_id: int, now: float, started: list[Held]) -> None:
        """Start a request of a host whose pace allows it, if it has one and room for it."""
        host = self.hosts[host_id]
        host.scheduled = False
        if host.groups and not self.groups.has_room(host.groups, host_id):
            return  # it is called when there is
        if host.queue and host.has_room:
            host.pace.take(now)
            held = self.held[self._take_next(host)]
            held.started, held.started_at = True, now
            if host.manners.breaker.one_at_a_time:
                self._first_asked[held.assignment.seq] = now
            held.groups, held.address = host.groups, host.grant.address
            self.groups.start(held.groups, now)
            host.running += 1
            self.running += 1
            started.append(held)
        self._schedule(host_id)

    def _start_by_priority(self, now: float, most: int) -> list[Held]:
        """Start requests, those of hosts with the highest priority first.

        Called if a run has a priority: it looks at the queues of all hosts that are due.
        """
        started: list[Held] = []
        due: list[tuple[int, int, int]] = []
        while len(started) < most:
            while (host_id := self._next_due(self._timers, now)) is not None:
                self._turn += 1
                heapq.heappush(due, (-self._rank(host_id), self._turn, host_id))
            if not due:
                break
            self._start_one(heapq.heappop(due)[2], now, started)
        for _, _, host_id in due:
            self.hosts[host_id].scheduled = False
            self._schedule(host_id)
        return started

    def _rank(self, host_id: int) -> int:
        """Return the highest priority of the requests that wait for a host."""
        runs = {self.held[seq].assignment.run for seq in self.hosts[host_id].queue}
        return max((self.priorities.get(run, 0) for run in runs), default=0)

    def start_tasks(self, now: float, most: int) -> list[Held]:
        """Return up to `most` tasks without a host to start now."""
        started = [self.held[seq] for seq in self.tasks.start_due(most)]
        for held in started:
            held.started, held.started_at = True, now
        return started

    def _take_next(self, host: HostWork) -> int:
        """Take the first request of the run whose turn it is."""
        if not host.mixed:
            return host.queue.popleft()
        turns, priorities = host.turns, self.priorities

        def order(seq: int) -> tuple[int, ...]:
            key = _key(self.held[seq].assignment)
            return -priorities.get(key[0], 0), turns.get(key[0], 0), *key[1:]

        seq = min(host.queue, key=order)
        host.queue.remove(seq)
        self._turn += 1
        turns[self.held[seq].assignment.run] = self._turn
        if not host.queue:
            turns.clear()
        return seq

    def _next_due(self, timers: list[tuple[float, int, int]], now: float) -> int | None:
        """Take the next host off the heap whose pace allows a request now."""
        while timers and timers[0][0] <= now:
            host = self.hosts.get(timers[0][2])
            if host is None:
                heapq.heappop(timers)
            elif (ready_at := self._ready_at(host)) > now:
                heapq.heapreplace(timers, (ready_at, timers[0][1], timers[0][2]))
            else:
                return heapq.heappop(timers)[2]
        return None

    def _ready_at(self, host: HostWork) -> float:
        """Return when the paces of the host and of its groups allow a request."""
        own = host.pace.ready_at()
        return own if not host.groups else max(own, self.groups.ready_at(host.groups))

    def want_hop(self, seq: int, crawl_delay_s: float = 0.0) -> bool:
        """Queue one more request of a running fetch (a redirect, robots.txt) for the host's
        pace."""
        held = self.held.get(seq)
        if held is None or not held.started:
            return False
        host = self.hosts[held.assignment.host]
        host.hops.append(seq)
        if crawl_delay_s > host.crawl_delay_s:
            host.crawl_delay_s = crawl_delay_s
            host.renew_interval()
        self._schedule(held.assignment.host)
        return True

    def put_off(self, seq: int, now: float) -> None:
        """Count the pace from now, because a permitted request starts only now.

        So delays do not add up. A host without a pace needs no distance.
        """
        held = self.held.get(seq)
        if held is not None and held.started and held.assignment.host != NO_HOST:
            pace = self.hosts[held.assignment.host].pace
            if pace.interval_s:
                pace.next_at = max(pace.next_at, now + pace.interval_s)
            self.groups.put_off(held.groups, now)

    def finish(self, seq: int) -> Held | None:
        """Remove a request whose fetch ended or was cancelled."""
        held = self.held.pop(seq, None)
        if held is None:
            return None
        if held.assignment.host == NO_HOST:
            self.tasks.finish(seq)
            return held
        host = self.hosts[held.assignment.host]
        if held.started:
            host.running -= 1
            self.running -= 1
            self._first_asked.pop(seq, None)
            for waiting in self.groups.end(held.groups):
                self._schedule(waiting)
            if seq in host.hops:
                host.hops.remove(seq)
        else:
            host.queue.remove(seq)
        self._schedule(held.assignment.host)
        return held

    def give_up(self, seq: int) -> bool:
        """Remove a request that has not started; return False if it has."""
        held = self.held.get(seq)
        if held is not None and held.started:
            return False
        self.finish(seq)
        return True

    def places(self, slots: int, now: float) -> int:
        """Slots, plus one for each request that waits for the first answer of its host.

        Otherwise a hundred dead hosts would block the first page of all others.
        """
        late = now - STALLED_S
        waiting = itertools.takewhile(lambda at: at <= late, self._first_asked.values())
        return slots + min(sum(1 for _ in waiting), MOST_STALLED * slots)

    def turned(self, now: float, usual_s: float) -> None:
        """Note a turn of the event loop, usually every `usual_s`.

        After a longer pause this process was suspended, and the duration of its fetches says
        nothing about the hosts.
        """
        if now - self._turned_at > usual_s + STOOD_STILL_S:
            self._stood_still_until = now
        self._turned_at = now

    def learn(self, seq: int, attempt: Attempt, now: float) -> Manner | None:
        """Apply what a finished request shows about its host; return changes for the leader."""
        held = self.held.get(seq)
        host = self.hosts.get(attempt.assignment.host)
        if held is None or host is None:
            return None
        host.crawl_delay_s = attempt.crawl_delay_s or host.crawl_delay_s
        interval_s = max(host.grant.interval_s, host.crawl_delay_s)
        timed = held.started_at >= self._stood_still_until
        not_before = host.manners.ended(
            attempt, held.started_at, interval_s, host.grant.concurrency, now, timed=timed
        )
        host.renew_interval()
        if not_before is not None:
            host.pace.not_before(not_before)
        return host.manners.news()

    def waiting_long(self, now: float) -> list[int]:
        """Return requests whose host will not get a request soon, and tasks without a slot."""
        tasks = self.tasks.waiting_long(now)
        late = {
            host_id
            for host_id, host in self.hosts.items()
            if host.queue and self._ready_at(host) > now + LONGEST_WAIT_S
        }
        if not late:
            return tasks
        return tasks + [
            s for s, h in self.held.items() if not h.started and h.assignment.host in late
        ]

    def next_in_s(self, host_id: int, now: float) -> float:
        host = self.hosts.get(host_id)
        return 0.0 if host is None else min(max(0.0, host.pace.next_at - now), LONGEST_TOLD_S)

    def granted(self) -> list[tuple[int, int]]:
        """Return (host, requests at a time) of the hosts that have requests here."""
        hosts = {held.assignment.host for held in self.held.values()} - {NO_HOST}
        return [(host_id, self.hosts[host_id].grant.concurrency) for host_id in sorted(hosts)]

    def queued(self) -> list[int]:
        return [seq for seq, held in self.held.items() if not held.started]

    def confirmations(self) -> list[tuple[int, int]]:
        """Return (host, revision) of grants that came into force since the last call."""
        confirmed = []
        for host_id in list(self._unconfirmed):
            host = self.hosts[host_id]
            if host.running <= host.grant.concurrency:
                self._unconfirmed.discard(host_id)
                confirmed.append((host_id, host.grant.revision))
        return confirmed

    def forget_idle(self, now: float) -> None:
        """Forget hosts that this worker no longer owns, once their pace has passed."""
        for host_id, host in list(self.hosts.items()):
            busy = host.queue or host.running or host_id in self._unconfirmed
            if host.grant.concurrency == 0 and not busy and host.pace.next_at <= now:
                del self.hosts[host_id]
        self.groups.forget_idle((host.groups for host in self.hosts.values()), now)

    def next_start_at(self) -> float:
        return self._timers[0][0] if self._timers else float("inf")

    def next_hop_at(self) -> float:
        return self._hop_timers[0][0] if self._hop_timers else float("inf")

    # ------------------------------------------------------------ inside

    def _schedule(self, host_id: int) -> None:
        host = self.hosts.get(host_id)
        if host is None:
            return
        if host.hops and not host.hop_scheduled:
            host.hop_scheduled = True
            self._turn += 1
            heapq.heappush(self._hop_timers, (self._ready_at(host), self._turn, host_id))
        if host.queue and host.has_room and not host.scheduled:
            host.scheduled = True
            self._turn += 1
            heapq.heappush(self._timers, (self._ready_at(host), self._turn, host_id))

    def check(self) -> None:
        queued: set[int] = set()
        lengths = of_hosts = 0
        for host in self.hosts.values():
            queued.update(host.queue)
            lengths += len(host.queue)
            of_hosts += host.running
        started = {seq for seq, held in self.held.items() if held.started}
        tasks = {seq for seq, held in self.held.items() if held.assignment.host == NO_HOST}
        running = started - tasks
        self.tasks.check()
        assert self.tasks.running == started & tasks and len(self.tasks) == len(tasks)
        assert lengths == len(queued), "a request is queued once"
        assert queued.isdisjoint(running), "queued or running, never both"
        assert queued | running | tasks == self.held.keys(), "held is queued or running"
        assert self.running == len(running) == of_hosts
        assert self._first_asked.keys() <= running, "first answers are of running requests"
        for key, group in self.groups.groups.items():
            under = sum(key in self.held[seq].groups for seq in running)
            assert group.running == under, "a group's running requests are counted"
