"""A table as lines: its header, a row, and the summary below it. Called by `widgets.table`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from console.drawing.lines import Line, Span
from console.plain import fit, plain
from console.state import View
from console.tables import Column, Row, Shown, Table, slot_of, sorting
from console.units import duration
from zcrawl.store.queries import SEARCHED_ITEMS

GAP: Final = " "
MARGIN: Final = 2  # cells for the cursor and the mark
STALE_S: Final = 5.0


class Fitted(NamedTuple):
    """The columns that a width has room for, and the cells of each."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]

    def at(self, x: int) -> int:
        """Return the index of the column at this cell; -1 for none."""
        left = MARGIN
        for index, cells in enumerate(self.widths):
            if left <= x < left + cells + len(GAP):
                return index
            left += cells + len(GAP)
        return -1


def fitted(table: Table, cells: int) -> Fitted:
    """Choose the columns for a screen of this width, and share the cells among them."""
    columns = tuple(column for column in table.columns if column.least <= cells <= column.most)
    fixed = sum(column.cells for column in columns) + len(columns) * len(GAP)
    elastic = sum(not column.cells for column in columns)
    left = max(8, (cells - MARGIN - fixed) // elastic) if elastic else 0
    return Fitted(columns, tuple(column.cells or left for column in columns))


def header_line(table: Table, view: View, fitted: Fitted, hover: int = -1) -> Line:
    """The titles; an arrow at the column that the rows are sorted by."""
    name, desc = sorting(table, view.table)
    spans: list[Span] = [Span(" " * MARGIN, "head")]
    for index, (column, cells) in enumerate(zip(fitted.columns, fitted.widths, strict=True)):
        title = column.title
        if column.sort and column.sort == name and not table.newest_first:
            title += "↓" if desc else "↑"
        style = "hover" if index == hover and column.sort else "head"
        spans += [Span(fit(title, cells, column.right), style), Span(GAP, "head")]
    return tuple(spans)


def row_line(row: Row, fitted: Fitted, look: str, marked: bool) -> Line:
    """One row. `look` is the style of the whole row: cursor, hover, or none."""
    spans = [
        Span("▶" if look == "cursor" else " ", look),
        Span("●" if marked else " ", look or "mark"),
    ]
    for column, cells in zip(fitted.columns, fitted.widths, strict=True):
        span = column.cell(row)
        style = look or ("mark" if marked and not span.style else span.style)
        spans.append(Span(fit(span.text, cells, column.right) + GAP, style))
    return tuple(spans)


def row_text(table: Table, row: Row, cells: int) -> str:
    """The cells of a row as they are copied: whole, with tabs between them."""
    return "\t".join(column.cell(row).text for column in fitted(table, cells).columns)


def nothing_text(table: Table, view: View) -> str:
    """Why there is no row."""
    answer = view.content.answers.get(slot_of(view))
    if view.content.snapshot is None:  # nobody knows whether there is something
        return plain(view.link.text) or "connecting"
    if view.table.filter:
        words = f"nothing matches {plain(view.table.filter, 40)!r}"
        if table.op == "items" and answer is not None and answer.data.get("more"):
            words += f" in the newest {SEARCHED_ITEMS:,} items, older ones were not searched"
        return f"{words}; escape shows all"
    if table.op and answer is None:
        return "asking the leader"
    if answer is not None and answer.error:
        return plain(answer.error)
    return table.empty


def summary_line(table: Table, view: View, now: Shown) -> Line:
    """`12 of 10,000   filter: docs   3 marked`."""
    state = view.table
    here = f"{now.offset + now.index + 1:,}" if now.current is not None else "–" * bool(now.rows)
    spans = [Span(f"  {here or 0} of {now.total:,}", "dim")]
    if state.filter:
        sign = "not " if state.inverse else ""
        spans.append(Span(f"   filter: {sign}{plain(state.filter, 60)}", "warn"))
    if state.marks:
        spans.append(Span(f"   {len(state.marks)} marked", "mark"))
    answer = view.content.answers.get(slot_of(view)) if table.op else None
    if answer is not None and answer.error:
        spans.append(Span(f"   {plain(answer.error, 200)}", "bad"))
    elif answer is not None and not view.paused and view.clock - answer.at > STALE_S:
        spans.append(Span(f"   {duration(view.clock - answer.at)} old", "warn"))
    return tuple(spans)


def table_lines(table: Table, view: View, now: Shown, cells: int) -> Sequence[Line]:
    """All rows that are here, without a cursor: what `--snapshot` prints."""
    layout = fitted(table, cells)
    rows = [row_line(row, layout, "", False) for row in now.rows]
    rows = rows or [(Span(f"  {nothing_text(table, view)}", "dim"),)]
    return [header_line(table, view, layout), *rows, summary_line(table, view, now)]
