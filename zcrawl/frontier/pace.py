"""When a host may get its next request: its pace, and its hours of the day.

**Pace** (GCRA): one moment, `next_at`, and a burst. The worker that owns a host keeps a `Pace` and
asks it before each request; the leader keeps one per host as an estimate of how far ahead it may
dispatch, and stores `next_at`, so that the pace survives restart and failover. An
aiolimiter bucket would not do, because it starts its whole capacity at once.

**Hours** of the day in which a host may be crawled: `22:00-06:00`, in UTC. `validate` reads them in
job files, the planner asks before a dispatch. Pure: the time comes in.
"""

from __future__ import annotations

import msgspec

from zcrawl.errors import JobError
from zcrawl.model.spec import Politeness
from zcrawl.text.patterns import lazy_pattern

DAY_S = 86_400.0
_SPAN = lazy_pattern(r"([01][0-9]|2[0-4]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])")

Span = tuple[float, float]  # seconds after midnight; the end may lie in the next day
NEVER: tuple[Span, ...] = ((0.0, 0.0),)  # jobs whose hours have nothing in common


def parse_hours(text: str) -> Span:
    """Parse `HH:MM-HH:MM`; a span that ends before it begins goes over midnight."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise JobError(
            f"politeness.hours: {text!r} is not a span of hours; write 22:00-06:00 (UTC)"
        )
    hour, minute, end_hour, end_minute = map(int, match.groups())
    begin = hour * 3600.0 + minute * 60.0
    end = end_hour * 3600.0 + end_minute * 60.0
    if begin > DAY_S or end > DAY_S or begin == end:
        raise JobError(f"politeness.hours: {text!r} is empty, or ends after 24:00")
    return begin, end if end > begin else end + DAY_S


def opens_in_s(spans: tuple[Span, ...], utc: float) -> float:
    """Return the seconds until one of the spans is open; 0: open now, or no spans."""
    if not spans:
        return 0.0
    moment = utc % DAY_S
    waits = []
    for begin, end in spans:
        for day in (-DAY_S, 0.0, DAY_S):
            if begin + day <= moment < end + day:
                return 0.0
            if begin + day > moment:
                waits.append(begin + day - moment)
    return min(waits)


LONGEST_DELAY_S = 3_600.0  # a stored next_at further ahead than this is a clock error
# Smaller intervals from a worker or the database count as 0: no real rate is so high.
LEAST_INTERVAL_S = 1e-10
# Timers fire late, by 1 to 10 ms on a busy machine. At a short interval that was a quarter of the
# rate. There a request may start up to half an interval early to make up for a late one.
CATCH_UP_BELOW_S = 0.1  # slower paces never catch up: their starts are a whole interval apart
CATCH_UP = 0.5  # of an interval


class Pace(msgspec.Struct):
    """The earliest next start at a host, with a burst.

    Invariant: in any `w` seconds there are at most `burst + (w + slack) / interval` starts. The
    slack is half an interval above 10 starts a second, and 0 below: then two starts are a whole
    interval apart, except for `burst` starts that may come together.
    """

    interval_s: float = 0.0  # 0: unlimited
    burst: int = 1
    next_at: float = 0.0

    def ready_at(self) -> float:
        """Return the earliest moment of the next start."""
        return self.next_at - (self.burst - 1) * self.interval_s

    def take(self, now: float) -> None:
        """Count a request that starts now."""
        slack = CATCH_UP * self.interval_s if self.interval_s < CATCH_UP_BELOW_S else 0.0
        self.next_at = max(self.next_at, now - slack) + self.interval_s

    def not_before(self, moment: float) -> None:
        """Move the next start to `moment` or later, never earlier."""
        self.next_at = max(self.next_at, moment + (self.burst - 1) * self.interval_s)


class Demand(msgspec.Struct, frozen=True):
    """The limits of all jobs together on one host: the slowest limit wins (G5)."""

    interval_s: float
    burst: int
    concurrency: int
    spread: bool
    hours: tuple[Span, ...] = ()  # when it may be asked; empty: always


def combined_demand(demands: list[Politeness], crawl_delay_s: float) -> Demand:
    """Combine the limits of all jobs; `spread` needs the consent of every job."""
    interval = max((1.0 / each.rate for each in demands if each.rate > 0), default=0.0)
    if any(each.robots for each in demands):
        interval = max(interval, crawl_delay_s)
    return Demand(
        interval_s=interval if interval >= LEAST_INTERVAL_S else 0.0,
        burst=min((each.burst for each in demands), default=1),
        concurrency=min((each.concurrency for each in demands), default=1),
        spread=all(each.spread for each in demands),
        hours=_common_hours(demands),
    )


def _common_hours(demands: list[Politeness]) -> tuple[Span, ...]:
    """Return the spans in which every job with hours allows requests."""
    common: list[Span] | None = None
    for each in demands:
        if not each.hours:
            continue
        spans = [parse_hours(text) for text in each.hours]
        common = spans if common is None else _intersection(common, spans)
    return NEVER if common == [] else tuple(common or ())


def _intersection(ours: list[Span], others: list[Span]) -> list[Span]:
    spans = []
    for begin, end in ours:
        for other_begin, other_end in others:
            for day in (-DAY_S, 0.0, DAY_S):
                first, last = max(begin, other_begin + day), min(end, other_end + day)
                if first < last:
                    spans.append((first, last))
    return spans
