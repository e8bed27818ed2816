"""The figures of the last seconds and hours, from the counts of single seconds."""

from __future__ import annotations

import pytest

from zcrawl.telemetry.history import RINGS, History, Second


def second(pages: int, failed: int, queued: int = 0) -> Second:
    made = Second(failed=failed, seconds=1.0, queued=queued)
    for _ in range(pages):
        made.page(size=100, elapsed_ms=1.0)
    return made


def test_a_coarser_point_is_the_mean_of_all_its_seconds() -> None:
    """Pages, failures and bytes of each of them count; the queue is that of the last one."""
    history = History()
    step_s = int(RINGS[1][0])
    for n in range(step_s):
        last = n == step_s - 1
        history.add(float(n), second(6, 3 if n % 2 else 0, queued=7 if last else 99))
    series = history.series(RINGS[0][0] * RINGS[0][1] + 1)
    assert series["step_s"] == RINGS[1][0]
    (pages,), (failed,), (size,) = series["pages_s"], series["failed_s"], series["bytes_s"]
    odd_seconds = step_s // 2
    assert pages == 6.0
    assert failed == pytest.approx(3 * odd_seconds / step_s, abs=0.01)
    assert size == 600
    assert series["queued"] == [7]


def test_a_late_second_is_divided_by_its_real_length() -> None:
    """A leader that was busy for two seconds shows no peak."""
    history = History()
    late = second(10, 4)
    late.seconds = 2.0
    history.add(1.0, late)
    series = history.series(1.0)
    assert series["pages_s"] == [5.0]
    assert series["failed_s"] == [2.0]
