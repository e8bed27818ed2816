"""The page of charts: which spans there are, what it is about, and all of it as text. Pure."""

from __future__ import annotations

from typing import Final

from console.drawing.chart import chart
from console.drawing.lines import Picture, Span, line, title
from console.drawing.measures import MEASURES, chart_data
from console.plain import plain
from console.state import ConsolePage, Place, View
from console.tables import Row, text

SPAN_NAMES: Final = {900: "15 min", 3_600: "1 h", 21_600: "6 h", 86_400: "24 h"}
TEXT_ROWS: Final = 10
CHARTED: Final = (ConsolePage.JOBS, ConsolePage.JOB, ConsolePage.HOSTS, ConsolePage.HOST)


def charts_of(page: ConsolePage, row: Row) -> Place | None:
    """Return the charts of the job or the host of a row; None on a page about something else."""
    if page in (ConsolePage.JOBS, ConsolePage.JOB):
        return Place(ConsolePage.CHARTS, f"run:{text(row, 'run')}", (("name", text(row, "name")),))
    if page in (ConsolePage.HOSTS, ConsolePage.HOST):
        return Place(ConsolePage.CHARTS, f"host:{text(row, 'id')}", (("host", text(row, "host")),))
    return None


def subject(view: View) -> str:
    """Return what the charts are about."""
    kind, _, ref = view.place.ref.partition(":")
    about = view.place.about
    if kind == "run":
        return f"job {plain(about.get('name', ''), 60)} (run {plain(ref, 20)})"
    if kind == "host":
        return f"host {plain(about.get('host', ref), 80)}"
    return "the whole cluster"


def charts_text(view: View, cells: int) -> Picture:
    """The charts one below the other: what `--snapshot` prints."""
    answer = view.content.answers.get(view.place.key)
    data = answer.data if answer is not None else None
    span = SPAN_NAMES.get(view.span_s, "")
    lines: Picture = [line(Span(f"The last {span} of {subject(view)}", "head"))]
    for measure in MEASURES:
        points = chart_data(measure, data, view.span_s)
        lines += [title(measure.title, cells), *chart(points, cells, TEXT_ROWS)]
    return lines
