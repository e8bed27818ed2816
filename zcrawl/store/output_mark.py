"""How far an output is: what its sink tells the output loop, which commits it."""

from __future__ import annotations

import msgspec

from zcrawl.store.queries import OutputRow


class Mark(msgspec.Struct, frozen=True):
    """What is to be committed: this much is safely out."""

    cursor: int
    length: int
    part: int
    part_at: float  # UTC; when the part got its first item, or its run ended without any; 0: open


def is_bare(row: OutputRow) -> bool:
    """Whether nothing was written yet, not even that there is nothing."""
    return not row.cursor and not row.part_at
