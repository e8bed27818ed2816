"""SaveHistory and ReadHistory on the fake store."""

from __future__ import annotations

from zcrawl.model.history import HistoryCounts, HistoryPoint, oldest_kept, row_starts
from zcrawl.store.commands import Done, SaveHistory
from zcrawl.store.queries import HistoryPoints, ReadHistory
from zcrawl.testing.store.tables import Tables


def save_history(tables: Tables, command: SaveHistory) -> Done:
    for row in row_starts(command.at):
        stored = tables.history.get(row)
        entry = command.entry if stored is None else stored.followed_by(command.entry)
        tables.history[row] = entry
    for step, oldest in oldest_kept(command.at):
        for row in [row for row in tables.history if row[0] == step and row[1] < oldest]:
            del tables.history[row]
    return Done()


def read_history(tables: Tables, query: ReadHistory) -> HistoryPoints:
    points: list[HistoryPoint] = []
    for (step, at), entry in sorted(tables.history.items()):
        if step != query.step:
            continue
        counts: HistoryCounts | None = entry.cluster
        if query.run is not None:
            counts = entry.runs.get(query.run)
        elif query.host is not None:
            counts = entry.hosts.get(query.host)
        points.append(HistoryPoint(at, entry.seconds, counts))
    return HistoryPoints(points[-query.limit :])
