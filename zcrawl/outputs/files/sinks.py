"""Open the outputs of a run: files that grow, and parts that appear when complete.

Used by the master's output loop, in the order of `outputs.script`. Each output has every item once,
also after crashes:

- Embedded, a local file of records (JSON lines, CSV, WARC) grows. Its length is committed with the
  cursor, and bytes after that length are cut off when the file is opened again.
- On a cluster, leaders write pieces, which are joined when the part ends (`PieceSink`).
- Parquet, and everything in S3, is written by one leader from the part's first row (`PartSink`).

A run without items leaves an empty file for each output; this is committed too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from zcrawl.model.formats import FORMATS, is_capture
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import Kept
from zcrawl.outputs.columns import layout_of
from zcrawl.outputs.files.growing import OutputFile
from zcrawl.outputs.files.parts import PartSink, PieceSink, Rotation, SinkTools
from zcrawl.outputs.plugin import PluginSink
from zcrawl.store.output_mark import OutputMark, WholeSink, is_bare
from zcrawl.store.output_pieces import JoinStep, Piece, located
from zcrawl.store.queries import ItemRow, OutputRow
from zcrawl.submit.outputs import PLUGIN, is_remote, part_path
from zcrawl.submit.stored import readable

BATCH_ITEMS: Final = 2_000
BATCH_CAPTURES: Final = 20  # bodies of megabytes


class Sink(Protocol):
    """An output with the calls of `outputs.script`, and `close`."""

    cursor: int  # the last item that it has taken, committed or not

    def take(self, rows: Sequence[ItemRow], utc: float) -> OutputMark | None: ...

    def part_ends(self, ended: bool, utc: float) -> bool:
        """Return whether to complete the part now, with the calls from `begin_join` to `tidy`."""
        ...

    def begin_join(self, utc: float) -> list[JoinStep]: ...

    def copy(self, piece: Piece) -> None: ...

    def rebuild(self, rows: Sequence[ItemRow]) -> None: ...

    def complete(self) -> OutputMark:
        """Make the file durable; the commit of the mark is the fence before it appears."""
        ...

    def publish(self) -> OutputMark: ...

    def tidy(self) -> None: ...

    def settle(self, ended: bool, utc: float) -> OutputMark | None:
        """Finish a step: all committed items are taken. `ended`: the run has ended."""
        ...

    def close(self) -> None: ...


def kind_of(format: str) -> Kept:
    return Kept.CAPTURE if is_capture(format) else Kept.ITEM


def batch_of(format: str) -> int:
    return BATCH_CAPTURES if is_capture(format) else BATCH_ITEMS


def open_sink(row: OutputRow, tools: SinkTools) -> Sink:
    """Open an output. RefusedError: this master may not write to that path."""
    spec = readable(row.spec)
    if row.format == PLUGIN:
        return PluginSink(row, spec)
    format = FORMATS.get(row.format)  # None: of another version; an error when its file is opened
    whole = format is not None and not format.appendable
    if whole or is_remote(row.path):
        return PartSink(row, spec, tools)
    return GrowingSink(row, spec, tools) if tools.writer.alone else PieceSink(row, spec, tools)


class GrowingSink(WholeSink):
    """A local file of records, in a data folder that only one process uses."""

    def __init__(self, row: OutputRow, spec: JobSpec, tools: SinkTools) -> None:
        self.cursor = row.cursor
        self._row, self._tools = row, tools
        self._layout = layout_of(spec)
        self._rotation = Rotation(spec)
        self._progress = row.progress
        self._bare = is_bare(row)
        # A part's time begins with its first item.
        self._part, self._part_at = row.part, row.part_at if row.cursor else 0.0
        # A later part begins with its first item, and there may be none.
        self._file = self._open(row.length) if row.length or not row.part else None

    def take(self, rows: Sequence[ItemRow], utc: float) -> OutputMark:
        self.settle(False, utc)  # later items belong to the next part
        if self._file is None:
            self._file = self._open(0)
        length = self._file.append([row.data for row in rows])
        self.cursor, self._bare = rows[-1].id, False
        self._part_at = self._part_at or utc
        self._progress = msgspec.structs.replace(
            self._progress, crc=self._file.crc, stamps=(self._file.stamp(),)
        )
        whole = OutputMark(self.cursor, length, self._part, self._part_at, self._progress)
        return self.settle(False, utc) or whole

    def settle(self, ended: bool, utc: float) -> OutputMark | None:
        if ended and self._bare and self._file is not None:
            self._bare = False
            return OutputMark(self.cursor, self._file.begin(), self._part, utc, self._progress)
        if self._file is None or not self._rotation.due(self._file.length, self._part_at, utc):
            return None
        self.close()
        self._part, self._part_at = self._part + 1, 0.0
        return OutputMark(self.cursor, 0, self._part, 0.0, self._progress)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, length: int) -> OutputFile:
        target = part_path(self._row.path, self._part, self._rotation.on)
        body_of, form = self._tools.body_of, self._row.format
        with self._tools.places.folder_of(target) as folder:
            path = folder.path / target.rpartition("/")[2]
            keep = not self._rotation.on
            layout = self._layout
            file = OutputFile(path, form, length, layout, body_of, folder, keep_tail=keep)
            file.open()
            if length and self._progress.crc is not None:
                try:
                    file.verify(self._progress.crc, self._progress.stamps)
                except BaseException:
                    file.close()
                    raise
        master = self._tools.writer.master
        self._progress = located(self._progress, self._part, master, str(path))
        return file
