"""Figures of the last hours: for all runs together, and the queue length of each run.

One point a second, ten seconds, a minute. Pure, of fixed size. The leader adds a second's worth of
counting once a second; consoles ask for a span. A new leader begins with an empty history and says
since when it counts.

The leader keeps the queue lengths of each run for all consoles, so that a new console can draw
trends at once. There are too many hosts for that, so a console keeps the trends of hosts itself.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

POINTS: Final = 11  # kept of each run; what waits now is the twelfth
STEP_S: Final = 5.0


class Trends:
    def __init__(self) -> None:
        self._points: dict[int, deque[int]] = {}  # run → the newest at the end
        self._due_at = float("-inf")

    def sample(self, now: float, waiting: Iterable[tuple[int, int]]) -> None:
        """Add (run, queue length) of all active runs if a point is due; forget other runs."""
        if now < self._due_at:
            return
        self._due_at = now + STEP_S
        before, self._points = self._points, {}
        for run, length in waiting:
            points = self._points[run] = before.get(run) or deque(maxlen=POINTS)
            points.append(max(0, length))

    def of(self, runs: Collection[int]) -> list[int]:
        """Return the sum of some runs, oldest first; a later run adds only to newer points."""
        columns = [self._points[run] for run in runs if run in self._points]
        most = max(map(len, columns), default=0)
        return [
            sum(points[len(points) - back] for points in columns if len(points) >= back)
            for back in range(most, 0, -1)
        ]


# Upper bounds of the latency classes in ms, each a quarter above the one before: 1 ms to 60 s.
BOUNDS_MS: Final = tuple(round(1.25**n, 3) for n in range(50))
RINGS: Final = ((1, 900), (10, 360), (60, 360))  # (seconds a point, points): 15 min, 1 h, 6 h
COLUMNS: Final = ("at", "pages_s", "failed_s", "bytes_s", "queued", "in_flight")
PERCENTILES: Final = (50, 95, 99)


class Second(msgspec.Struct):
    """The counts since the last point."""

    pages: int = 0
    failed: int = 0
    bytes: int = 0
    seconds: float = 0.0
    queued: int = 0
    in_flight: int = 0
    latencies: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))

    def page(self, size: int, elapsed_ms: float) -> None:
        self.pages += 1
        self.bytes += size
        self.latencies[bisect.bisect_left(BOUNDS_MS, elapsed_ms)] += 1

    def add(self, other: Second) -> None:
        self.pages += other.pages
        self.failed += other.failed
        self.bytes += other.bytes
        self.seconds += other.seconds
        self.queued, self.in_flight = other.queued, other.in_flight
        self.latencies = [a + b for a, b in zip(self.latencies, other.latencies, strict=True)]

    def point(self, at: float) -> tuple[float, ...]:
        per = 1.0 / self.seconds if self.seconds > 0 else 0.0
        return (
            round(at, 1),
            round(self.pages * per, 2),
            round(self.failed * per, 2),
            round(self.bytes * per),
            self.queued,
            self.in_flight,
            *(self.percentile(percent) for percent in PERCENTILES),
        )

    def percentile(self, which: int) -> float:
        """Return the time within which `which` percent of the answers came; 0 without answers."""
        total = sum(self.latencies)
        if not total:
            return 0.0
        target_count, seen = total * which / 100, 0
        for n, number in enumerate(self.latencies):
            seen += number
            if seen >= target_count:
                return BOUNDS_MS[min(n, len(BOUNDS_MS) - 1)]
        return BOUNDS_MS[-1]


class History:
    def __init__(self) -> None:
        self._rings: list[deque[tuple[float, ...]]] = [deque(maxlen=n) for _, n in RINGS]
        self._sums = [Second() for _ in RINGS]

    def add(self, at: float, second: Second) -> None:
        """Add counts; `second.seconds` is the real duration, because the leader may be late."""
        for n, (step_s, _) in enumerate(RINGS):
            self._sums[n].add(second)
            if self._sums[n].seconds >= step_s * 0.95:
                self._rings[n].append(self._sums[n].point(at))
                self._sums[n] = Second()

    def series(self, span_s: float) -> dict[str, Any]:
        """Return the finest points that cover the span, oldest first, by column."""
        step_s, number = next(((step, n) for step, n in RINGS if step * n >= span_s), RINGS[-1])
        ring = self._rings[[step for step, _ in RINGS].index(step_s)]
        names = (*COLUMNS, *(f"p{percent}" for percent in PERCENTILES))
        points = list(ring)[-number:]
        columns = zip(*points, strict=True) if points else ([] for _ in names)
        return {"step_s": step_s, **dict(zip(names, map(list, columns), strict=True))}
