"""Append committed items to a file of records, each once.

The leader appends items and then commits the cursor with the new length (`AdvanceOutput`).
Two ways to open one:

- Embedded, the next process opens the file again and continues after the committed length. The lock
  of the data folder excludes other processes. Bytes after that length are either the next items,
  written by a process that died before its commit, or bytes of another program, which are saved in
  a second file before they are overwritten. (A part that rotates by time may end before the next
  items: there the bytes are cut off.) If the bytes before that length have changed, the file is
  not touched (`output_changed`).
- On a cluster a file is `new`: created with O_EXCL by one leader and never opened for writing again
  (`output_pieces`). Nothing is cut off.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from zcrawl.errors import DiskFull, StoreError, StoreUnavailable, UsageError
from zcrawl.model.formats import FORMATS
from zcrawl.model.reasons.storage import (
    OUTPUT_CHANGED,
    OUTPUT_CLOSED,
    OUTPUT_DAMAGED,
    OUTPUT_FORMAT,
    OUTPUT_UNWRITABLE,
)
from zcrawl.outputs.columns import REST, Layout
from zcrawl.outputs.files.folder import OutputFolder, folder_at
from zcrawl.outputs.files.writers import records_of
from zcrawl.outputs.records import GetBody, Records
from zcrawl.store.output_pieces import Stamp

FREE = Layout(None, REST)
COPY_BYTES = 1024 * 1024
HEADER_BYTES = 64 * 1024  # a header is looked for in this many first bytes


class OutputFile:
    """A file of records; use as a context manager. `append` returns the length to commit."""

    def __init__(
        self,
        path: Path,
        format: str,
        length: int,
        layout: Layout = FREE,
        body_of: GetBody | None = None,
        folder: OutputFolder | None = None,
        *,
        new: bool = False,
        title: str | None = "",
        keep_tail: bool = False,
    ) -> None:
        """`length` is the committed length; 0 creates a new file or replaces an old one.

        `layout` has the columns of a CSV; `body_of` returns the bodies of a WARC; if `folder` is
        given, the file is opened in it. `new`: the file may not exist. `title` is the name in the
        first record of an archive, if it is not the file's; None: the file continues another one,
        and has neither a header nor such a record. `keep_tail`: bytes after the length that differ
        from the next items are of another program, and are saved."""
        self._keep_tail = keep_tail
        self._new, self._title = new, path.name if title == "" else title
        self._crc = 0
        self._tail = False  # whether there are bytes after the length that were not compared yet
        self._path = path
        self._folder = folder
        self._format = format
        self._length = length
        self._layout = layout
        self._body_of = body_of
        self._file: BinaryIO | None = None
        self._failed = False  # a failed write may have left bytes after the length

    def __enter__(self) -> OutputFile:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def length(self) -> int:
        return self._length

    @property
    def crc(self) -> int:
        """The checksum of all bytes up to the length."""
        return self._crc

    def stamp(self) -> Stamp:
        """Return the size and time of the file now."""
        assert self._file is not None
        status = os.fstat(self._file.fileno())
        return Stamp(status.st_size, status.st_mtime_ns)

    def verify(self, crc: int, stamps: Sequence[Stamp]) -> None:
        """Raise StoreError `output_changed` if the bytes up to the length do not have this
        checksum. A file with one of these `stamps` is not read."""
        assert self._file is not None
        self._crc = crc
        if self.stamp() in stamps:
            return
        self._file.seek(0)
        if crc_of(self._file, self._length) != crc:
            raise StoreError(
                f"{self._path} was changed by another program, so nothing is written to it; the "
                "items are in the database. Move it away and export the run's items, or undo the "
                "change",
                code=OUTPUT_CHANGED,
            )

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns of a CSV file; without a layout, those of its first items."""
        return self._records.columns

    @functools.cached_property
    def _records(self) -> Records:
        return records_of(FORMATS[self._format], self._layout, self._body_of)

    def open(self) -> None:
        format = FORMATS.get(self._format)
        if format is None or not format.appendable:
            raise UsageError(f"{self._path}: unknown format {self._format}", code=OUTPUT_FORMAT)
        try:
            self._file = self._open()
        except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(
                f"cannot write {self._path}: {reason}", code=OUTPUT_UNWRITABLE
            ) from error

    def _open(self) -> BinaryIO:
        with contextlib.ExitStack() as stack:
            folder = self._folder or stack.enter_context(folder_at(self._path.absolute().parent))
            if self._new:
                return folder.create(self._path.name)
            file, new = folder.open(self._path.name)
            try:
                self._cut(file)
                if new:
                    folder.sync()
            except BaseException:
                file.close()
                raise
            return file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def append(self, items: Sequence[bytes]) -> int:
        """Write the items durably; return the new length. Without items nothing is written."""
        if self._file is None:
            raise StoreError(f"{self._path} is not open", code=OUTPUT_CLOSED)
        return self._put(self._file, self._render(items)) if items else self._length

    def begin(self) -> int:
        """Write the head of a file for a run without items: the first record of an archive, or the
        header of a CSV if the job has columns. Return the length."""
        if self._file is None:
            raise StoreError(f"{self._path} is not open", code=OUTPUT_CLOSED)
        if not self._records.has_head or self._length:
            return self._length
        return self._put(self._file, self._render(()))

    def copy(self, source: BinaryIO, length: int) -> int:
        """Append the first bytes of another file; StoreUnavailable if it has fewer."""
        if self._file is None:
            raise StoreError(f"{self._path} is not open", code=OUTPUT_CLOSED)
        left = length
        while left:
            data = source.read(min(left, COPY_BYTES))
            if not data:
                raise StoreUnavailable(f"a piece of {self._path} has become shorter")
            self._put(self._file, data, durable=False)
            left -= len(data)
        return self._length

    def _put(self, file: BinaryIO, data: bytes, *, durable: bool = True) -> int:
        self._check_size(file)
        if self._tail:
            self._save_foreign_tail(file, data)
        try:
            if self._failed:
                if self._new:
                    raise StoreUnavailable(
                        f"{self._path}: an earlier write failed; the part is written again"
                    )
                file.truncate(self._length)
            self._failed = True
            file.seek(self._length)
            _write_all(file, data)
            if durable:
                os.fsync(file.fileno())
            self._failed = False
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"{self._path}: {error.strerror}") from error
            raise StoreUnavailable(f"cannot write {self._path}: {error.strerror}") from error
        self._length += len(data)
        self._crc = zlib.crc32(data, self._crc)
        return self._length

    def _save_foreign_tail(self, file: BinaryIO, data: bytes) -> None:
        """Compare the bytes after the length with `data`; save them in a second file if they
        differ."""
        file.seek(self._length)
        tail = file.read(len(data) + 1)
        if tail.startswith(data) and len(tail) > len(data):
            return  # compare the rest with the next items
        self._tail = False
        if data.startswith(tail):
            return
        file.seek(self._length)
        beside = self._path.with_name(f"{self._path.name}.behind-{self._length}")
        try:
            with beside.open("xb") as kept:
                while block := file.read(COPY_BYTES):
                    kept.write(block)
                kept.flush()
                os.fsync(kept.fileno())
            file.truncate(self._length)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._path} has bytes of another program after its end, and they cannot be "
                f"saved in {beside}: {error.strerror}"
            ) from error

    def _render(self, items: Sequence[bytes]) -> bytes:
        return self._records.render(items, self._title, first=self._length == 0)

    def _check_size(self, file: BinaryIO) -> None:
        size = os.fstat(file.fileno()).st_size
        if size < self._length:
            raise StoreError(
                f"{self._path} has {size} bytes, but {self._length} were written to it: it was "
                "changed or replaced; export the run's items to a new file instead",
                code=OUTPUT_DAMAGED,
            )

    def _cut(self, file: BinaryIO) -> None:
        self._check_size(file)
        if self._length and self._keep_tail:
            self._tail = os.fstat(file.fileno()).st_size > self._length
        else:
            file.truncate(self._length)
        if self._length:
            self._records.resume(file.read(HEADER_BYTES))


def _write_all(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def crc_of(file: BinaryIO, length: int) -> int | None:
    """Return the checksum of the first `length` bytes; None if there are fewer."""
    crc, left = 0, length
    if os.fstat(file.fileno()).st_size < length:
        return None
    while left:
        data = file.read(min(left, COPY_BYTES))
        if not data:
            return None
        crc, left = zlib.crc32(data, crc), left - len(data)
    return crc
