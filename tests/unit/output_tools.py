"""Drives a sink as the output loop does, without a store: each call, and each commit, by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from zcrawl.outputs.files.folder import OutputPlaces
from zcrawl.outputs.files.parts import SinkTools
from zcrawl.outputs.files.sinks import Sink, open_sink
from zcrawl.outputs.records import GetBody
from zcrawl.outputs.script import Commit, Fence, Open, ReadRows, Script, ScriptEffect, Write
from zcrawl.outputs.script import _complete_part as complete_part
from zcrawl.store.output_mark import OutputMark
from zcrawl.store.output_pieces import Writer
from zcrawl.store.queries import ItemRow, OutputRow
from zcrawl.submit.output_rights import OutputRights

ALONE = Writer("m1", 1, alone=True)
Rows = Callable[[int, int], list[ItemRow]]  # after, limit


def no_body(name: str) -> bytes:
    raise AssertionError("no archive, no bodies")


def no_rows(after: int, limit: int) -> list[ItemRow]:
    raise AssertionError("nothing has to be rebuilt")


class Driven:
    """A sink whose parts are completed where they end. `marks` are the commits of the last call."""

    def __init__(self, sink: Sink, rows: Rows) -> None:
        self.sink, self._rows = sink, rows
        self.marks: list[OutputMark] = []

    @property
    def cursor(self) -> int:
        return self.sink.cursor

    def take(self, rows: Sequence[ItemRow], utc: float) -> OutputMark | None:
        self.marks = []
        self._complete(False, utc)
        self._commit(self.sink.take(rows, utc))
        self._complete(False, utc)
        return self.marks[-1] if self.marks else None

    def settle(self, ended: bool, utc: float) -> OutputMark | None:
        self.marks = []
        self._complete(ended, utc)
        self._commit(self.sink.settle(ended, utc))
        return self.marks[-1] if self.marks else None

    def close(self) -> None:
        self.sink.close()

    def _commit(self, mark: OutputMark | None) -> None:
        if mark is not None:
            self.marks.append(mark)

    def _complete(self, ended: bool, utc: float) -> None:
        if self.sink.part_ends(ended, utc):
            self._run(complete_part(self.sink, 3, lambda: utc))

    def _run(self, script: Script) -> None:
        outcome = None
        while True:
            try:
                effect: ScriptEffect = script.send(outcome)
            except StopIteration:
                return
            outcome = None
            match effect:
                case ReadRows(after, limit):
                    outcome = self._rows(after, limit)
                case Write(_, call, _):
                    outcome = call()
                case Commit(mark):
                    self._commit(mark)
                case Fence() | Open():
                    raise AssertionError("it is open")


def opened(
    row: OutputRow,
    folder: Path,
    writer: Writer = ALONE,
    body_of: GetBody = no_body,
    rows: Rows = no_rows,
    rights: OutputRights | None = None,
) -> Driven:
    places = OutputPlaces(folder, folder, rights or OutputRights())
    return Driven(open_sink(row, SinkTools(places, body_of, writer)), rows)
