"""The charts: throughput, latency, queue, errors over 15 minutes, an hour, six hours.

Bars of eighths, drawn by hand: a plotting library needs 170 ms for one chart, this needs one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from console.lines import Picture, Span, beside, line, title
from console.state import View
from console.units import clock_text, count, duration, rate, size

BARS: Final = " ▁▂▃▄▅▆▇█"
AXIS: Final = 9
WIDE: Final = 120


def _ms(value: float) -> str:
    return f"{value:.0f} ms" if value < 10_000 else duration(value / 1000)


CHARTS: Final[tuple[tuple[str, str, Callable[[float], str], str], ...]] = (
    ("Pages a second", "pages_s", rate, "accent"),
    ("Latency, 95th percentile", "p95", _ms, "warn"),
    ("Queued", "queued", count, "bar"),
    ("Failures a second", "failed_s", rate, "bad"),
    ("Bytes a second", "bytes_s", size, "accent"),
    ("Latency, median", "p50", _ms, "warn"),
)
FEW: Final = ("pages_s", "p95", "queued", "failed_s")  # on a small screen


def charts(view: View, cells: int, rows: int) -> Picture:
    answer = view.known.answers.get("charts:")
    data = answer.data if answer is not None else {}
    at = _numbers(data.get("at"))
    head = [
        Span(f"  the last {duration(view.span_s)}", "accent"),
        Span("   s: another span", "dim"),
    ]
    if not at:
        note = (
            "asking the leader"
            if answer is None
            else "the leader has counted for less than a point"
        )
        return [title("Charts", cells, head), line(Span(f"  {note}", "dim"))]
    wide = cells >= WIDE
    half = (cells - 2) // 2 if wide else cells
    definitions = [definition for definition in CHARTS if rows > 30 or definition[1] in FEW]
    stacked = (len(definitions) + 1) // 2 if wide else len(definitions)
    each = max(2, (rows - 1) // stacked - 2)
    pictures = [
        chart(name, _numbers(data.get(column)), half, each, show, style)
        for name, column, show, style in definitions
    ]
    lines: Picture = [
        title(
            "Charts", cells, [*head, Span(f"   {clock_text(at[0])} to {clock_text(at[-1])}", "dim")]
        )
    ]
    if wide:
        for n in range(0, len(pictures), 2):
            right = pictures[n + 1] if n + 1 < len(pictures) else []
            lines += beside(pictures[n], right, half, half)
    else:
        for picture in pictures:
            lines += picture
    return lines[:rows]


def chart(
    name: str,
    values: Sequence[float],
    cells: int,
    rows: int,
    show: Callable[[float], str],
    style: str,
) -> Picture:
    room = max(10, cells - AXIS - 1)
    points = squeeze(values, room)
    top = max(points, default=0.0)
    now = values[-1] if values else 0.0
    lines: Picture = [title(name, cells, [Span(f"  now {show(now)}, most {show(top)}", "dim")])]
    heights = _heights(points, top, rows)
    for n in range(rows, 0, -1):
        label = show(top * n / rows) if n in (rows, max(1, rows // 2)) and top else ""
        below = (n - 1) * 8
        bars = "".join([BARS[min(8, max(0, height - below))] for height in heights]).rjust(room)
        lines.append(line(Span(f"{label:>{AXIS - 1}} ", "dim"), Span(bars, style)))
    return [*lines, ()]


def squeeze(values: Sequence[float], cells: int) -> list[float]:
    """As many points as there are cells: each the highest of those that fall together."""
    if len(values) <= cells:
        return list(values)
    edges = [n * len(values) // cells for n in range(cells + 1)]
    return [max(values[a:b]) for a, b in itertools.pairwise(edges)]


def _heights(points: Sequence[float], top: float, rows: int) -> list[int]:
    """In eighths of a row; a line at the bottom where all is zero."""
    if top <= 0:
        return [1] * len(points)
    scale = rows * 8 / top
    return [round(value * scale) for value in points]


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list):
        return []
    return [float(value) if isinstance(value, int | float) else 0.0 for value in values]
