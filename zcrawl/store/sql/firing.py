"""FireJob: a run that a job's schedule starts, or a due time that starts none; and the queries of
parents and chains.

Called by `store`, which begins and commits. What a firing uses up is stored in the same
transaction: the due time as `jobs.due_done` and `runs.due_at`, a held submission by its number as
`runs.id`, runs of parents in `run_parents`.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

import msgspec

from zcrawl.model.reasons.cluster import JOB_CHANGED, NO_SUCH_JOB, RUN_IS_ALIVE
from zcrawl.model.reasons.failure import NO_PARENT_RUN
from zcrawl.model.states import JobState, RunState
from zcrawl.schedule.dependencies import FinishedRun
from zcrawl.store.commands import FireJob, JobFired
from zcrawl.store.queries import (
    ChainRun,
    ChainRuns,
    ParentRuns,
    ReadChain,
    ReadParents,
)
from zcrawl.store.rules import is_fed, outcome_of, states_of, was_dealt_with
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.jobs import load_job, save_due, save_held
from zcrawl.store.sql.rows import Ids, TallyChanges, host_rows, load_run, save_run, save_tallies
from zcrawl.store.sql.submit import admit, cancel_replaced, live_runs, start_run


def fire_job(session: Session, command: FireJob) -> JobFired:
    job = load_job(session, command.job)
    if job is None or job.state is JobState.DELETED:
        return JobFired(NO_SUCH_JOB, None)
    if was_dealt_with(job, command) or _is_used(session, command):
        return JobFired("", job, repeated=True)
    if job.state is not JobState.ACTIVE or job.version != command.version:
        return JobFired(JOB_CHANGED, job)
    if command.beside is not None and live_runs(session, job.id) - {*command.beside}:
        return JobFired(RUN_IS_ALIVE, job)
    job = save_due(session, job, command.due, command.note)
    if command.held_run:
        save_held(session, job.id, None)
        job = msgspec.structs.replace(job, held=None)
    if not command.start:
        _use(session, command, 0)
        return JobFired("", job)
    ids = Ids(session)
    run = start_run(session, ids, job, command.spec, job.version, command, True)
    _use(session, command, run.id)
    cancelled = cancel_replaced(session, command)
    failure = command.failure
    if not failure and is_fed(command.spec) and not run.feed_run:
        failure = NO_PARENT_RUN
    if failure:
        tallies = TallyChanges()
        run.end(RunState.FAILED, failure, command.now, tallies)
        save_run(session, run)
        save_tallies(session, tallies)
        ids.save()
        return JobFired("", job, run.row(), cancelled=cancelled)
    rows = admit(session, ids, run, [(seed, 0) for seed in command.seeds], command.now)
    hosts = host_rows(session, (row.host for row in rows))
    return JobFired("", job, run.row(), rows, hosts, cancelled)


def _is_used(session: Session, command: FireJob) -> bool:
    select = "SELECT parent FROM run_parents WHERE job = ? AND parent IN ({})"
    return any(True for _ in session.all_in(select, (command.job,), command.used))


def _use(session: Session, command: FireJob, run: int) -> None:
    rows = [(command.job, parent, run) for parent in command.used]
    session.insert_many("run_parents", "job, parent, run", rows)


# ---------------------------------------------------------------- queries


def read_parents(session: Session, query: ReadParents) -> ParentRuns:
    finished: list[tuple[float, FinishedRun]] = []
    for name, outcomes in query.parents:
        ended = session.all_in(
            "SELECT r.ended_at, r.id, r.state, r.chain, r.params FROM runs r "
            "JOIN jobs j ON j.id = r.job "
            "WHERE j.name = ? AND j.state <> 'deleted' AND r.ended_at > ? AND NOT EXISTS "
            "(SELECT 1 FROM run_parents p WHERE p.job = ? AND p.parent = r.id) "
            "AND r.state IN ({}) ORDER BY r.ended_at, r.id",
            (name, query.since, query.job),
            states_of(outcomes),
        )
        finished += [
            (ended_at, FinishedRun(name, id, outcome_of(state), chain, bytes(params or b"")))
            for ended_at, id, state, chain, params in islice(ended, query.limit)
        ]
    finished.sort(key=lambda entry: (entry[0], entry[1].run))
    return ParentRuns([run for _, run in finished])


def read_chain(session: Session, query: ReadChain) -> ChainRuns:
    first = load_run(session, query.run)
    if first is None:
        return ChainRuns([])
    root = first.chain or first.id
    rows = session.all(
        "SELECT r.id, r.job, j.name, r.state, r.reason, r.started_at, r.ended_at FROM runs r "
        "JOIN jobs j ON j.id = r.job WHERE (r.chain = ? OR r.id = ?) AND r.state <> 'deleted' "
        "ORDER BY r.id LIMIT ?",
        (root, root, query.limit),
    )
    parents: dict[int, list[int]] = defaultdict(list)
    select = "SELECT run, parent FROM run_parents WHERE run IN ({}) ORDER BY parent"
    for run, parent in session.all_in(select, (), [row[0] for row in rows]):
        parents[run].append(parent)
    return ChainRuns(
        [
            ChainRun(id, job, name, RunState(state), reason, began, ended, tuple(parents[id]))
            for id, job, name, state, reason, began, ended in rows
        ]
    )


def forget_parents(session: Session, run: int) -> None:
    """Remove what a removed run had started, and what had started it."""
    session.run("DELETE FROM run_parents WHERE parent = ?", (run,))
    session.run("DELETE FROM run_parents WHERE run = ?", (run,))
