"""The whole screen of a View as lines: what `--snapshot` prints, and what the widgets share."""

from __future__ import annotations

from console.columns import TABLES
from console.lines import Picture, cut
from console.pictures.charts import charts
from console.pictures.details import details
from console.pictures.frame import foot_line, tab_line, top_line
from console.pictures.overview import overview
from console.pictures.table import table_picture
from console.state import ConsolePage, View


def body(view: View, cells: int, rows: int) -> Picture:
    if cells < 20 or rows < 4:
        return []
    table = TABLES.get(view.page)
    if table is not None:
        return table_picture(table, view, cells, rows)
    if view.page is ConsolePage.OVERVIEW:
        return overview(view, cells, rows)
    if view.page is ConsolePage.CHARTS:
        return charts(view, cells, rows)
    return details(view, cells, rows)


def whole(view: View, cells: int, rows: int) -> Picture:
    lines = [top_line(view, cells), tab_line(view, cells), *body(view, cells, rows - 3)]
    lines += [()] * (rows - 1 - len(lines))
    return [cut(line, cells) for line in [*lines[: rows - 1], foot_line(view, cells)]]
