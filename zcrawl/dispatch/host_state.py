"""Grants: which worker may start requests to a host, and how many at a time.

A host (scheme, name, port) has one owner; a host that all its jobs allow to be spread is shared
by several workers, each with its part of concurrency and rate (rule 11). Both are one rule here:
the parts that workers may be using never add up to more than the host's concurrency.

So raising is immediate when there is room, and lowering takes effect when the worker confirms it
(or is lost). A host that a previous leader granted stays closed to others until its owner says
HELLO, or the stored lease ends (rule 12).
"""

from __future__ import annotations

import hashlib
import math

import msgspec

from zcrawl.dispatch.shared_limits import HOLD_S, NEAR_S, Asker, Clan, Group
from zcrawl.frontier.pace import Demand, Pace
from zcrawl.model.host import Manner
from zcrawl.model.process_name import worker_of
from zcrawl.model.rows import QueuedRow, StoredRobots


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


class Settlement(msgspec.Struct):
    """What follows from looking at one host's parts."""

    lowered: list[str] = msgspec.field(default_factory=list)  # processes to be told
    owners: tuple[str, ...] = ()  # to be stored before anything is raised
    raised: bool = False
    look_again_at: float = math.inf


class HostState(msgspec.Struct):
    id: int
    origin: str
    demand: Demand
    pace: Pace  # the leader's estimate; the owners' reports correct it
    crawl_delay_s: float = 0.0
    parts: dict[str, Part] = msgspec.field(default_factory=dict)  # process name → part
    stored_owners: frozenset[str] = frozenset()
    inherited: set[str] = msgspec.field(default_factory=set)  # owners not heard of yet
    inherited_until: float = 0.0
    next_at_before_inheritance: float = 0.0
    not_before: float = -math.inf  # as its owners said or may have done: `pace` falls no further
    counted: set[str] = msgspec.field(default_factory=set)  # owners counted as its load
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
    groups: tuple[Group, ...] = ()
    clan: Clan | None = None
    asked: dict[str, tuple[Asker, ...]] = msgspec.field(default_factory=dict)  # group → who asks

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

    def taken_back(self) -> None:
        """A URL that was sent is not started: its place in the pace is free again."""
        if self.pace.interval_s:
            self.pace.next_at = max(self.not_before, self.pace.next_at - self.pace.interval_s)

    def put_off_until(self, moment: float) -> None:
        """No request starts before that moment, by what its owners say or may have done."""
        self.not_before = max(self.not_before, moment)
        self.pace.next_at = max(self.pace.next_at, moment)

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

    def check(self) -> None:
        granted = sum(part.granted for part in self.parts.values())
        assert granted <= self.demand.concurrency, "parts add up to no more than the concurrency"
        for part in self.parts.values():
            assert part.granted <= part.in_use and part.held >= 0


def shares(demand: Demand, ranked: list[str]) -> dict[str, int]:
    """The part that each worker should have; `ranked` is the rendezvous order."""
    if not ranked:
        return {}
    if not demand.spread:
        return {ranked[0]: demand.concurrency}
    several = ranked[: demand.concurrency]
    each, rest = divmod(demand.concurrency, len(several))
    return {name: each + (1 if at < rest else 0) for at, name in enumerate(several)}


def by_score(what: str, names: list[str]) -> list[str]:
    """Process names by rendezvous hashing; a process's number does not count."""

    def score(name: str) -> bytes:
        text = f"{what}\0{worker_of(name)}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest()

    return sorted(names, key=score, reverse=True)
