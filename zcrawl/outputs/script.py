"""The order in which an output is written, as a generator of effects. Pure.

`driver.output_writer` performs the effects with threads and files, the simulated world with a fake
disk, so that the simulation tests the real order. Between any two effects the master may be paused,
replaced, or die; an error at an effect ends the attempt, and the sink is closed.

    Fence ▸ Open ▸ ( ReadRows ▸ take ▸ Commit )… ▸ settle ▸ Commit
                                │
                                └ the part ends: begin_join ▸ ( copy | ReadRows ▸ rebuild )…
                                  ▸ complete ▸ Commit, which is the fence ▸ publish ▸ Commit ▸ tidy

`store.output_pieces` explains why this is safe. Two rules matter here: a file gets its final name
only after it is complete and a commit after that has passed the fence; and nothing is removed
before the commit that makes it unnecessary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from zcrawl.errors import StoreError
from zcrawl.model.reasons.storage import OUTPUT_ROWS_GONE
from zcrawl.store.output_mark import OutputMark
from zcrawl.store.output_pieces import Copy, JoinStep, Piece, Rebuild
from zcrawl.store.queries import ItemRow, OutputRow


class ScriptSink(Protocol):
    """The interface of a sink for the script (`outputs.files.sinks`)."""

    cursor: int  # the last item that it has taken, committed or not

    def take(self, rows: Sequence[ItemRow], utc: float) -> OutputMark | None: ...

    def part_ends(self, ended: bool, utc: float) -> bool: ...

    def begin_join(self, utc: float) -> list[JoinStep]: ...

    def copy(self, piece: Piece) -> None: ...

    def rebuild(self, rows: Sequence[ItemRow]) -> None: ...

    def complete(self) -> OutputMark: ...

    def publish(self) -> OutputMark: ...

    def tidy(self) -> None: ...

    def settle(self, ended: bool, utc: float) -> OutputMark | None: ...


class Fence(msgspec.Struct, frozen=True):
    """Commit an empty change: it fails if this master is not the leader any more."""


class Open(msgspec.Struct, frozen=True):
    """Open the sink, and return it."""


class ReadRows(msgspec.Struct, frozen=True):
    """Read and return committed rows after `after`."""

    after: int
    limit: int


class Write(msgspec.Struct, frozen=True):
    """Call the sink in a place where it may block, and return its result."""

    what: str
    call: Callable[[], Any]
    is_long: bool = False  # it may copy or upload a whole part


class Commit(msgspec.Struct, frozen=True):
    mark: OutputMark


ScriptEffect: TypeAlias = Fence | Open | ReadRows | Write | Commit
Script: TypeAlias = Generator[ScriptEffect, Any, None]


def write_output(
    row: OutputRow, sink: ScriptSink | None, batch: int, utc: Callable[[], float]
) -> Script:
    """Write all committed items. `sink`: the open sink, or None."""
    if sink is None:
        yield Fence()
        sink = yield Open()
        assert sink is not None
    while sink.cursor < row.last_item:
        rows: list[ItemRow] = yield ReadRows(sink.cursor, batch)
        if not rows:
            return
        if sink.part_ends(False, utc()):  # later items belong to the next part
            yield from _complete_part(sink, batch, utc)
        yield from _commit((yield Write("writing", functools.partial(sink.take, rows, utc()))))
        if sink.part_ends(False, utc()):
            yield from _complete_part(sink, batch, utc)
    if sink.part_ends(row.ended, utc()):
        yield from _complete_part(sink, batch, utc)
    settle = functools.partial(sink.settle, row.ended, utc())
    yield from _commit((yield Write("writing", settle, True)))


def _complete_part(sink: ScriptSink, batch: int, utc: Callable[[], float]) -> Script:
    steps: list[JoinStep] = yield Write("joining", functools.partial(sink.begin_join, utc()), True)
    for step in steps:
        match step:
            case Copy(piece):
                yield Write("joining", functools.partial(sink.copy, piece), True)
            case Rebuild(after, upto):
                yield from _rebuild(sink, after, upto, batch)
    yield from _commit((yield Write("joining", sink.complete, True)))
    yield from _commit((yield Write("publishing", sink.publish, True)))
    yield Write("tidying up", sink.tidy)


def _rebuild(sink: ScriptSink, after: int, upto: int, batch: int) -> Script:
    while after < upto:
        read: list[ItemRow] = yield ReadRows(after, batch)
        rows = [row for row in read if row.id <= upto]
        if not rows:
            raise StoreError(
                f"the rows after {after} are not in the database any more", code=OUTPUT_ROWS_GONE
            )
        yield Write("rebuilding", functools.partial(sink.rebuild, rows))
        after = rows[-1].id


def _commit(mark: OutputMark | None) -> Script:
    if mark is not None:
        yield Commit(mark)
