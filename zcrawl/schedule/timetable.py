"""Due times of a job: what `cron`, `every` and `at` of its `[schedule]` mean.

`timetable` reads the section once; `due_after` and `due_times` are the questions that the leader,
the commands and the console have. Called by them and by the checks of a job. Pure.

- `cron` follows the wall clock of its zone. Each wall time is due at most once (`zones` has the
  rules for clocks that are changed); wall times that fall on one moment are due once.
- `every` follows elapsed time, whatever the clocks do. It counts from `start`, which is due itself,
  or from the creation of the job, which is not.
- `at` is due once.

A due time is a whole number of UTC seconds, from `start` to `end`, both included. The jitter is not
part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from zcrawl.errors import JobError
from zcrawl.model.reasons.usage import BAD_SCHEDULE
from zcrawl.model.spec import Schedule
from zcrawl.schedule.durations import parse_duration
from zcrawl.schedule.zones import (
    LATEST_UTC,
    furthest_wall,
    moment_of,
    parse_moment,
    wall_of,
    zone_of,
)

NEVER: Final = math.inf
MOST_LINE: Final = 200  # characters of a cron line
# What other programs call common lines.
SHORT_LINES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LEAP_YEAR: Final = datetime(2024, 1, 1)  # where the search for a line's first due time begins


class Timetable(msgspec.Struct, frozen=True):
    """A schedule that has been read. At most one of `cron`, `every` and `at` is set."""

    zone: ZoneInfo
    cron: str = ""
    every: int = 0
    origin: float = 0.0  # what `every` counts from
    at: float = NEVER
    start: float = -NEVER
    end: float = NEVER

    @property
    def has_times(self) -> bool:
        return bool(self.cron or self.every) or self.at < NEVER


def timetable(schedule: Schedule, created_at: float) -> Timetable:
    """Return the due times of a job that was created at `created_at`; JobError if it has none that
    make sense."""
    zone = zone_of(schedule.timezone or "UTC")
    start = parse_moment("schedule.start", schedule.start, zone) if schedule.start else -NEVER
    return Timetable(
        zone,
        _cron_line(schedule.cron) if schedule.cron else "",
        parse_duration("schedule.every", schedule.every) if schedule.every else 0,
        start if schedule.start else math.floor(created_at),
        parse_moment("schedule.at", schedule.at, zone) if schedule.at else NEVER,
        start,
        parse_moment("schedule.end", schedule.end, zone) if schedule.end else NEVER,
    )


def due_after(times: Timetable, utc: float) -> float | None:
    """Return the first due time after `utc`; None if there is none any more."""
    after = max(utc, times.start - 1)
    if after >= LATEST_UTC:
        return None
    if times.cron:
        walls = _walls_after(times.cron, wall_of(times.zone, after))
        moments = (moment_of(times.zone, wall) for wall in walls)
        due = next((moment for moment in moments if moment > after), None)
    elif times.every:
        first = 0 if times.start > -NEVER else 1
        count = max(first, math.floor((after - times.origin) / times.every) + 1)
        due = times.origin + count * times.every
    else:
        due = times.at if after < times.at < NEVER else None
    return due if due is not None and due <= times.end else None


def due_times(times: Timetable, after: float, until: float, most: int) -> list[float]:
    """Return the due times after `after` up to `until`, the last `most` of them in order.

    The search begins at `until`, so it takes no longer after a year of downtime."""
    latest: list[float] = []
    for due in _backwards(times, min(until, times.end)):
        if due <= after or due < times.start or len(latest) == most:
            break
        latest.append(due)
    return latest[::-1]


def _backwards(times: Timetable, until: float) -> Iterator[float]:
    """Yield the due times up to `until`, the latest first, each once. It may pass `start`."""
    if times.cron:
        last = NEVER
        for wall in _walls_before(times.cron, furthest_wall(times.zone, until)):
            moment = moment_of(times.zone, wall)
            if moment <= until and moment < last:
                yield (last := moment)
    elif times.every:
        first = 0 if times.start > -NEVER else 1
        count = math.floor((until - times.origin) / times.every)
        while count >= first:
            yield times.origin + count * times.every
            count -= 1
    elif times.at <= until:
        yield times.at


def _walls_after(cron: str, wall: datetime) -> Iterator[datetime]:
    """Yield the wall times of a line after `wall`. cronsim gets no zone: it counts only them."""
    return CronSim(cron, wall)


def _walls_before(cron: str, wall: datetime) -> Iterator[datetime]:
    """Yield the wall times of a line from `wall` back into the past."""
    return CronSim(cron, wall + timedelta(seconds=1), reverse=True)


def _cron_line(text: str) -> str:
    """Return the five fields of a line; JobError if it is wrong or never fires."""
    line = SHORT_LINES.get(text.strip().lower(), text)
    shown = repr(text[:MOST_LINE])
    fields = line.split()
    if len(text) > MOST_LINE or len(fields) != 5:
        raise JobError(
            f"schedule.cron {shown}: a line has five fields (minute, hour, day of the month, "
            'month, day of the week), such as "0 3 * * *"; for seconds use schedule.every',
            code=BAD_SCHEDULE,
        )
    try:
        simulation = CronSim(line, _LEAP_YEAR)
    except (CronSimError, ValueError) as error:
        if str(error) == "Bad day-of-month" and _is_line([*fields[:3], "*", "*"]):
            raise _never(shown) from None
        raise JobError(
            f"schedule.cron {shown}: {_plain(str(error), fields)}", code=BAD_SCHEDULE
        ) from None
    if next(simulation, None) is None:
        raise _never(shown)
    return " ".join(fields)


def _is_line(fields: list[str]) -> bool:
    try:
        CronSim(" ".join(fields), _LEAP_YEAR)
    except (CronSimError, ValueError):
        return False
    return True


_FIELDS: Final = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L (the last day) or LW (the last weekday)",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 or SUN to SAT, 5L (the last Friday) or 1#2 (the second Monday)",
}


def _plain(message: str, fields: list[str]) -> str:
    """Return cronsim's `Bad hour` with the field, and what is allowed there."""
    name = message.removeprefix("Bad ")
    if name not in _FIELDS:
        return message
    field = fields[list(_FIELDS).index(name)]
    return (
        f"{field!r} is not a {name.replace('-', ' ').replace('day of', 'day of the')}; use "
        f"{_FIELDS[name]}, with * , - and /"
    )


def _never(shown: str) -> JobError:
    return JobError(
        f"schedule.cron {shown}: it never fires, because no date has this day, month and day of "
        "the week together; correct one of them",
        code=BAD_SCHEDULE,
    )
