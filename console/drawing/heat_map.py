"""A heat map of workers: one tile each, as large as fits. Pure.

The background of a tile tells the load, its first character the load again or the state: colour
never stands alone. Called by `widgets.heat_map`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from console.drawing.bars import height
from console.drawing.lines import Line, Span, line_width
from console.plain import fit, width

TILE_CELLS: Final = (26, 18, 12, 9, 7, 5, 4, 3, 2)  # widths of a tile, with the gap after it
# State → glyph, style. A busy worker has its load as the glyph and heat1 … heat4 as the style.
STATES: Final = {
    "idle": ("·", "heat0"),
    "joining": ("+", "tile-warn"),
    "suspect": ("?", "tile-warn"),
    "draining": ("↓", "tile-warn"),
    "drained": ("▪", "tile-off"),
    "lost": ("×", "tile-bad"),
    "offline": ("○", "tile-off"),
}
SEPARATORS: Final = "-_./:@ "
HEAT_FROM: Final = (0.0, 0.4, 0.7, 0.9)  # the load from which on a tile is heat1 … heat4


class Tile(NamedTuple):
    """One worker."""

    id: str
    name: str
    state: str
    load: float  # 0 to 1
    value: str = ""  # what a wide tile also shows: `93/s`
    detail: str = ""  # the line below the map, when the mouse or the cursor is on it


class TileGrid(NamedTuple):
    """How many tiles stand beside each other, and how wide each is."""

    columns: int
    tile: int
    shown: int

    def index_at(self, x: int, y: int) -> int | None:
        """Return the tile at a cell."""
        column = x // self.tile
        index = y * self.columns + column
        return index if 0 <= column < self.columns and 0 <= index < self.shown else None


def layout(count: int, cells: int, rows: int) -> TileGrid:
    """Choose the widest tile with which all fit; the narrowest when they do not.

    What is left of the width is shared by the columns.
    """
    rows = max(1, rows)
    for tile in TILE_CELLS:
        columns = cells // tile
        if columns and -(-count // columns) <= rows:
            return TileGrid(columns, cells // columns, count)
    columns = max(1, cells // TILE_CELLS[-1])
    return TileGrid(columns, TILE_CELLS[-1], min(count, columns * rows))


def glyph_and_style(tile: Tile) -> tuple[str, str]:
    """Return what a tile begins with, and the style of the whole tile."""
    if tile.state in STATES:
        return STATES[tile.state]
    level = sum(tile.load >= least for least in HEAT_FROM)
    return height(tile.load), f"heat{level}"


def common_prefix(names: Sequence[str]) -> int:
    """Return how many characters all names begin with, up to the last separator: `worker-`."""
    if len(names) < 2:
        return 0
    first, last = min(names), max(names)  # what these two share, all share
    shared = 0
    for n, (a, b) in enumerate(zip(first, last, strict=False), 1):
        if a != b:
            break
        if a in SEPARATORS:
            shared = n
    return shared


def tile_row(
    tiles: Sequence[Tile], row: int, shape: TileGrid, prefix: int, cursor: int, hover: int
) -> Line:
    """Draw one row of tiles; the indexes of cursor and hover are -1 where there is none."""
    first = row * shape.columns
    spans: list[Span] = []
    for index in range(first, min(first + shape.columns, shape.shown)):
        glyph, style = glyph_and_style(tiles[index])
        if index == cursor:
            style = "cursor"
        elif index == hover:
            style = "hover"
        spans.append(Span(_tile_text(tiles[index], glyph, shape.tile - 1, prefix), style))
        spans.append(Span(" "))
    return tuple(spans)


def _tile_text(tile: Tile, glyph: str, cells: int, prefix: int) -> str:
    """`▆ 012`, `▆ worker-12  93/s`: the end of a name tells more than its beginning."""
    if cells < 3:
        return fit(glyph, cells)
    room = cells - 2
    value = tile.value if room >= 14 else ""
    name = tile.name if width(tile.name) + len(value) < room else tile.name[prefix:] or tile.name
    name_room = room - (len(value) + 1 if value else 0)
    if width(name) > name_room:
        name = name[-name_room:]
    if not value:
        return f"{glyph} {fit(name, room)}"
    return f"{glyph} {fit(name, name_room)} {value}"


def legend(tiles: Sequence[Tile], total: int, cells: int) -> Line:
    """`█ 480 busy  · 17 idle  ? 2 suspect  × 1 lost`: how many are in each state, trouble first."""
    counts = Counter(tile.state for tile in tiles)
    order = {state: n for n, state in enumerate(("lost", "suspect", "draining", "joining"))}
    spans: list[Span] = []
    for state in sorted(counts, key=lambda state: (order.get(state, 9), -counts[state], state)):
        glyph, style = STATES.get(state, ("▆", "good"))
        word_style = {"tile-bad": "bad", "tile-warn": "warn", "good": "good"}.get(style, "dim")
        spans.append(Span(f" {glyph} {counts[state]} {fit(state, len(state))} ", word_style))
    if total > len(tiles):
        spans.append(Span(f" and {total - len(tiles)} that the leader does not send", "dim"))
    scale = [Span("  load ", "dim")]
    for level, share in enumerate((0.1, 0.5, 0.8, 1.0), 1):
        scale.append(Span(f" {height(share)} ", f"heat{level}"))
    if line_width((*spans, *scale)) <= cells:
        spans += scale
    return tuple(spans)
