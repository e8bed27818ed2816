"""The progress of an output, which its sink reports and the output loop commits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from zcrawl.store.output_pieces import JoinStep, Piece, Progress
from zcrawl.store.queries import ItemRow, OutputRow


class OutputMark(msgspec.Struct, frozen=True):
    """The progress to commit: this much is safely written."""

    cursor: int
    length: int
    part: int
    part_at: float  # UTC; when the part got its first item, or its run ended without any; 0: open
    progress: Progress = Progress()
    problem: str = ""  # a warning; the output is still written


class WholeSink:
    """A base for sinks without parts that must be completed later."""

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
    """Return whether nothing was written yet, not even an empty output."""
    return not row.cursor and not row.part_at


def is_unfinished(row: OutputRow) -> bool:
    """Return whether work is left: rows to write, pieces to join, or an empty output to write for
    a run that ended without items."""
    return not row.ended or row.cursor < row.last_item or is_bare(row) or bool(row.progress.pieces)
