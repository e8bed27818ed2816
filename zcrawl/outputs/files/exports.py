"""Turn rows of the store into the bytes of a file, chunk by chunk.

Used by the command `export`, and by masters for archives of runs that are removed. A chunk is one
read. The next one starts after its last row, so memory holds only one chunk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from zcrawl.errors import UsageError
from zcrawl.model.formats import FORMATS, Format, listed_endings
from zcrawl.model.reasons.usage import NO_CAPTURES
from zcrawl.model.spec import CRAWL, JobSpec
from zcrawl.model.states import Kept
from zcrawl.outputs.columns import ColumnKind, Layout, layout_of
from zcrawl.outputs.files.folder import OutputFolder
from zcrawl.outputs.files.writers import records_of, whole_file
from zcrawl.outputs.records import GetBody
from zcrawl.store.queries import (
    FailedRow,
    Failures,
    Items,
    Query,
    QueryOutcome,
    ReadFailed,
    ReadItems,
)

BATCH: Final = 1000  # rows per read
CAPTURES: Final = 20
FAILURES: Final = 100  # each may have the result of a task, with up to 130 KB
RESULT: Final = "result"  # of a task
FAILED_COLUMNS: Final = (
    *("url", "state", "reason", "status", "attempts", "depth", "parent"),
    "detail",
)
REPORT_COLUMNS: Final = ("url", "block", "reason", "errors", "item")


class Reader(Protocol):
    """The part of a store that reads."""

    def query(self, query: Query) -> QueryOutcome: ...


@dataclasses.dataclass(frozen=True)
class Source:
    """The rows to export: one kind of one run; `kind` None: URLs that failed or were skipped."""

    store: Reader
    run: int
    spec: bytes
    kind: Kept | None
    body_of: GetBody | None = None  # reads the bodies of captured pages
    csv_safe: bool = False  # a job can ask for it, too

    def batches(self) -> Iterator[list[bytes]]:
        if self.kind is None:
            return _failures(self.store, self.run)
        return _items(self.store, self.run, self.kind, BATCH)

    def layout(self) -> Layout:
        spec = msgspec.json.decode(self.spec, type=JobSpec)
        if self.kind is Kept.ITEM:
            return layout_of(spec)
        failed_columns = FAILED_COLUMNS if spec.kind == CRAWL else (*FAILED_COLUMNS, RESULT)
        names = failed_columns if self.kind is None else REPORT_COLUMNS
        numbers = ("status", "attempts", "depth")
        texts = ("errors", "item", RESULT)
        columns: dict[str, ColumnKind] = {
            n: "int" if n in numbers else "json" if n in texts else "string" for n in names
        }
        return Layout(columns, csv_safe=spec.output.csv_safe)


def chunks_of(source: Source, form: str) -> Iterator[bytes]:
    """Yield the chunks of a format whose files can grow."""
    format = FORMATS[form]
    if not format.captures:
        return _records(source, format)
    if source.kind is not Kept.ITEM:
        endings = listed_endings(captures=False)
        raise UsageError(f"a {format.title} archive holds pages, not lists; give a {endings} file")
    return _captures(source, format)


def whole_file_of(
    source: Source, form: str, folder: OutputFolder | None = None
) -> Callable[[Path], None]:
    """Return the function that writes a file of a format that is written as a whole; in `folder`
    if it is given."""

    def write(path: Path) -> None:
        file = whole_file(FORMATS[form], path, source.layout(), folder)
        try:
            for batch in source.batches():
                file.add(batch)
        finally:
            file.close()

    return write


def _records(source: Source, format: Format) -> Iterator[bytes]:
    """Yield encoded rows. The columns are those of the job, or else those of the first batch."""
    layout = source.layout() if format.has_columns else Layout(None)
    layout = msgspec.structs.replace(layout, csv_safe=layout.csv_safe or source.csv_safe)
    records, batches = records_of(format, layout, None), source.batches()
    yield records.render(next(batches, []), "", first=True)
    for rows in batches:
        yield records.render(rows, None, first=False)


def _captures(source: Source, format: Format) -> Iterator[bytes]:
    captures = _items(source.store, source.run, Kept.CAPTURE, CAPTURES)
    first = next(captures, None)
    if first is None:
        raise UsageError(
            "this run has no captured pages: set output.capture = true in its job",
            code=NO_CAPTURES,
        )
    records = records_of(format, Layout(None), source.body_of)
    title = f"run-{source.run}{format.ending}"
    yield records.render([], title, first=True)
    yield records.render(first, None, first=False)
    for batch in captures:
        yield records.render(batch, None, first=False)


def _items(store: Reader, run: int, kind: Kept, batch: int) -> Iterator[list[bytes]]:
    after = 0
    while True:
        read = store.query(ReadItems(run, after, batch, kind))
        assert isinstance(read, Items)
        if not read.rows:
            return
        yield [row.data for row in read.rows]
        after = read.rows[-1].id


def _failures(store: Reader, run: int) -> Iterator[list[bytes]]:
    after = 0
    while True:
        read = store.query(ReadFailed(run, after, FAILURES))
        assert isinstance(read, Failures)
        if not read.rows:
            return
        yield [msgspec.json.encode(failed_record(row)) for row in read.rows]
        after = read.rows[-1].seq


def failed_record(row: FailedRow) -> dict[str, Any]:
    record = {name: getattr(row, name) for name in FAILED_COLUMNS}
    record["state"] = row.state.name.lower()  # dead or skipped
    if row.result:
        record[RESULT] = msgspec.json.decode(row.result)
    return record
