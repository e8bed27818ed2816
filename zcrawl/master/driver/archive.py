"""Write the archive of a run that is to be removed, to a folder or to S3.

Used by `retention`, in a thread of its own. An archive has the run's items, those that were
rejected, the URLs that failed or were skipped, and at last a manifest: so a folder with a manifest
is complete.

- Each file is written aside and renamed (S3: uploaded) when it is whole. A repeat, by this leader
  or by the next, replaces the same names.
- A file must have as many rows as the run has counted. So a leader that was paused, and reads while
  a newer one already removes the rows, stops and replaces nothing.
- Before each rename a command on the store checks the leader's epoch again.
- Rows are read by cursor, 1,000 at a time, so memory does not grow with the run.

The place is checked as that of an output: `outputs.files.folder` opens it without following links,
`submit.output_rights` has the rules.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from zcrawl.errors import RefusedError, StoreError
from zcrawl.master import manifest
from zcrawl.master.manifest import ArchivedFile
from zcrawl.model.formats import FORMATS, JSONL
from zcrawl.model.reasons.cluster import NO_SUCH_RUN
from zcrawl.model.reasons.storage import ARCHIVE_INCOMPLETE
from zcrawl.model.rows import RunRow
from zcrawl.model.states import Kept
from zcrawl.outputs.files.exports import Reader, Source, chunks_of, whole_file_of
from zcrawl.outputs.files.folder import OutputFolder, OutputPlaces
from zcrawl.store.queries import (
    Failures,
    Items,
    Query,
    QueryOutcome,
    ReadRuns,
    RemovableRun,
    RunRows,
    Tallies,
    TallyRows,
)
from zcrawl.submit.output_rights import OutputRights
from zcrawl.submit.outputs import is_remote

READ_BYTES: Final = 1 << 20


class ArchivePlaces(msgspec.Struct, frozen=True):
    """Where archives may be written."""

    of_jobs: OutputPlaces  # named by a job
    of_masters: OutputPlaces  # named by the masters' configuration
    rights: OutputRights  # of jobs


def archive_places(
    data: Path, outputs: Path, rights: OutputRights, archive: str, *, shared: bool = False
) -> ArchivePlaces:
    """Return the places; `archive` is the one of the configuration, which needs no other right."""
    own = (archive,) if archive.startswith("/") or is_remote(archive) else ()
    masters = OutputRights(own, owner=rights.owner)
    return ArchivePlaces(
        OutputPlaces(data, outputs, rights, shared=shared),
        OutputPlaces(data, outputs, masters, shared=shared),
        rights,
    )


class ArchiveTools(msgspec.Struct, frozen=True):
    """What the writer of an archive uses."""

    places: ArchivePlaces
    reader: Reader
    fence: Callable[[], None]  # raises Fenced if another master leads, as the store knows it
    utc: Callable[[], float]
    master: str


class _CountingReader:
    """A reader that counts the rows which it hands out."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.rows = 0

    def query(self, query: Query) -> QueryOutcome:
        outcome = self._reader.query(query)
        if isinstance(outcome, Items | Failures):
            self.rows += len(outcome.rows)
        return outcome


def write_archive(removable: RemovableRun, tools: ArchiveTools) -> str:
    """Write the archive of a run; return its folder or prefix. Blocks: use a thread.

    RefusedError: this place is not allowed, or the run is gone or goes on. StoreError, OSError."""
    if removable.by_job:
        tools.places.rights.check_archive(removable.archive)
    run = _ended_run(removable, tools.reader)
    counters = run.counters
    writer = _ArchiveWriter(removable, run, tools)
    ending = FORMATS[removable.archive_format].ending
    files = [
        writer.write_rows(f"items{ending}", Kept.ITEM, removable.archive_format, counters.items),
        writer.write_rows("failed.jsonl", None, JSONL, counters.failed + counters.skipped),
    ]
    tallies = tools.reader.query(Tallies(run.id))
    assert isinstance(tallies, TallyRows)
    if tallies.rejected:
        files.append(writer.write_rows("rejected.jsonl", Kept.REJECTED, JSONL, None))
    now = tools.utc()
    text = manifest.manifest(run, tallies, files, why=removable.why, master=tools.master, now=now)
    writer.write(manifest.NAME, lambda folder, aside: _write_bytes(folder, aside, text))
    return writer.folder


def _ended_run(removable: RemovableRun, reader: Reader) -> RunRow:
    outcome = reader.query(ReadRuns(removable.run + 1, 1))
    assert isinstance(outcome, RunRows)
    for run in outcome.rows:
        if run.id == removable.run and run.ended_at == removable.ended_at:
            return run
    text = f"run {removable.run} was deleted, or continues after a retry"
    raise RefusedError(text, code=NO_SUCH_RUN)


class _ArchiveWriter:
    """Writes the files of one archive."""

    def __init__(self, removable: RemovableRun, run: RunRow, tools: ArchiveTools) -> None:
        self.folder = manifest.folder_of(removable)
        self._run, self._tools = run, tools
        places = tools.places
        self._places = places.of_jobs if removable.by_job else places.of_masters

    def write_rows(
        self, name: str, kind: Kept | None, form: str, expected: int | None
    ) -> ArchivedFile:
        """Write the rows of the run; StoreError if they are not as many as expected. None: the
        store has no count of these rows, and the fence alone keeps out an old leader."""
        counting = _CountingReader(self._tools.reader)
        source = Source(counting, self._run.id, self._run.spec, kind)

        def write(folder: OutputFolder, aside: str) -> None:
            if FORMATS[form].appendable:
                with folder.create(aside, READ_BYTES) as file:
                    for chunk in chunks_of(source, form):
                        file.write(chunk)
            else:
                whole_file_of(source, form, folder)(folder.path / aside)
            if expected is not None and counting.rows != expected:
                raise StoreError(
                    f"{name} of run {self._run.id} would have {counting.rows} rows, and the run "
                    f"has counted {expected}",
                    code=ARCHIVE_INCOMPLETE,
                )

        file = self.write(name, write)
        return msgspec.structs.replace(file, rows=counting.rows)

    def write(self, name: str, write: Callable[[OutputFolder, str], None]) -> ArchivedFile:
        """Write a file aside, and give it its name when it is whole."""
        target = f"{self.folder}/{name}"
        remote = is_remote(target)
        places, base = self._places, f"archive-{self._run.id}-{name}"
        with places.outgoing(target) if remote else places.folder_of(target) as folder:
            folder.remove_asides(base)  # of a leader that died
            aside = f".{base}.{secrets.token_hex(4)}.part"
            try:
                write(folder, aside)
                stamp = folder.sync_file(aside)
                digest = _digest(folder, aside)
                self._tools.fence()
                if remote:
                    from zcrawl.blobs.s3 import upload

                    upload(target, folder.path / aside)
                else:
                    folder.publish(aside, name)
            finally:
                with contextlib.suppress(OSError):  # the first error is reported
                    folder.remove(aside)
        return ArchivedFile(name, 0, stamp.size, digest)


def _write_bytes(folder: OutputFolder, aside: str, data: bytes) -> None:
    with folder.create(aside, READ_BYTES) as file:
        file.write(data)


def _digest(folder: OutputFolder, name: str) -> str:
    digest = hashlib.sha256()
    with folder.read(name) as file:
        while chunk := os.read(file.fileno(), READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
