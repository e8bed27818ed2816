"""ReadFailureGroups: failed requests counted by run, host and reason. Called by `store`."""

from __future__ import annotations

from typing import Any

from zcrawl.model.states import RequestState, RunState
from zcrawl.store.queries import FailureGroupRow, FailureGroupRows, ReadFailureGroups
from zcrawl.store.sql.dialects.dialect import Session

# `state >= 2` is the condition of the index on SQLite.
_GROUPS = (
    "SELECT host, reason, COUNT(*), MAX(seq) FROM requests "
    "WHERE run = ? AND state >= 2 AND state = ? GROUP BY host, reason "
    "ORDER BY COUNT(*) DESC, MAX(seq) DESC LIMIT ?"
)
_NEWEST = "SELECT seq, url, status FROM requests WHERE seq IN ({})"
_ORIGINS = "SELECT id, origin FROM hosts WHERE id IN ({})"


def read_failure_groups(session: Session, query: ReadFailureGroups) -> FailureGroupRows:
    only = "r.id = ?" if query.run is not None else "? IS NULL"
    runs = session.all(
        "SELECT r.id, r.job, j.name FROM runs r JOIN jobs j ON j.id = r.job "
        f"WHERE {only} AND r.failed > 0 AND r.state <> ? ORDER BY r.id DESC LIMIT ?",
        (query.run, RunState.DELETED.value, query.runs),
    )
    rows: list[FailureGroupRow] = []
    for run, job, name in runs:
        groups = session.all(_GROUPS, (run, RequestState.DEAD, query.limit))
        newest = _by_id(session, _NEWEST, groups, 3)
        origins = _by_id(session, _ORIGINS, groups, 0)
        for host, reason, count, seq in groups:
            url, status = newest[seq]
            (origin,) = origins.get(host, ("",))
            rows.append(
                FailureGroupRow(
                    run, job, name, host, _text(origin), reason, count, status, _text(url)
                )
            )
    return FailureGroupRows(rows)


def _by_id(session: Session, select: str, groups: Any, column: int) -> dict[int, tuple[Any, ...]]:
    ids = list(dict.fromkeys(group[column] for group in groups))
    return {row[0]: row[1:] for row in session.all_in(select, (), ids)}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
