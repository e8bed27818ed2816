"""Host state: which worker may start requests to a host, and how many at a time.

A host (scheme, name, port) has one owner. A host that all its jobs allow to be spread has several
owners, each with a part of its concurrency and rate (rule `grants`). In both cases, the parts that
workers may be using never add up to more than the host's concurrency.

So a part is raised at once when there is room, and a lowered part counts until the worker confirms
it or is lost. A host that a previous leader granted stays closed to other workers until its owner
says HELLO or the stored lease ends (rule `takeover`).

Only this module writes `HostState` and `Part`; other modules read their fields and call their
methods (`tests/architecture` checks it). The callers decide what a change means for owners, groups
and the heap of `due_hosts`.
"""

from __future__ import annotations

import math
from collections.abc import Container

import msgspec

from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.dispatch.shared_limits import HOLD_S, NEAR_S, Asker, Clan, LimitGroup
from zcrawl.frontier.pace import Demand, Pace, combined_demand
from zcrawl.model.host import Manner
from zcrawl.model.process_name import NOBODY, ProcessName, worker_of
from zcrawl.model.rows import HostRow, QueuedRow, StoredRobots
from zcrawl.ownership import hash64, mix


class Part(msgspec.Struct):
    """One worker's part of a host."""

    granted: int  # concurrency of the last grant that was sent
    in_use: int  # concurrency that it may still use: lowered when the worker confirms
    revision: int
    first_at: float = 0.0  # a fresh owner starts no request before this moment
    held: int = 0  # open leases of this host at this worker
    told_robots: bool = False  # its worker was given the stored robots.txt, or has fetched it
    cancelled_at: float = -math.inf  # leases ended with their run; their requests may still run
    gone_at: float = float("inf")  # its process is lost: nothing of it runs after this moment

    def raise_to(self, granted: int, revision: int) -> None:
        """Grant at least this concurrency; the worker may use it at once."""
        self.granted = max(self.granted, granted)
        self.in_use = max(self.in_use, self.granted)
        self.revision = revision

    def lower_to(self, granted: int, revision: int) -> None:
        """Grant less; the difference stays in use until the worker confirms."""
        self.granted = granted
        self.revision = revision

    def confirm(self) -> None:
        """Note that the worker uses no more than it is granted."""
        self.in_use = self.granted

    def adopt(self, in_use: int) -> None:
        """Count requests that the worker was running when it said HELLO."""
        self.in_use = max(self.in_use, in_use)

    def welcome(self, revision: int) -> None:
        """Keep the part of a process that joined again, under a new revision."""
        self.gone_at = math.inf
        self.revision = revision

    def lose(self, last_start_at: float, longest_attempt_s: float) -> None:
        """Note that its process is lost: it starts nothing later and finishes what runs."""
        self.granted = 0
        if last_start_at - self.cancelled_at > longest_attempt_s:
            self.in_use = min(self.in_use, self.held)
        self.held = 0
        self.gone_at = last_start_at + longest_attempt_s

    def lease_opened(self) -> None:
        """Count a request that the worker holds now."""
        self.held += 1

    def lease_left(self) -> None:
        """Count a request that the worker no longer holds; 0 for a lost process."""
        if self.held > 0:
            self.held -= 1

    def lease_cancelled(self, now: float) -> None:
        """Note when a run ended whose request may still be running."""
        self.cancelled_at = now

    def robots_known(self) -> None:
        """Note that its worker has the robots.txt."""
        self.told_robots = True


class Settlement(msgspec.Struct):
    """The result of reviewing the parts of one host."""

    lowered: list[ProcessName] = msgspec.field(
        default_factory=list
    )  # processes that must get their lower grant
    owners: tuple[ProcessName, ...] = ()  # to store before any part is raised
    raised: bool = False
    look_again_at: float = math.inf


class HostState(msgspec.Struct):
    """A host in the leader's memory: demand, pace, owners and runs."""

    id: int
    origin: str
    demand: Demand
    pace: Pace  # the leader's estimate; the owners' reports correct it
    crawl_delay_s: float = 0.0
    parts: dict[ProcessName, Part] = msgspec.field(default_factory=dict)  # process name → part
    stored_owners: frozenset[ProcessName] = frozenset()
    inherited: set[ProcessName] = msgspec.field(
        default_factory=set
    )  # owners chosen by a previous leader that have not said HELLO
    inherited_until: float = 0.0
    next_at_before_inheritance: float = 0.0
    not_before: float = (
        -math.inf
    )  # latest start that owners reported or may have made: the pace never goes below
    counted: set[ProcessName] = msgspec.field(
        default_factory=set
    )  # owners for whose load it is counted
    storing: bool = False  # owners are being committed: no ASSIGN before that
    runs: list[int] = msgspec.field(default_factory=list)  # lanes here, in turn
    priorities: dict[int, int] = msgspec.field(default_factory=dict)  # run → priority, if not 0
    trials: list[QueuedRow] = msgspec.field(default_factory=list)  # crash suspects
    due_at: float = math.inf  # its moment in the heap of `due_hosts`
    manner: Manner | None = None  # None: it has never answered
    robots: StoredRobots | None = None
    verdicts: dict[int, str] = msgspec.field(default_factory=dict)  # run → why its rows end
    pages: dict[int, int] = msgspec.field(default_factory=dict)  # done, of runs with a limit
    wanted_owner: str = ""  # worker id that a person chose
    target: ProcessName = NOBODY  # the worker that got it for the balance of loads
    moved_at: float = -math.inf
    divided: bool = False  # no worker serves all its runs: several share it, as if it were spread
    turn: ProcessName = NOBODY  # the worker that has it, if they cannot share it
    turn_until: float = math.inf  # when the next worker gets it
    leased: int = 0  # open leases at all workers
    waits_until: float = 0.0  # it asked for a long pause; running attempts wait as well
    robots_at: str = ""  # origin that its robots.txt redirects to, until it is fetched
    # Used for limits of domains and addresses, and for a robots.txt on another host (`groups`):
    address: str = ""  # IP address; empty: not known
    pins: bool = False  # workers may connect to that address only
    groups: tuple[LimitGroup, ...] = ()
    clan: Clan | None = None
    askers: dict[str, tuple[Asker, ...]] = msgspec.field(
        default_factory=dict
    )  # group → runs that ask for its limit

    @classmethod
    def stored(cls, row: HostRow, next_at: float) -> HostState:
        """Build a host from its database row; no run has rows of it yet."""
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
        """The interval that jobs, robots.txt and the host's answers require."""
        slow_s = 0.0 if self.manner is None else self.manner.slow_s
        return max(self.demand.interval_s, slow_s)

    def is_inherited(self, now: float) -> bool:
        """Return whether an owner chosen by a previous leader may still fetch."""
        return bool(self.inherited) and now < self.inherited_until

    def room(self, now: float) -> int:
        """Return the concurrency that no worker can be using."""
        if self.is_inherited(now):
            return 0
        return self.demand.concurrency - sum(part.in_use for part in self.parts.values())

    def hold_limit(self, part: Part, worker_rate: float) -> int:
        """Return how many requests of this host a worker may hold."""
        interval = self.part_interval_s(part)
        if interval <= 0.0:
            return part.granted + max(8, math.ceil(NEAR_S * worker_rate))
        return part.granted + math.ceil(HOLD_S / interval)

    def part_interval_s(self, part: Part) -> float:
        """Return the interval of a part: it has the same share of rate and concurrency."""
        if part.granted <= 0:
            return self.demand.interval_s
        return self.demand.interval_s * self.demand.concurrency / part.granted

    # ------------------------------------------------------------ pace

    def set_demand(self, demand: Demand) -> None:
        """Set what its jobs together allow, and adapt the pace."""
        if self.divided and not demand.spread:
            demand = msgspec.structs.replace(demand, spread=True)
        self.demand = demand
        self.pace.interval_s, self.pace.burst = self.interval_s, demand.burst

    def learn_manner(self, manner: Manner) -> None:
        """Set its health after an answer, and adapt the pace."""
        self.manner = manner
        self.pace.interval_s = self.interval_s

    def learn_crawl_delay(self, crawl_delay_s: float) -> bool:
        """Set the delay of its robots.txt; return whether it is longer than before."""
        longer = crawl_delay_s > self.crawl_delay_s
        if longer:
            self.crawl_delay_s = crawl_delay_s
        return longer

    def request_sent(self, now: float) -> None:
        """Reserve the next start of the pace for a request that was sent."""
        self.pace.take(now)

    def take_back_start(self) -> None:
        """Free the start of a request that was sent and never started."""
        if self.pace.interval_s:
            self.pace.next_at = max(self.not_before, self.pace.next_at - self.pace.interval_s)

    def forget_ahead(self) -> None:
        """Free the starts of requests that its only owner got early and will not start."""
        if not self.demand.spread and not self.inherited:
            self.pace.next_at = self.not_before

    def put_off_until(self, moment: float) -> None:
        """Start no request before that moment, because an owner may have started one."""
        self.not_before = max(self.not_before, moment)
        self.pace.next_at = max(self.pace.next_at, moment)

    def pause_until(self, moment: float) -> None:
        """Note that the host asked for a long pause."""
        self.waits_until = max(self.waits_until, moment)

    def schedule(self, moment: float) -> bool:
        """Set its moment in the heap of `due_hosts`; return False if it has an earlier one."""
        if self.due_at <= moment:
            return False
        self.due_at = moment
        return True

    def unschedule(self) -> None:
        """Note that it was taken out of the heap."""
        self.due_at = math.inf

    # ------------------------------------------------------------ owners

    def inherit(self, owners: set[ProcessName], until: float, over_at: float = -math.inf) -> None:
        """Keep the owners of a previous leader, which may fetch until `until`.

        They start nothing after `over_at`.
        """
        self.inherited = owners
        self.inherited_until = until
        self.next_at_before_inheritance = self.pace.next_at
        self.pace.next_at = max(self.pace.next_at, over_at + self.demand.interval_s)

    def await_inherited(self, until: float) -> None:
        """Give its inherited owners, if any, until then to say HELLO."""
        if self.inherited:
            self.inherited_until = max(self.inherited_until, until)

    def settle_inherited(self, name: ProcessName) -> None:
        """Remove an inherited owner that said HELLO or died; the pace waits for it no longer."""
        self.inherited.discard(name)
        self.pace.next_at = self.next_at_before_inheritance

    def store_owners(self) -> None:
        """Send nothing until the new owners are committed."""
        self.storing = True

    def owners_stored(self, owners: frozenset[ProcessName]) -> None:
        """Note that these owners are committed."""
        self.stored_owners = owners
        self.storing = False

    def count_owners(self, names: set[ProcessName]) -> None:
        """Set the processes for whose load the host is counted."""
        self.counted = names

    def move_to(self, target: ProcessName, now: float) -> None:
        """Give it to a worker for the balance of loads; it stays there while that is usable."""
        self.target, self.moved_at = target, now

    def forget_target(self, owners: Container[ProcessName]) -> None:
        """Forget the worker that it moved to, if others get it: it does not go back by itself."""
        if self.target not in owners:
            self.target = NOBODY

    def divide(self, divided: bool) -> None:
        """Set whether several workers share it because none serves all its runs."""
        self.divided = divided

    def give_turn(self, name: ProcessName, until: float) -> None:
        """Give it to a worker for a while; NOBODY: there are no turns."""
        self.turn, self.turn_until = name, until

    def wish_owner(self, worker: str) -> None:
        """Set the worker that a person chose; empty: none."""
        self.wanted_owner = worker

    def take_wish(self) -> str:
        """Return the worker that a person chose and clear it: the clan keeps the wish."""
        wish, self.wanted_owner = self.wanted_owner, ""
        return wish

    def ensure_part(self, name: ProcessName) -> Part:
        """Return the part of a process; a new part has nothing granted."""
        part = self.parts.get(name)
        if part is None:
            part = self.parts[name] = Part(0, 0, 0)
        return part

    def drop_part(self, name: ProcessName) -> Part | None:
        """Remove and return the part of a process."""
        return self.parts.pop(name, None)

    def drop_unused_parts(self, now: float) -> None:
        """Remove the parts of which no request can be running."""
        for name, part in list(self.parts.items()):
            if part.gone_at <= now or part.in_use == 0:
                del self.parts[name]

    def delay_first_start(self, part: Part, now: float) -> None:
        """Set when a new owner may start: at the next start of the pace.

        If the host is spread, the pace is later than needed because others hold early requests.
        """
        part.first_at = self.pace.next_at
        if self.demand.spread:
            part.first_at = min(part.first_at, max(self.not_before, now + self.interval_s))

    # ------------------------------------------------------------ runs

    def add_run(self, run: int, priority: int = 0) -> None:
        """Add a run that has rows of the host."""
        self.runs.append(run)
        self.set_priority(run, priority)

    def set_priority(self, run: int, priority: int) -> None:
        """Set the priority of a run's job; 0 is usual, and is not stored."""
        if priority:
            self.priorities[run] = priority
        else:
            self.priorities.pop(run, None)

    def turns(self) -> list[int]:
        """Return the runs in the order in which they may send: by priority, then in turn."""
        priorities = self.priorities
        if not priorities:
            return self.runs
        return sorted(self.runs, key=lambda run: -priorities.get(run, 0))

    def took_turn(self, run: int) -> None:
        """Move a run that sent a request to the end of the queue."""
        self.runs.remove(run)
        self.runs.append(run)

    def run_ended(self, run: int) -> None:
        """Forget a run."""
        self.runs.remove(run)
        self.priorities.pop(run, None)
        self.verdicts.pop(run, None)
        self.pages.pop(run, None)

    def count_pages(self, run: int, done: int) -> None:
        """Set how many pages the run has fetched here."""
        self.pages[run] = done

    def end_run_here(self, run: int, reason: str) -> None:
        """End the run's rows of this host without a request."""
        self.verdicts[run] = reason

    def end_runs_here(self, reason: str) -> None:
        """End all runs' rows of this host without a request."""
        self.verdicts |= dict.fromkeys(self.runs, reason)

    def forgive(self, run: int) -> None:
        """Request the run's rows of this host again."""
        del self.verdicts[run]

    def put_on_trial(self, row: QueuedRow) -> None:
        """Add a crash suspect that waits for a worker."""
        self.trials.append(row)

    def end_trial(self, row: QueuedRow) -> None:
        """Remove a crash suspect that was leased or is settled."""
        self.trials.remove(row)

    def is_open_to(self, worker: WorkerInfo) -> bool:
        """Return whether the worker may still get requests of the host."""
        part = self.parts.get(worker.name)
        return worker.usable and part is not None and part.granted > 0

    # ------------------------------------------------------------ groups

    def leases_changed(self, more: int) -> None:
        """Add to the count of requests that workers hold."""
        self.leased += more

    def robots_fetched(self, file: StoredRobots) -> None:
        """Keep the fetched robots.txt."""
        self.robots = file

    def lead_robots_to(self, place: str) -> None:
        """Set the origin that its robots.txt redirects to; empty: no redirect to follow."""
        self.robots_at = place

    def locate(self, address: str) -> None:
        """Set its IP address."""
        self.address = address

    def pin(self, pins: bool) -> None:
        """Set whether workers may connect to its stored address only."""
        self.pins = pins

    def join_group(self, group: LimitGroup) -> None:
        self.groups = (*self.groups, group)
        self.askers[group.key] = ()

    def leave_group(self, group: LimitGroup) -> None:
        del self.askers[group.key]
        self.groups = tuple(kept_group for kept_group in self.groups if kept_group is not group)

    def set_askers(self, group: LimitGroup, askers: tuple[Asker, ...]) -> None:
        """Set the runs that ask for the limit of a group because of this host."""
        self.askers[group.key] = askers

    def set_clan(self, clan: Clan | None) -> None:
        self.clan = clan

    def check(self) -> None:
        granted = sum(part.granted for part in self.parts.values())
        assert granted <= self.demand.concurrency, "the parts must not exceed the concurrency"
        for part in self.parts.values():
            assert part.granted <= part.in_use and part.held >= 0


def shares(demand: Demand, ranked: list[ProcessName]) -> dict[ProcessName, int]:
    """Return the concurrency that each worker should have; `ranked` is in rendezvous order."""
    if not ranked:
        return {}
    if not demand.spread:
        return {ranked[0]: demand.concurrency}
    several = ranked[: demand.concurrency]
    each, rest = divmod(demand.concurrency, len(several))
    return {name: each + (1 if at < rest else 0) for at, name in enumerate(several)}


def sort_by_score(what: str, names: list[ProcessName]) -> list[ProcessName]:
    """Sort process names by rendezvous hashing; a restarted process keeps its rank."""
    hashed = hash64(what)
    return sorted(names, key=lambda name: mix(hashed, hash64(worker_of(name))), reverse=True)
