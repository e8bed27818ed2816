"""Render items as JSON lines or CSV. Pure; used by output files and by `export`.

An item is stored as one JSON object. CSV is quoted by RFC 4180. Cells are not changed, even if they
begin with `=`; `safe` makes such cells text.

For jobs with `output.csv_safe`, cells that a spreadsheet would evaluate as a formula are made text.
A spreadsheet evaluates a cell that begins with `=`, `+`, `-` or `@` (some also the full-width
forms), perhaps after spaces, and text after a tab or a line break at its beginning. Such a cell
gets an apostrophe before it, which means text in spreadsheets. Plain numbers stay numbers: `-3.5`.

A cell that begins with apostrophes and such a character gets one more, so that `restore` can always
remove one and returns the original text.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from zcrawl.errors import StoreDataError
from zcrawl.model.reasons.storage import BAD_ITEM
from zcrawl.text.patterns import lazy_pattern

_MARK: Final = "'"
_FORMULA: Final = lazy_pattern("'*(?:[\t\r\n]|[\\s\0\ufeff\u200b]*[=+\\-@＝＋－＠])")
_NUMBER: Final = lazy_pattern(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def neutralise(cell: str) -> str:
    """Return the cell in a form that spreadsheets do not evaluate."""
    if not _FORMULA.match(cell) or _NUMBER.fullmatch(cell):
        return cell
    return _MARK + cell


def restore(cell: str) -> str:
    """Return the cell as it was before `neutralise`."""
    return cell[1:] if cell.startswith(_MARK) and _FORMULA.match(cell) else cell


# Fields of a default item, the first columns of every CSV file.
COLUMNS = (
    "url",
    "final_url",
    "status",
    "depth",
    "title",
    "content_type",
    "bytes",
    "fetched_at",
    "parent",
)

_object = msgspec.json.Decoder(dict[str, Any]).decode


def render_jsonl(items: Iterable[bytes]) -> bytes:
    """Return each item on its own line. A line break in an item is only layout, because JSON
    escapes those in strings."""
    return b"".join(_without_line_breaks(item) + b"\n" for item in items)


def _without_line_breaks(item: bytes) -> bytes:
    if b"\n" in item or b"\r" in item:
        return msgspec.json.format(item, indent=-1)
    return item


def csv_columns(items: Iterable[bytes]) -> tuple[str, ...]:
    """Return the keys of these items, in the order of their first use."""
    return tuple(dict.fromkeys(key for item in items for key in _decode(item)))


def render_csv(
    items: Iterable[bytes], columns: Sequence[str], header: bool, rest: str = "", safe: bool = False
) -> bytes:
    """Return one row for each item. A missing value is an empty cell, a list or an object is JSON.

    `rest` is the last column: all other keys of an item, as JSON. `safe`: spreadsheets do not
    evaluate any cell."""
    import csv  # only for outputs of this format

    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    if header:
        names = [*columns, rest] if rest else columns
        writer.writerow(map(neutralise, names) if safe else names)
    for item in items:
        values = _decode(item)
        row = [_cell(values.get(column)) for column in columns]
        if rest:
            others = {key: value for key, value in values.items() if key not in columns}
            row.append(_cell(others or None))
        writer.writerow(map(neutralise, row) if safe else row)
    return text.getvalue().encode()


def read_header(beginning: bytes, safe: bool = False) -> tuple[str, ...]:
    """Return the columns of a CSV file from its first bytes; `safe` as it was written."""
    import csv

    text = io.StringIO(beginning.decode(errors="replace"), newline="")
    names = next(csv.reader(text), ())
    return tuple(map(restore, names) if safe else names)


def _decode(item: bytes) -> dict[str, Any]:
    try:
        return _object(item)
    except msgspec.MsgspecError as error:
        raise StoreDataError(f"an item is not a JSON object: {error}", code=BAD_ITEM) from error


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case _:
            return msgspec.json.encode(value).decode()
