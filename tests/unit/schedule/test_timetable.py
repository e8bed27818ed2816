"""Due times of `cron`, `every` and `at`: what is due, what is refused and with which words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from zcrawl.errors import JobError
from zcrawl.model.spec import Schedule
from zcrawl.schedule.durations import duration_text, parse_duration
from zcrawl.schedule.jitter import start_of
from zcrawl.schedule.timetable import due_after, due_times, timetable
from zcrawl.schedule.zones import moment_of, zone_names, zone_of


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def next_due(schedule: Schedule, now: str, created: str = "2026-01-01T00:00") -> str | None:
    due = due_after(timetable(schedule, utc(created)), utc(now))
    return None if due is None else f"{datetime.fromtimestamp(due, UTC):%Y-%m-%dT%H:%M:%S}"


def test_an_hour_that_exists_twice_is_due_once() -> None:
    """02:30 in Berlin on 25 October 2026 is 00:30 UTC, and not 01:30 UTC once more."""
    schedule = Schedule(cron="30 2 * * *", timezone="Europe/Berlin")
    assert next_due(schedule, "2026-10-24T12:00") == "2026-10-25T00:30:00"
    assert next_due(schedule, "2026-10-25T00:30") == "2026-10-26T01:30:00"


def test_an_hour_that_does_not_exist_is_due_at_the_next_moment() -> None:
    """02:30 in Berlin on 29 March 2026 does not exist: the clock goes to 03:00, which is due."""
    schedule = Schedule(cron="30 2 * * *", timezone="Europe/Berlin")
    assert next_due(schedule, "2026-03-28T12:00") == "2026-03-29T01:00:00"


def test_wall_times_at_one_moment_are_due_once() -> None:
    """Four quarters of a missing hour and the hour behind it are one due time."""
    times = timetable(Schedule(cron="*/15 * * * *", timezone="Europe/Berlin"), 0)
    due = due_times(times, utc("2026-03-29T00:30"), utc("2026-03-29T01:15"), 10)
    assert due == [utc("2026-03-29T00:45"), utc("2026-03-29T01:00"), utc("2026-03-29T01:15")]


def test_a_day_that_a_zone_leaves_out_is_due_when_the_next_one_begins() -> None:
    """Samoa had no 30 December 2011."""
    schedule = Schedule(cron="0 12 30 12 *", timezone="Pacific/Apia")
    assert next_due(schedule, "2011-12-01T00:00") == "2011-12-30T10:00:00"


def test_every_counts_from_the_start_or_else_from_the_creation() -> None:
    """The start itself is due; the creation is not, because a submission runs the job anyway."""
    from_start = Schedule(every="15m", start="2026-05-01T10:05")
    assert next_due(from_start, "2026-04-01T00:00") == "2026-05-01T10:05:00"
    assert next_due(from_start, "2026-05-01T10:05") == "2026-05-01T10:20:00"
    assert next_due(Schedule(every="15m"), "2026-01-01T00:00") == "2026-01-01T00:15:00"
    assert next_due(Schedule(every="1d"), "2025-01-01T00:00") == "2026-01-02T00:00:00"


def test_every_does_not_care_for_clocks() -> None:
    """24 hours are 24 hours on the day on which the clock is set forward, too."""
    schedule = Schedule(every="24h", start="2026-03-28T12:00", timezone="Europe/Berlin")
    assert next_due(schedule, "2026-03-28T11:00") == "2026-03-29T11:00:00"
    assert next_due(schedule, "2026-03-29T11:00") == "2026-03-30T11:00:00"


def test_at_is_due_once() -> None:
    """Before it, it is due; from it on never again."""
    schedule = Schedule(at="2026-12-01T03:00", timezone="Europe/Berlin")
    assert next_due(schedule, "2026-01-01T00:00") == "2026-12-01T02:00:00"
    assert next_due(schedule, "2026-12-01T02:00") is None


def test_an_offset_in_a_time_wins_over_the_zone() -> None:
    """`Z` and `+09:00` say themselves what they mean."""
    for text in ("2026-12-01T03:00Z", "2026-12-01T12:00+09:00"):
        schedule = Schedule(at=text, timezone="America/New_York")
        assert next_due(schedule, "2026-01-01T00:00") == "2026-12-01T03:00:00"


def test_nothing_is_due_before_the_start_or_after_the_end() -> None:
    """Both are included."""
    schedule = Schedule(cron="0 3 * * *", start="2026-05-01T03:00", end="2026-05-02T03:00")
    times = timetable(schedule, 0)
    due = [utc("2026-05-01T03:00"), utc("2026-05-02T03:00")]
    assert due_times(times, 0, utc("2030-01-01T00:00"), 10) == due
    assert next_due(schedule, "2020-01-01T00:00") == "2026-05-01T03:00:00"
    assert next_due(schedule, "2026-05-02T03:00") is None


def test_the_names_of_other_crons_are_read() -> None:
    """`@daily` and its like."""
    assert next_due(Schedule(cron="@daily"), "2026-01-01T00:00") == "2026-01-02T00:00:00"
    assert next_due(Schedule(cron="@Weekly"), "2026-01-01T00:00") == "2026-01-04T00:00:00"


def test_after_the_last_year_nothing_is_due() -> None:
    """A clock that is wrong by thousands of years ends in no error."""
    for schedule in (Schedule(cron="* * * * *"), Schedule(every="1s"), Schedule(at="2026-01-01")):
        assert due_after(timetable(schedule, 0), 3e11) is None


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Schedule(cron="0 0 30 2 *"), "'0 0 30 2 *': it never fires"),
        (Schedule(cron="0 0 30-31 2 *"), "it never fires"),
        (Schedule(cron="0 0 31 4,6,9,11 *"), "it never fires"),
        (Schedule(cron="0 3 * *"), "a line has five fields"),
        (Schedule(cron="0 0 3 * * *"), "a line has five fields"),
        (Schedule(cron="0 25 * * *"), "'25' is not a hour; use 0 to 23"),
        (Schedule(cron="x" * 10_000), "a line has five fields"),
        (Schedule(cron="0 0 0 * *"), "'0' is not a day of the month; use 1 to 31"),
        (Schedule(cron="0 0 * * MO"), "'MO' is not a day of the week; use 0 to 7 or SUN to SAT"),
        (Schedule(cron="*/0 * * * *"), "'*/0' is not a minute"),
        (Schedule(timezone="Europe/Berln"), "did you mean 'Europe/Berlin'?"),
        (Schedule(timezone="europe/berlin"), "did you mean 'Europe/Berlin'?"),
        (Schedule(timezone="New York"), "did you mean 'America/New_York'?"),
        (Schedule(timezone="Berlin"), "did you mean 'Europe/Berlin'?"),
        (Schedule(timezone="../../etc/passwd"), "does not exist"),
        (Schedule(timezone="Europe"), "does not exist"),
        (Schedule(timezone="x" * 10_000), "does not exist"),
        (Schedule(every="15"), "is not a duration; write whole numbers with units"),
        (Schedule(every="m15"), "is not a duration"),
        (Schedule(every="1.5h"), "is not a duration"),
        (Schedule(every="9999999d"), "at most ten years"),
        (Schedule(at="tomorrow"), "is not a time; write a date and a time"),
        (Schedule(at="2026-13-01T00:00"), "is not a time"),
        (Schedule(at="9999-12-31T23:59"), "from 1970 to 9000"),
        (Schedule(start="2026-01-01T00:00:00.5"), "parts of a second"),
    ],
)
def test_what_makes_no_sense_is_refused(schedule: Schedule, message: str) -> None:
    """With the value, and what to write instead."""
    with pytest.raises(JobError) as caught:
        timetable(schedule, 0.0)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500


def test_every_zone_can_be_used() -> None:
    """Each name of the list has rules, here and now."""
    assert len(zone_names()) > 500
    for name in zone_names():
        moment = moment_of(zone_of(name), datetime(2026, 7, 1))
        assert abs(moment - utc("2026-07-01T00:00")) < 54e3


def test_durations_are_read_and_written() -> None:
    """As people write them; the units go from large to small."""
    for text, seconds in (("90s", 90), ("1h30m", 5_400), ("2D", 172_800), ("1w 1s", 604_801)):
        assert parse_duration("key", text) == seconds
    texts = [duration_text(seconds) for seconds in (0, 90, 5_400, 86_400)]
    assert texts == ["0s", "1m30s", "1h30m", "1d"]
    with pytest.raises(JobError, match="key is ''"):
        parse_duration("key", "")


def test_jitter_follows_from_the_job_and_the_due_time() -> None:
    """Each leader computes the same; jobs that are due together start apart."""
    starts = [start_of(job, 1_000.0, 60) for job in range(1_000)]
    assert all(1_000 <= start < 1_060 for start in starts)
    assert starts == [start_of(job, 1_000.0, 60) for job in range(1_000)]
    assert 25 < sum(starts) / 1_000 - 1_000 < 35
    assert len(set(starts)) == 1_000
    assert start_of(1, 1_000.0, 60) != start_of(1, 1_060.0, 60) - 60
    assert start_of(1, 1_000.0, 0) == 1_000.0
    # Masters of two versions must agree: this value never changes.
    assert round(start_of(7, 1_780_000_000.0, 300), 3) == 1_780_000_229.555
