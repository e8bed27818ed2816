"""Axes have round labels, and as many as fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.drawing.axes import nice_step, time_ticks, value_ticks

NOON = 1_790_164_800.0  # 12:00:00 UTC


@pytest.mark.parametrize(
    ("top", "most", "step"),
    [(412, 5, 100), (500, 5, 100), (501, 5, 200), (0.03, 4, 0.01), (526, 1, 600), (526, 2, 300)],
)
def test_steps_are_round(top: float, most: int, step: float) -> None:
    """The smallest that needs no more steps than there is room for."""
    assert nice_step(top, most) == pytest.approx(step)


@given(st.floats(1e-6, 1e12), st.integers(1, 40))
def test_the_axis_covers_the_highest_value(top: float, rows: int) -> None:
    """With at most half of the axis above it, and at most one label for two rows."""
    ticks = value_ticks(top, rows)
    assert ticks[0] == 0 and ticks[-1] >= top * (1 - 1e-6)
    assert len(ticks) - 1 <= max(1, rows // 2)
    assert ticks[-1] <= top * 10


def test_nothing_to_measure_still_has_an_axis() -> None:
    """A crawl that has not begun has a chart too."""
    assert value_ticks(0.0, 10) == [0.0, 1.0]


def test_whole_things_have_no_half_on_the_axis() -> None:
    """Half a URL is never queued."""
    assert value_ticks(1.0, 10, whole=True) == [0.0, 1.0]
    assert value_ticks(1.0, 10)[1] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("span_s", "cells", "labels"),
    [
        (900, 40, ["12:05", "12:10", "12:15"]),
        (3_600, 60, ["12:10", "12:20", "12:30", "12:40", "12:50", "13:00"]),
        (21_600, 70, ["13:00", "14:00", "15:00", "16:00", "17:00", "18:00"]),
        (86_400, 45, ["18:00", "00:00", "06:00", "12:00"]),
        (60, 60, ["12:00:15", "12:00:30", "12:00:45", "12:01:00"]),
    ],
)
def test_times_are_round(span_s: float, cells: int, labels: list[str]) -> None:
    """Minutes and hours as a clock shows them, whatever second it is now."""
    ticks = time_ticks(NOON + 1, NOON + span_s + 1, cells)
    assert [tick.label for tick in ticks] == labels


@given(st.floats(0, 2e9), st.floats(1, 1e6), st.integers(10, 300))
def test_labels_of_the_time_axis_never_run_together(
    since: float, span_s: float, cells: int
) -> None:
    """At any width."""
    ticks = time_ticks(since, since + span_s, cells)
    columns = [(tick.at - since) / span_s * cells for tick in ticks]
    assert all(
        b - a >= len(tick.label) + 1
        for a, b, tick in zip(columns, columns[1:], ticks, strict=False)
    )
