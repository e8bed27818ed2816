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
import glob
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from zcrawl.errors import StoreUnavailable, UsageError
from zcrawl.model import Kept
from zcrawl.runtime.private_files_os import (
    PRIVATE_FOLDER,
    give_to_user,
    is_within,
    make_folder_of_user,
)
from zcrawl.store.columns import layout_of
from zcrawl.store.output_file import OutputFile
from zcrawl.store.output_mark import Mark, is_bare
from zcrawl.store.output_plugin import PluginSink
from zcrawl.store.parquet_file import ParquetRows
from zcrawl.store.queries import ItemRow, OutputRow
from zcrawl.store.warc import GetBody
from zcrawl.submit.outputs import PLUGIN, is_remote, part_path
from zcrawl.submit.spec import JobSpec

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


def open_sink(row: OutputRow, folder: Path, body_of: GetBody) -> Sink:
    """`folder` is the data folder: what relative paths are relative to."""
    spec = msgspec.json.decode(row.spec, type=JobSpec) if len(row.spec) > 2 else JobSpec("x")
    if row.format == PLUGIN:
        return PluginSink(row, spec)
    if row.format == "parquet" or is_remote(row.path):
        return PartSink(row, spec, folder, body_of)
    return GrowingSink(row, spec, folder, body_of)


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

    def __init__(self, row: OutputRow, spec: JobSpec, folder: Path, body_of: GetBody) -> None:
        self.cursor = row.cursor
        self._row, self._folder, self._body_of = row, folder, body_of
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
        path = self._folder / part_path(self._row.path, self._part, self._rotation.on)
        of_user = is_of_user(path, self._folder)
        make_folder(path.parent, of_user)
        file = OutputFile(path, self._row.format, length, self._layout, self._body_of)
        file.open()
        if file.is_new and of_user:
            give_to_user(path)
        return file


class PartSink:
    """Parts that are complete when they appear."""

    def __init__(self, row: OutputRow, spec: JobSpec, folder: Path, body_of: GetBody) -> None:
        self.cursor = row.cursor
        self._row, self._folder, self._body_of = row, folder, body_of
        self._layout = layout_of(spec)
        self._rotation = _Rotation(spec)
        self._part, self._part_at = row.part, 0.0
        self._bare = is_bare(row)
        self._aside: Path | None = None
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
        if self._aside is not None:
            self._aside.unlink(missing_ok=True)
            self._aside = None

    def _begin(self) -> ParquetRows | OutputFile:
        target = part_path(self._row.path, self._part, self._rotation.on)
        name = target.rpartition("/")[2]
        if is_remote(target):
            aside = self._folder / "outgoing" / f"{self._row.run}-{self._part}-{name}"
        else:
            aside = (self._folder / target).with_name(f".{name}.{secrets.token_hex(4)}.part")
        of_user = is_of_user(aside, self._folder)
        make_folder(aside.parent, of_user)
        if not is_remote(target):
            _remove_asides(aside.parent, name)
        self._aside = aside
        if self._row.format == "parquet":
            self._rows = ParquetRows(aside, self._layout)
        else:
            self._rows = OutputFile(aside, self._row.format, 0, self._layout, self._body_of)
            self._rows.open()
        if of_user:
            give_to_user(aside)
        return self._rows

    def _publish(self) -> None:
        assert self._rows is not None and self._aside is not None
        self._rows.close()
        target = part_path(self._row.path, self._part, self._rotation.on)
        if is_remote(target):
            from zcrawl.store.blobs_s3 import upload

            upload(target, self._aside)
            self._aside.unlink()
        else:
            publish(self._aside, self._folder / target)
            # A leader that died before its commit may have been one part ahead of us.
            ahead = part_path(self._row.path, self._part + 1, self._rotation.on)
            _remove_asides(self._aside.parent, ahead.rpartition("/")[2])
        self._rows = self._aside = None


def _remove_asides(folder: Path, name: str) -> None:
    """Those of leaders before us. One that is only paused cannot publish its part any more, which
    may be shorter than ours and has the same name."""
    for old in folder.glob(f".{glob.escape(name)}.*.part"):
        with contextlib.suppress(OSError):  # what cannot be removed cannot be ours to remove
            old.unlink()


def is_of_user(path: Path, data: Path) -> bool:
    """Whether it lies outside the data folder, where only `--out` leads."""
    try:
        return not is_within(path, data)
    except (OSError, ValueError):  # whoever opens it says what is wrong with it
        return False


def make_folder(folder: Path, of_user: bool = False) -> None:
    try:
        if of_user:
            make_folder_of_user(folder)
        else:
            folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot make {folder}: {reason}", code="output_unwritable") from error


def publish(aside: Path, path: Path) -> None:
    """Durable, and there all at once."""
    try:
        with aside.open("rb+") as file:
            os.fsync(file.fileno())
        aside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {path}: {error.strerror}") from error
