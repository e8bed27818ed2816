"""Carry out what schedules start, in the fake store's tables: the twin of `sql.firing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zcrawl.model.reasons.cluster import JOB_CHANGED, NO_SUCH_JOB, RUN_IS_ALIVE
from zcrawl.model.reasons.failure import NO_PARENT_RUN
from zcrawl.model.reasons.skip import CANCELLED
from zcrawl.model.states import JobState, RunState
from zcrawl.schedule.dependencies import FinishedRun
from zcrawl.store.commands import AdmitFed, FireJob, JobFired, KnownAdmitted, SubmitJob
from zcrawl.store.queries import (
    ChainRun,
    ChainRuns,
    ParentRuns,
    ReadChain,
    ReadParents,
)
from zcrawl.store.rules import (
    JobNames,
    first_recall,
    is_fed,
    max_pages_of,
    outcome_of,
    outputs_of,
    parents_in,
    seeds_from_of,
    states_of,
    was_dealt_with,
)
from zcrawl.testing.store.known import earlier_hosts
from zcrawl.testing.store.tables import FakeOutput, FakeRun

if TYPE_CHECKING:
    from zcrawl.testing.store.tables import FakeJob, Tables


def start_run(tables: Tables, job: FakeJob, spec: bytes, command: SubmitJob | FireJob) -> FakeRun:
    """Store a pending run and its outputs."""
    max_pages = max_pages_of(spec)
    held_run = command.held_run if isinstance(command, FireJob) else 0
    number = held_run or tables.next_id("runs")
    assert number not in tables.runs, "one run for each held submission"
    run = FakeRun(number, job, spec, max_pages, [], command.seeding, command.now)
    run.canonical, run.version = command.canonical, job.version
    run.start_facts = command.start_facts
    run.recall = first_recall(spec)
    if is_fed(spec):
        given = command.feed_run if isinstance(command, FireJob) else 0
        run.feed_run = given or _newest_completed(tables, seeds_from_of(spec).job)
        run.feed_at = 0 if run.feed_run else None
    tables.runs[run.id] = run
    for path, format in outputs_of(spec, command.name, command.output, run.id):
        tables.outputs[run.id, path] = FakeOutput(run.id, path, format)
    run.add_seed_hosts((*command.seed_hosts, *earlier_hosts(tables, run)))
    return run


def cancel_replaced(tables: Tables, command: SubmitJob | FireJob) -> list[FakeRun]:
    """Cancel the runs that the new one replaces."""
    runs = [tables.runs[id] for id in command.cancels if id in tables.runs]
    live = [run for run in runs if not run.state.ended]
    for run in live:
        tables.end(run, RunState.CANCELLED, CANCELLED, command.now)
    return live


def fire_job(tables: Tables, command: FireJob) -> JobFired:
    job = tables.jobs.get(command.job)
    if job is None or job.state is JobState.DELETED:
        return JobFired(NO_SUCH_JOB, None)
    used = any((job.id, parent) in tables.run_parents for parent in command.used)
    if used or was_dealt_with(job.row(), command):
        return JobFired("", job.row(), repeated=True)
    if job.state is not JobState.ACTIVE or job.version != command.version:
        return JobFired(JOB_CHANGED, job.row())
    live = {run.id for run in tables.runs.values() if run.job is job and not run.state.ended}
    if command.beside is not None and live - {*command.beside}:
        return JobFired(RUN_IS_ALIVE, job.row())
    if command.due is not None:
        job.due_done, job.due_held = command.due.done, command.due.held
    job.due_note = command.note or job.due_note
    if command.held_run:
        job.held = None
    if not command.start:
        for parent in command.used:
            tables.run_parents[job.id, parent] = 0
        return JobFired("", job.row())
    for other in tables.runs.values():
        due_at = command.start_facts.due_at
        twice = other.job is job and due_at is not None and other.start_facts.due_at == due_at
        assert not twice, "one run for each job and due time"
    run = start_run(tables, job, command.spec, command)
    for parent in command.used:
        tables.run_parents[job.id, parent] = run.id
    cancelled = [other.row() for other in cancel_replaced(tables, command)]
    failure = command.failure
    if not failure and is_fed(command.spec) and not run.feed_run:
        failure = NO_PARENT_RUN
    if failure:
        tables.end(run, RunState.FAILED, failure, command.now)
        return JobFired("", job.row(), run.row(), cancelled=cancelled)
    seqs = [tables.admit(run, seed, 0, None, command.now) for seed in command.seeds]
    tables.complete_if_empty(run, command.now)
    rows = [tables.queued_row(tables.requests[seq]) for seq in seqs if seq is not None]
    hosts = tables.host_rows(row.host for row in rows)
    return JobFired("", job.row(), run.row(), rows, hosts, cancelled)


def admit_fed(tables: Tables, command: AdmitFed) -> KnownAdmitted:
    run = tables.runs.get(command.run)
    if run is None or run.feed_at != command.after or run.state.ended:
        return KnownAdmitted([], [], None if run is None else run.row(), repeated=True)
    run.feed_at = None if command.last else command.upto
    run.add_seed_hosts(command.seed_hosts)
    seqs = [tables.admit(run, link, 0, None, command.now) for link in command.links]
    tables.complete_if_empty(run, command.now)
    rows = [tables.queued_row(tables.requests[seq]) for seq in seqs if seq is not None]
    return KnownAdmitted(rows, tables.host_rows(row.host for row in rows), run.row())


def job_names(tables: Tables) -> JobNames:
    """Return the names of all jobs, with the parents of those that have a schedule."""
    live = [job for job in tables.jobs.values() if job.state is not JobState.DELETED]
    parents = {job.name: parents_in(job.spec if job.schedule_from else b"") for job in live}
    return JobNames(parents, frozenset(job.name for job in tables.jobs.values()) - parents.keys())


def read_parents(tables: Tables, query: ReadParents) -> ParentRuns:
    finished = []
    for name, outcomes in query.parents:
        runs = [
            run
            for run in tables.runs.values()
            if run.job.name == name
            and run.job.state is not JobState.DELETED
            and run.state.value in states_of(outcomes)
            and run.ended_at > query.since
            and (query.job, run.id) not in tables.run_parents
        ]
        finished += sorted(runs, key=lambda run: (run.ended_at, run.id))[: query.limit]
    finished.sort(key=lambda run: (run.ended_at, run.id))
    return ParentRuns(
        [
            FinishedRun(
                run.job.name,
                run.id,
                outcome_of(run.state),
                run.start_facts.chain,
                run.start_facts.params,
            )
            for run in finished
        ]
    )


def read_chain(tables: Tables, query: ReadChain) -> ChainRuns:
    first = tables.runs.get(query.run)
    if first is None:
        return ChainRuns([])
    root = first.start_facts.chain or first.id
    runs = [
        run
        for run in tables.runs.values()
        if root in (run.id, run.start_facts.chain) and run.state is not RunState.DELETED
    ]
    rows = [
        ChainRun(
            run.id,
            run.job.id,
            run.job.name,
            run.state,
            run.reason,
            run.started_at,
            run.ended_at,
            tuple(sorted(parent for (_, parent), id in tables.run_parents.items() if id == run.id)),
        )
        for run in sorted(runs, key=lambda run: run.id)
    ]
    return ChainRuns(rows[: query.limit])


def forget_parents(tables: Tables, run: int) -> None:
    """Remove what a removed run had started, and what had started it."""
    tables.run_parents = {
        key: child for key, child in tables.run_parents.items() if run not in (key[1], child)
    }


def _newest_completed(tables: Tables, name: str) -> int:
    runs = [
        run.id
        for run in tables.runs.values()
        if run.job.name == name
        and run.job.state is not JobState.DELETED
        and run.state is RunState.COMPLETED
    ]
    return max(runs, default=0)
