"""Find runs to remove in the fake store's tables: the twin of `sql.retention`.

Only `store` calls it.
"""

from __future__ import annotations

from collections.abc import Callable

from zcrawl.model.states import JobState, RunState
from zcrawl.store.commands import Done, NoteArchive
from zcrawl.store.output_mark import is_unfinished
from zcrawl.store.queries import KeptRun, OutputRow, ReadRemovable, RemovableRun, RemovableRuns
from zcrawl.store.retention import (
    ARCHIVE,
    MOST_NOT_REMOVED,
    MOST_PROBLEM,
    EndedRun,
    Retentions,
    runs_to_remove,
)
from zcrawl.testing.store.tables import Tables


def read_removable(
    tables: Tables, query: ReadRemovable, outputs: Callable[[int], list[OutputRow]]
) -> RemovableRuns:
    retentions = Retentions(query.defaults)
    for stored in tables.jobs.values():
        if stored.state is not JobState.DELETED:
            retentions.add(stored.id, stored.name, stored.spec)
    rows: list[RemovableRun] = []
    for job in retentions.jobs:
        runs = [run for run in tables.runs.values() if run.job.id == job.job]
        ended = [run for run in runs if run.state.ended and run.state is not RunState.DELETED]
        newest_first = [EndedRun(run.id, run.state, run.ended_at) for run in ended[::-1]]
        needed = retentions.is_needed(job)
        for removed, why in runs_to_remove(job.rule, newest_first, query.now, needed=needed):
            problem, failures = _problem(tables, removed.id)
            row = RemovableRun(
                job=job.job,
                name=job.name,
                run=removed.id,
                ended_at=removed.ended_at,
                why=why,
                archive=job.rule.archive,
                archive_format=job.rule.archive_format,
                by_job=job.rule.by_job,
                unwritten=tuple(row.path for row in outputs(removed.id) if is_unfinished(row)),
                problem=problem,
                failures=failures,
            )
            if query.job in (None, job.job) and (job.job, removed.id) > query.after:
                rows.append(row)
    rows.sort(key=lambda row: (row.job, row.run))
    return RemovableRuns(rows[: query.limit])


def note_archive(tables: Tables, command: NoteArchive) -> Done:
    _, failures = _problem(tables, command.run)
    for key in [key for key in tables.tallies if key[:2] == (command.run, ARCHIVE)]:
        del tables.tallies[key]
    if command.problem and command.run in tables.runs:
        key = (command.run, ARCHIVE, command.problem[:MOST_PROBLEM])
        tables.tallies[key] = failures + 1
    return Done()


def not_removed(tables: Tables, of_run: int) -> list[KeptRun]:
    run = tables.runs.get(of_run)
    if run is None:
        return []
    siblings = [other for other in tables.runs.values() if other.job is run.job]
    present = [other.id for other in siblings if other.state is not RunState.DELETED]
    problems = [KeptRun(id, _problem(tables, id)[0]) for id in sorted(present, reverse=True)]
    return [kept for kept in problems if kept.problem][:MOST_NOT_REMOVED]


def _problem(tables: Tables, run: int) -> tuple[str, int]:
    """Return why a run could not be archived, and how often; empty: nothing is known."""
    for (of_run, kind, name), n in tables.tallies.items():
        if (of_run, kind) == (run, ARCHIVE):
            return name, n
    return "", 0
