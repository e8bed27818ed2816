"""Decide which ended runs are removed: by `[retention]` of the job, or by the masters' defaults.

Used by both stores for the query `ReadRemovable`, so the rule is applied while rows are read and
memory holds only the runs of one answer. Pure. The rule for the ended runs of one job:

| a run                                                      | is                     |
|------------------------------------------------------------|------------------------|
| has not ended, or is deleted already                       | not looked at          |
| is the newest completed one, and another job depends on it | kept                   |
| is not among the newest `keep_runs` ended runs             | removed                |
| ended more than `keep_days` ago                            | removed                |
| any other                                                  | kept                   |

A limit of 0 is none. A key that the job does not set has the masters' value. A job whose spec
cannot be read keeps all its runs: nobody knows what it asks for.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from zcrawl.model.spec import UNREADABLE, Retention
from zcrawl.model.states import RunState

DAY_S: Final = 86_400.0
ENDED: Final = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)  # and not deleted
ARCHIVE: Final = "archive"  # the kind of the tally that counts failures to archive a run
MOST_PROBLEM: Final = 255  # characters
MOST_NOT_REMOVED: Final = 20  # runs of a job that could not be archived, in its view


class _RetentionSpec(msgspec.Struct):
    """The parts of a job spec that are read here."""

    retention: Retention = Retention()
    schedule: Any = None
    seeds_from: Any = None


class EndedRun(msgspec.Struct, frozen=True):
    id: int
    state: RunState
    ended_at: float


class RemovalRule(msgspec.Struct, frozen=True):
    """What holds for the runs of a job."""

    keep_runs: int = 0  # 0: no limit
    keep_days: float = 0.0  # 0: no limit
    archive: str = ""
    archive_format: str = "jsonl"
    by_job: bool = False  # the job names the archive, so the rights of jobs hold for it


class JobRetention(msgspec.Struct, frozen=True):
    """A job whose runs may be removed."""

    job: int
    name: str
    rule: RemovalRule


class Retentions:
    """Reads the specs of all jobs, one by one; then has the rules, and who depends on whom."""

    def __init__(self, defaults: Retention) -> None:
        self.jobs: list[JobRetention] = []
        self._defaults = defaults
        self._parents: set[str] = set()

    def add(self, job: int, name: str, spec: bytes) -> None:
        try:
            stored = msgspec.json.decode(spec, type=_RetentionSpec)
        except UNREADABLE:
            return
        self._parents |= _parents(stored)
        rule = rule_of(stored.retention, self._defaults)
        if rule.keep_runs or rule.keep_days:
            self.jobs.append(JobRetention(job, name, rule))

    def is_needed(self, job: JobRetention) -> bool:
        """Return whether other jobs depend on the newest completed run of this one."""
        return not self._parents.isdisjoint((job.name, str(job.job)))


def rule_of(retention: Retention, defaults: Retention) -> RemovalRule:
    """Return the rule of a job, with the masters' values for what the job does not set."""
    keep_runs, keep_days = retention.keep_runs, retention.keep_days
    return RemovalRule(
        (defaults.keep_runs if keep_runs is None else keep_runs) or 0,
        (defaults.keep_days if keep_days is None else keep_days) or 0.0,
        retention.archive or defaults.archive,
        retention.archive_format,
        bool(retention.archive),
    )


def runs_to_remove(
    rule: RemovalRule, runs: Iterable[EndedRun], now: float, *, needed: bool = False
) -> Iterator[tuple[EndedRun, str]]:
    """Yield each run to remove, and why. `runs` are the ended ones of a job, newest first.
    `needed`: other jobs depend on the newest completed one."""
    for number, run in enumerate(runs, 1):
        if needed and run.state is RunState.COMPLETED:
            needed = False
            continue
        age_s = now - run.ended_at
        if rule.keep_runs and number > rule.keep_runs:
            yield run, f"number {number} of the newest; keep_runs is {rule.keep_runs}"
        elif rule.keep_days and run.ended_at and age_s > rule.keep_days * DAY_S:
            days = age_s / DAY_S
            yield run, f"ended {days:.1f} days ago; keep_days is {rule.keep_days:g}"


def oldest_to_remove(
    removals: Iterable[tuple[EndedRun, str]], after: int, limit: int
) -> list[tuple[EndedRun, str]]:
    """Return the first `limit` of these runs by id, from those above `after`."""
    candidates = (removal for removal in removals if removal[0].id > after)
    return heapq.nsmallest(limit, candidates, key=lambda removal: removal[0].id)


def _parents(spec: _RetentionSpec) -> set[str]:
    """Return the names of the jobs that a job waits for, or takes its seeds from."""
    after = spec.schedule.get("after") if isinstance(spec.schedule, dict) else None
    entries = [*(after if isinstance(after, list) else [after]), spec.seeds_from]
    names = (entry.get("job") if isinstance(entry, dict) else entry for entry in entries)
    return {name for name in names if isinstance(name, str) and name}
