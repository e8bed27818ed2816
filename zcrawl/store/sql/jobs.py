"""Jobs as definitions: their row, their versions, their state. A job lives without a run.

`store.sql.submit` creates jobs and starts runs. Called inside one transaction of the writer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from zcrawl.model.rows import DefinitionRow, HeldSubmission, JobVersion
from zcrawl.model.states import JobState
from zcrawl.store.commands import DueMark
from zcrawl.store.rules import JobNames, is_scheduled, parents_in, schedule_of
from zcrawl.store.sql.dialects.dialect import Session

COLUMNS = (
    "id, name, spec, created_at, state, version, owner, updated_at, "
    "schedule_from, due_done, due_held, due_note, held"
)
TEXT_CHARS = 255


def definition(row: tuple[Any, ...]) -> DefinitionRow:
    id, name, spec, created_at, state, *rest = row[:-1]
    job = DefinitionRow(id, name, bytes(spec), created_at, JobState(state), *rest)
    if not row[-1]:
        return job
    held = msgspec.json.decode(bytes(row[-1]), type=HeldSubmission)
    return msgspec.structs.replace(job, held=held)


def load_job(session: Session, id: int) -> DefinitionRow | None:
    row = session.fetch_row(f"SELECT {COLUMNS} FROM jobs WHERE id = ?", (id,))
    return None if row is None else definition(row)


def job_named(session: Session, name: str) -> DefinitionRow | None:
    """Return the job that has the name; the name of a deleted job is free."""
    select = f"SELECT {COLUMNS} FROM jobs WHERE name = ? AND state <> 'deleted' ORDER BY id LIMIT 1"
    row = session.fetch_row(select, (name,))
    return None if row is None else definition(row)


def create_job(
    session: Session, id: int, name: str, spec: bytes, author: str, now: float
) -> DefinitionRow:
    author = author[:TEXT_CHARS]
    schedule_from = now if is_scheduled(spec) else 0.0
    job = DefinitionRow(id, name, spec, now, JobState.ACTIVE, 1, author, now, schedule_from)
    session.run(
        f"INSERT INTO jobs ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (id, name, spec, now, job.state.value, 1, author, now, schedule_from, 0.0, None, "", None),
    )
    _keep_version(session, job, JobVersion(1, spec, now, author))
    return job


def store_spec(session: Session, job: DefinitionRow, spec: bytes, author: str, now: float) -> int:
    """Store another spec as a new version; return the number of the version that has this spec."""
    if spec == job.spec:
        return job.version
    if session.fetch_row("SELECT 1 FROM job_versions WHERE job = ? LIMIT 1", (job.id,)) is None:
        # It was made before versions were kept.
        _keep_version(session, job, JobVersion(job.version, job.spec, job.created_at, job.owner))
    version = JobVersion(job.version + 1, spec, now, author[:TEXT_CHARS])
    _keep_version(session, job, version)
    session.run(
        "UPDATE jobs SET spec = ?, version = ?, updated_at = ? WHERE id = ?",
        (spec, version.version, now, job.id),
    )
    if schedule_of(spec) != schedule_of(job.spec):
        _begin_schedule(session, job.id, now if is_scheduled(spec) else 0.0)
    return version.version


def _keep_version(session: Session, job: DefinitionRow, version: JobVersion) -> None:
    session.run(
        "INSERT INTO job_versions (job, version, spec, created_at, author) VALUES (?, ?, ?, ?, ?)",
        (job.id, version.version, version.spec, version.created_at, version.author),
    )


def _begin_schedule(session: Session, job: int, schedule_from: float) -> None:
    """Let due times and parents count from a moment on: earlier ones are not caught up."""
    session.run(
        "UPDATE jobs SET schedule_from = ?, due_held = NULL, held = NULL WHERE id = ?",
        (schedule_from, job),
    )


def save_due(session: Session, job: DefinitionRow, due: DueMark | None, note: str) -> DefinitionRow:
    """Store how far the due times of a job are dealt with, and why the last one started no run."""
    if due is not None:
        job = msgspec.structs.replace(job, due_done=due.done, due_held=due.held)
    if note:
        job = msgspec.structs.replace(job, due_note=note[:TEXT_CHARS])
    session.run(
        "UPDATE jobs SET due_done = ?, due_held = ?, due_note = ? WHERE id = ?",
        (job.due_done, job.due_held, job.due_note, job.id),
    )
    return job


def job_names(session: Session) -> JobNames:
    """Return the names of all jobs, with the parents of those that have a schedule."""
    rows = session.all("SELECT name FROM jobs")
    live = session.all(
        "SELECT name, CASE WHEN schedule_from > 0 THEN spec ELSE NULL END FROM jobs "
        "WHERE state <> 'deleted'"
    )
    parents = {name: parents_in(bytes(spec or b"")) for name, spec in live}
    return JobNames(parents, frozenset(name for (name,) in rows) - parents.keys())


def save_held(session: Session, job: int, held: HeldSubmission | None) -> None:
    """Store the submission that waits for the end of a live run; None: none does."""
    stored = None if held is None else msgspec.json.encode(held)
    session.run("UPDATE jobs SET held = ? WHERE id = ?", (stored, job))


def scheduled_jobs(session: Session) -> list[DefinitionRow]:
    """Return the active jobs that have a schedule."""
    select = f"SELECT {COLUMNS} FROM jobs WHERE schedule_from > 0 AND state = 'active' ORDER BY id"
    return [definition(row) for row in session.all(select)]


def set_state(session: Session, job: DefinitionRow, state: JobState, now: float) -> DefinitionRow:
    if state is JobState.ACTIVE and job.state is not state and job.schedule_from:
        _begin_schedule(session, job.id, now)
        job = msgspec.structs.replace(job, schedule_from=now, due_held=None, held=None)
    session.run(
        "UPDATE jobs SET state = ?, updated_at = ? WHERE id = ?", (state.value, now, job.id)
    )
    return msgspec.structs.replace(job, state=state, updated_at=now)


def is_deleted(session: Session, job: int) -> bool:
    return (
        session.fetch_row("SELECT 1 FROM jobs WHERE id = ? AND state = 'deleted'", (job,))
        is not None
    )


def remove_job(session: Session, job: int) -> None:
    """Remove a deleted job whose runs and known pages are removed."""
    session.run("DELETE FROM job_versions WHERE job = ?", (job,))
    session.run("DELETE FROM jobs WHERE id = ?", (job,))


def deleted_without_runs(session: Session) -> list[int]:
    """Return deleted jobs that had no run left which would remove them with its own rows."""
    rows = session.all(
        "SELECT id FROM jobs WHERE state = 'deleted' AND NOT EXISTS "
        "(SELECT 1 FROM runs WHERE runs.job = jobs.id)"
    )
    return [id for (id,) in rows]


def versions(session: Session, job: int) -> list[JobVersion]:
    select = "SELECT version, spec, created_at, author FROM job_versions WHERE job = ? "
    rows = session.all(select + "ORDER BY version", (job,))
    return [JobVersion(version, bytes(spec), at, author) for version, spec, at, author in rows]
