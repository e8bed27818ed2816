"""How a host's answers slow the crawler down, stop it, and let it go on."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tests.unit.machine_tools import attempt
from zcrawl.errors import RetryClass
from zcrawl.frontier.breaker import DOWN_AFTER, FAILURES, HostBreaker, is_down
from zcrawl.frontier.throttle import LONGEST_HOLD_S, MOST_S, Throttle
from zcrawl.model.host import Manner
from zcrawl.model.states import Outcome
from zcrawl.worker.host_health import HostManners
from zcrawl.worker.results.attempt import Attempt

# ---------------------------------------------------------------- throttle


def test_a_refusal_doubles_the_distance_once_for_requests_under_way_together() -> None:
    """Three requests that were sent before the first 429 came tell the same thing."""
    throttle = Throttle()
    assert throttle.refused(0.0, None, 0.5, 1.0) == 2.0
    throttle.refused(0.5, None, 0.5, 1.1)
    assert throttle.slow_s == 1.0
    throttle.refused(2.0, None, 0.5, 2.1)
    assert throttle.slow_s == 2.0


def test_retry_after_holds_the_host_and_has_a_limit() -> None:
    """An hour for one page is not an hour for the host."""
    assert Throttle().refused(0.0, 7.0, 0.2, 10.0) == 17.0
    assert Throttle().refused(0.0, 3_600.0, 0.2, 10.0) == 10.0 + LONGEST_HOLD_S


def test_good_answers_bring_the_normal_pace_back() -> None:
    """However slow it has become, a few dozen good answers end it."""
    throttle = Throttle()
    for number in range(20):
        throttle.refused(float(number), None, 0.2, float(number))
    assert throttle.slow_s == MOST_S
    answers = 0
    while throttle.slow_s:
        throttle.answered(0.05, 0.2, 4)
        answers += 1
    assert answers <= 15


def test_slow_answers_stretch_the_distance_and_quick_ones_shorten_it() -> None:
    """Ten times the usual latency is a server in trouble; a server that always is slow is not."""
    throttle = Throttle()
    for _ in range(10):
        throttle.answered(0.3, 0.1, 2)
    assert throttle.slow_s == 0.0
    for _ in range(6):
        throttle.answered(5.0, 0.1, 2)
    assert throttle.slow_s > 1.0
    for _ in range(30):
        throttle.answered(0.3, 0.1, 2)
    assert throttle.slow_s == 0.0
    always_slow = Throttle()
    for _ in range(50):
        always_slow.answered(5.0, 0.1, 2)
    assert always_slow.slow_s == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_slowness_stays_within_its_limits(seed: int) -> None:
    """Whatever answers come in whatever order."""
    rng, throttle = random.Random(seed), Throttle()
    for step in range(300):
        if rng.random() < 0.5:
            hold = throttle.refused(step - rng.random(), rng.choice([None, 5.0]), 0.2, float(step))
            assert step <= hold <= step + LONGEST_HOLD_S
        else:
            throttle.answered(rng.uniform(0.01, 10), 0.2, rng.randint(1, 8))
        assert 0.0 <= throttle.slow_s <= MOST_S


# ---------------------------------------------------------------- breaker


def fail(
    breaker: HostBreaker, times: int, reason: str = "connect", now: float = 0.0
) -> float | None:
    until = None
    for _ in range(times):
        until = breaker.failed(reason, now, now)
    return until


def test_an_unknown_host_is_asked_one_page_at_a_time() -> None:
    """Until its first answer; so one that is away costs one slot."""
    breaker = HostBreaker()
    assert breaker.one_at_a_time
    breaker.answered()
    assert not breaker.one_at_a_time


def test_failures_in_a_row_open_it_and_one_answer_closes_it() -> None:
    """Four failures and an answer count for nothing."""
    breaker = HostBreaker(has_answered=True)
    assert fail(breaker, FAILURES - 1) is None
    breaker.answered()
    assert fail(breaker, FAILURES - 1) is None
    assert fail(breaker, 1) == 2.0
    assert breaker.one_at_a_time
    breaker.answered()
    assert (breaker.opens, breaker.failures) == (0, 0)


def test_each_failed_probe_waits_twice_as_long() -> None:
    """2, 4, 8 … seconds; requests that were sent before it opened change nothing."""
    breaker = HostBreaker()
    now = 10.0
    assert fail(breaker, FAILURES, now=now) == 12.0
    assert breaker.failed("connect", 9.0, 10.5) is None
    waits = []
    for _ in range(4):
        now += 100
        waits.append((breaker.failed("connect", now, now) or math.inf) - now)
    assert waits == [4.0, 8.0, 16.0, 32.0]


def test_only_a_host_that_cannot_be_reached_goes_down() -> None:
    """One that takes connections and then is silent may have a few bad pages only."""
    silent, away = HostBreaker(), HostBreaker()
    for step in range(40):
        silent.failed("read_timeout", float(step), float(step))
        away.failed("dns", float(step), float(step))
    assert not is_down(silent.opens)
    assert away.opens == DOWN_AFTER
    assert is_down(away.opens)


# ---------------------------------------------------------------- both, from results


def failed(reason: str, status: int = 0, **changes: Any) -> Attempt:
    return attempt(outcome=Outcome.FAILED, reason=reason, status=status, **changes)


def test_a_404_is_an_answer_and_a_silent_failure_is_none() -> None:
    """Whatever a host answers, it is there."""
    manners = HostManners()
    for _ in range(FAILURES - 1):
        manners.ended(failed("connect"), 0.0, 0.2, 4, 0.0)
    manners.ended(failed("http_404", 404), 0.0, 0.2, 4, 0.0)
    assert manners.breaker.failures == 0


def test_only_news_are_told_and_a_next_owner_takes_them_over() -> None:
    """What was told travels through the leader into another owner's hands."""
    first = HostManners()
    busy = failed("http_429", 429, retry=RetryClass.THROTTLED)
    assert first.ended(busy, 0.0, 0.2, 4, 0.0) == 0.5
    news = first.news()
    assert news == Manner(0.5, 0, 0)
    assert first.news() is None
    second = HostManners()
    second.adopt(news)
    assert second.throttle.slow_s == 0.5
    assert not second.breaker.one_at_a_time
    assert second.news() is None
