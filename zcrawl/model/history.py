"""What is kept of the last day for charts: counts of an interval, for the cluster, runs and hosts.

The leader makes one `HistoryEntry` every ten seconds (`telemetry.history`). A store adds it to two
rows, that of its ten seconds and that of its minute, so a minute is complete whichever leaders
wrote its parts. Counts are kept instead of rates, because counts can be added. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

STEPS: Final = ((10, 3_600), (60, 86_400))  # (seconds a row, seconds that are kept)
KEPT_LONGER_S: Final = 120  # so that a chart of the whole span has its first point
MOST_RUNS: Final = 500
MOST_HOSTS: Final = 200  # the busiest of an interval


class HistoryCounts(msgspec.Struct, frozen=True, array_like=True):
    """What was counted in an interval, and what was queued and in flight at its end.

    New fields go to the end and have a default, because old rows do not have them.
    """

    pages: int = 0
    failed: int = 0
    bytes: int = 0
    queued: int = 0
    fetching: int = 0
    waiting: int = 0
    uncommitted: int = 0
    latencies: dict[int, int] = {}  # class of `telemetry.history.BOUNDS_MS` → answers

    def followed_by(self, later: HistoryCounts) -> HistoryCounts:
        """Return the counts of both intervals."""
        latencies = dict(self.latencies)
        for bound, answers in later.latencies.items():
            latencies[bound] = latencies.get(bound, 0) + answers
        return HistoryCounts(
            self.pages + later.pages,
            self.failed + later.failed,
            self.bytes + later.bytes,
            later.queued,
            later.fetching,
            later.waiting,
            later.uncommitted,
            latencies,
        )


NOTHING: Final = HistoryCounts()


class HistoryEntry(msgspec.Struct, frozen=True):
    """One interval of the whole cluster."""

    seconds: float = 0.0
    cluster: HistoryCounts = NOTHING
    runs: dict[int, HistoryCounts] = {}
    hosts: dict[int, HistoryCounts] = {}

    def followed_by(self, later: HistoryEntry) -> HistoryEntry:
        """Return the sum of two intervals, with the busiest runs and hosts of both."""
        return HistoryEntry(
            self.seconds + later.seconds,
            self.cluster.followed_by(later.cluster),
            busiest(_merged(self.runs, later.runs), MOST_RUNS),
            busiest(_merged(self.hosts, later.hosts), MOST_HOSTS),
        )


class HistoryPoint(msgspec.Struct, frozen=True):
    """One interval of one series: of the cluster, of a run or of a host."""

    at: int
    seconds: float
    counts: HistoryCounts | None  # None: the run or host was not among those that were kept


def busiest(counts: Mapping[int, HistoryCounts], most: int) -> dict[int, HistoryCounts]:
    """Return at most so many, those with the most answers and failures first."""
    if len(counts) <= most:
        return dict(counts)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1].pages - pair[1].failed, pair[0]))
    return dict(ranked[:most])


def row_starts(at: float) -> Iterable[tuple[int, int]]:
    """Return (step, beginning) of the rows that an entry at this time belongs to."""
    return [(step, int(at // step) * step) for step, _ in STEPS]


def oldest_kept(at: float) -> Iterable[tuple[int, int]]:
    """Return (step, beginning) of the oldest rows that are kept at this time."""
    return [(step, int(at) - kept_s - KEPT_LONGER_S) for step, kept_s in STEPS]


encode = msgspec.msgpack.Encoder().encode
decode_counts = msgspec.msgpack.Decoder(HistoryCounts).decode
decode_groups = msgspec.msgpack.Decoder(dict[int, HistoryCounts]).decode
_decode_raw = msgspec.msgpack.Decoder(dict[int, msgspec.Raw]).decode


def counts_of(groups: bytes, key: int) -> HistoryCounts | None:
    """Return the counts of one run or host of a row; None if it was not among the busiest."""
    raw = _decode_raw(groups).get(key)
    return None if raw is None else decode_counts(raw)


def _merged(
    earlier: Mapping[int, HistoryCounts], later: Mapping[int, HistoryCounts]
) -> dict[int, HistoryCounts]:
    merged = dict(earlier)
    for key, counts in later.items():
        before = merged.get(key)
        merged[key] = counts if before is None else before.followed_by(counts)
    return merged
