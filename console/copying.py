"""What is copied to the clipboard: of rows their main field, or all columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from console.columns.pages import TABLES
from console.drawing.table import row_text
from console.state import View
from console.tables import Row, text
from console.view import chosen_rows, here

MAIN_FIELDS: Final = ("url", "host", "id", "name", "text", "data", "run")


def main_fields(view: View) -> str:
    """Return the main field of each marked row, or of the row at the cursor."""
    rows: Sequence[Row] = chosen_rows(view) if view.table.marks else here(view)
    return "\n".join(filter(None, map(_main_field, rows)))


def whole_rows(view: View, cells: int) -> list[str]:
    """Return the marked rows, or the row at the cursor, with tabs between the columns."""
    table = TABLES.get(view.page)
    rows = chosen_rows(view) if table is not None else []
    return [row_text(table, row, cells) for row in rows] if table is not None else []


def _main_field(row: Row) -> str:
    return next((text(row, name) for name in MAIN_FIELDS if text(row, name)), "")
