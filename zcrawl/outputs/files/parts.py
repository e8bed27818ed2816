"""Write parts that appear only when they are complete: on clusters, and for Parquet and S3.

Used by `sinks`; `outputs.script` has the order of the calls, `output_pieces` the decisions.
`PieceSink` joins pieces (JSON lines, CSV, WARC in a folder);
`PartSink` writes a whole part by itself; after a change of leaders it begins again with the first
row (Parquet, S3).
"""

from __future__ import annotations

import contextlib
import secrets
import zlib
from collections.abc import Sequence

import msgspec

from zcrawl.errors import StoreUnavailable
from zcrawl.model.formats import FORMATS
from zcrawl.model.reasons.storage import OUTPUT_CHANGED
from zcrawl.model.spec import JobSpec
from zcrawl.outputs.columns import Layout, layout_of, rest_name
from zcrawl.outputs.files.folder import OutputFolder, OutputPlaces
from zcrawl.outputs.files.growing import OutputFile, crc_of
from zcrawl.outputs.files.writers import WholeFile, whole_file
from zcrawl.outputs.records import GetBody
from zcrawl.store import output_pieces as pieces
from zcrawl.store.output_mark import OutputMark, is_bare
from zcrawl.store.output_pieces import JoinStep, Piece, Stamp, Writer
from zcrawl.store.queries import ItemRow, OutputRow
from zcrawl.submit.outputs import beside_path, is_remote, part_path


class SinkTools(msgspec.Struct, frozen=True):
    """The tools of a master for sinks: allowed places, bodies for archives, and its identity."""

    places: OutputPlaces
    body_of: GetBody
    writer: Writer


class Rotation:
    """Decides when a part is large or old enough."""

    def __init__(self, spec: JobSpec) -> None:
        self._bytes, self._seconds = spec.output.rotate_bytes, spec.output.rotate_seconds
        self.on = bool(self._bytes or self._seconds)

    def due(self, length: int, part_at: float, utc: float) -> bool:
        if not part_at:
            return False
        too_large = bool(self._bytes) and length >= self._bytes
        return too_large or (bool(self._seconds) and utc >= part_at + self._seconds)


class _Publishing:
    """The common part of both sinks: a temporary file (`aside`) that becomes the part."""

    def __init__(self, row: OutputRow, spec: JobSpec, tools: SinkTools) -> None:
        self.cursor = row.cursor
        self._row, self._tools = row, tools
        self._layout = layout_of(spec)
        self._rotation = Rotation(spec)
        self._bare = is_bare(row)
        self._part = row.part
        self._progress = row.progress
        # A part's time begins with its first item.
        self._part_at = row.part_at if row.progress.pieces else 0.0
        self._folder: OutputFolder | None = None  # of the part at hand
        self._aside = ""  # the name of its file until it is complete
        if not is_remote(row.path):
            marker = tools.places.check_shared(row.path, self._progress.marker)
            self._progress = msgspec.structs.replace(self._progress, marker=marker)

    @property
    def _target(self) -> str:
        return part_path(self._row.path, self._part, self._rotation.on)

    @property
    def _name(self) -> str:
        return self._target.rpartition("/")[2]

    @property
    def _base(self) -> str:
        """The beginning of the names of all temporary files of this part."""
        if is_remote(self._target):  # parts for all buckets wait in one folder
            place = zlib.crc32(self._target.encode("utf-8", "surrogateescape"))
            return f"{self._name}.{place:08x}.{self._row.run}"
        return f"{self._name}.{self._row.run}"

    def settle(self, ended: bool, utc: float) -> OutputMark | None:
        return None  # `part_ends` says when there is something to do

    def _open_folder(self) -> OutputFolder:
        """Open the folder of the part. RefusedError: nothing may be written there."""
        if self._folder is None:
            remote, places = is_remote(self._target), self._tools.places
            opened = places.outgoing(self._target) if remote else places.folder_of(self._target)
            self._folder = opened
        return self._folder

    def _new_aside(self) -> str:
        return pieces.aside_name(self._base, self._tools.writer, secrets.token_hex(4))

    def _announce(self) -> OutputMark:
        """Make the complete file durable. The commit of the returned mark is the fence before the
        rename."""
        stamp: Stamp | None = None
        if not is_remote(self._target):
            stamp = self._open_folder().sync_file(self._aside)
        self._progress = pieces.announced(self._progress, stamp)
        # A run without items is not marked as written yet, so that another leader continues.
        return msgspec.structs.replace(self._mark(), part_at=0.0) if self._bare else self._mark()

    def publish(self) -> OutputMark:
        """Rename or upload the file. A target that was changed by others is not replaced."""
        folder, problem = self._open_folder(), ""
        master = "" if self._tools.places.shared else self._tools.writer.master
        if is_remote(self._target):
            from zcrawl.blobs.s3 import upload

            self._tools.places.check_remote(self._target)
            upload(self._target, folder.path / self._aside)
            folder.remove(self._aside)
            file, master = self._target, ""
        else:
            name = self._name
            began_ns = int(self._row.began * 1e9)
            if not pieces.may_replace(folder.stamp(name), self._progress, began_ns):
                name = beside_path(name, self._row.run, self._tools.writer.epoch)
                problem = (
                    f"[{OUTPUT_CHANGED}] {folder.path / self._name} was changed by another "
                    f"program, so it was not replaced; the items are in {folder.path / name}"
                )
            folder.publish(self._aside, name)
            file = str(folder.path / name)
        self._aside = ""
        self._progress = pieces.published(self._progress, self._part, master, file)
        part_at = self._part_at if self._bare else 0.0
        self._bare, self._part, self._part_at = False, self._part + 1, 0.0
        return msgspec.structs.replace(self._mark(), part_at=part_at, problem=problem)

    def tidy(self) -> None:
        """Remove temporary files, also those of a leader that died before its commit."""
        assert self._folder is not None  # of the part that was published
        self._folder.remove_asides(self._base)
        self._drop()

    def _mark(self) -> OutputMark:
        return OutputMark(self.cursor, 0, self._part, self._part_at, self._progress)

    def _drop(self) -> None:
        """Remove the unpublished file; it is written again later."""
        if self._folder is not None:
            if self._aside:
                self._folder.remove(self._aside)
            self._folder.close()
            self._folder, self._aside = None, ""


class PartSink(_Publishing):
    """A part that one leader writes from the first row to the last."""

    def __init__(self, row: OutputRow, spec: JobSpec, tools: SinkTools) -> None:
        super().__init__(row, spec, tools)
        self._stored = row.cursor, row.part_at  # until the part is published
        self._writer: WholeFile | OutputFile | None = None
        self._open_folder()  # report a place that cannot be written before the first row
        self._drop()

    def part_ends(self, ended: bool, utc: float) -> bool:
        if self._writer is None:
            return ended and self._bare
        writer = self._writer
        length = writer.length if isinstance(writer, OutputFile) else writer.written
        return ended or self._rotation.due(length, self._part_at, utc)

    def take(self, rows: Sequence[ItemRow], utc: float) -> None:
        writer = self._writer or self._begin()
        data = [row.data for row in rows]
        if isinstance(writer, OutputFile):
            writer.append(data)
        else:
            writer.add(data)
        self.cursor, self._bare = rows[-1].id, False
        self._part_at = self._part_at or utc

    def begin_join(self, utc: float) -> list[JoinStep]:
        if self._writer is None:
            writer = self._begin()
            self._part_at = utc
            if isinstance(writer, OutputFile):
                writer.begin()
        return []

    def copy(self, piece: Piece) -> None:
        raise AssertionError("no pieces")

    def rebuild(self, rows: Sequence[ItemRow]) -> None:
        raise AssertionError("no pieces")

    def complete(self) -> OutputMark:
        """Announce the part with the old cursor, so that it is written again if this leader dies
        now."""
        assert self._writer is not None
        self._writer.close()
        self._writer = None
        cursor, part_at = self._stored
        return msgspec.structs.replace(self._announce(), cursor=cursor, part_at=part_at)

    def publish(self) -> OutputMark:
        mark = super().publish()
        self._stored = mark.cursor, mark.part_at
        return mark

    def close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError, StoreUnavailable):
                self._writer.close()
            self._writer = None
        self._drop()

    def _begin(self) -> WholeFile | OutputFile:
        folder = self._open_folder()
        self._aside = self._new_aside()
        folder.remove_asides(self._base)
        path = folder.path / self._aside
        format = FORMATS.get(self._row.format)
        if format is not None and not format.appendable:
            self._writer = whole_file(format, path, self._layout, folder)
        else:
            self._writer = OutputFile(
                path,
                self._row.format,
                0,
                self._layout,
                self._tools.body_of,
                folder,
                new=True,
                title=self._name,
            )
            self._writer.open()
        return self._writer


class PieceSink(_Publishing):
    """A part that several leaders may write, one after the other."""

    def __init__(self, row: OutputRow, spec: JobSpec, tools: SinkTools) -> None:
        super().__init__(row, spec, tools)
        if row.length and not self._progress.pieces:  # begun by a version without pieces
            self._adopt_growing_file()
        pieces.check(self._progress, self.cursor)
        self._piece: Piece | None = None
        self._file: OutputFile | None = None  # of the piece
        self._joined: OutputFile | None = None
        self._joined_pieces: list[str] = []
        self._open_folder().check_name(self._name)  # report a place that cannot be written at once
        self._drop()

    def part_ends(self, ended: bool, utc: float) -> bool:
        if not self._progress.pieces:
            return ended and self._bare
        return ended or self._rotation.due(pieces.part_bytes(self._progress), self._part_at, utc)

    def take(self, rows: Sequence[ItemRow], utc: float) -> OutputMark:
        file = self._file or self._begin_piece()
        assert self._piece is not None
        length = file.append([row.data for row in rows])
        self.cursor, self._bare = rows[-1].id, False
        self._part_at = self._part_at or utc
        self._piece = msgspec.structs.replace(
            self._piece, upto=self.cursor, length=length, crc=file.crc
        )
        progress = pieces.grown(self._progress, self._piece)
        if self._layout.columns is None:
            progress = msgspec.structs.replace(progress, columns=file.columns)
        self._progress = progress
        return self._mark()

    def begin_join(self, utc: float) -> list[JoinStep]:
        self._close_piece()
        folder = self._open_folder()
        folder.remove_asides(self._base, keep=self._piece_names())
        if self._bare:
            self._part_at = utc
        self._aside = self._new_aside()
        self._joined = self._open_file(self._aside, self._name)
        whole = {piece.name: self._is_whole(folder, piece) for piece in self._progress.pieces}
        return pieces.join_plan(self._progress, whole)

    def copy(self, piece: Piece) -> None:
        assert self._joined is not None
        with self._open_folder().read(piece.name) as file:
            self._joined.copy(file, piece.length)

    def rebuild(self, rows: Sequence[ItemRow]) -> None:
        assert self._joined is not None
        self._joined.append([row.data for row in rows])

    def complete(self) -> OutputMark:
        assert self._joined is not None
        self._joined.begin()
        self._joined.close()
        self._joined = None
        return self._announce()

    def publish(self) -> OutputMark:
        self._joined_pieces = self._piece_names()
        return super().publish()

    def tidy(self) -> None:
        """Remove the joined pieces. Those on the disks of other masters stay there."""
        assert self._folder is not None
        for name in self._joined_pieces:
            self._folder.remove(name)
        super().tidy()

    def close(self) -> None:
        self._close_piece()
        if self._joined is not None:
            self._joined.close()
            self._joined = None
        self._drop()

    def _begin_piece(self) -> OutputFile:
        folder = self._open_folder()
        folder.remove_asides(self._base, keep=self._piece_names())
        writer = self._tools.writer
        name = pieces.piece_name(self._base, writer, secrets.token_hex(4))
        self._piece = pieces.begun(self._progress, writer, name, self.cursor)
        self._file = self._open_file(name, None if self._progress.pieces else self._name)
        folder.sync()
        return self._file

    def _open_file(self, name: str, title: str | None) -> OutputFile:
        folder, layout = self._open_folder(), self._layout
        columns = self._progress.columns
        if columns is not None:
            layout = Layout(dict.fromkeys(columns, "string"), rest_name(columns), layout.csv_safe)
        path, body_of = folder.path / name, self._tools.body_of
        file = OutputFile(path, self._row.format, 0, layout, body_of, folder, new=True, title=title)
        file.open()
        return file

    def _piece_names(self) -> list[str]:
        return [piece.name for piece in self._progress.pieces if piece.name != pieces.LOST]

    def _close_piece(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._piece = None

    def _is_whole(self, folder: OutputFolder, piece: Piece) -> bool:
        if piece.name == pieces.LOST:
            return False
        try:
            with folder.read(piece.name) as file:
                return crc_of(file, piece.length) == piece.crc
        except OSError:
            return False  # on another master, or lost: its rows are in the database

    def _adopt_growing_file(self) -> None:
        """Continue the output of an old version. The first part is rebuilt from its first row; a
        later part counts as complete, because its first row is not known."""
        if self._part:
            self._part += 1
            return
        lost = Piece(0, "", pieces.LOST, 0, self.cursor, 0, 0)
        self._progress = msgspec.structs.replace(self._progress, pieces=(lost,))
