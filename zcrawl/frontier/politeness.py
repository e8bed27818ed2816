"""A host's pace in its pure form (GCRA): one moment, `next_at`, and a burst.

The worker that owns a host keeps a `Pace` and asks it before each request; the leader keeps one
per host as an estimate of how far ahead it may dispatch, and stores `next_at`, so that the pace
survives restart and failover. An aiolimiter bucket is no pacer: it fires its whole capacity at
once.
"""

from __future__ import annotations

import dataclasses

from zcrawl.submit.spec import Politeness

LONGEST_DELAY_S = 3_600.0  # a stored next_at further ahead than this is a clock error


@dataclasses.dataclass(slots=True)
class Pace:
    """Invariant: two starts are `interval_s` apart, but for `burst` that may come together."""

    interval_s: float = 0.0  # 0: unlimited
    burst: int = 1
    next_at: float = 0.0

    def ready_at(self) -> float:
        """The earliest moment of the next start."""
        return self.next_at - (self.burst - 1) * self.interval_s

    def take(self, now: float) -> None:
        """A request starts now."""
        self.next_at = max(self.next_at, now) + self.interval_s

    def not_before(self, moment: float) -> None:
        """Push the next start to `moment` at least; never pulls it nearer."""
        self.next_at = max(self.next_at, moment + (self.burst - 1) * self.interval_s)


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """What all jobs together allow on one host: the slowest demand wins (G5)."""

    interval_s: float
    burst: int
    concurrency: int
    spread: bool


def combined_demand(demands: list[Politeness], crawl_delay_s: float) -> Demand:
    """`spread` needs the consent of every job."""
    interval = max((1.0 / each.rate for each in demands if each.rate > 0), default=0.0)
    if any(each.robots for each in demands):
        interval = max(interval, crawl_delay_s)
    return Demand(
        interval_s=interval,
        burst=min((each.burst for each in demands), default=1),
        concurrency=min((each.concurrency for each in demands), default=1),
        spread=all(each.spread for each in demands),
    )
