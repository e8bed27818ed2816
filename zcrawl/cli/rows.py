"""Rows of the store as bytes of a file, chunk by chunk: what `export` writes.

A chunk is one read; the next one starts after the last row of it, so memory holds one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from zcrawl.model import Kept
from zcrawl.store.ports import Store
from zcrawl.store.queries import FailedRow, Failures, Items, ReadFailed, ReadItems
from zcrawl.store.render import csv_columns, render_csv, render_jsonl

FAILED_COLUMNS: Final = ("url", "state", "reason", "status", "attempts", "depth", "parent")


REPORT_COLUMNS: Final = ("url", "block", "reason", "errors", "item")


def item_chunks(
    store: Store, run: int, form: str, batch: int, kind: Kept = Kept.ITEM
) -> Iterator[bytes]:
    """The items of a run, or what is kept beside them. CSV columns are those of the first batch."""
    columns = None if kind is Kept.ITEM else REPORT_COLUMNS
    return _rendered(_items(store, run, batch, kind), form, columns)


def failed_chunks(store: Store, run: int, form: str, batch: int) -> Iterator[bytes]:
    """What failed or was skipped, and why."""
    return _rendered(_failures(store, run, batch), form, FAILED_COLUMNS)


def _rendered(
    batches: Iterator[list[bytes]], form: str, columns: Sequence[str] | None
) -> Iterator[bytes]:
    if form != "csv":
        yield from map(render_jsonl, batches)
        return
    first = next(batches, [])
    columns = columns or csv_columns(first)
    yield render_csv(first, columns, header=True)
    for rows in batches:
        yield render_csv(rows, columns, header=False)


def _items(store: Store, run: int, batch: int, kind: Kept) -> Iterator[list[bytes]]:
    after = 0
    while True:
        read = store.query(ReadItems(run, after, batch, kind))
        assert isinstance(read, Items)
        if not read.rows:
            return
        yield [row.data for row in read.rows]
        after = read.rows[-1].id


def _failures(store: Store, run: int, batch: int) -> Iterator[list[bytes]]:
    after = 0
    while True:
        read = store.query(ReadFailed(run, after, batch))
        assert isinstance(read, Failures)
        if not read.rows:
            return
        yield [msgspec.json.encode(failed_record(row)) for row in read.rows]
        after = read.rows[-1].seq


def failed_record(row: FailedRow) -> dict[str, Any]:
    record = {name: getattr(row, name) for name in FAILED_COLUMNS}
    record["state"] = row.state.name.lower()  # dead or skipped
    return record
