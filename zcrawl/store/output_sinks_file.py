"""Outputs that derive from committed items: files that grow, and parts that appear when complete.

Used by the master's output loop. Two ways, both hold each item once whatever dies when:

- A local file of records (JSON lines, CSV, WARC) grows; its length is committed with the cursor,
  and what lies behind it is cut off when the file is opened again.
- Parquet, and everything in S3, appears part by part: a part is written aside, published under a
  name that follows from its number, then committed. After a crash it is written again, from the
  same cursor, under the same name.

A run that ends without an item leaves an empty file of each; that it does is committed, too.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from typing import Final, Protocol

from zcrawl.errors import StoreUnavailable
from zcrawl.model import Kept
from zcrawl.store.columns import layout_of
from zcrawl.store.output_file import OutputFile
from zcrawl.store.output_folder_file import OutputFolder, OutputPlaces
from zcrawl.store.output_mark import Mark, is_bare
from zcrawl.store.output_plugin import PluginSink
from zcrawl.store.parquet_file import ParquetRows
from zcrawl.store.queries import ItemRow, OutputRow
from zcrawl.store.warc import GetBody
from zcrawl.submit.outputs import PLUGIN, is_remote, part_path
from zcrawl.submit.spec import JobSpec
from zcrawl.submit.stored import readable

BATCH_ITEMS: Final = 2_000
BATCH_CAPTURES: Final = 20  # bodies of megabytes


class Sink(Protocol):
    cursor: int  # the last item that it has taken, committed or not

    def take(self, rows: Sequence[ItemRow], utc: float) -> Mark | None: ...

    def settle(self, ended: bool, utc: float) -> Mark | None:
        """All that is committed was taken; `ended`: nothing more comes."""
        ...

    def close(self) -> None: ...


def kind_of(format: str) -> Kept:
    return Kept.CAPTURE if format == "warc" else Kept.ITEM


def batch_of(format: str) -> int:
    return BATCH_CAPTURES if format == "warc" else BATCH_ITEMS


def open_sink(row: OutputRow, places: OutputPlaces, body_of: GetBody) -> Sink:
    """RefusedError: this master does not write to that path."""
    spec = readable(row.spec)
    if row.format == PLUGIN:
        return PluginSink(row, spec)
    if row.format == "parquet" or is_remote(row.path):
        return PartSink(row, spec, places, body_of)
    return GrowingSink(row, spec, places, body_of)


class _Rotation:
    def __init__(self, spec: JobSpec) -> None:
        self._bytes, self._seconds = spec.output.rotate_bytes, spec.output.rotate_seconds
        self.on = bool(self._bytes or self._seconds)

    def due(self, length: int, part_at: float, utc: float) -> bool:
        if not part_at:
            return False
        too_large = bool(self._bytes) and length >= self._bytes
        return too_large or (bool(self._seconds) and utc >= part_at + self._seconds)


class GrowingSink:
    """A local file of records."""

    def __init__(
        self, row: OutputRow, spec: JobSpec, places: OutputPlaces, body_of: GetBody
    ) -> None:
        self.cursor = row.cursor
        self._row, self._places, self._body_of = row, places, body_of
        self._layout = layout_of(spec)
        self._rotation = _Rotation(spec)
        self._bare = is_bare(row)
        # A part's time begins with its first item.
        self._part, self._part_at = row.part, row.part_at if row.cursor else 0.0
        # A part after the first one is begun by its first item: there may be none.
        self._file = self._open(row.length) if row.length or not row.part else None

    def take(self, rows: Sequence[ItemRow], utc: float) -> Mark:
        self.settle(False, utc)  # what comes after its time is not of the old part
        if self._file is None:
            self._file = self._open(0)
        length = self._file.append([row.data for row in rows])
        self.cursor, self._bare = rows[-1].id, False
        self._part_at = self._part_at or utc
        whole = Mark(self.cursor, length, self._part, self._part_at)
        return self.settle(False, utc) or whole

    def settle(self, ended: bool, utc: float) -> Mark | None:
        if ended and self._bare and self._file is not None:
            self._bare = False
            return Mark(self.cursor, self._file.begin(), self._part, utc)
        if self._file is None or not self._rotation.due(self._file.length, self._part_at, utc):
            return None
        self.close()
        self._part, self._part_at = self._part + 1, 0.0
        return Mark(self.cursor, 0, self._part, 0.0)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, length: int) -> OutputFile:
        target = part_path(self._row.path, self._part, self._rotation.on)
        with self._places.folder_of(target) as folder:
            path = folder.path / target.rpartition("/")[2]
            file = OutputFile(path, self._row.format, length, self._layout, self._body_of, folder)
            file.open()
        return file


class PartSink:
    """Parts that are complete when they appear."""

    def __init__(
        self, row: OutputRow, spec: JobSpec, places: OutputPlaces, body_of: GetBody
    ) -> None:
        self.cursor = row.cursor
        self._row, self._places, self._body_of = row, places, body_of
        self._layout = layout_of(spec)
        self._rotation = _Rotation(spec)
        self._part, self._part_at = row.part, 0.0
        self._bare = is_bare(row)
        self._folder: OutputFolder | None = None  # of the part at hand
        self._aside = ""  # its name until it is complete
        self._open_folder(part_path(row.path, row.part, self._rotation.on)).close()
        self._rows: ParquetRows | OutputFile | None = None

    def take(self, rows: Sequence[ItemRow], utc: float) -> Mark | None:
        complete = self.settle(False, utc)  # what comes after its time is not of the old part
        self._bare = False
        writer = self._rows or self._begin()
        data = [row.data for row in rows]
        if isinstance(writer, ParquetRows):
            writer.add(data)
        else:
            writer.append(data)
        self.cursor = rows[-1].id
        self._part_at = self._part_at or utc
        return self.settle(False, utc) or complete

    def settle(self, ended: bool, utc: float) -> Mark | None:
        if ended and self._bare:
            return self._without_items(utc)
        writer = self._rows
        if writer is None:
            return None
        length = writer.written if isinstance(writer, ParquetRows) else writer.length
        if not ended and not self._rotation.due(length, self._part_at, utc):
            return None
        self._publish()
        self._part, self._part_at = self._part + 1, 0.0
        return Mark(self.cursor, 0, self._part, 0.0)

    def _without_items(self, utc: float) -> Mark:
        writer = self._begin()
        if isinstance(writer, OutputFile):
            writer.begin()
        self._publish()
        self._bare, self._part = False, self._part + 1
        return Mark(self.cursor, 0, self._part, utc)

    def close(self) -> None:
        """What is not published is written again later."""
        if self._rows is not None:
            with contextlib.suppress(OSError, StoreUnavailable):
                self._rows.close()
            self._rows = None
        if self._folder is not None:
            self._folder.remove(self._aside)
            self._folder.close()
            self._folder = None

    def _begin(self) -> ParquetRows | OutputFile:
        target = part_path(self._row.path, self._part, self._rotation.on)
        name = target.rpartition("/")[2]
        folder = self._folder = self._open_folder(target)
        if is_remote(target):
            self._aside = f"{self._row.run}-{self._part}-{name}"
        else:
            self._aside = f".{name}.{secrets.token_hex(4)}.part"
            folder.remove_asides(name)
        path = folder.path / self._aside
        if self._row.format == "parquet":
            self._rows = ParquetRows(path, self._layout, folder=folder)
        else:
            form, layout = self._row.format, self._layout
            self._rows = OutputFile(path, form, 0, layout, self._body_of, folder)
            self._rows.open()
        return self._rows

    def _open_folder(self, target: str) -> OutputFolder:
        """RefusedError: nothing may be written there."""
        if is_remote(target):
            return self._places.outgoing(target)
        return self._places.folder_of(target)

    def _publish(self) -> None:
        folder = self._folder
        assert self._rows is not None and folder is not None
        self._rows.close()
        target = part_path(self._row.path, self._part, self._rotation.on)
        if is_remote(target):
            from zcrawl.store.blobs_s3 import upload

            self._places.check_remote(target)
            upload(target, folder.path / self._aside)
            folder.remove(self._aside)
        else:
            folder.publish(self._aside, target.rpartition("/")[2])
            # A leader that died before its commit may have been one part ahead of us.
            ahead = part_path(self._row.path, self._part + 1, self._rotation.on)
            folder.remove_asides(ahead.rpartition("/")[2])
        folder.close()
        self._rows = self._folder = None
