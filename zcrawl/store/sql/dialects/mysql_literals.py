"""Write values as MySQL literals, and fill them into `?` statements.

PyMySQL escapes on the client too, but value by value through four calls; here a row costs one
dictionary look-up a value. Only `'` and `\\` need an escape: the session's sql_mode is ours (no
NO_BACKSLASH_ESCAPES) and its character set is utf8mb4, in which no character hides a quote.
Bytes go as hexadecimal, so no character set applies to them. Called by `mysql_session`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from zcrawl.errors import StoreDataError


def _text(value: str) -> str:
    if "\\" in value:
        value = value.replace("\\", "\\\\")
    if "'" in value:
        value = value.replace("'", "''")
    return f"'{value}'"


def _bytes(value: bytes) -> str:
    return f"X'{value.hex()}'"


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise StoreDataError(f"this cannot be stored: {value}")
    text = repr(value)
    return text if "e" in text else f"{text}e0"  # without an exponent it would be a DECIMAL


_WRITERS: dict[type, Callable[[Any], str]] = {
    int: int.__repr__,
    str: _text,
    bytes: _bytes,
    float: _float,
    bool: lambda value: "1" if value else "0",
    type(None): lambda value: "NULL",
}


def literal(value: Any) -> str:
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    for kind in (int, str):  # an enum
        if isinstance(value, kind):
            return _WRITERS[kind](kind(value))
    raise StoreDataError(f"this cannot be stored: a value of type {type(value).__name__}")


def row_literal(row: Sequence[Any]) -> str:
    """Return a row as text: `(1,'a',NULL)`."""
    try:
        return f"({','.join([_WRITERS[type(value)](value) for value in row])})"
    except KeyError:  # a type that is not written by itself
        return f"({','.join([literal(value) for value in row])})"


@functools.lru_cache(maxsize=256)
def _pieces(sql: str) -> list[str]:
    """Return the text around the marks. No statement has a `?` that is not a mark."""
    return sql.split("?")


def filled(sql: str, values: Sequence[Any]) -> str:
    """Return the statement with its marks replaced; all other text, also `%`, stays."""
    if not values:
        return sql
    first, *rest = _pieces(sql)
    if len(rest) != len(values):
        raise ValueError(f"{len(values)} values for {len(rest)} marks: {sql}")
    parts = [first]
    for value, text in zip(values, rest, strict=True):
        parts.append(literal(value))
        parts.append(text)
    return "".join(parts)


def split_rows(prefix: str, rows: Iterable[str], suffix: str, most: int) -> Iterable[str]:
    """Yield statements `prefix row,row,… suffix` of at most `most` characters, or of one row."""
    chunk: list[str] = []
    size = 0
    for row in rows:
        if chunk and size + len(row) + 1 > most:
            yield prefix + ",".join(chunk) + suffix
            chunk, size = [], 0
        chunk.append(row)
        size += len(row) + 1
    if chunk:
        yield prefix + ",".join(chunk) + suffix
