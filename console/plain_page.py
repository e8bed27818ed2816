"""A page as plain text: what `--snapshot` prints."""

from __future__ import annotations

from console.columns.pages import TABLES
from console.drawing.charts import charts_text
from console.drawing.details import details
from console.drawing.frame import top_line
from console.drawing.lines import Picture, as_text
from console.drawing.overview import overview_text
from console.drawing.table import table_lines
from console.state import ConsolePage, View
from console.tables import shown


def page_text(view: View, cells: int) -> str:
    """All lines of the View's page, at this width."""
    return as_text([top_line(view, cells), *_body(view, cells)])


def _body(view: View, cells: int) -> Picture:
    table = TABLES.get(view.page)
    if table is not None:
        return list(table_lines(table, view, shown(table, view), cells))
    if view.page is ConsolePage.OVERVIEW:
        return overview_text(view, cells)
    if view.page is ConsolePage.CHARTS:
        return charts_text(view, cells)
    return details(view, cells)
