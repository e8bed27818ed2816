"""The one place where foreign text becomes something that a terminal may show.

URLs, titles, reasons and names come from the web: they may hold escape sequences, line breaks,
overrides of the writing direction, hundreds of accents on one letter, or markup. Nothing here is
ever parsed as markup; whatever is not printable is shown by its code. Called by all pictures.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from rich.cells import cell_len, set_cell_size

MOST_CHARACTERS: Final = 2_000  # of one text; no line of a terminal is longer
MOST_ACCENTS: Final = 2  # combining marks in a row: they have no width and could fill memory


def plain(text: object, most: int = MOST_CHARACTERS) -> str:
    """`text` on one line, cut to `most` characters, every control character by its code."""
    cut = str(text)[:most]
    if cut.isascii() and cut.isprintable():
        return cut
    shown: list[str] = []
    accents = 0
    for char in cut:
        if unicodedata.category(char) in ("Mn", "Me"):
            accents += 1
            if accents <= MOST_ACCENTS and shown:
                shown.append(char)
            continue
        accents = 0
        shown.append(char if char.isprintable() else ascii(char)[1:-1])
    return "".join(shown)


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
