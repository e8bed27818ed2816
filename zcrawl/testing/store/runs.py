"""Carry out commands on whole runs in the fake store's tables: the twin of `sql.runs`.

Only `store` calls it, after the epoch check.
"""

from __future__ import annotations

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
from zcrawl.model.states import JobState, RequestState, RunState
from zcrawl.store.commands import (
    BeginRuns,
    CancelOffline,
    ChangeJob,
    ChangeRun,
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
    is_unseen,
    job_reply,
    skip_reason,
    without_audit,
)
from zcrawl.testing.store import idempotency as once
from zcrawl.testing.store import intents
from zcrawl.testing.store.firing import forget_parents
from zcrawl.testing.store.known import forget, remember_unasked
from zcrawl.testing.store.tables import FakeRun, Tables


def change_run(tables: Tables, command: ChangeRun) -> RunChanged:
    run = tables.runs.get(command.run)
    reply = once.given_before(tables, command.client_action)
    if reply:
        return RunChanged("", None if run is None else run.row(), reply)
    if run is None:
        return RunChanged(NO_SUCH_RUN, None)
    if run.state.ended and command.state not in (run.state, RunState.DELETED):
        return RunChanged(RUN_ENDED, run.row())
    if command.only_ended_at is not None and command.only_ended_at != run.ended_at:
        return RunChanged(RUN_REOPENED, run.row())
    others = [tables.runs[id] for id in command.others if id in tables.runs]
    for affected_run in (run, *others):
        _change(tables, affected_run, command)
    once.keep_run_reply(tables, command.client_action, run)
    return RunChanged("", run.row(), others=[other.row() for other in others])


def _change(tables: Tables, run: FakeRun, command: ChangeRun) -> None:
    if run.state.ended and command.state is not RunState.DELETED:
        return
    match command.state:
        case RunState.PENDING | RunState.RUNNING:
            begun = RunState.RUNNING if run.started_at else RunState.PENDING
            run.state, run.reason, run.seeding = begun, "", False
            tables.complete_if_empty(run, command.now)
        case RunState.PAUSED:
            run.state, run.reason = RunState.PAUSED, command.reason
        case RunState.DELETED if run.state.ended:
            if run.state is not RunState.DELETED:
                run.state, run.reason = RunState.DELETED, command.reason
        case _:
            tables.end(run, command.state, command.reason, command.now)


def change_job(tables: Tables, command: ChangeJob) -> JobChanged:
    job = tables.jobs.get(command.job)
    reply = once.given_before(tables, command.client_action)
    if reply:
        return JobChanged("", None if job is None else job.row(), reply=reply)
    if job is None or job.state is JobState.DELETED:
        return JobChanged(NO_SUCH_JOB, None)
    deleted = []
    if command.state is JobState.DELETED:
        runs = [run for run in tables.runs.values() if run.job is job]
        deleted = [run for run in runs if run.state is not RunState.DELETED]
        unseen = [run.row() for run in deleted if is_unseen(run.id, command)]
        if unseen:
            return JobChanged(UNSEEN_RUNS, job.row(), unseen)
        change = ChangeRun(
            command.epoch, command.request, 0, RunState.DELETED, DELETED, command.now
        )
        for run in deleted:
            _change(tables, run, change)
    rows = [run.row() for run in deleted]
    changed = len(rows) if rows else int(job.state is not command.state)
    if command.state is JobState.ACTIVE and job.state is not command.state and job.schedule_from:
        job.begin_schedule(command.now)
    job.state, job.updated_at = command.state, command.now
    if command.client_action is not None:
        reply = msgspec.json.encode(job_reply(job.row(), rows, changed))
        once.keep(tables, command.client_action, job.id, 0, reply)
    return JobChanged("", job.row(), rows, reply)


def begin_runs(tables: Tables, command: BeginRuns) -> RunsBegun:
    runs = [tables.runs[id] for id in sorted(set(command.runs)) if id in tables.runs]
    for run in runs:
        run.begin(command.now)
    return RunsBegun([run.row() for run in runs])


def cancel_offline(tables: Tables, command: CancelOffline) -> RunChanged:
    run = tables.runs.get(command.run)
    if run is None:
        return RunChanged(NO_SUCH_RUN, None)
    if run.state.ended:
        return RunChanged(RUN_ENDED, run.row())
    tables.epoch += 1
    tables.holder = command.holder
    tables.end(run, RunState.CANCELLED, CANCELLED, command.now)
    once.keep_run_reply(tables, command.client_action, run)
    return RunChanged("", run.row())


def tune_run(tables: Tables, command: TuneRun) -> RunChanged:
    run = tables.runs.get(command.run)
    reply = once.given_before(tables, command.client_action)
    if reply:
        return RunChanged("", None if run is None else run.row(), reply)
    if run is None:
        return RunChanged(NO_SUCH_RUN, None)
    if run.state.ended:
        return RunChanged(RUN_ENDED, run.row())
    tables.tune(run, command.spec, command.now)
    once.keep_run_reply(tables, command.client_action, run)
    return RunChanged("", run.row())


def sweep(tables: Tables, command: Sweep) -> Swept:
    run = tables.runs.get(command.run)
    if run is None or not run.state.ended:
        return Swept(command.run, False)
    if run.state is RunState.DELETED:
        return Swept(run.id, _delete_rows(tables, run, command.limit))
    return Swept(run.id, skip_queued(tables, run, command.limit) == command.limit)


def skip_queued(tables: Tables, run: FakeRun, limit: int | None) -> int:
    lanes = tables.queued.get(run.id, {})
    seqs = [seq for lane in lanes.values() for seq in lane][:limit]
    for seq in seqs:
        request = tables.requests[seq]
        tables.dequeue(request, RequestState.SKIPPED)
        request.reason = skip_reason(run.state, run.reason)
    remember_unasked(tables, run, (tables.requests[seq] for seq in seqs))
    return len(seqs)


def _delete_rows(tables: Tables, run: FakeRun, limit: int) -> bool:
    """Delete examples, items, requests with their pages, and the run; True: call again."""
    tables.examples = {key: kept for key, kept in tables.examples.items() if key[0] != run.id}
    items = tables.items.get(run.id, {})
    for id in list(items)[:limit]:
        del items[id]
        limit -= 1
    if limit == 0:
        return True
    for request in [r for r in tables.requests.values() if r.run == run.id][:limit]:
        if request.state is RequestState.QUEUED:
            tables.dequeue(request, RequestState.SKIPPED)
        tables.pages.pop(request.seq, None)
        del tables.requests[request.seq], tables.seqs[(run.id, request.key)]
        limit -= 1
    if limit == 0:
        return True
    last = run.job.state is JobState.DELETED and all(
        other is run or other.job is not run.job for other in tables.runs.values()
    )
    if last and forget(tables, run.job.id, limit) == limit:
        return True
    forget_parents(tables, run.id)
    tables.items.pop(run.id, None)
    tables.tallies = {key: n for key, n in tables.tallies.items() if key[0] != run.id}
    tables.outputs = {key: o for key, o in tables.outputs.items() if key[0] != run.id}
    tables.originals = {key: o for key, o in tables.originals.items() if key[0] != run.id}
    del tables.runs[run.id]
    if last:
        del tables.jobs[run.job.id]
    return False


def retry_dead(tables: Tables, command: RetryDead) -> Retried:
    run = tables.runs.get(command.run)
    reply = once.given_before(tables, command.client_action)
    if reply:
        return Retried("", [], [], None if run is None else run.row(), 0, False, reply)
    id = command.client_action.request
    stands = tables.retries.get(id)
    if stands is not None:
        command = without_audit(command)
    after, changed = (0, 0) if stands is None else (stands.after, stands.client_action.changed)
    full = run is not None and run.max_pages is not None and run.done >= run.max_pages
    if run is None or full or run.state in (RunState.CANCELLED, RunState.DELETED):
        tables.retries.pop(id, None)
        if run is None:
            return Retried(NO_SUCH_RUN, [], [], None, 0, False)
        if changed:
            once.keep_run_reply(tables, command.client_action, run, changed)
        return Retried("" if changed else RUN_ENDED, [], [], run.row(), changed, False)
    dead = [
        request
        for request in tables.requests.values()
        if request.run == run.id
        and request.state is RequestState.DEAD
        and request.seq > after
        and command.reason in ("", request.reason)
        and command.host in (0, request.host)
    ][: command.limit]
    if dead and run.state in (RunState.COMPLETED, RunState.FAILED):
        skip_queued(tables, run, None)  # what it skipped when it ended stays skipped
        run.idle_s += max(0.0, command.now - run.ended_at)
        run.state, run.reason, run.ended_at = RunState.RUNNING, "", 0.0
    for request in dead:
        tables.tally(run.id, "failed", request.reason, -1)
        tables.drop_examples(request.seq)
        run.missing -= request.status in MISSING_STATUSES
        request.attempts, request.crashes, request.due_at = 0, 0, 0.0
        request.reason, request.status = "", 0
        tables.enqueue(request)
    run.failed -= len(dead)
    run.pending += len(dead)
    changed += len(dead)
    if len(dead) < command.limit:
        tables.retries.pop(id, None)
        once.keep_run_reply(tables, command.client_action, run, changed)
    else:
        intents.keep_retry(tables, command, dead[-1].seq, changed)
    return Retried(
        refused="",
        rows=[tables.queued_row(request) for request in dead],
        hosts=tables.host_rows(request.host for request in dead),
        row=run.row(),
        changed=changed,
        more=len(dead) == command.limit,
    )


def count_crash(tables: Tables, command: CountCrash) -> CrashCounted:
    request = tables.requests.get(command.seq)
    if request is None:
        return CrashCounted(None)
    run = tables.runs[request.run]
    if request.state is RequestState.QUEUED and not run.state.ended:
        request.crashes = command.crashes
        if command.quarantine:
            tables.dequeue(request, RequestState.DEAD)
            request.reason = QUARANTINED
            run.pending -= 1
            run.failed += 1
            tables.tally(run.id, "failed", QUARANTINED)
            detail = crash_detail(command.crashes)
            tables.add_example(run.id, "failed", QUARANTINED, request.seq, detail)
            tables.complete_if_empty(run, command.now)
    return CrashCounted(run.row())
