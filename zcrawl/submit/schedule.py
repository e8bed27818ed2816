"""Check when a job runs by itself: `[schedule]`, its parents and `seeds_from`.

Called by `validate`. Pure. `expand` makes the long form of `after = ["a"]` and of times without
quotes. `check_schedule` looks at one job alone. `check_future` compares it with the clock: the
leader calls it for a submission. `check_parents` compares it with the other jobs: the store calls
it in the transaction that stores the job, so two submissions cannot close a circle together.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from zcrawl.errors import JobError
from zcrawl.model.reasons.usage import BAD_DEPENDENCY, BAD_SCHEDULE
from zcrawl.model.spec import JobSpec, Schedule, ScheduleDefaults, SeedsFrom
from zcrawl.schedule.dependencies import MODES, OUTCOMES, circle_text, cycle_with
from zcrawl.schedule.overlap import OVERLAPS
from zcrawl.text.spelling import near_names

MOST_PARENTS: Final = 100
MOST_FIELD: Final = 200  # characters
LONGEST_JITTER_S: Final = 86_400
_TIMES: Final = ("at", "start", "end")


def expand(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job's table with the short forms of [schedule] expanded."""
    section = data.get("schedule")
    if not isinstance(section, Mapping):
        return dict(data)
    schedule = dict(section)
    for key in _TIMES:
        if isinstance(schedule.get(key), datetime.date):  # a TOML time, without quotes
            schedule[key] = schedule[key].isoformat()
    after = schedule.get("after")
    if isinstance(after, list | tuple):
        schedule["after"] = [
            {"job": parent} if isinstance(parent, str) else parent for parent in after
        ]
    return {**data, "schedule": schedule}


def check_schedule(spec: JobSpec) -> None:
    """Raise JobError for values that have the right type and still make no sense."""
    _check_seeds_from(spec)
    schedule = spec.schedule
    if schedule == Schedule():
        return
    from zcrawl.schedule.catch_up import CATCH_UPS  # 5 ms of a start: cronsim and the zones

    _one_of("overlap", schedule.overlap or OVERLAPS[0], OVERLAPS)
    _one_of("catch_up", schedule.catch_up or CATCH_UPS[0], CATCH_UPS)
    _one_of("after_mode", schedule.after_mode, MODES)
    _check_after(spec.name, schedule)
    _check_times(schedule)


def _check_times(schedule: Schedule) -> None:
    from zcrawl.schedule.durations import parse_duration
    from zcrawl.schedule.timetable import due_after, timetable

    given = [key for key in ("cron", "every", "at") if getattr(schedule, key)]
    if len(given) > 1:
        raise _bad(
            f"schedule has {' and '.join(given)}; a job has one of cron, every and at. Remove "
            f"{' or '.join(given)}, or make a job for each"
        )
    if not given:
        if not schedule.after:
            raise _bad(
                "schedule has no cron, every, at or after, so the job would never run by itself; "
                "add one of them, or remove [schedule]"
            )
        for key in (*_TIMES, "jitter"):
            if getattr(schedule, key):
                raise _bad(f"schedule.{key} needs cron, every or at; remove it, or add one of them")
    times = timetable(schedule, 0.0)
    if schedule.every and times.every < 1:
        raise _bad(f"schedule.every is {schedule.every!r}; it must be at least 1s")
    if schedule.jitter:
        jitter = parse_duration("schedule.jitter", schedule.jitter)
        most = min(LONGEST_JITTER_S, times.every or LONGEST_JITTER_S)
        if jitter > most:
            limit = "schedule.every" if most == times.every else "1d"
            raise _bad(
                f"schedule.jitter is {schedule.jitter!r}; it can be at most {limit}, or runs would "
                "start after the next one is due"
            )
    if times.start > times.end:
        raise _bad(
            f"schedule.start is {schedule.start!r} and schedule.end {schedule.end!r}; the start "
            "must come first"
        )
    if (
        given
        and schedule.end
        and due_after(times, times.start - 1 if schedule.start else 0) is None
    ):
        raise _bad(
            f"schedule.{given[0]} is {getattr(schedule, given[0])!r} and has no due time until "
            f"schedule.end, {schedule.end!r}; change one of them"
        )
    if schedule.at and not times.start <= times.at <= times.end:
        raise _bad(
            f"schedule.at is {schedule.at!r}, which is not between schedule.start and schedule.end"
        )


def check_defaults(defaults: ScheduleDefaults) -> None:
    """Raise JobError for a configuration whose `[schedules]` makes no sense."""
    from zcrawl.schedule.catch_up import CATCH_UPS
    from zcrawl.schedule.durations import parse_duration
    from zcrawl.schedule.zones import zone_of

    zone_of(defaults.timezone, "schedules.timezone")
    _one_of("overlap", defaults.overlap or OVERLAPS[0], OVERLAPS, "schedules")
    _one_of("catch_up", defaults.catch_up, CATCH_UPS, "schedules")
    if defaults.jitter and parse_duration("schedules.jitter", defaults.jitter) > LONGEST_JITTER_S:
        raise _bad(f"schedules.jitter is {defaults.jitter!r}; it can be at most 1d")


def check_future(schedule: Schedule, now: float) -> None:
    """Raise JobError if the job has no due time after `now` although it has a schedule."""
    if not (schedule.cron or schedule.every or schedule.at):
        return
    from zcrawl.schedule.timetable import due_after, timetable

    times = timetable(schedule, now)
    if due_after(times, now) is None:
        key, value = ("at", schedule.at) if schedule.at else ("end", schedule.end)
        raise _bad(
            f"schedule.{key} is {value!r}, which is in the past, so the job would never run by "
            f"itself; write a later time, or remove it"
        )


def _check_after(name: str, schedule: Schedule) -> None:
    if len(schedule.after) > MOST_PARENTS:
        raise _bad(f"schedule.after has {len(schedule.after)} entries; at most {MOST_PARENTS}")
    names = [parent.job for parent in schedule.after]
    for number, parent in enumerate(schedule.after, 1):
        _one_of(f"after, entry {number}, on", parent.on, OUTCOMES)
        if not parent.job.strip():
            raise _bad(f"schedule.after, entry {number} is empty; write the name of a job")
        if parent.job == name:
            raise JobError(
                f"schedule.after, entry {number}: the job would start itself: "
                f"{circle_text([name, name])}; remove it, or use schedule.every",
                code=BAD_DEPENDENCY,
            )
        if parent.job in names[: number - 1]:
            raise _bad(f"schedule.after has {parent.job!r} twice; remove one")


def _check_seeds_from(spec: JobSpec) -> None:
    source = spec.seeds_from
    if not source.job:
        if source != SeedsFrom():
            raise _bad('seeds_from has no job; write { job = "NAME", field = "url" }')
        return
    if source.job == spec.name:
        raise JobError(
            f"seeds_from.job is {source.job!r}, the job itself; name another job",
            code=BAD_DEPENDENCY,
        )
    if not source.field or len(source.field) > MOST_FIELD:
        raise _bad(
            f"seeds_from.field has {len(source.field)} characters; write the name of a field of "
            f"the items, of 1 to {MOST_FIELD} characters"
        )


def parents_of(schedule: Schedule, seeds_from: SeedsFrom) -> dict[str, str]:
    """Return the jobs that a job names, each with the key that names it."""
    parents = {parent.job: "schedule.after" for parent in schedule.after}
    if seeds_from.job:
        parents.setdefault(seeds_from.job, "seeds_from.job")
    return parents


def check_parents(
    name: str,
    schedule: Schedule,
    seeds_from: SeedsFrom,
    graph: Mapping[str, Sequence[str]],
    deleted: Collection[str] = (),
) -> None:
    """Raise JobError for a parent that does not exist, and for jobs that start each other.

    `graph` has the jobs of the cluster, each with the names in its `schedule.after`; `deleted` the
    names of jobs that are gone."""
    for parent, key in parents_of(schedule, seeds_from).items():
        if parent in graph:
            continue
        if parent in deleted:
            what = "has been deleted; submit it again first, or remove it here"
        else:
            near = near_names(parent, graph)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            what = f"does not exist{meant}; submit it first"
        raise JobError(f"{key}: the job {parent!r} {what}", code=BAD_DEPENDENCY)
    circle = cycle_with(name, [parent.job for parent in schedule.after], graph)
    if circle:
        raise JobError(
            f"schedule.after: the jobs would start each other for ever: {circle_text(circle)}; "
            "remove one of them from the `after` of the next",
            code=BAD_DEPENDENCY,
        )


def _one_of(key: str, value: str, choices: tuple[str, ...], section: str = "schedule") -> None:
    if value not in choices:
        raise _bad(f"{section}.{key} is {value!r}; use one of {', '.join(choices)}")


def _bad(message: str) -> JobError:
    return JobError(message, code=BAD_SCHEDULE)
