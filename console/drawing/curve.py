"""Curves of braille dots: two columns and four rows of dots in each cell. Pure.

A column of dots is one whole number with a bit for each dot, the lowest dot first: joining, filling
and cutting into cells are shifts, so a chart of 100 × 10 cells takes well under a millisecond.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

ROWS: Final = 4  # dots of a cell, one above the other
COLUMNS: Final = 2
BLANK: Final = "⠀"
# Four bits, the lowest dot first, as the bits of a braille character.
_LEFT: Final = tuple(
    (n >> 3 & 1) | (n >> 2 & 1) << 1 | (n >> 1 & 1) << 2 | (n & 1) << 6 for n in range(16)
)
_RIGHT: Final = tuple(
    (n >> 3 & 1) << 3 | (n >> 2 & 1) << 4 | (n >> 1 & 1) << 5 | (n & 1) << 7 for n in range(16)
)


class Dots(NamedTuple):
    """Columns of dots: those of the line, and those of the area below it."""

    line: list[int]
    area: list[int]


def resample(
    at: Sequence[float],
    values: Sequence[float | None],
    since: float,
    until: float,
    columns: int,
) -> list[float | None]:
    """Return one value for each column: the highest of those that fall together.

    Where points are rarer than columns, the columns between two neighbours get values on the line
    between them; a gap of more than three times the usual distance stays empty.
    """
    curve: list[float | None] = [None] * columns
    if until <= since or columns < 1:
        return curve
    scale = (columns - 1) / (until - since)
    filled: list[int] = []
    for moment, value in zip(at, values, strict=True):
        if value is None or not since <= moment <= until or not math.isfinite(value):
            continue
        column = round((moment - since) * scale)
        earlier = curve[column]
        if earlier is None:
            curve[column] = value
            filled.append(column)
        elif value > earlier:
            curve[column] = value
    _join(curve, filled)
    return curve


def _join(curve: list[float | None], filled: list[int]) -> None:
    """Fill the columns between neighbours."""
    if len(filled) < 2:
        return
    distances = sorted(b - a for a, b in itertools.pairwise(filled))
    longest = max(2, 3 * distances[len(distances) // 2])
    for a, b in itertools.pairwise(filled):
        first, last = curve[a], curve[b]
        if 1 < b - a <= longest and first is not None and last is not None:
            slope = (last - first) / (b - a)
            for column in range(a + 1, b):
                curve[column] = first + slope * (column - a)


def dots(values: Sequence[float | None], top: float, rows: int, filled: bool) -> Dots:
    """Return the dots of a curve over `rows` cells, where `top` is the value of the upper edge."""
    highest = rows * ROWS - 1
    line: list[int] = []
    area: list[int] = []
    before: int | None = None
    for value in values:
        if value is None:
            line.append(0)
            area.append(0)
            before = None
            continue
        share = value / top if top > 0 else 0.0  # not `highest / top`: that overflows
        height = min(highest, max(0, round(min(share, 1.0) * highest)))
        # Join with the column before: the dots between the two heights belong to this column.
        low, high = height, height
        if before is not None and before > height + 1:
            high = before - 1
        elif before is not None and before < height - 1:
            low = before + 1
        line.append((1 << high + 1) - (1 << low))
        area.append((1 << height + 1) - 1 if filled else 0)
        before = height
    return Dots(line, area)


def cell(left: int, right: int, row: int) -> str:
    """Return the braille character of two columns of dots at a row of cells, from the bottom."""
    shift = row * ROWS
    return chr(0x2800 + _LEFT[left >> shift & 15] + _RIGHT[right >> shift & 15])
