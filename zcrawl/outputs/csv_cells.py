"""Cells of a CSV that a spreadsheet would take for a formula, made harmless and back. Pure.

Used by `render` for jobs with `output.csv_safe`. A spreadsheet evaluates a cell that begins with
`=`, `+`, `-` or `@` (some of them also the full-width forms), maybe after spaces, and what comes
after a tab or a line break at its beginning. Such a cell gets an apostrophe before it, which
spreadsheets take as "this is text". Plain numbers stay numbers: `-3.5`.

A cell that begins with apostrophes and such a character gets one more, so `restore` can take one
away from every cell that has one and gives back what the page said.
"""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = "'"
_FORMULA: Final = re.compile("'*(?:[\t\r\n]|[\\s\0\ufeff\u200b]*[=+\\-@＝＋－＠])")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def neutralise(cell: str) -> str:
    """The cell as no spreadsheet evaluates it."""
    if not _FORMULA.match(cell) or _NUMBER.fullmatch(cell):
        return cell
    return _MARK + cell


def restore(cell: str) -> str:
    """The cell as it was before `neutralise`."""
    return cell[1:] if cell.startswith(_MARK) and _FORMULA.match(cell) else cell
