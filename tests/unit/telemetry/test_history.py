"""The counts of ten seconds, and the columns of a chart that are made of them."""

from __future__ import annotations

import pytest

from zcrawl.model.history import HistoryCounts, HistoryPoint
from zcrawl.telemetry.history import BOUNDS_MS, Gauge, HistoryRecorder, percentile, series


def test_an_entry_counts_pages_and_failures_for_the_cluster_the_run_and_the_host() -> None:
    """Each result counts once in each of the three; a taken entry leaves nothing behind."""
    recorder = HistoryRecorder()
    for _ in range(6):
        recorder.page(run=1, host=7, size=100, elapsed_ms=1.0)
    recorder.page(run=2, host=8, size=50, elapsed_ms=1.0)
    for _ in range(3):
        recorder.failure(run=1, host=7)
    entry = recorder.take(10.0, Gauge(queued=5), {1: Gauge(queued=4)}, lambda host: Gauge(host))
    assert (entry.cluster.pages, entry.cluster.failed, entry.cluster.bytes) == (7, 3, 650)
    assert (entry.runs[1].pages, entry.runs[1].failed, entry.runs[1].queued) == (6, 3, 4)
    assert (entry.runs[2].pages, entry.runs[2].failed) == (1, 0)
    assert (entry.hosts[7].pages, entry.hosts[7].failed, entry.hosts[7].queued) == (6, 3, 7)
    again = recorder.take(10.0, Gauge(), {}, lambda host: Gauge())
    assert (again.cluster.pages, again.cluster.failed, again.runs, again.hosts) == (0, 0, {}, {})


def test_a_late_entry_is_divided_by_its_real_length() -> None:
    """A leader that was busy for twenty seconds shows no peak."""
    counts = HistoryCounts(pages=100, failed=40, bytes=1000, queued=3)
    columns = series([HistoryPoint(20, 20.0, counts)], step=10, span_s=30, utc=30.0)
    assert columns["at"] == [0, 10, 20]
    assert columns["pages_s"] == [None, None, 5.0]
    assert columns["failed_s"] == [None, None, 2.0]
    assert columns["queued"] == [None, None, 3]


@pytest.mark.parametrize(("which", "bound"), [(50, 3), (95, 10), (99, 20)])
def test_a_percentile_is_the_upper_bound_of_its_class(which: int, bound: int) -> None:
    """It never says less than what most answers took."""
    assert percentile({3: 60, 10: 36, 20: 4}, which) == BOUNDS_MS[bound]
