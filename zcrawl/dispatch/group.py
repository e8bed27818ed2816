"""A group of hosts that share a limit, and a clan: groups that share hosts. Data and arithmetic.

`shared_limits` fills and empties them; `host_owners` and `planner` read them.
"""

from __future__ import annotations

import math

import msgspec

from zcrawl.frontier.pace import Pace
from zcrawl.mesh.timing import LOOKAHEAD_S

NEAR_S = 0.25  # what its pace allows so soon is sent by the credit for what starts now
HOLD_S = LOOKAHEAD_S  # rule 8: of one host a worker holds concurrency + 5 s × rate URLs at most
UNPACED_AHEAD = 8  # URLs that a worker holds beyond what may run, where only a number limits them


class Clan(msgspec.Struct, eq=False):
    """Hosts that are linked by their groups. One process has them all."""

    name: str  # of the group that it began with: what rendezvous hashing sees
    owner: str = ""  # process that has, or is to have, its hosts
    wish: str = ""  # a person's: the id of a worker
    hosts: dict[int, None] = msgspec.field(default_factory=dict)
    suspects: dict[int, None] = msgspec.field(default_factory=dict)  # others may have them
    refused: dict[int, None] = msgspec.field(default_factory=dict)  # wait for suspects


class Group(msgspec.Struct, eq=False):
    """All hosts of one registered domain, or at one address, that a job limits together."""

    key: str
    # run → (seconds between two starts, requests at a time); 0: no limit of that kind
    asks: dict[int, tuple[float, int]] = msgspec.field(default_factory=dict)
    members: dict[int, int] = msgspec.field(default_factory=dict)  # run → its hosts here
    hosts: int = 0
    pace: Pace = msgspec.field(default_factory=Pace)  # the leader's estimate, for dispatch
    concurrency: int = 0  # 0: unlimited
    revision: int = 0
    clan: Clan | None = None
    owner: str = ""  # process that was last given any host of it
    first_at: float = 0.0  # that process starts nothing before this moment
    last_start_at: float = -math.inf  # of any other process, at the latest
    held: int = 0  # open leases of its hosts
    waiting: dict[int, None] = msgspec.field(default_factory=dict)  # hosts, in turn
    alarm_at: float = math.inf  # when the first of them is called

    @property
    def hold_limit(self) -> float:
        """How many URLs of all its hosts a worker may hold."""
        interval = self.pace.interval_s
        if interval <= 0.0:
            return self.concurrency + UNPACED_AHEAD if self.concurrency else math.inf
        ahead = math.ceil(HOLD_S / interval) + 1
        return ahead + (self.concurrency or math.ceil(NEAR_S / interval))

    def ready_at(self) -> float:
        """When one more URL of it may be dispatched."""
        return self.pace.ready_at() - LOOKAHEAD_S

    def turns(self, now: float) -> int:
        """How many of those that wait can go now."""
        free = self.hold_limit - self.held
        if self.pace.interval_s > 0.0:
            free = min(free, (now - self.ready_at()) // self.pace.interval_s + 1)
        return max(0, int(min(free, len(self.waiting))))

    def strictest(self) -> tuple[float, int]:
        """For all jobs together the slowest demand wins."""
        interval_s = max((interval for interval, _ in self.asks.values()), default=0.0)
        limits = [most for _, most in self.asks.values() if most]
        return interval_s, min(limits, default=0)
