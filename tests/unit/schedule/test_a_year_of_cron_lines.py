"""A year of cron lines with changed clocks, against an oracle that walks its minutes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from zcrawl.model.spec import Schedule
from zcrawl.schedule.timetable import due_after, due_times, timetable

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
LAST = datetime(2027, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
# North, south, half an hour of daylight saving time, a change at midnight, and none at all.
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Asia/Kathmandu",
)
LINES = (
    "0 3 * * *",
    "30 2 * * *",
    "15,45 1-2 * * *",
    "0 0 * * *",
    "59 23 * * 0",
    "0 * * * *",
    "*/30 * * * *",
    "*/10 2 * * *",
    "7 */2 * * 1-5",
    "0 2 1 * *",
    "30 0 13 * 5",
    "45 1 29 2 *",
    "20 2 25-31 3,10,4 *",
)
ODD_LINES = ("*/30 * * * *", "15,45 1-2 * * *")


@cache
def walls(zone: str) -> list[tuple[float, list[datetime]]]:
    """Return for each minute of the year in UTC the wall times that begin with it."""
    return list(_walk(ZoneInfo(zone)))


def _walk(zone: ZoneInfo) -> Iterator[tuple[float, list[datetime]]]:
    utc, shown = FIRST, (FIRST - MINUTE).astimezone(zone).replace(tzinfo=None)
    while utc < LAST:
        wall = utc.astimezone(zone).replace(tzinfo=None, fold=0)
        new = []
        while shown < wall:  # several minutes at once where the clock is set forward
            shown += MINUTE
            new.append(shown)
        yield utc.timestamp(), new  # none while the clock shows minutes again
        utc += MINUTE


def numbers(field: str, low: int, high: int) -> frozenset[int]:
    """Read a field, without cronsim."""
    result: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin = low if span == "*" else int(first)
        end = high if span == "*" else int(last or first)
        result.update(range(begin, end + 1, int(step or 1)))
    return frozenset(result)


@cache
def oracle(line: str, zone: str) -> list[float]:
    """Return the due times of a line in the year, by looking at each minute."""
    fields = line.split()
    minutes, hours = numbers(fields[0], 0, 59), numbers(fields[1], 0, 23)
    days, months = numbers(fields[2], 1, 31), numbers(fields[3], 1, 12)
    weekdays = numbers(fields[4], 0, 7)
    both = fields[2].startswith("*") or fields[4].startswith("*")
    due = []
    for utc, new in walls(zone):
        for wall in new:
            if wall.minute not in minutes or wall.hour not in hours or wall.month not in months:
                continue
            day = wall.day in days
            weekday = wall.isoweekday() in weekdays or wall.isoweekday() % 7 in weekdays
            if (day and weekday) if both else (day or weekday):
                due.append(utc)
                break  # several wall times at one moment are due once
    return due


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_of_cron_lines_is_due_exactly_when_the_wall_clock_says(zone: str) -> None:
    """An hour that exists twice is due once, one that does not exist at the next moment; forwards
    and backwards."""
    first, last = FIRST.timestamp(), LAST.timestamp()
    for line in LINES:
        times = timetable(Schedule(cron=line, timezone=zone), 0.0)
        expected = oracle(line, zone)
        assert due_times(times, first - 1, last - 1, 10**6) == expected, (zone, line)
        due, forwards = due_after(times, first - 1), []
        while due is not None and due < last:
            forwards.append(due)
            due = due_after(times, due)
        assert forwards == expected, (zone, line)


@pytest.mark.parametrize("zone", ZONES)
def test_the_next_due_time_is_right_from_each_minute_around_a_changed_clock(zone: str) -> None:
    """Also from moments between due times, and inside the hour that exists twice."""
    offsets = [utc for utc, new in walls(zone) if len(new) != 1]
    changes = [utc for before, utc in zip([0.0, *offsets], offsets, strict=False)
               if utc - before > 86_400]  # fmt: skip
    for line in ODD_LINES:
        times = timetable(Schedule(cron=line, timezone=zone), 0.0)
        expected = oracle(line, zone)
        for change in changes:
            for minute in range(-150, 151, 7):
                moment = change + minute * 60 + 13
                due = next(due for due in expected if due > moment)
                before = [due for due in expected if due <= moment][-3:]
                assert due_after(times, moment) == due, (zone, line, moment)
                assert due_times(times, 0.0, moment, 3) == before, (zone, line, moment)


def test_the_zones_of_these_tests_change_their_clocks() -> None:
    """Four of the five do, twice in the year; in one of them by half an hour."""
    for zone in ZONES:
        forward = [len(new) for _, new in walls(zone) if len(new) > 1]
        again = sum(not new for _, new in walls(zone))
        expected = {"Asia/Kathmandu": 0, "Australia/Lord_Howe": 30}.get(zone, 60)
        assert [size - 1 for size in forward] == [expected] * bool(expected), zone
        assert again == expected, zone
