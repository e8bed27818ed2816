"""Foreign text in the cells of the console. Called by all pictures.

What may reach a terminal is `zcrawl.text.terminal`'s rule. Here the text also gets a length, and
hundreds of accents on one letter become two. Nothing is ever parsed as markup.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from rich.cells import cell_len, set_cell_size

from zcrawl.text.terminal import is_safe, shown

MOST_CHARACTERS: Final = 2_000  # of one text; no line of a terminal is longer
MOST_ACCENTS: Final = 2  # combining marks in a row: they have no width and could fill memory


def plain(text: object, most: int = MOST_CHARACTERS) -> str:
    """`text` on one line, cut to `most` characters, every control character by its code."""
    cut = str(text)[:most]
    if cut.isascii() and cut.isprintable():
        return cut
    kept: list[str] = []
    accents = 0
    for char in cut:
        if unicodedata.category(char) in ("Mn", "Me") and is_safe(char):
            accents += 1
            if accents <= MOST_ACCENTS and kept:
                kept.append(char)
            continue
        accents = 0
        kept.append(char)
    return shown("".join(kept))


def width(text: str) -> int:
    """Cells that a plain text takes: a Chinese character takes two."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, cells: int, right: bool = False) -> str:
    """A plain text in exactly so many cells; what does not fit ends in an ellipsis."""
    if cells <= 0:
        return ""
    taken = width(text)
    if taken > cells:
        return set_cell_size(text, cells - 1) + "…"
    pad = " " * (cells - taken)
    return pad + text if right else text + pad
