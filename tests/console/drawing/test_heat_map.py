"""A heat map shows all workers at once, each by a glyph and a colour."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.drawing.heat_map import (
    STATES,
    Tile,
    common_prefix,
    glyph_and_style,
    layout,
    legend,
    tile_row,
)
from console.drawing.lines import as_text, line_width


def tiles(count: int, state: str = "busy", load: float = 0.5) -> list[Tile]:
    return [Tile(f"w{n}", f"worker-{n:03}", state, load) for n in range(count)]


def test_five_hundred_fit_on_one_screen() -> None:
    """At 200 × 50 with their numbers, at 80 × 24 at least as a glyph each."""
    wide = layout(500, 198, 40)
    assert wide.shown == 500 and wide.tile >= 7
    narrow = layout(500, 78, 18)
    assert narrow.shown == 500


def test_few_workers_have_wide_tiles() -> None:
    """With name and rate."""
    shape = layout(4, 80, 10)
    tile = Tile("w1", "worker-1", "busy", 0.5, "93/s")
    assert as_text([tile_row([tile], 0, layout(1, 80, 10), 0, -1, -1)]).split() == [
        "▅",
        "worker-1",
        "93/s",
    ]
    assert shape.tile >= 26


def test_every_state_has_a_glyph_of_its_own() -> None:
    """Colour never stands alone: the map can be read without any."""
    glyphs = [glyph for glyph, _ in STATES.values()]
    busy = {glyph_and_style(Tile("w", "w", "busy", n / 10))[0] for n in range(11)}
    assert len(set(glyphs)) == len(glyphs) and not busy & set(glyphs) and len(busy) == 8


def test_names_lose_what_all_share() -> None:
    """The end of a name tells more than its beginning."""
    assert common_prefix(["worker-1", "worker-12"]) == len("worker-")
    assert common_prefix(["host-a.lab", "host-b.lab"]) == len("host-")
    assert common_prefix(["alone"]) == 0


def test_the_legend_counts_trouble_first() -> None:
    """And says that not all are here."""
    seen = as_text([legend([*tiles(5), *tiles(2, "lost"), *tiles(1, "suspect")], 900, 200)])
    assert seen.index("2 lost") < seen.index("1 suspect") < seen.index("5 busy")
    assert "892" in seen


@given(st.integers(0, 3000), st.integers(1, 250), st.integers(1, 60))
def test_the_tile_under_the_mouse_is_the_one_that_is_drawn_there(
    count: int, cells: int, rows: int
) -> None:
    """At every size, and all rows fit."""
    shape = layout(count, max(2, cells), rows)
    seen = tiles(count)
    for row in range(min(rows, 3)):
        line = tile_row(seen, row, shape, 0, -1, -1)
        assert line_width(line) <= max(2, cells)
        for column in range(len(line) // 2):
            index = shape.index_at(column * shape.tile, row)
            assert index == row * shape.columns + column
