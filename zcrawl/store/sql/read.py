"""The queries: refills of the frontier's window, views for people, rows for output files.

Called by `store` on the reader's connection, inside one read transaction each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from zcrawl.model.formats import FORMATS
from zcrawl.model.reasons.skip import DUPLICATE, duplicate_of
from zcrawl.model.rows import LaneWant, Refilled, RunRow
from zcrawl.model.states import Kept, RequestState, RunState
from zcrawl.store.output_mark import is_unfinished
from zcrawl.store.output_pieces import decode as decode_progress
from zcrawl.store.queries import (
    SEARCHED_ITEMS,
    FailedRow,
    Failures,
    FindItems,
    FindJob,
    FoundItem,
    FoundItems,
    ItemRow,
    Items,
    JobList,
    JobVersions,
    KeptRun,
    OutputFact,
    OutputRow,
    Outputs,
    ReadFailed,
    ReadItems,
    ReadOutputs,
    ReadRuns,
    ReadVersions,
    Refill,
    RunRows,
    StoredEpoch,
    Tallies,
    TallyRows,
    job_row,
)
from zcrawl.store.retention import ARCHIVE, MOST_NOT_REMOVED
from zcrawl.store.rules import WORKER, skip_reason
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.examples import first_examples, kept_details
from zcrawl.store.sql.idempotency import latest_actions
from zcrawl.store.sql.jobs import COLUMNS, definition, versions
from zcrawl.store.sql.rows import QUEUED_SELECT, RUN_SELECT, RunRecord, load_run, queued_row
from zcrawl.store.sql.submit import decode_path

_LANE = QUEUED_SELECT + "WHERE q.run = ? AND q.host = ? AND q.state = 0 "
_LANE_ORDER = "ORDER BY q.prio, q.depth, q.seq LIMIT ?"
_BIGGEST_ID = (1 << 63) - 1


def refill(session: Session, query: Refill) -> Refilled:
    rows_by_lane = session.all_each([_lane(want) for want in query.lanes])
    return Refilled(
        [
            (want, [queued_row(row) for row in rows], len(rows) < want.limit)
            for want, rows in zip(query.lanes, rows_by_lane, strict=True)
        ]
    )


def _lane(want: LaneWant) -> tuple[str, tuple[int, ...]]:
    if want.after is None:
        return _LANE + _LANE_ORDER, (want.run, want.host, want.limit)
    return (
        _LANE + "AND (q.prio, q.depth, q.seq) > (?, ?, ?) " + _LANE_ORDER,
        (want.run, want.host, *want.after, want.limit),
    )


def read_epoch(session: Session) -> StoredEpoch:
    stored = session.fetch_row("SELECT epoch FROM leaders WHERE shard = ?", (0,))
    return StoredEpoch(stored[0] if stored else 0)


def list_jobs(session: Session) -> JobList:
    return _jobs(session, "", "", ())


def find_job(session: Session, query: FindJob) -> JobList:
    ref = query.ref
    if query.run is not None:
        of_run = session.fetch_row(
            "SELECT job FROM runs WHERE id = ?", (min(query.run, _BIGGEST_ID),)
        )
        return _jobs(session, "WHERE id = ?", "WHERE r.job = ? ", of_run or (0,))
    if ref.isascii() and ref.isdigit() and int(ref) <= _BIGGEST_ID:
        by_id = _jobs(session, "WHERE id = ?", "WHERE r.job = ? ", (int(ref),))
        if by_id.jobs:
            return by_id
    newest = session.fetch_row("SELECT MAX(id) FROM jobs WHERE name = ?", (ref,))
    return _jobs(session, "WHERE id = ?", "WHERE r.job = ? ", (newest[0] or 0,))


def _jobs(session: Session, of_job: str, of_run: str, values: tuple[int, ...]) -> JobList:
    runs: dict[int, list[RunRow]] = defaultdict(list)
    for row in session.all(RUN_SELECT + of_run + "ORDER BY r.id DESC", values):
        runs[row[1]].append(RunRecord.of(row).row())
    jobs = map(definition, session.all(f"SELECT {COLUMNS} FROM jobs {of_job} ORDER BY id", values))
    return JobList([job_row(job, runs[job.id]) for job in jobs])


def read_runs(session: Session, query: ReadRuns) -> RunRows:
    rows = session.all(
        RUN_SELECT + "WHERE r.id < ? AND r.state <> 'deleted' ORDER BY r.id DESC LIMIT ?",
        (query.before, query.limit),
    )
    return RunRows([RunRecord.of(row).row() for row in rows])


def read_versions(session: Session, query: ReadVersions) -> JobVersions:
    return JobVersions(versions(session, query.job))


def tallies(session: Session, query: Tallies) -> TallyRows:
    rows = TallyRows({}, {}, {}, actions=latest_actions(session, query.run))
    by_kind = {
        "failed": rows.failed,
        "skipped": rows.skipped,
        "link": rows.links,
        "dropped": rows.dropped,
        "rejected": rows.rejected,
        "filled": rows.filled,
        "empty": rows.empty,
        "unread": rows.unread,
        WORKER: rows.workers,
    }
    rows.outputs.extend(_output_facts(session, query.run))
    rows.examples.extend(first_examples(session, query.run))
    rows.not_removed.extend(_not_removed(session, query.run))
    for kind, name, n in session.all(
        "SELECT kind, name, n FROM tallies WHERE run = ? AND n <> 0 AND kind <> ?",
        (query.run, ARCHIVE),
    ):
        if kind == "status":
            rows.statuses[int(name)] = n
        else:
            by_kind[kind][name] = n
    return rows


def _not_removed(session: Session, run: int) -> list[KeptRun]:
    """Return the runs of the same job that could not be archived, newest first."""
    rows = session.all(
        "SELECT t.run, t.name FROM runs s JOIN runs r ON r.job = s.job "
        "JOIN tallies t ON t.run = r.id AND t.kind = ? "
        "WHERE s.id = ? AND r.state <> 'deleted'",
        (ARCHIVE, run),
    )
    newest = sorted(rows, reverse=True)[:MOST_NOT_REMOVED]  # few runs cannot be archived
    return [KeptRun(id, problem) for id, problem in newest]


def _output_facts(session: Session, run: int) -> list[OutputFact]:
    rows = session.all(
        "SELECT path, format, problem, part, progress FROM outputs WHERE run = ? ORDER BY path",
        (run,),
    )
    return [
        OutputFact(decode_path(path), format, problem, part, decode_progress(progress).places)
        for path, format, problem, part, progress in rows
    ]


def read_items(session: Session, query: ReadItems) -> Items:
    rows = session.all(
        "SELECT id, data FROM items WHERE run = ? AND kind = ? AND id > ? ORDER BY id LIMIT ?",
        (query.run, query.kind, query.after, query.limit),
    )
    return Items([ItemRow(id, data) for id, data in rows])


def find_items(session: Session, query: FindItems) -> FoundItems:
    """Search in chunks, at most SEARCHED_ITEMS items, because the reader has other work too."""
    text = query.text.casefold()
    rows: list[FoundItem] = []
    before, looked = query.before, 0
    of_run = "" if query.run is None else "run = ? AND "
    # Rejected items and captured exchanges have another kind.
    values = (Kept.ITEM,) if query.run is None else (query.run, Kept.ITEM)
    while True:
        chunk = session.all(
            f"SELECT id, run, data FROM items WHERE {of_run}kind = ? AND id < ? "
            "ORDER BY id DESC LIMIT ?",
            (*values, before, query.limit),
        )
        for id, run, data in chunk:
            before, looked = id, looked + 1
            if not text or text in data.decode("utf-8", "replace").casefold():
                rows.append(FoundItem(id, run, data))
                if len(rows) == query.limit:
                    return FoundItems(rows, before, True)
        if len(chunk) < query.limit or looked >= SEARCHED_ITEMS:
            return FoundItems(rows, before, len(chunk) == query.limit)


def read_failed(session: Session, query: ReadFailed) -> Failures:
    run = load_run(session, query.run)
    if run is None or run.state is RunState.DELETED:
        return Failures([])
    rows = _failed_rows(session, query, ">= 2", query.reason)
    derived = skip_reason(run.state, run.reason) if run.state.ended else None
    if derived is not None and query.reason in ("", derived):  # rows that are not swept yet
        rows = sorted([*rows, *_failed_rows(session, query, "= 0", "")])[: query.limit]
    details = kept_details(session, query.run)
    results = _failed_results(session, query.run, rows)
    return Failures([_failed_row(row, run, details, results) for row in rows])


def _failed_results(
    session: Session, run: int, rows: Sequence[tuple[Any, ...]]
) -> dict[int, bytes]:
    """Return the results of these requests, as far as they are tasks that failed for good."""
    dead = [row[0] for row in rows if row[2] == RequestState.DEAD]
    if not dead:
        return {}
    select = "SELECT seq, data FROM items WHERE run = ? AND kind = ? AND seq IN ({}) ORDER BY id"
    # After a retry by a person the newest counts.
    return dict(session.all_in(select, (run, Kept.FAILURE), dead))


def _failed_rows(
    session: Session, query: ReadFailed, state: str, reason: str
) -> Sequence[tuple[Any, ...]]:
    only = ""
    values: list[str | int] = []
    if reason == DUPLICATE:
        only, values = "AND q.reason LIKE ? ", [duplicate_of("%")]
    elif reason:
        only, values = "AND q.reason = ? ", [reason]
    if query.host:
        only, values = only + "AND q.host = ? ", [*values, query.host]
    return session.all(
        "SELECT q.seq, q.url, q.state, q.reason, q.status, q.attempts, q.depth, p.url "
        "FROM requests q LEFT JOIN requests p ON p.seq = q.parent "
        f"WHERE q.run = ? AND q.seq > ? AND q.state {state} {only}ORDER BY q.seq LIMIT ?",
        (query.run, query.after, *values, query.limit),
    )


def _failed_row(
    row: tuple[Any, ...],
    run: RunRecord,
    details: Mapping[int, str],
    results: Mapping[int, bytes],
) -> FailedRow:
    seq, url, stored, reason, status, attempts, depth, parent = row
    state = RequestState(stored)
    if state is RequestState.QUEUED:
        state, reason = RequestState.SKIPPED, skip_reason(run.state, run.reason)
    return FailedRow(
        seq,
        url.decode(),
        state,
        reason,
        status,
        attempts,
        depth,
        None if parent is None else parent.decode(),
        details.get(seq, ""),
        results.get(seq, b""),
    )


# Which rows an output holds: items, or captured exchanges.
_CAPTURES: Final = " ".join(
    f"WHEN '{format.name}' THEN {Kept.CAPTURE.value}"
    for format in FORMATS.values()
    if format.captures
)
_KIND: Final = f"CASE o.format {_CAPTURES} ELSE {Kept.ITEM.value} END"


def read_outputs(session: Session, query: ReadOutputs) -> Outputs:
    rows = session.all(
        "SELECT o.run, o.path, o.format, o.item_cursor, o.length, r.state, "
        "COALESCE((SELECT MAX(i.id) FROM items i WHERE i.run = o.run AND "
        f"i.kind = {_KIND}), 0), o.part, o.part_at, r.spec, "
        "o.problem, o.progress, r.created_at "
        "FROM outputs o JOIN runs r ON r.id = o.run WHERE r.id = ? OR "
        "(? IS NULL AND r.state <> 'deleted') ORDER BY o.run, o.path",
        (query.run, query.run),
    )
    outputs = [_output_row(row) for row in rows]
    return Outputs([row for row in outputs if query.run is not None or is_unfinished(row)])


def _output_row(columns: tuple[Any, ...]) -> OutputRow:
    run, path, format, cursor, length, state, last, part, part_at, spec, *more = columns
    problem, progress, began = more
    return OutputRow(
        run,
        decode_path(path),
        format,
        cursor,
        length,
        last,
        part,
        part_at,
        RunState(state).ended,
        spec,
        problem,
        decode_progress(progress),
        began,
    )
