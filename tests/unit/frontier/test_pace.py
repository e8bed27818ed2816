"""A host's pace: GCRA in its pure form."""

from __future__ import annotations

import itertools
import random

import pytest

from zcrawl.frontier.pace import Pace, combined_demand
from zcrawl.model.spec import Politeness


def starts(pace: Pace, moments: list[float]) -> list[float]:
    """The moments at which a request would start, if one wants to at each of `moments`."""
    started = []
    for now in moments:
        if pace.ready_at() <= now:
            pace.take(now)
            started.append(now)
    return started


@pytest.mark.parametrize("seed", range(20))
def test_two_starts_are_never_within_an_interval(seed: int) -> None:
    """Whenever requests want to start, they start an interval apart at least."""
    rng = random.Random(seed)
    moments = sorted(rng.uniform(0, 50) for _ in range(2_000))
    started = starts(Pace(interval_s=0.5), moments)
    assert len(started) > 90, "and the pace is used, too"
    assert all(b - a >= 0.5 for a, b in itertools.pairwise(started))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("burst", [2, 5])
def test_a_burst_borrows_from_the_pace_and_gives_back(seed: int, burst: int) -> None:
    """In any span of time, no more start than the rate gives plus the burst."""
    rng = random.Random(seed)
    moments = sorted(rng.uniform(0, 30) for _ in range(1_500))
    started = starts(Pace(interval_s=1.0, burst=burst), moments)
    for first, start in enumerate(started):
        for last in range(first, len(started)):
            assert last - first + 1 <= (started[last] - start) / 1.0 + burst + 1e-9


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("rate", [11.0, 60.0, 400.0])
def test_late_timers_neither_lose_the_rate_nor_break_it(seed: int, rate: float) -> None:
    """Timers that fire up to half an interval late: 99 % of the rate is used, and no window of
    any length has more starts than the rate gives, plus one and half a one for the slack."""
    rng = random.Random(seed)
    pace = Pace(interval_s=1 / rate)
    started = []
    now = 0.0
    while now < 10.0:
        now = max(now, pace.ready_at()) + rng.uniform(0, 0.5) / rate
        pace.take(now)
        started.append(now)
    assert len(started) >= 0.99 * rate * 10.0
    for first, start in enumerate(started[:200]):
        for last in range(first, len(started)):
            assert last - first + 1 <= (started[last] - start) * rate + 1.5 + 1e-6


def test_a_slow_pace_never_catches_up() -> None:
    """Crawl-delay is a distance: a late start does not let the next one come sooner."""
    pace = Pace(interval_s=1.0)
    pace.take(10.4)
    pace.take(11.9)
    assert pace.ready_at() == 12.9


def test_a_burst_comes_together_once() -> None:
    """Burst 3 starts three at once, and then one in each interval."""
    moments = [0.0] * 9 + [0.9, 1.0, 1.0, 2.0]
    assert starts(Pace(interval_s=1.0, burst=3), moments) == [0.0, 0.0, 0.0, 1.0, 2.0]


def test_a_pace_without_interval_never_waits() -> None:
    """Rate 0 is unlimited."""
    assert starts(Pace(), [1.0] * 100) == [1.0] * 100


@pytest.mark.parametrize("burst", [1, 3])
def test_not_before_never_pulls_the_next_start_nearer(burst: int) -> None:
    """A push to a moment is obeyed exactly, and an earlier one changes nothing."""
    pace = Pace(interval_s=2.0, burst=burst)
    pace.not_before(10.0)
    assert pace.ready_at() == 10.0
    pace.not_before(3.0)
    assert pace.ready_at() == 10.0


def test_the_slowest_demand_wins() -> None:
    """G5: for all jobs together the longest interval, the least burst and concurrency count."""
    fast = Politeness(robots=False, rate=10, burst=5, concurrency=8, spread=True)
    slow = Politeness(robots=False, rate=2, burst=2, concurrency=3, spread=True)
    demand = combined_demand([fast, slow], crawl_delay_s=60.0)
    assert (demand.interval_s, demand.burst, demand.concurrency) == (0.5, 2, 3)
    assert demand.spread
    assert not combined_demand([fast, Politeness()], 0.0).spread, "spread needs every job's consent"


def test_a_crawl_delay_counts_if_one_job_obeys_robots() -> None:
    """A job without robots does not make the host faster for one with robots."""
    rude = Politeness(robots=False, rate=0)
    assert combined_demand([rude], 30.0).interval_s == 0.0
    assert combined_demand([rude, Politeness(rate=5)], 30.0).interval_s == 30.0
    assert combined_demand([Politeness(rate=0.01)], 30.0).interval_s == 100.0


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-20])
def test_a_delay_too_small_to_divide_by_is_none(tiny: float) -> None:
    """Whatever a worker or the database says: the leader divides by intervals."""
    assert combined_demand([Politeness(rate=0)], tiny).interval_s == 0.0
    assert combined_demand([Politeness(rate=2_147_483_647)], tiny).interval_s > 0.0
