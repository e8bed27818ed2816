"""Schedules with the defaults of the masters' configuration."""

from __future__ import annotations

import pytest

from zcrawl.model.spec import After, Schedule, ScheduleDefaults
from zcrawl.schedule.defaults import filled, left_open

DEFAULTS = ScheduleDefaults("Europe/Berlin", "cancel", "last", "30m")


def test_a_schedule_gets_only_what_it_leaves_open() -> None:
    """What it says itself stays, also if that is what zcrawl would do anyway."""
    own = Schedule(cron="0 3 * * *", timezone="UTC", overlap="skip", catch_up="none", jitter="0s")
    assert filled(own, DEFAULTS) == own
    assert left_open(own) == []
    bare = Schedule(cron="0 3 * * *")
    whole = filled(bare, DEFAULTS)
    assert (whole.timezone, whole.overlap) == ("Europe/Berlin", "cancel")
    assert (whole.catch_up, whole.jitter) == ("last", "30m")
    assert left_open(bare) == ["timezone", "jitter", "overlap", "catch_up"]


@pytest.mark.parametrize(
    ("schedule", "jitter"),
    [
        (Schedule(every="10m"), "10m"),
        (Schedule(every="2h"), "30m"),
        (Schedule(after=(After("lists"),)), ""),
    ],
)
def test_a_default_jitter_is_at_most_the_time_between_two_runs(
    schedule: Schedule, jitter: str
) -> None:
    """A job that follows others has no due times to spread."""
    assert filled(schedule, DEFAULTS).jitter == jitter


def test_without_defaults_all_is_as_before() -> None:
    """UTC, no jitter, no catching up; the overlap depends on what starts the run."""
    whole = filled(Schedule(cron="0 3 * * *"), ScheduleDefaults())
    assert (whole.timezone, whole.overlap) == ("UTC", "")
    assert (whole.catch_up, whole.jitter) == ("none", "")
