"""A table on the screen: header, the rows around the cursor, marks, a scroll mark at the right."""

from __future__ import annotations

from typing import Final

from console.lines import Line, Picture, Span, line
from console.plain import fit, plain
from console.state import View
from console.tables import Column, Row, Shown, Table, shown, slot_of, sorting
from console.units import duration

GAP: Final = " "
STALE_S: Final = 5.0


def table_picture(table: Table, view: View, cells: int, rows: int) -> Picture:
    now = shown(table, view)
    columns = [column for column in table.columns if column.least <= cells <= column.most]
    widths = _widths(columns, cells - 2)
    room = rows - 2
    top = first_row(now, room)
    lines: Picture = [_header(table, view, columns, widths)]
    for n, row in enumerate(now.rows[top : top + room], top):
        lines.append(_row(table, view, row, columns, widths, n == now.index))
    if not now.rows:
        lines.append(line(Span(f"  {_nothing(table, view)}", "dim")))
    lines += [()] * (rows - 1 - len(lines))
    return [*lines, _summary(table, view, now)]


def first_row(now: Shown, room: int) -> int:
    """The first row on the screen: the cursor stays away from the edges where it can."""
    if len(now.rows) <= room:
        return 0
    return max(0, min(now.index - room // 2, len(now.rows) - room))


def _widths(columns: list[Column], cells: int) -> list[int]:
    fixed = sum(column.cells for column in columns) + len(columns) * len(GAP)
    elastic = sum(not column.cells for column in columns)
    left = max(8, (cells - fixed) // elastic) if elastic else 0
    return [column.cells or left for column in columns]


def _header(table: Table, view: View, columns: list[Column], widths: list[int]) -> Line:
    name, desc = sorting(table, view.table)
    spans: list[Span] = [Span("  ")]
    for column, cells in zip(columns, widths, strict=True):
        title = column.title
        if column.sort and column.sort == name and not table.newest_first:
            title += "↓" if desc else "↑"
        spans.append(Span(fit(title, cells, column.right) + GAP, "head"))
    return tuple(spans)


def _row(
    table: Table, view: View, row: Row, columns: list[Column], widths: list[int], here: bool
) -> Line:
    marked = table.key(row) in view.table.marks
    spans = [
        Span("▶" if here else " ", "cursor" if here else ""),
        Span("●" if marked else " ", "mark"),
    ]
    if here:
        spans[1] = Span(spans[1].text, "cursor")
    for column, cells in zip(columns, widths, strict=True):
        span = column.cell(row)
        style = "cursor" if here else "mark" if marked and not span.style else span.style
        spans.append(Span(fit(span.text, cells, column.right) + GAP, style))
    return tuple(spans)


def _nothing(table: Table, view: View) -> str:
    answer = view.known.answers.get(slot_of(view))
    if view.table.filter:
        return f"nothing matches {plain(view.table.filter, 40)!r}; escape shows all"
    if table.op and answer is None:
        return "asking the leader"
    if answer is not None and answer.error:
        return plain(answer.error)
    return table.empty


def _summary(table: Table, view: View, now: Shown) -> Line:
    """`1–40 of 10,000   filter "docs"   3 marked`."""
    state = view.table
    first = now.offset + now.index + 1 if now.rows else 0
    spans = [Span(f"  {first:,} of {now.total:,}", "dim")]
    if state.filter:
        sign = "not " if state.inverse else ""
        spans.append(Span(f"   filter: {sign}{plain(state.filter, 60)}", "warn"))
    if state.marks:
        spans.append(Span(f"   {len(state.marks)} marked", "mark"))
    answer = view.known.answers.get(slot_of(view)) if table.op else None
    if answer is not None and answer.error:
        spans.append(Span(f"   {plain(answer.error, 200)}", "bad"))
    elif answer is not None and not view.paused and view.clock - answer.at > STALE_S:
        spans.append(Span(f"   {duration(view.clock - answer.at)} old", "warn"))
    return tuple(spans)
