"""Views of schedules and chains: when jobs run by themselves, and which runs started which.

Called by the leader, by followers and by commands that read the database themselves. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from zcrawl.errors import JobError
from zcrawl.model.rows import HeldSubmission, RunRow
from zcrawl.model.spec import UNREADABLE, Schedule, ScheduleDefaults
from zcrawl.model.states import JobState
from zcrawl.schedule.defaults import filled, left_open
from zcrawl.schedule.dependencies import SUCCESS
from zcrawl.schedule.overlap import DEFAULT_FOR_DUE_TIMES, DEFAULT_FOR_PARENTS
from zcrawl.store.queries import ChainRun, JobRow
from zcrawl.store.rules import schedule_of
from zcrawl.telemetry.times import iso

NEXT_DUE_TIMES: Final = 3  # in the view of a job


def schedule_view(
    job: JobRow, now: float, limit: int, defaults: ScheduleDefaults
) -> dict[str, Any]:
    """Return when a job runs by itself, with its next due times; none while it is not active.

    `defaults` has the names of the keys that the job leaves open.
    """
    given = schedule_of(job.spec)
    schedule = filled(given, defaults)
    default = DEFAULT_FOR_DUE_TIMES if times_text(schedule) else DEFAULT_FOR_PARENTS
    return {
        "job": job.id,
        "name": job.name,
        "state": str(job.state),
        "times": times_text(schedule),
        "timezone": schedule.timezone,
        "jitter": schedule.jitter,
        "overlap": schedule.overlap or default,
        "catch_up": schedule.catch_up,
        "defaults": left_open(given),
        "after": [
            parent.job if parent.on == SUCCESS else f"{parent.job} ({parent.on})"
            for parent in schedule.after
        ],
        "after_mode": schedule.after_mode,
        "held": iso(job.due_held or 0.0),
        "held_submission": held_view(job.held),
        "note": job.due_note,
        "next": [iso(due) for due in next_due_times(job, schedule, now, limit)],
    }


def held_view(held: HeldSubmission | None) -> dict[str, Any] | None:
    """Return the submission that waits for the end of a live run; None: none does."""
    if held is None:
        return None
    params = msgspec.json.decode(held.params, type=dict[str, str]) if held.params else {}
    return {
        "run": held.run,
        "at": iso(held.at),
        "by": held.by,
        "seeds": len(held.seeds),
        "params": params,
    }


def times_text(schedule: Schedule) -> str:
    """Return `cron 0 3 * * *`, `every 15m` or `at 2026-12-01T03:00`; empty: it has no times."""
    return next(
        (f"{key} {value}" for key in ("cron", "every", "at") if (value := getattr(schedule, key))),
        "",
    )


def next_due_times(job: JobRow, schedule: Schedule, now: float, limit: int) -> list[float]:
    """Return the next due times of an active job, without their jitter."""
    if job.state is not JobState.ACTIVE or not job.schedule_from:
        return []
    from zcrawl.schedule.timetable import due_after, timetable  # 5 ms of a start without it

    try:
        times = timetable(schedule, job.created_at)
    except JobError:  # another version stored it; the leader says so in its log
        return []
    due: list[float] = []
    after = now
    while len(due) < limit:
        moment = due_after(times, after)
        if moment is None:
            break
        due.append(moment)
        after = moment
    return due


def params_of(run: RunRow) -> dict[str, str]:
    """Return the parameters of a run."""
    try:
        return msgspec.json.decode(run.params, type=dict[str, str]) if run.params else {}
    except UNREADABLE:
        return {}


def chain_view(rows: Sequence[ChainRun]) -> dict[str, Any]:
    """Return the runs of a chain under `chain`, each below the run that started it; empty for a run
    that started none and was started by none."""
    if len(rows) < 2:
        return {"chain": []}
    shown = {row.id for row in rows}
    below: defaultdict[int, list[ChainRun]] = defaultdict(list)
    for row in rows:
        started_by = [parent for parent in row.parents if parent in shown]
        below[max(started_by, default=0)].append(row)
    chain: list[dict[str, Any]] = []
    waiting = [(row, 0) for row in reversed(below[0])]
    while waiting:
        row, depth = waiting.pop()
        chain.append(
            {
                "run": row.id,
                "job": row.job,
                "name": row.name,
                "state": str(row.state),
                "reason": row.reason,
                "started_at": iso(row.started_at),
                "ended_at": iso(row.ended_at),
                "parents": list(row.parents),
                "depth": depth,
            }
        )
        waiting += [(child, depth + 1) for child in reversed(below[row.id])]
    return {"chain": chain}
