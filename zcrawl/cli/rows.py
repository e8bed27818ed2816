"""Rows of the store as bytes of a file, chunk by chunk: what `export` writes.

A chunk is one read; the next one starts after the last row of it, so memory holds one chunk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from zcrawl.errors import UsageError
from zcrawl.model.reasons.usage import NO_CAPTURES
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import Kept
from zcrawl.outputs.columns import Kind, Layout, layout_of, rest_name
from zcrawl.outputs.render import csv_columns, render_csv, render_jsonl
from zcrawl.store.ports import Store
from zcrawl.store.queries import FailedRow, Failures, Items, ReadFailed, ReadItems

BATCH: Final = 1000  # rows per read
CAPTURES: Final = 20
FAILED_COLUMNS: Final = (
    *("url", "state", "reason", "status", "attempts", "depth", "parent"),
    "detail",
)
REPORT_COLUMNS: Final = ("url", "block", "reason", "errors", "item")


@dataclasses.dataclass(frozen=True)
class Source:
    """What is exported: rows of one kind of one run; `kind` None: what failed or was skipped."""

    store: Store
    run: int
    spec: bytes
    kind: Kept | None
    blobs: str  # where bodies lie, for archives
    csv_safe: bool = False  # besides jobs that say so themselves

    def batches(self) -> Iterator[list[bytes]]:
        if self.kind is None:
            return _failures(self.store, self.run)
        return _items(self.store, self.run, self.kind, BATCH)

    def layout(self) -> Layout:
        spec = msgspec.json.decode(self.spec, type=JobSpec)
        if self.kind is Kept.ITEM:
            return layout_of(spec)
        names = FAILED_COLUMNS if self.kind is None else REPORT_COLUMNS
        numbers = ("status", "attempts", "depth")
        texts = ("errors", "item")
        columns: dict[str, Kind] = {
            n: "int" if n in numbers else "json" if n in texts else "string" for n in names
        }
        return Layout(columns, csv_safe=spec.output.csv_safe)


def chunks_of(source: Source, form: str) -> Iterator[bytes]:
    """JSON lines, CSV or WARC."""
    if form == "jsonl":
        return map(render_jsonl, source.batches())
    if form == "csv":
        return _csv(source)
    if source.kind is not Kept.ITEM:
        raise UsageError(
            "a WARC archive holds pages, not lists; give a .jsonl, .csv or .parquet file"
        )
    return _warc(source)


def parquet_file(source: Source) -> Callable[[Path], None]:
    from zcrawl.outputs.files.parquet import write_parquet

    return lambda path: write_parquet(path, source.batches(), source.layout())


def _csv(source: Source) -> Iterator[bytes]:
    """Columns are the job's; where it does not say them, those of the first batch."""
    batches, layout = source.batches(), source.layout()
    first = next(batches, [])
    columns = csv_columns(first) if layout.columns is None else tuple(layout.columns)
    rest = rest_name(columns) if layout.rest else ""
    safe = layout.csv_safe or source.csv_safe
    yield render_csv(first, columns, True, rest, safe)
    for rows in batches:
        yield render_csv(rows, columns, False, rest, safe)


def _warc(source: Source) -> Iterator[bytes]:
    from zcrawl.cli import output
    from zcrawl.outputs.warc import render_warc, warc_head
    from zcrawl.roles.blobs import body_getter

    lost: list[str] = []
    body_of = body_getter(source.blobs, lambda name, detail: lost.append(detail))
    captures = _items(source.store, source.run, Kept.CAPTURE, CAPTURES)
    first = next(captures, None)
    if first is None:
        raise UsageError(
            "this run has no captured pages: set output.capture = true in its job",
            code=NO_CAPTURES,
        )
    yield warc_head(f"run-{source.run}.warc.gz")
    yield render_warc(first, body_of)
    for batch in captures:
        yield render_warc(batch, body_of)
    if lost:
        output.note(f"{len(lost)} bodies are lost; the first: {lost[0]}")


def _items(store: Store, run: int, kind: Kept, batch: int) -> Iterator[list[bytes]]:
    after = 0
    while True:
        read = store.query(ReadItems(run, after, batch, kind))
        assert isinstance(read, Items)
        if not read.rows:
            return
        yield [row.data for row in read.rows]
        after = read.rows[-1].id


def _failures(store: Store, run: int) -> Iterator[list[bytes]]:
    after = 0
    while True:
        read = store.query(ReadFailed(run, after, BATCH))
        assert isinstance(read, Failures)
        if not read.rows:
            return
        yield [msgspec.json.encode(failed_record(row)) for row in read.rows]
        after = read.rows[-1].seq


def failed_record(row: FailedRow) -> dict[str, Any]:
    record = {name: getattr(row, name) for name in FAILED_COLUMNS}
    record["state"] = row.state.name.lower()  # dead or skipped
    return record
