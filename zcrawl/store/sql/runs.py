"""ChangeRun, Sweep, RetryDead, CountCrash: changes of a run other than results.

Called by `store` after the epoch check; it commits afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from zcrawl.model.reasons.cluster import (
    NO_SUCH_JOB,
    NO_SUCH_RUN,
    RUN_ENDED,
    RUN_REOPENED,
    UNSEEN_RUNS,
)
from zcrawl.model.reasons.failure import QUARANTINED
from zcrawl.model.reasons.skip import CANCELLED, DELETED
from zcrawl.model.rows import RunRow
from zcrawl.model.spec import OFF
from zcrawl.model.states import JobState, RequestState, RunState
from zcrawl.store.commands import (
    BeginRuns,
    CancelOffline,
    ChangeJob,
    ChangeRun,
    ClientAction,
    CountCrash,
    CrashCounted,
    JobChanged,
    Retried,
    RetryDead,
    RunChanged,
    RunsBegun,
    Sweep,
    Swept,
    TuneRun,
)
from zcrawl.store.rules import (
    MISSING_STATUSES,
    crash_detail,
    duplicates_of,
    is_unseen,
    job_reply,
    skip_reason,
    without_audit,
)
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.examples import Examples
from zcrawl.store.sql.idempotency import given_before, keep_request, keep_run_reply
from zcrawl.store.sql.intents import end_retry, find_retry, keep_retry
from zcrawl.store.sql.jobs import is_deleted, load_job, remove_job, set_state
from zcrawl.store.sql.load import raise_epoch
from zcrawl.store.sql.rows import (
    QUEUED_SELECT,
    Ids,
    RunRecord,
    TallyChanges,
    host_rows,
    load_run,
    load_runs,
    queued_row,
    save_run,
    save_runs,
    save_tallies,
    tune,
)


def change_run(session: Session, command: ChangeRun) -> RunChanged:
    run = load_run(session, command.run)
    reply = given_before(session, command.client_action)
    if reply:
        return RunChanged("", None if run is None else run.row(), reply)
    if run is None:
        return RunChanged(NO_SUCH_RUN, None)
    if run.state.ended and command.state not in (run.state, RunState.DELETED):
        return RunChanged(RUN_ENDED, run.row())
    if command.only_ended_at not in (None, run.ended_at):
        return RunChanged(RUN_REOPENED, run.row())
    records = (load_run(session, id) for id in command.others)
    others = [other for other in records if other is not None]
    for record in (run, *others):
        _change(session, record, command)
    changed = _changed(session, run, command.client_action)
    return msgspec.structs.replace(changed, others=[other.row() for other in others])


def _change(session: Session, run: RunRecord, command: ChangeRun) -> None:
    target = command.state
    if run.state.ended and target is not RunState.DELETED:
        return
    tallies = TallyChanges()
    if run.state.ended or target is RunState.PAUSED:
        run.state, run.reason = target, command.reason
    elif target in (RunState.PENDING, RunState.RUNNING):
        begun = RunState.RUNNING if run.started_at else RunState.PENDING
        run.state, run.reason, run.seeding = begun, "", False
        run.complete_if_empty(command.now, tallies)
    else:
        run.end(target, command.reason, command.now, tallies)
    save_run(session, run)
    save_tallies(session, tallies)


def change_job(session: Session, command: ChangeJob) -> JobChanged:
    job = load_job(session, command.job)
    reply = given_before(session, command.client_action)
    if reply:
        return JobChanged("", job, reply=reply)
    if job is None or job.state is JobState.DELETED:
        return JobChanged(NO_SUCH_JOB, None)
    rows: list[RunRow] = []
    if command.state is JobState.DELETED:
        select = "SELECT id FROM runs WHERE job = ? AND state <> 'deleted'"
        runs = load_runs(session, [id for (id,) in session.all(select, (job.id,))])
        unseen = [run.row() for id, run in runs.items() if is_unseen(id, command)]
        if unseen:
            return JobChanged(UNSEEN_RUNS, job, unseen)
        change = ChangeRun(
            command.epoch, command.request, 0, RunState.DELETED, DELETED, command.now
        )
        for run in runs.values():
            _change(session, run, change)
        rows = [run.row() for run in runs.values()]
    changed = len(rows) if rows else int(job.state is not command.state)
    job = set_state(session, job, command.state, command.now)
    if command.client_action is not None:
        reply = msgspec.json.encode(job_reply(job, rows, changed))
        keep_request(session, command.client_action, job.id, 0, reply)
    return JobChanged("", job, rows, reply)


def begin_runs(session: Session, command: BeginRuns) -> RunsBegun:
    records = load_runs(session, command.runs)
    for run in records.values():
        run.begin(command.now)
    save_runs(session, records.values())
    return RunsBegun([run.row() for run in records.values()])


def cancel_offline(session: Session, command: CancelOffline, epoch: int) -> RunChanged:
    """Cancel a run without a leader. `epoch` is the new epoch, if anything changes."""
    run = load_run(session, command.run)
    if run is not None and run.state.ended:
        return RunChanged(RUN_ENDED, run.row())
    request = command.client_action.request if command.client_action is not None else ""
    change = ChangeRun(
        epoch,
        request,
        command.run,
        RunState.CANCELLED,
        CANCELLED,
        command.now,
        command.client_action,
    )
    changed = change_run(session, change)
    if not changed.refused:
        raise_epoch(session, command, epoch)
    return changed


def _changed(session: Session, run: RunRecord, action: ClientAction | None) -> RunChanged:
    row = run.row()
    keep_run_reply(session, action, row, action.changed if action is not None else 0)
    return RunChanged("", row)


def tune_run(session: Session, command: TuneRun) -> RunChanged:
    run = load_run(session, command.run)
    reply = given_before(session, command.client_action)
    if reply:
        return RunChanged("", None if run is None else run.row(), reply)
    if run is None:
        return RunChanged(NO_SUCH_RUN, None)
    if run.state.ended:
        return RunChanged(RUN_ENDED, run.row())
    tune(session, run, command.spec, command.now)
    return _changed(session, run, command.client_action)


# ---------------------------------------------------------------- sweeping


def sweep(session: Session, command: Sweep) -> Swept:
    run = load_run(session, command.run)
    if run is None or not run.state.ended:
        return Swept(command.run, False)
    if run.state is RunState.DELETED:
        return Swept(run.id, _delete_rows(session, run, command.limit))
    return Swept(run.id, skip_queued(session, run, command.limit) == command.limit)


def skip_queued(session: Session, run: RunRecord, limit: int | None = None) -> int:
    """Skip queued rows, at most `limit`; return how many there were."""
    select = "SELECT seq FROM requests WHERE run = ? AND state = 0"
    if limit is None:
        seqs = [seq for (seq,) in session.all(select, (run.id,))]
    else:
        seqs = [seq for (seq,) in session.all(f"{select} LIMIT ?", (run.id, limit))]
    session.run_in(
        "UPDATE requests SET state = ?, reason = ? WHERE seq IN ({})",
        (RequestState.SKIPPED, skip_reason(run.state, run.reason)),
        seqs,
    )
    if run.recall is not None and seqs:
        from zcrawl.store.sql.known import remember_unasked

        ids = Ids(session)
        remember_unasked(session, ids, run, seqs)
        ids.save()
    return len(seqs)


def _delete_rows(session: Session, run: RunRecord, limit: int) -> bool:
    """Delete examples, items, requests with their pages, and the run itself; with the last run of
    a deleted job also its known pages and the job. Return True if there is more to delete."""
    from zcrawl.store.sql.firing import forget_parents
    from zcrawl.store.sql.known import forget
    from zcrawl.store.sql.near import forget_fingerprints

    session.run("DELETE FROM examples WHERE run = ?", (run.id,))  # few, and of its requests
    select = "SELECT id FROM items WHERE run = ? ORDER BY kind, id LIMIT ?"
    items = [id for (id,) in session.all(select, (run.id, limit))]
    session.run_in("DELETE FROM items WHERE id IN ({})", (), items)
    limit -= len(items)
    if limit == 0:
        return True
    select = "SELECT seq FROM requests WHERE run = ? LIMIT ?"
    seqs = [seq for (seq,) in session.all(select, (run.id, limit))]
    session.run_in("DELETE FROM pages WHERE seq IN ({})", (), seqs)
    session.run_in("DELETE FROM requests WHERE seq IN ({})", (), seqs)
    limit -= len(seqs)
    if limit == 0:
        return True
    if duplicates_of(run.spec).near != OFF and forget_fingerprints(session, run.id, limit):
        return True
    others = session.fetch_row(
        "SELECT 1 FROM runs WHERE job = ? AND id <> ? LIMIT 1", (run.job, run.id)
    )
    last = others is None and is_deleted(session, run.job)
    if last and forget(session, run.job, limit) == limit:
        return True
    forget_parents(session, run.id)
    for table in ("tallies", "outputs"):
        session.run(f"DELETE FROM {table} WHERE run = ?", (run.id,))
    session.run("DELETE FROM runs WHERE id = ?", (run.id,))
    if last:
        remove_job(session, run.job)
    return False


# ---------------------------------------------------------------- dead requests


def retry_dead(session: Session, command: RetryDead) -> Retried:
    run = load_run(session, command.run)
    reply = given_before(session, command.client_action)
    if reply:
        return Retried("", [], [], None if run is None else run.row(), 0, False, reply)
    stands = find_retry(session, command.client_action.request)
    if stands is not None:  # its first part has written its line of the audit
        command = without_audit(command)
    after, changed = (0, 0) if stands is None else (stands.after, stands.client_action.changed)
    full = run is not None and run.max_pages is not None and run.done >= run.max_pages
    if run is None or full or run.state in (RunState.CANCELLED, RunState.DELETED):
        return _end_retry_early(session, command, run, changed)
    only = ("AND reason = ? " if command.reason else "") + ("AND host = ? " if command.host else "")
    values = [parameter for parameter in (command.reason, command.host) if parameter]
    dead: Sequence[tuple[int, str, int]] = session.all(
        "SELECT seq, reason, status FROM requests "
        "WHERE run = ? AND state >= 2 AND state = ? AND seq > ? " + only + "ORDER BY seq LIMIT ?",
        (run.id, RequestState.DEAD, after, *values, command.limit),
    )
    if dead and run.state in (RunState.COMPLETED, RunState.FAILED):
        # Rows that the end of the run skipped stay skipped, also those that are not swept yet.
        skip_queued(session, run)
        run.reopen(command.now)
    tallies = TallyChanges()
    for _, reason, status in dead:
        tallies[(run.id, "failed", reason)] -= 1
        run.missing -= status in MISSING_STATUSES
    seqs = [seq for seq, _, _ in dead]
    session.run_in(
        "UPDATE requests SET state = 0, attempts = 0, crashes = 0, due_at = 0, reason = '', "
        "status = 0 WHERE seq IN ({})",
        (),
        seqs,
    )
    examples = Examples(session)
    for seq in seqs:
        examples.drop(run.id, seq)
    examples.save()
    run.failed -= len(dead)
    run.pending += len(dead)
    save_run(session, run)
    save_tallies(session, tallies)
    queued_rows = session.all_in(QUEUED_SELECT + "WHERE q.seq IN ({})", (), seqs)
    rows = sorted((queued_row(row) for row in queued_rows), key=lambda row: row.seq)
    more = len(seqs) == command.limit
    changed += len(seqs)
    if more:
        keep_retry(session, command, seqs[-1], changed)
    else:
        end_retry(session, command.client_action.request)
        keep_run_reply(session, command.client_action, run.row(), changed)
    return Retried(
        refused="",
        rows=rows,
        hosts=host_rows(session, (row.host for row in rows)),
        row=run.row(),
        changed=changed,
        more=more,
    )


def _end_retry_early(
    session: Session, command: RetryDead, run: RunRecord | None, changed: int
) -> Retried:
    """End a retry whose run cannot continue. The answer is the count so far; refused if it is 0."""
    end_retry(session, command.client_action.request)
    if run is None:
        return Retried(NO_SUCH_RUN, [], [], None, 0, False)
    if not changed:
        return Retried(RUN_ENDED, [], [], run.row(), 0, False)
    keep_run_reply(session, command.client_action, run.row(), changed)
    return Retried("", [], [], run.row(), changed, False)


def count_crash(session: Session, command: CountCrash) -> CrashCounted:
    stored = session.fetch_row("SELECT run, state FROM requests WHERE seq = ?", (command.seq,))
    run = None if stored is None else load_run(session, stored[0])
    if run is None:
        return CrashCounted(None)
    if stored[1] != RequestState.QUEUED or run.state.ended:
        return CrashCounted(run.row())
    session.run("UPDATE requests SET crashes = ? WHERE seq = ?", (command.crashes, command.seq))
    if command.quarantine:
        session.run(
            "UPDATE requests SET state = ?, reason = ? WHERE seq = ?",
            (RequestState.DEAD, QUARANTINED, command.seq),
        )
        run.pending -= 1
        run.failed += 1
        tallies = TallyChanges({(run.id, "failed", QUARANTINED): 1})
        run.complete_if_empty(command.now, tallies)
        save_run(session, run)
        save_tallies(session, tallies)
        examples = Examples(session)
        detail = crash_detail(command.crashes)
        examples.add((run.id, "failed", QUARANTINED), command.seq, detail)
        examples.save()
    return CrashCounted(run.row())
