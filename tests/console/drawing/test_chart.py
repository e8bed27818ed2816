"""A chart says what was measured, at which time, and nothing where nothing was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.drawing import curve
from console.drawing.chart import ChartData, Series, chart, frame
from console.drawing.lines import Picture, as_text, line_width

NOON = 1_790_164_800.0


def data(*values: float | None, step_s: float = 10.0, span_s: float = 900.0) -> ChartData:
    """One curve with a point every ten seconds from noon on."""
    at = tuple(NOON + step_s * n for n in range(len(values)))
    series = (Series("pages", values, "series1"),)
    return ChartData(at, series, span_s, lambda value: f"{value:g}/s", lambda value: f"{value:g}")


def heights(picture: Picture, frame_cells: int) -> list[int]:
    """How many rows of each column have dots."""
    rows = as_text(picture).splitlines()[1:-1]
    return [
        sum(len(row) > x and "⠀" < row[x] <= "⣿" for row in rows)
        for x in range(frame_cells, max(map(len, rows)))
    ]


def test_a_higher_value_is_higher_on_the_screen() -> None:
    """From left to right in the order of time."""
    seen = data(*(float(n) for n in range(91)))
    parts = frame(seen, 60, 12)
    assert parts is not None
    rising = heights(chart(seen, 60, 12), parts.axis)
    assert rising == sorted(rising) and rising[0] == 1 and rising[-1] >= 9


def test_the_highest_value_reaches_the_row_of_its_label() -> None:
    """The curve and the y axis are of one scale."""
    rows = as_text(chart(data(*[100.0] * 30), 50, 12)).splitlines()
    labelled = next(row for row in rows[1:] if row.strip().startswith("100"))
    assert any("⠀" < char <= "⣿" for char in labelled)


def test_a_gap_stays_empty() -> None:
    """Nobody measured while there was no leader: no line is drawn through it."""
    values = curve.resample(
        [0, 10, 20, 30, 90, 100], [1, 1, 1, 1, 1, 1], since=0, until=100, columns=101
    )
    assert values[15] == 1 and values[50] is None and values[95] == 1


def test_a_peak_is_not_lost_where_many_points_share_a_column() -> None:
    """The highest of them is shown."""
    values = [5.0] * 1000
    values[500] = 99.0
    shown = curve.resample(range(1000), values, 0, 999, 20)
    assert max(value for value in shown if value is not None) == 99.0


def test_points_before_the_span_are_not_shown() -> None:
    """Nor do they make the axis higher."""
    old = [1000.0, *[10.0] * 100]
    parts = frame(data(*old), 60, 12)
    assert parts is not None and parts.ticks[-1] == 10 and parts.until - parts.since == 900


def test_the_mouse_shows_the_value_and_its_time() -> None:
    """Of the measurement next to the column."""
    seen = data(*(float(n) for n in range(91)))
    parts = frame(seen, 60, 12)
    assert parts is not None
    first = as_text(chart(seen, 60, 12, hover=parts.axis)).splitlines()[0]
    last = as_text(chart(seen, 60, 12, hover=59)).splitlines()[0]
    assert first.split() == ["12:00:10", "1/s"] and last.split() == ["12:14:50", "89/s"]
    beside = as_text(chart(seen, 60, 12, hover=0)).splitlines()[0]
    assert "highest 90/s" in beside


def test_what_was_not_measured_is_said_under_the_mouse() -> None:
    """Not 0, which would look measured."""
    seen = data(1.0, None, None, None, None, None, 1.0)
    parts = frame(seen, 60, 12)
    assert parts is not None
    assert "not measured" in as_text(chart(seen, 60, 12, hover=59 - 25)).splitlines()[0]


def test_without_points_it_says_so() -> None:
    """In a cluster that has just begun."""
    assert "no measurements yet" in as_text(chart(ChartData(), 60, 12))


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 1e12)), max_size=200),
    st.integers(0, 120),
    st.integers(0, 30),
    st.one_of(st.none(), st.integers(-5, 130)),
)
def test_a_chart_fits_its_size(
    values: list[float | None], cells: int, rows: int, hover: int | None
) -> None:
    """Whatever was measured, at every size, wherever the mouse is."""
    picture = chart(data(*values), cells, rows, hover)
    assert len(picture) <= max(0, rows)
    plot = picture[1:]
    assert all(line_width(line) <= cells for line in plot)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_draws_nothing(value: float) -> None:
    """A master of another version may send anything."""
    assert curve.resample([0.0], [value], 0, 1, 4) == [None] * 4


def test_the_time_axis_begins_with_the_first_measurement() -> None:
    """A cluster that started two minutes ago has no empty quarter of an hour."""
    parts = frame(data(*[None] * 78, *[5.0] * 13), 60, 12)
    assert parts is not None and parts.until - parts.since == 120
