"""Grants: which worker may start requests to a host, and how many at a time.

A host (scheme, name, port) has one owner; a host that all its jobs allow to be spread is shared by
several workers, each with its part of concurrency and rate (rule `grants`). Both are one rule here:
the parts that workers may be using never add up to more than the host's concurrency.

So raising is immediate when there is room, and lowering takes effect when the worker confirms it
(or is lost). A host that a previous leader granted stays closed to others until its owner says
HELLO, or the stored lease ends (rule `takeover`).

This module is the one writer of `HostState` and `Part`: others read their fields, and call the
methods here when something happens (`tests/architecture` checks it). What follows from it for
owners, groups and the planner's heap is decided by the callers.
"""

from __future__ import annotations

import hashlib
import math

import msgspec

from zcrawl.dispatch.shared_limits import HOLD_S, NEAR_S, Asker, Clan, LimitGroup
from zcrawl.frontier.pace import Demand, Pace, combined_demand
from zcrawl.model.host import Manner
from zcrawl.model.process_name import ProcessName, worker_of
from zcrawl.model.rows import HostRow, QueuedRow, StoredRobots


class Part(msgspec.Struct):
    """One worker's part of a host."""

    granted: int  # what the worker was told last
    in_use: int  # the most that it may be using: a lowered part counts until confirmed
    revision: int
    first_at: float = 0.0  # a fresh owner starts no request before this moment
    held: int = 0  # open leases of this host at this worker
    told_robots: bool = False  # its worker was given the stored robots.txt, or has fetched it
    cancelled_at: float = -math.inf  # leases ended with their run; their requests may still run
    gone_at: float = float("inf")  # its process is lost: nothing of it runs after this moment

    def raise_to(self, granted: int, revision: int) -> None:
        """Grant so much at least; it may be in use at once."""
        self.granted = max(self.granted, granted)
        self.in_use = max(self.in_use, self.granted)
        self.revision = revision

    def lower_to(self, granted: int, revision: int) -> None:
        """Grant less; what is given up stays in use until the worker confirms."""
        self.granted = granted
        self.revision = revision

    def confirm(self) -> None:
        """The worker uses no more than it is granted."""
        self.in_use = self.granted

    def adopt(self, in_use: int) -> None:
        """The worker greeted, and goes on with so many requests at a time."""
        self.in_use = max(self.in_use, in_use)

    def welcome(self, revision: int) -> None:
        """Its process is here, and hears of its grants anew."""
        self.gone_at = math.inf
        self.revision = revision

    def lose(self, last_start_at: float, longest_attempt_s: float) -> None:
        """Its process is lost: it starts nothing after that moment, and finishes what runs."""
        self.granted = 0
        if last_start_at - self.cancelled_at > longest_attempt_s:
            self.in_use = min(self.in_use, self.held)
        self.held = 0
        self.gone_at = last_start_at + longest_attempt_s

    def lease_opened(self) -> None:
        self.held += 1

    def lease_left(self) -> None:
        """A lease is no longer in its worker's hands. Those of a lost process are not counted."""
        if self.held > 0:
            self.held -= 1

    def lease_cancelled(self, now: float) -> None:
        """The run of a lease ended; the request may still run."""
        self.cancelled_at = now

    def robots_known(self) -> None:
        """Its worker was sent the robots.txt, or has fetched it."""
        self.told_robots = True


class Settlement(msgspec.Struct):
    """What follows from looking at one host's parts."""

    lowered: list[ProcessName] = msgspec.field(default_factory=list)  # processes to be told
    owners: tuple[ProcessName, ...] = ()  # to be stored before anything is raised
    raised: bool = False
    look_again_at: float = math.inf


class HostState(msgspec.Struct):
    id: int
    origin: str
    demand: Demand
    pace: Pace  # the leader's estimate; the owners' reports correct it
    crawl_delay_s: float = 0.0
    parts: dict[ProcessName, Part] = msgspec.field(default_factory=dict)  # process name → part
    stored_owners: frozenset[ProcessName] = frozenset()
    inherited: set[ProcessName] = msgspec.field(default_factory=set)  # owners not heard of yet
    inherited_until: float = 0.0
    next_at_before_inheritance: float = 0.0
    not_before: float = -math.inf  # as its owners said or may have done: `pace` falls no further
    counted: set[ProcessName] = msgspec.field(default_factory=set)  # owners counted as its load
    storing: bool = False  # owners are being committed: no ASSIGN before that
    runs: list[int] = msgspec.field(default_factory=list)  # lanes here, in turn
    trials: list[QueuedRow] = msgspec.field(default_factory=list)  # crash suspects
    due_at: float = math.inf  # stands in the planner's heap for this moment
    manner: Manner | None = None  # None: it has never answered
    robots: StoredRobots | None = None
    verdicts: dict[int, str] = msgspec.field(default_factory=dict)  # run → why its rows end
    pages: dict[int, int] = msgspec.field(default_factory=dict)  # done, of runs with a limit
    wanted_owner: str = ""  # a person's wish: the id of a worker
    leased: int = 0  # open leases, whoever has them
    waits_until: float = 0.0  # it asked for a long pause, which running attempts wait for too
    robots_at: str = ""  # origin that its robots.txt leads to, while nobody has fetched it there
    # Of jobs that limit domains or addresses, and of hosts with a robots.txt elsewhere (`groups`):
    address: str = ""  # where it is; empty: not known
    pins: bool = False  # it is to be connected to at that address only
    groups: tuple[LimitGroup, ...] = ()
    clan: Clan | None = None
    asked: dict[str, tuple[Asker, ...]] = msgspec.field(default_factory=dict)  # group → who asks

    @classmethod
    def stored(cls, row: HostRow, next_at: float) -> HostState:
        """A host as the database holds it; no run has rows of it yet."""
        demand = combined_demand([], row.crawl_delay_s)
        return cls(
            id=row.id,
            origin=row.origin,
            demand=demand,
            pace=Pace(demand.interval_s, demand.burst, next_at),
            crawl_delay_s=row.crawl_delay_s,
            stored_owners=frozenset(row.owners),
            not_before=next_at,
            manner=row.manner if row.next_at or row.manner != Manner() else None,
            robots=row.robots,
            address=row.address,
        )

    # ------------------------------------------------------------ reading

    @property
    def interval_s(self) -> float:
        """What jobs, robots.txt and the host's own answers ask for."""
        slow_s = 0.0 if self.manner is None else self.manner.slow_s
        return max(self.demand.interval_s, slow_s)

    def is_inherited(self, now: float) -> bool:
        """Whether a previous leader's owner, who has not been heard of yet, may still fetch."""
        return bool(self.inherited) and now < self.inherited_until

    def room(self, now: float) -> int:
        """Concurrency that nobody may be using."""
        if self.is_inherited(now):
            return 0
        return self.demand.concurrency - sum(part.in_use for part in self.parts.values())

    def hold_limit(self, part: Part, worker_rate: float) -> int:
        """How many URLs of this host a worker may hold."""
        interval = self.part_interval_s(part)
        if interval <= 0.0:
            return part.granted + max(8, math.ceil(NEAR_S * worker_rate))
        return part.granted + math.ceil(HOLD_S / interval)

    def part_interval_s(self, part: Part) -> float:
        """A part of the concurrency has the same part of the rate."""
        if part.granted <= 0:
            return self.demand.interval_s
        return self.demand.interval_s * self.demand.concurrency / part.granted

    # ------------------------------------------------------------ pace

    def set_demand(self, demand: Demand) -> None:
        """What its jobs allow together has changed: the pace follows."""
        self.demand = demand
        self.pace.interval_s, self.pace.burst = self.interval_s, demand.burst

    def learn_manner(self, manner: Manner) -> None:
        """It answered, in this manner: the pace follows."""
        self.manner = manner
        self.pace.interval_s = self.interval_s

    def learn_crawl_delay(self, crawl_delay_s: float) -> bool:
        """Its robots.txt asks for this delay. Return whether it is longer than before."""
        longer = crawl_delay_s > self.crawl_delay_s
        if longer:
            self.crawl_delay_s = crawl_delay_s
        return longer

    def request_sent(self, now: float) -> None:
        """A URL was sent: it has its place in the pace."""
        self.pace.take(now)

    def taken_back(self) -> None:
        """A URL that was sent is not started: its place in the pace is free again."""
        if self.pace.interval_s:
            self.pace.next_at = max(self.not_before, self.pace.next_at - self.pace.interval_s)

    def forget_ahead(self) -> None:
        """What its only owner was sent ahead of the pace is not started there."""
        if not self.demand.spread and not self.inherited:
            self.pace.next_at = self.not_before

    def put_off_until(self, moment: float) -> None:
        """No request starts before that moment, by what its owners say or may have done."""
        self.not_before = max(self.not_before, moment)
        self.pace.next_at = max(self.pace.next_at, moment)

    def pause_until(self, moment: float) -> None:
        """It asked for a long pause."""
        self.waits_until = max(self.waits_until, moment)

    def schedule(self, moment: float) -> bool:
        """Stand in the planner's heap for this moment. False: it does, for an earlier one."""
        if self.due_at <= moment:
            return False
        self.due_at = moment
        return True

    def unschedule(self) -> None:
        """The planner has taken it from its heap."""
        self.due_at = math.inf

    # ------------------------------------------------------------ owners

    def inherit(self, owners: set[ProcessName], until: float, over_at: float = -math.inf) -> None:
        """A previous leader's owners may fetch until `until`, and start nothing after `over_at`."""
        self.inherited = owners
        self.inherited_until = until
        self.next_at_before_inheritance = self.pace.next_at
        self.pace.next_at = max(self.pace.next_at, over_at + self.demand.interval_s)

    def await_inherited(self, until: float) -> None:
        """Its inherited owners, if any, have until then to greet."""
        if self.inherited:
            self.inherited_until = max(self.inherited_until, until)

    def settle_inherited(self, name: ProcessName) -> None:
        """An inherited owner has greeted, or is dead: the pace waits for it no longer."""
        self.inherited.discard(name)
        self.pace.next_at = self.next_at_before_inheritance

    def store_owners(self) -> None:
        """Its owners are being committed: nothing is sent before that."""
        self.storing = True

    def owners_stored(self, owners: frozenset[ProcessName]) -> None:
        self.stored_owners = owners
        self.storing = False

    def count_owners(self, names: set[ProcessName]) -> None:
        """These processes have it as a part of their load."""
        self.counted = names

    def wish_owner(self, worker: str) -> None:
        """A person wants this worker to have it; empty: none."""
        self.wanted_owner = worker

    def take_wish(self) -> str:
        """Return a person's wish, which its clan keeps from now on."""
        wish, self.wanted_owner = self.wanted_owner, ""
        return wish

    def ensure_part(self, name: ProcessName) -> Part:
        """Return the part of a process; a new one has nothing granted."""
        part = self.parts.get(name)
        if part is None:
            part = self.parts[name] = Part(0, 0, 0)
        return part

    def drop_part(self, name: ProcessName) -> Part | None:
        return self.parts.pop(name, None)

    def drop_unused_parts(self, now: float) -> None:
        """Parts of which nothing can be running any more."""
        for name, part in list(self.parts.items()):
            if part.gone_at <= now or part.in_use == 0:
                del self.parts[name]

    def delay_first_start(self, part: Part, now: float) -> None:
        """A fresh owner begins where the pace is. Of a host that is spread, the pace is behind what
        others hold ahead."""
        part.first_at = self.pace.next_at
        if self.demand.spread:
            part.first_at = min(part.first_at, max(self.not_before, now + self.interval_s))

    # ------------------------------------------------------------ runs

    def add_run(self, run: int) -> None:
        """A run has rows of it."""
        self.runs.append(run)

    def next_run(self) -> int:
        """Return the run whose turn it is; it goes to the end of the line."""
        run = self.runs.pop(0)
        self.runs.append(run)
        return run

    def run_ended(self, run: int) -> None:
        self.runs.remove(run)
        self.verdicts.pop(run, None)
        self.pages.pop(run, None)

    def count_pages(self, run: int, done: int) -> None:
        self.pages[run] = done

    def end_run_here(self, run: int, reason: str) -> None:
        """The rows that a run has of it end without a request."""
        self.verdicts[run] = reason

    def end_runs_here(self, reason: str) -> None:
        """The rows of all its runs end without a request."""
        self.verdicts |= dict.fromkeys(self.runs, reason)

    def forgive(self, run: int) -> None:
        """The rows of a run are requested again."""
        del self.verdicts[run]

    def put_on_trial(self, row: QueuedRow) -> None:
        """A crash suspect waits for a worker."""
        self.trials.append(row)

    def end_trial(self, row: QueuedRow) -> None:
        """A crash suspect was leased, or is settled."""
        self.trials.remove(row)

    # ------------------------------------------------------------ groups

    def leases_changed(self, more: int) -> None:
        """So many more of its requests are in workers' hands, or fewer."""
        self.leased += more

    def robots_fetched(self, file: StoredRobots) -> None:
        self.robots = file

    def lead_robots_to(self, place: str) -> None:
        """Its robots.txt is at that origin; empty: it is known, or where it should be."""
        self.robots_at = place

    def locate(self, address: str) -> None:
        """It is at that address."""
        self.address = address

    def pin(self, pins: bool) -> None:
        """A job limits its address: it is connected to there only. Or no job does any more."""
        self.pins = pins

    def join_group(self, group: LimitGroup) -> None:
        self.groups = (*self.groups, group)
        self.asked[group.key] = ()

    def leave_group(self, group: LimitGroup) -> None:
        del self.asked[group.key]
        self.groups = tuple(kept_group for kept_group in self.groups if kept_group is not group)

    def set_askers(self, group: LimitGroup, askers: tuple[Asker, ...]) -> None:
        """These ask for the limit of a group, for its sake."""
        self.asked[group.key] = askers

    def set_clan(self, clan: Clan | None) -> None:
        self.clan = clan

    def check(self) -> None:
        granted = sum(part.granted for part in self.parts.values())
        assert granted <= self.demand.concurrency, "parts add up to no more than the concurrency"
        for part in self.parts.values():
            assert part.granted <= part.in_use and part.held >= 0


def shares(demand: Demand, ranked: list[ProcessName]) -> dict[ProcessName, int]:
    """The part that each worker should have; `ranked` is the rendezvous order."""
    if not ranked:
        return {}
    if not demand.spread:
        return {ranked[0]: demand.concurrency}
    several = ranked[: demand.concurrency]
    each, rest = divmod(demand.concurrency, len(several))
    return {name: each + (1 if at < rest else 0) for at, name in enumerate(several)}


def by_score(what: str, names: list[ProcessName]) -> list[ProcessName]:
    """Process names by rendezvous hashing; a process's number does not count."""

    def score(name: ProcessName) -> bytes:
        text = f"{what}\0{worker_of(name)}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest()

    return sorted(names, key=score, reverse=True)
