"""SaveHistory and ReadHistory: the rows of the charts.

Called by `store`, which has checked the epoch and commits afterwards. The blobs are those of
`model.history`.
"""

from __future__ import annotations

from typing import Any

from zcrawl.model.history import (
    HistoryEntry,
    HistoryPoint,
    counts_of,
    decode_counts,
    decode_groups,
    encode,
    oldest_kept,
    row_starts,
)
from zcrawl.store.commands import Done, SaveHistory
from zcrawl.store.queries import HistoryPoints, ReadHistory
from zcrawl.store.sql.dialects.dialect import Session

_SELECT = "SELECT seconds, cluster, runs, hosts FROM history WHERE step = ? AND at = ?"
_INSERT = "INSERT INTO history (seconds, cluster, runs, hosts, step, at) VALUES (?, ?, ?, ?, ?, ?)"
_UPDATE = (
    "UPDATE history SET seconds = ?, cluster = ?, runs = ?, hosts = ? WHERE step = ? AND at = ?"
)


def save_history(session: Session, command: SaveHistory) -> Done:
    for step, start in row_starts(command.at):
        stored = session.fetch_row(_SELECT, (step, start))
        if stored is None:
            session.run(_INSERT, (*_blobs(command.entry), step, start))
        else:
            entry = _entry(stored).followed_by(command.entry)
            session.run(_UPDATE, (*_blobs(entry), step, start))
    for step, oldest in oldest_kept(command.at):
        session.run("DELETE FROM history WHERE step = ? AND at < ?", (step, oldest))
    return Done()


def _blobs(entry: HistoryEntry) -> tuple[float, bytes, bytes, bytes]:
    return entry.seconds, encode(entry.cluster), encode(entry.runs), encode(entry.hosts)


def _entry(row: tuple[Any, ...]) -> HistoryEntry:
    seconds, cluster, runs, hosts = row
    return HistoryEntry(seconds, decode_counts(cluster), decode_groups(runs), decode_groups(hosts))


def read_history(session: Session, query: ReadHistory) -> HistoryPoints:
    column, key = "cluster", None
    if query.run is not None:
        column, key = "runs", query.run
    elif query.host is not None:
        column, key = "hosts", query.host
    rows = session.all(
        f"SELECT at, seconds, {column} FROM history WHERE step = ? ORDER BY at DESC LIMIT ?",
        (query.step, query.limit),
    )
    return HistoryPoints(
        [
            HistoryPoint(at, seconds, decode_counts(blob) if key is None else counts_of(blob, key))
            for at, seconds, blob in reversed(rows)
        ]
    )
