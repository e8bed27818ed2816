"""Find runs to remove, and store why one could not be archived.

`store.retention` decides. Specs are decoded one by one, once for each job; of runs only three
columns are read. Called by `store`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zcrawl.model.states import RunState
from zcrawl.store.commands import Done, NoteArchive
from zcrawl.store.output_mark import is_unfinished
from zcrawl.store.queries import (
    NEWEST,
    ReadOutputs,
    ReadRemovable,
    RemovableRun,
    RemovableRuns,
)
from zcrawl.store.retention import (
    ARCHIVE,
    ENDED,
    MOST_PROBLEM,
    EndedRun,
    JobRetention,
    Retentions,
    oldest_to_remove,
    runs_to_remove,
)
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.read import read_outputs

SPECS: Final = 50  # at a time: one may have a megabyte
RUNS: Final = 1_000
_STATES: Final = ", ".join(f"'{state}'" for state in ENDED)


def read_removable(session: Session, query: ReadRemovable) -> RemovableRuns:
    retentions = _retentions(session, query)
    rows: list[RemovableRun] = []
    for job in retentions.jobs:
        if job.job < query.after[0] or query.job not in (None, job.job):
            continue
        after = query.after[1] if job.job == query.after[0] else 0
        ended = _ended(session, job.job)
        needed = retentions.is_needed(job)
        removals = runs_to_remove(job.rule, ended, query.now, needed=needed)
        chosen = oldest_to_remove(removals, after, query.limit - len(rows))
        rows += _removable(session, job, chosen)
        if len(rows) == query.limit:
            break
    return RemovableRuns(rows)


def _retentions(session: Session, query: ReadRemovable) -> Retentions:
    retentions, last = Retentions(query.defaults), 0
    select = "SELECT id, name, spec FROM jobs WHERE id > ? AND state <> 'deleted' ORDER BY id "
    while True:
        rows = session.all(select + "LIMIT ?", (last, SPECS))
        for last, name, spec in rows:
            retentions.add(last, name, bytes(spec))
        if len(rows) < SPECS:
            return retentions


def _ended(session: Session, job: int) -> Iterator[EndedRun]:
    """Yield the ended runs of a job, newest first."""
    select = (
        f"SELECT id, state, ended_at FROM runs WHERE job = ? AND id < ? AND state IN ({_STATES}) "
    )
    before = NEWEST
    while True:
        rows = session.all(select + "ORDER BY id DESC LIMIT ?", (job, before, RUNS))
        for before, state, ended_at in rows:
            yield EndedRun(before, RunState(state), ended_at)
        if len(rows) < RUNS:
            return


def _removable(
    session: Session, job: JobRetention, chosen: list[tuple[EndedRun, str]]
) -> Iterator[RemovableRun]:
    select = f"SELECT run, name, n FROM tallies WHERE kind = '{ARCHIVE}' AND run IN ({{}})"
    problems = {
        run: (problem, n)
        for run, problem, n in session.all_in(select, (), (run.id for run, _ in chosen))
    }
    for run, why in chosen:
        outputs = read_outputs(session, ReadOutputs(run.id)).rows
        problem, failures = problems.get(run.id, ("", 0))
        yield RemovableRun(
            job.job,
            job.name,
            run.id,
            run.ended_at,
            why,
            job.rule.archive,
            job.rule.archive_format,
            job.rule.by_job,
            tuple(row.path for row in outputs if is_unfinished(row)),
            problem,
            failures,
        )


def note_archive(session: Session, command: NoteArchive) -> Done:
    """The problem is the name of a tally, which counts how often the run could not be archived."""
    run = command.run
    stored = session.fetch_row("SELECT n FROM tallies WHERE run = ? AND kind = ?", (run, ARCHIVE))
    session.run("DELETE FROM tallies WHERE run = ? AND kind = ?", (run, ARCHIVE))
    exists = session.fetch_row("SELECT 1 FROM runs WHERE id = ?", (run,)) is not None
    if command.problem and exists:
        session.run(
            "INSERT INTO tallies (run, kind, name, n) VALUES (?, ?, ?, ?)",
            (run, ARCHIVE, command.problem[:MOST_PROBLEM], 1 + (stored[0] if stored else 0)),
        )
    return Done()
