"""Tables as data: columns, rows, and what of them is on the screen.

Two kinds: local ones, whose rows are in the snapshot and are filtered and sorted here, and remote
ones, of which the leader sends one page, filtered and sorted there. `columns.py` has them all;
the reducer asks for rows and keys, `drawing/table` for cells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from console.drawing.lines import Span
from console.latest import Latest
from console.plain import plain
from console.state import Known, TableState, View

Row: TypeAlias = dict[str, Any]
LOADED: Final = 200  # rows of a remote table that are here at a time
STEP: Final = 100  # by which the loaded part moves


class Column(NamedTuple):
    title: str
    cells: int  # 0: what is left
    cell: Callable[[Row], Span]
    sort: str = ""  # the name under which it can be sorted; "" cannot
    letter: str = ""  # shift and this letter sorts by it
    right: bool = False
    key: Callable[[Row], Any] | None = None  # local tables: what is compared
    least: int = 0  # the screen must be this wide for it to be shown
    most: int = 10_000  # and not wider than this
    desc: bool = False  # the first press of the letter: the largest first


class Table(NamedTuple):
    columns: tuple[Column, ...]
    key: Callable[[Row], str]  # names a row for good
    sort: str  # at first
    desc: bool
    rows: Callable[[View], list[Row]] | None = None  # a local table
    text: Callable[[Row], str] = lambda row: " ".join(map(plain, row.values()))
    fits: Callable[[Row, str], bool] | None = None  # a filter of its own, instead of `text`
    op: str = ""  # a remote table
    args: Callable[[View], Row] = lambda view: {}
    empty: str = "nothing here"
    newest_first: bool = False  # rows come in the order of time: nothing to sort by


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """What of a table is here to be shown."""

    rows: Sequence[Row]
    total: int
    offset: int  # of the first row in the whole table
    index: int  # of the cursor, within `rows`; beyond them while its rows are not loaded

    @property
    def current(self) -> Row | None:
        """The row at the cursor; None while it is not loaded."""
        return self.rows[self.index] if 0 <= self.index < len(self.rows) else None


def text(row: Row, name: str) -> str:
    value = row.get(name, "")
    return plain(value) if value is not None else ""


def number(row: Row, name: str) -> float:
    """A number of a row that may have been sent by anybody."""
    value = row.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def trend_in(row: Row) -> list[float]:
    """The lengths of a queue, oldest first; what is no number is left out."""
    trend = row.get("trend")
    points = trend if isinstance(trend, list | tuple) else ()
    return [point for point in points if isinstance(point, int | float)]


def sorting(table: Table, state: TableState) -> tuple[str, bool]:
    return (state.sort, state.desc) if state.sort else (table.sort, table.desc)


def slot_of(view: View) -> str:
    """Where the answer for the table of this place is kept."""
    return view.place.key


def question(table: Table, view: View) -> tuple[str, Row]:
    """What to ask a master for the rows of a remote table."""
    state = view.table
    args: Row = {"limit": LOADED, **table.args(view)}
    if table.newest_first:
        return table.op, args | ({"text": state.filter} if table.op == "items" else {})
    name, desc = sorting(table, state)
    args |= {"sort": name, "desc": desc, "offset": state.offset}
    if state.filter:
        args |= {"filter": state.filter, "inverse": state.inverse}
    return table.op, args


def shown(table: Table, view: View, cluster_state: Known | None = None) -> Shown:
    state = view.table
    if table.rows is not None:
        rows = _local(table, state, table.rows(view))
        total, offset = len(rows), 0
    else:
        answer = (cluster_state or view.content).answers.get(slot_of(view))
        rows = answer.rows if answer is not None else []
        if table.newest_first and state.filter:
            rows = [row for row in rows if _matches(table, state.filter, state.inverse, row)]
        data = answer.data if answer is not None else {}
        paged = "total" in data and not table.newest_first
        total = int(number(data, "total")) if paged else len(rows)
        offset = int(number(data, "offset"))
    index = _cursor(table, state, rows, offset, total if table.op else len(rows))
    return Shown(rows, total, offset, index)


def _local(table: Table, state: TableState, rows: list[Row]) -> list[Row]:
    name, desc = sorting(table, state)
    return _ordered(table, rows, state.filter, state.inverse, name, desc)


@Latest
def _ordered(
    table: Table, rows: list[Row], filter_text: str, inverse: bool, name: str, desc: bool
) -> list[Row]:
    if filter_text:
        rows = [row for row in rows if _matches(table, filter_text, inverse, row)]
    if table.newest_first:
        return rows
    column = next((candidate for candidate in table.columns if candidate.sort == name), None)
    if column is not None and column.key is not None:
        outer = sorted((row for row in rows if not row.get("level")), key=column.key, reverse=desc)
        rows = [row for outer_row in outer for row in (outer_row, *_inside(outer_row, rows))]
    return rows


def _inside(outer: Row, rows: list[Row]) -> list[Row]:
    """The rows that are shown below an open row, in their own order."""
    if not outer.get("expanded"):
        return []
    return [row for row in rows if row.get("level") and row.get("outer") == outer.get("outer")]


def _matches(table: Table, filter_text: str, inverse: bool, row: Row) -> bool:
    if table.fits is not None:
        return table.fits(row, filter_text) is not inverse
    return (filter_text.casefold() in table.text(row).casefold()) is not inverse


def _cursor(table: Table, state: TableState, rows: Sequence[Row], offset: int, total: int) -> int:
    """The row that the cursor is on; when it is gone, the row that took its place. Outside of
    `rows` while that part of the table is not loaded."""
    at = state.offset + state.index - offset
    if state.cursor:
        if 0 <= at < len(rows) and table.key(rows[at]) == state.cursor:
            return at
        for n, row in enumerate(rows):
            if table.key(row) == state.cursor:
                return n
    if at >= len(rows) and offset + len(rows) >= total:
        return max(0, len(rows) - 1)
    return at
