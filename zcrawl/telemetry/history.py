"""What the last day looked like: the counting for charts, and the charts' columns.

The leader counts pages and failures of the cluster, of each run and of each host, and stores the
counts every ten seconds (`master.history_keeper`), so that charts survive its end. The lengths of
each run's queue, of which trends are drawn, are kept in memory. Pure, of fixed size.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from zcrawl.dispatch.in_flight import InFlight
from zcrawl.model.history import (
    MOST_HOSTS,
    MOST_RUNS,
    STEPS,
    HistoryCounts,
    HistoryEntry,
    HistoryPoint,
)

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
PERCENTILES: Final = (50, 95, 99)
COUNTED: Final = ("pages_s", "failed_s", "bytes_s")
GAUGED: Final = ("queued", "fetching", "waiting", "uncommitted")
MOST_SPAN_S: Final = STEPS[-1][1]


class Gauge(msgspec.Struct, frozen=True):
    """What is queued and in flight now."""

    queued: int = 0
    in_flight: InFlight = InFlight()


class Tally(msgspec.Struct):
    """What was counted since the last entry."""

    pages: int = 0
    failed: int = 0
    bytes: int = 0
    latencies: dict[int, int] = msgspec.field(default_factory=dict)

    def page(self, size: int, bound: int) -> None:
        self.pages += 1
        self.bytes += size
        self.latencies[bound] = self.latencies.get(bound, 0) + 1

    def counts(self, gauge: Gauge) -> HistoryCounts:
        flight = gauge.in_flight
        return HistoryCounts(
            self.pages, self.failed, self.bytes, gauge.queued, *flight, latencies=self.latencies
        )


class _Tallies(dict[int, Tally]):
    def __missing__(self, key: int) -> Tally:
        tally = self[key] = Tally()
        return tally

    def sum(self) -> Tally:
        """Return the counts of all keys together."""
        total = Tally()
        for tally in self.values():
            total.pages += tally.pages
            total.failed += tally.failed
            total.bytes += tally.bytes
            for bound, answers in tally.latencies.items():
                total.latencies[bound] = total.latencies.get(bound, 0) + answers
        return total

    def busiest(self, most: int) -> list[int]:
        if len(self) <= most:
            return list(self)
        ranked = sorted(self, key=lambda key: (-self[key].pages - self[key].failed, key))
        return ranked[:most]


class HistoryRecorder:
    """Counts results as they are committed."""

    def __init__(self) -> None:
        self._runs, self._hosts = _Tallies(), _Tallies()

    def page(self, run: int, host: int, size: int, elapsed_ms: float) -> None:
        bound = bisect.bisect_left(BOUNDS_MS, elapsed_ms)
        self._runs[run].page(size, bound)
        self._hosts[host].page(size, bound)

    @property
    def pages(self) -> int:
        """The pages since the last entry."""
        return sum(tally.pages for tally in self._runs.values())

    def failure(self, run: int, host: int) -> None:
        self._runs[run].failed += 1
        self._hosts[host].failed += 1

    def take(
        self,
        seconds: float,
        cluster: Gauge,
        runs: dict[int, Gauge],
        of_host: Callable[[int], Gauge],
    ) -> HistoryEntry:
        """Return what was counted, and begin again. Runs without a result have a queue, too."""
        for run in list(runs)[:MOST_RUNS]:
            self._runs.setdefault(run, Tally())
        entry = HistoryEntry(
            seconds,
            self._runs.sum().counts(cluster),
            {
                run: self._runs[run].counts(runs.get(run, Gauge()))
                for run in self._runs.busiest(MOST_RUNS)
            },
            {
                host: self._hosts[host].counts(of_host(host))
                for host in self._hosts.busiest(MOST_HOSTS)
            },
        )
        self._runs, self._hosts = _Tallies(), _Tallies()
        return entry


def step_of(span_s: float) -> int:
    """Return the seconds of a point: the finest that reach back that far."""
    return next((step for step, kept_s in STEPS if span_s <= kept_s), STEPS[-1][0])


def series(points: Sequence[HistoryPoint], step: int, span_s: float, utc: float) -> dict[str, Any]:
    """Return the columns of a chart, oldest first. A point that nobody counted is None: the
    cluster stood still, or the host was not among the busiest."""
    by_start = {point.at: point for point in points}
    last = max(int(utc // step) * step - step, max(by_start, default=0))
    starts = range(last - int(span_s // step - 1) * step, last + 1, step)
    names = (*COUNTED, *GAUGED, *(f"p{percent}" for percent in PERCENTILES))
    rows = [_values(by_start.get(start)) for start in starts]
    columns = zip(*rows, strict=True)
    return {
        "step_s": step,
        "at": list(starts),
        **dict(zip(names, map(list, columns), strict=True)),
    }


def _values(point: HistoryPoint | None) -> tuple[float | None, ...]:
    counts = None if point is None else point.counts
    if point is None or counts is None or point.seconds <= 0:
        return (None,) * (len(COUNTED) + len(GAUGED) + len(PERCENTILES))
    per = 1.0 / point.seconds
    return (
        round(counts.pages * per, 2),
        round(counts.failed * per, 2),
        round(counts.bytes * per),
        counts.queued,
        counts.fetching,
        counts.waiting,
        counts.uncommitted,
        *(percentile(counts.latencies, percent) for percent in PERCENTILES),
    )


def percentile(latencies: dict[int, int], which: int) -> float | None:
    """Return the bound below which so many of a hundred answers came; None without answers."""
    total = sum(latencies.values())
    if not total:
        return None
    target, seen = total * which / 100, 0
    for bound in sorted(latencies):
        seen += latencies[bound]
        if seen >= target:
            break
    return BOUNDS_MS[min(bound, len(BOUNDS_MS) - 1)]
