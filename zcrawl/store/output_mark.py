"""How far an output is: what its sink tells the output loop, which commits it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from zcrawl.store.output_pieces import JoinStep, Piece, Progress
from zcrawl.store.queries import ItemRow, OutputRow


class OutputMark(msgspec.Struct, frozen=True):
    """What is to be committed: this much is safely out."""

    cursor: int
    length: int
    part: int
    part_at: float  # UTC; when the part got its first item, or its run ended without any; 0: open
    progress: Progress = Progress()
    problem: str = ""  # a thing to tell that hinders nothing


class WholeSink:
    """A base for sinks whose output is never in parts that wait to be completed."""

    def part_ends(self, ended: bool, utc: float) -> bool:
        return False

    def begin_join(self, utc: float) -> list[JoinStep]:
        raise AssertionError("its parts do not end")

    def copy(self, piece: Piece) -> None:
        raise AssertionError("no pieces")

    def rebuild(self, rows: Sequence[ItemRow]) -> None:
        raise AssertionError("no pieces")

    def complete(self) -> OutputMark:
        raise AssertionError("its parts do not end")

    def publish(self) -> OutputMark:
        raise AssertionError("its parts do not end")

    def tidy(self) -> None:
        raise AssertionError("its parts do not end")


def is_bare(row: OutputRow) -> bool:
    """Whether nothing was written yet, not even that there is nothing."""
    return not row.cursor and not row.part_at


def is_unfinished(row: OutputRow) -> bool:
    """Whether anybody has to do something for it: also for a run that ended without an item, which
    nobody has written down yet, and for pieces that nobody has joined."""
    return not row.ended or row.cursor < row.last_item or is_bare(row) or bool(row.progress.pieces)
