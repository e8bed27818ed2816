"""Fill in what a job's schedule leaves open, from `[schedules]` of the masters' configuration.

Called by the firing of runs, by checks of a submission and by views. Pure. The stored job has only
what its author wrote, so the defaults in force when a due time is computed count. After a reload,
all next due times are computed anew.
"""

from __future__ import annotations

import msgspec

from zcrawl.model.spec import Schedule, ScheduleDefaults
from zcrawl.schedule.durations import duration_text, parse_duration


def filled(schedule: Schedule, defaults: ScheduleDefaults) -> Schedule:
    """Return the schedule with a value for each key that has a default.

    A default jitter is not longer than `every`, or runs would start after the next one is due.
    """
    jitter = schedule.jitter
    if not jitter and defaults.jitter and (schedule.cron or schedule.every or schedule.at):
        jitter = defaults.jitter
        if schedule.every:
            every = parse_duration("schedule.every", schedule.every)
            jitter = duration_text(min(every, parse_duration("schedules.jitter", jitter)))
    return msgspec.structs.replace(
        schedule,
        timezone=schedule.timezone or defaults.timezone,
        overlap=schedule.overlap or defaults.overlap,
        catch_up=schedule.catch_up or defaults.catch_up,
        jitter=jitter,
    )


def left_open(schedule: Schedule) -> list[str]:
    """Return the keys whose value is a default."""
    keys = ("timezone", "jitter", "overlap", "catch_up")
    return [key for key in keys if not getattr(schedule, key)]
