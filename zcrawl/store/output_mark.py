"""How far an output is: what its sink tells the output loop, which commits it."""

from __future__ import annotations

import msgspec


class Mark(msgspec.Struct, frozen=True):
    """What is to be committed: this much is safely out."""

    cursor: int
    length: int
    part: int
    part_at: float  # UTC; when the part got its first item; 0: it has none
