"""What can be charted: which columns of a history, in which unit. Pure.

`chart_data` makes the points of one chart from the leader's history; `recent_data` puts the seconds
that this console has seen itself behind it, so that a chart of now ends now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from console.drawing.chart import ChartData, Series
from console.rates import Sample
from console.units import count, latency, rate, size

RECENT_STEP_S: Final = 5.0  # live seconds are averaged: single seconds are noise


class Measure(NamedTuple):
    """One chart: its title, its curves, its unit."""

    key: str
    title: str
    columns: tuple[tuple[str, str, str], ...]  # column of the history, name of the curve, style
    show: Callable[[float], str]
    tick: Callable[[float], str]
    whole: bool = False


def tick_count(number: float) -> str:
    """Return `800`, `20 k`, `1.5 M`: a round number, short."""
    for least, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if number >= least:
            return f"{number / (1e3 if unit == ' k' else least):g}{unit}"
    return f"{number:g}"


def tick_size(number: float) -> str:
    """Return `500 kB`, `2 MB`."""
    return size(number).replace(".0 ", " ")


def _tick_ms(number: float) -> str:
    return f"{number / 1_000:g} s" if number >= 1_000 else f"{number:g} ms"


PAGES: Final = Measure(
    "pages",
    "Pages per second",
    (("pages_s", "pages", "series1"),),
    lambda number: f"{rate(number)}/s",
    lambda number: f"{tick_count(number)}/s",
)
QUEUE: Final = Measure(
    "queue", "Queued URLs", (("queued", "queued", "series2"),), count, tick_count, whole=True
)
LATENCY: Final = Measure(
    "latency",
    "Latency of answers",
    (
        ("p50", "p50", "series1"),
        ("p95", "p95", "series3"),
        ("p99", "p99", "series4"),
    ),
    latency,
    _tick_ms,
)
FAILURES: Final = Measure(
    "failures",
    "Failures per second",
    (("failed_s", "failed", "bad"),),
    lambda number: f"{rate(number)}/s",
    lambda number: f"{tick_count(number)}/s",
)
BYTES: Final = Measure(
    "bytes",
    "Download",
    (("bytes_s", "bytes", "series3"),),
    lambda number: f"{size(number)}/s",
    lambda number: f"{tick_size(number)}/s",
)
IN_FLIGHT: Final = Measure(
    "in-flight",
    "In flight",
    (
        ("fetching", "fetching", "series1"),
        ("waiting", "waiting", "series2"),
        ("uncommitted", "uncommitted", "series4"),
    ),
    count,
    tick_count,
    whole=True,
)
MEASURES: Final = (PAGES, LATENCY, QUEUE, FAILURES, BYTES, IN_FLIGHT)


def chart_data(measure: Measure, answer: Mapping[str, Any] | None, span_s: float) -> ChartData:
    """Return the points of a history, as a master sent it: anything else becomes no points."""
    at = numbers((answer or {}).get("at"))
    empty = "asking the leader" if answer is None else "no measurements yet"
    columns = [
        (numbers((answer or {}).get(column)), name, style)
        for column, name, style in measure.columns
    ]
    moments = [moment for moment in at if moment is not None]
    usable = [
        (values, name, style)
        for values, name, style in columns
        if len(values) == len(at) == len(moments)
    ]
    return ChartData(
        tuple(moments) if usable else (),
        tuple(Series(name, tuple(values), style) for values, name, style in usable),
        span_s,
        measure.show,
        measure.tick,
        measure.whole,
        empty=empty,
    )


def recent_data(
    measure: Measure,
    answer: Mapping[str, Any] | None,
    samples: Sequence[Sample],
    span_s: float,
) -> ChartData:
    """Return the history up to the first second that this console saw, and its own means after it.

    A measure that the snapshot does not have (latency) is the history alone.
    """
    stored = chart_data(measure, answer, span_s)
    live = _means(samples, [column for column, _, _ in measure.columns])
    if not live or not all(hasattr(samples[0], column) for column, _, _ in measure.columns):
        return stored
    first = live[0][0]
    kept = sum(moment < first for moment in stored.at)
    empty: tuple[Series, ...] = tuple(Series(name, (), style) for _, name, style in measure.columns)
    series = tuple(
        Series(
            curve.name,
            (*curve.values[:kept], *(values[n] for _, values in live)),
            curve.style,
        )
        for n, curve in enumerate(stored.series or empty)
    )
    return stored._replace(at=(*stored.at[:kept], *(moment for moment, _ in live)), series=series)


def _means(
    samples: Sequence[Sample], columns: Sequence[str]
) -> list[tuple[float, tuple[float, ...]]]:
    """The mean of every five seconds, each at the last moment in it."""
    buckets: dict[int, list[Sample]] = {}
    for sample in samples:
        buckets.setdefault(int(sample.at // RECENT_STEP_S), []).append(sample)
    return [
        (
            bucket[-1].at,
            tuple(
                sum(float(getattr(sample, column, 0.0)) for sample in bucket) / len(bucket)
                for column in columns
            ),
        )
        for bucket in buckets.values()
    ]


def numbers(values: Any) -> list[float | None]:
    """Return a list of numbers as a master sent it; what is none was not measured."""
    if not isinstance(values, list | tuple):
        return []
    return [
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        for value in values
    ]
