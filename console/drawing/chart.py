"""A chart as lines: the newest values, a curve with a y axis, and a time axis. Pure.

Called by `widgets.chart` for each new set of points, and when the mouse moves over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from console.drawing import curve
from console.drawing.axes import TimeTick, time_ticks, value_ticks
from console.drawing.lines import Line, Picture, Span, line_width
from console.plain import width
from console.units import clock_text

LEAST_ROWS: Final = 3  # one of values, one of curve, one of time axis
LEAST_CELLS: Final = 16
SHORTEST_S: Final = 60.0  # of the time axis, when the measurements have only begun
GUIDE: Final = "┈"
AREA_OF: Final = {  # the style of a curve → that of the area below it
    "series1": "area1",
    "series2": "area2",
    "series3": "area3",
    "bad": "area-bad",
}


class Series(NamedTuple):
    """One curve. A value of None was not measured."""

    name: str
    values: Sequence[float | None]
    style: str  # "series1" … "series4", "bad"


class ChartData(NamedTuple):
    """What a chart shows. Compared as a whole: equal data is not drawn again."""

    at: Sequence[float] = ()  # UTC, rising
    series: tuple[Series, ...] = ()
    span_s: float = 900.0
    show: Callable[[float], str] = str  # a value with its unit
    tick: Callable[[float], str] = str  # a round value at the axis
    whole: bool = False  # what is counted in whole numbers
    filled: bool = True  # the area below the curve, for a single one
    empty: str = "no measurements yet"


class Frame(NamedTuple):
    """Where a chart's parts are, in cells."""

    axis: int  # width of the labels of the y axis, with the axis itself
    plot: int  # width of the curves
    rows: int  # height of the curves
    since: float
    until: float
    ticks: tuple[float, ...]  # of the y axis; the last is the upper edge
    data: ChartData


def frame(data: ChartData, cells: int, rows: int) -> Frame | None:
    """Divide a size; None where it is too small, or where there is nothing to show."""
    if not data.at or cells < LEAST_CELLS or rows < LEAST_ROWS:
        return None
    until = data.at[-1]
    since = max(until - data.span_s, min(_first_measured(data), until - SHORTEST_S))
    top = 0.0
    for series in data.series:
        shown = (
            value
            for moment, value in zip(data.at, series.values, strict=True)
            if value is not None and moment >= since
        )
        top = max(top, max(shown, default=0.0))
    plot_rows = rows - 2
    ticks = value_ticks(top, plot_rows, data.whole)
    axis = max(width(data.tick(tick)) for tick in ticks) + 2
    plot = max(1, cells - axis)
    return Frame(axis, plot, plot_rows, since, until, tuple(ticks), data)


def _first_measured(data: ChartData) -> float:
    """Before it there was no cluster: an empty axis would only make the rest smaller."""
    return next(
        (
            moment
            for n, moment in enumerate(data.at)
            if any(series.values[n] is not None for series in data.series)
        ),
        data.at[-1],
    )


def chart(data: ChartData, cells: int, rows: int, hover: int | None = None) -> Picture:
    """Draw it. `hover` is the column under the mouse, from the left edge of the picture."""
    parts = frame(data, cells, rows)
    if parts is None:
        return [(Span(" " + data.empty, "dim"),)] if rows > 0 and cells > 1 else []
    plot_column = None
    if hover is not None and 0 <= hover - parts.axis < parts.plot:
        plot_column = hover - parts.axis
    header = _newest(data, cells) if plot_column is None else _values_at(parts, plot_column)
    return [header, *_plot(parts, plot_column), _time_axis(parts)]


# ---------------------------------------------------------------- the values in words


def _newest(data: ChartData, cells: int) -> Line:
    """The value now; of a single curve also the highest."""
    line = _newest_values(data, " ━ ")
    return line if line_width(line) <= cells else _newest_values(data, "")


def _newest_values(data: ChartData, mark: str) -> Line:
    spans: list[Span] = []
    for series in data.series:
        values = [value for value in series.values if value is not None]
        newest = data.show(values[-1]) if values else "–"
        if len(data.series) > 1:
            spans += [Span(f"{mark}{series.name} ", series.style), Span(newest + " ", "bold")]
        else:
            spans += [Span(f" {newest}", "bold")]
            if values:
                spans.append(Span(f"  highest {data.show(max(values))}", "dim"))
    return tuple(spans)


def _values_at(parts: Frame, column: int) -> Line:
    """The values under the mouse, with their time."""
    data = parts.data
    index = nearest(data.at, moment_of(parts, column))
    spans = [Span(f" {clock_text(data.at[index])} ", "accent")]
    for series in data.series:
        value = series.values[index]
        shown = data.show(value) if value is not None else "not measured"
        if len(data.series) > 1:
            spans.append(Span(f" ━ {series.name} ", series.style))
        spans.append(Span(f"{shown} ", "bold"))
    return tuple(spans)


def moment_of(parts: Frame, column: int) -> float:
    """Return the time that a column of the plot stands for."""
    return parts.since + (parts.until - parts.since) * (column + 0.5) / parts.plot


def nearest(at: Sequence[float], moment: float) -> int:
    """Return the index of the measurement next to a moment."""
    return min(range(len(at)), key=lambda n: abs(at[n] - moment))


# ---------------------------------------------------------------- curves


def _plot(parts: Frame, hover: int | None) -> Picture:
    data, top = parts.data, parts.ticks[-1]
    filled = data.filled and len(data.series) == 1
    layers = [
        (
            curve.dots(
                curve.resample(
                    data.at,
                    series.values,
                    parts.since,
                    parts.until,
                    parts.plot * curve.COLUMNS,
                ),
                top,
                parts.rows,
                filled,
            ),
            series.style,
        )
        for series in data.series
    ]
    labels = _tick_rows(parts)
    lines: Picture = []
    for row in range(parts.rows - 1, -1, -1):
        label = labels.get(row)
        edge = "┤" if label is not None else "│"
        head = Span(f"{label or '':>{parts.axis - 2}} {edge}", "dim")
        guide = GUIDE if label is not None else " "
        lines.append((head, *_cells(layers, parts.plot, row, guide, hover)))
    return lines


def _tick_rows(parts: Frame) -> dict[int, str]:
    """Which row of cells has which label; the time axis itself is 0."""
    highest = parts.rows * curve.ROWS - 1
    rows = {
        round(tick / parts.ticks[-1] * highest) // curve.ROWS: parts.data.tick(tick)
        for tick in parts.ticks[1:]
    }
    if parts.rows > 2:
        rows.setdefault(0, parts.data.tick(0.0))
    return rows


def _cells(
    layers: Sequence[tuple[curve.Dots, str]], plot: int, row: int, guide: str, hover: int | None
) -> list[Span]:
    """One row of the plot; neighbours of one style are one span."""
    spans: list[Span] = []
    run: list[str] = []
    run_style = ""
    shift = row * curve.ROWS
    for n in range(plot):
        left, right = 2 * n, 2 * n + 1
        text, style = guide, "rest"
        for points, series_style in layers:
            line = (points.line[left] | points.line[right]) >> shift & 15
            area = (points.area[left] | points.area[right]) >> shift & 15
            if line:
                text = curve.cell(
                    points.line[left] | points.area[left],
                    points.line[right] | points.area[right],
                    row,
                )
                style = series_style
                break
            if area:
                text = curve.cell(points.area[left], points.area[right], row)
                style = AREA_OF.get(series_style, "rest")
                break
        if n == hover:
            style = "hover"
            text = text if text not in (guide, " ") else "│"
        if style != run_style and run:
            spans.append(Span("".join(run), run_style))
            run = []
        run_style = style
        run.append(text)
    spans.append(Span("".join(run), run_style))
    return spans


def _time_axis(parts: Frame) -> Line:
    """`└──┬ 14:05 ────┬ 14:10 ───`: a mark at the time, its label to the right of it."""
    axis = ["─"] * parts.plot
    for tick in time_ticks(parts.since, parts.until, parts.plot):
        _label(axis, tick, parts)
    zone = " UTC"
    if parts.plot > 40 and all(cell == "─" for cell in axis[-len(zone) :]):
        axis[-len(zone) :] = zone
    return (Span(" " * (parts.axis - 1) + "└" + "".join(axis), "dim"),)


def _label(axis: list[str], tick: TimeTick, parts: Frame) -> None:
    share = (tick.at - parts.since) / (parts.until - parts.since)
    column = min(parts.plot - 1, int(share * parts.plot))
    label = f" {tick.label} "
    axis[column] = "┬"
    if column + 1 + len(label) <= parts.plot:
        axis[column + 1 : column + 1 + len(label)] = label
