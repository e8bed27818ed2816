"""What a high screen shows below a table: the row at the cursor, its events, the cluster's charts.

Pure, and only of what is here already: nothing is asked for it, so the cursor can move fast.
"""

from __future__ import annotations

from typing import Final

from console.columns.outcomes import log_rows, node_lines
from console.columns.pages import TABLES
from console.drawing.chart import chart
from console.drawing.details import fact, item_page, line_page, log_lines
from console.drawing.lines import Picture, beside, line_width, title
from console.drawing.measures import PAGES, QUEUE, recent_data
from console.plain import plain
from console.state import ConsolePage, Drill, View
from console.tables import Row, text
from console.view import current_row, reduce

LEAST_ROWS: Final = 12  # less is not worth it
CHART_LEAST: Final = 9
CHART_MOST: Final = 30
SPAN_S: Final = 900
MANY_CELLS: Final = 1_000


def table_rows(rows: int, room: int) -> int:
    """How many lines a table of so many rows has; all, if the rest is not worth a preview."""
    lines = rows + 2  # the header, and a line of space
    return lines if room - lines >= LEAST_ROWS else room


def preview(view: View, cells: int, rows: int) -> Picture:
    """Exactly so many lines about the row at the cursor."""
    half = (cells - 2) // 2
    row = current_row(view)
    left = _facts(view, row, half) if row is not None else []
    lines = beside(left, _events(view, row, half), half, half)
    room = rows - len(lines) - 1
    if room < CHART_LEAST:
        return lines[:rows]
    height = min(CHART_MOST, room - 1)
    return [*lines[: rows - height - 2], (), *_charts(view, half, height)]


def _facts(view: View, row: Row, cells: int) -> Picture:
    """The row's cells one below the other, whole, also those that the table has no room for."""
    opened = reduce(view, Drill())
    if opened.page is ConsolePage.ITEM:
        return item_page(opened, cells)
    if opened.page is ConsolePage.LINE:
        return line_page(opened, cells)
    facts: Picture = []
    names: set[str] = set()
    for column in TABLES[view.page].columns:
        value = column.cell(row)
        is_short_form = column.most < MANY_CELLS  # another column says the same at length
        if value.text.strip() and column.title not in names and not is_short_form:
            names.add(column.title)
            facts.append(fact(column.title, value.text.strip(), value.style))
    return [title(_name(row), cells), *(line for line in facts if line_width(line))]


def _name(row: Row) -> str:
    names = ("host", "name", "tag", "id")
    return next((plain(text(row, name), 60) for name in names if text(row, name)), "")


def _events(view: View, row: Row | None, cells: int) -> Picture:
    """What was logged about the row; about anything, if the row is not of a node or a run."""
    if row is not None and view.page is ConsolePage.NODES:
        node = text(row, "id")
        return log_lines(node_lines(view, node), f"Events of {plain(node, 40)}", cells)
    events = log_rows(view)
    run = row.get("run") if row is not None and view.page is ConsolePage.JOBS else None
    if run:
        about = [event for event in events if event.get("run") == run]
        return log_lines(about, f"Events of run {plain(run, 20)}", cells)
    return log_lines(events, "Events", cells)


def _charts(view: View, cells: int, rows: int) -> Picture:
    """How fast the cluster is, and what it has left."""
    answer = view.content.answers.get("overview:history")
    stored = answer.data if answer is not None else None
    left, right = (
        [
            title(f"{measure.title}, all jobs", cells),
            *chart(recent_data(measure, stored, view.content.rates.samples, SPAN_S), cells, rows),
        ]
        for measure in (PAGES, QUEUE)
    )
    return beside(left, right, cells, cells)
