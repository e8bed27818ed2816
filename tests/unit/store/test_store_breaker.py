"""When a server that is down is asked again."""

from __future__ import annotations

import pytest

from zcrawl.store.breaker import FREE_ATTEMPTS, LEAST_WAIT_S, MOST_WAIT_S, StoreBreaker


def test_first_failures_cost_no_wait_and_later_ones_double_it() -> None:
    """Up to a limit, so that a failover is not missed."""
    breaker, waits = StoreBreaker(), []
    for _ in range(FREE_ATTEMPTS + 12):
        breaker.failed("away", 10.0)
        waits.append(breaker.wait_s(10.0))
    assert waits[:FREE_ATTEMPTS] == [0.0] * FREE_ATTEMPTS
    first = [LEAST_WAIT_S, LEAST_WAIT_S * 2, LEAST_WAIT_S * 4]
    assert waits[FREE_ATTEMPTS : FREE_ATTEMPTS + 3] == pytest.approx(first)
    assert waits[-1] == MOST_WAIT_S
    assert breaker.wait_s(10.0 + MOST_WAIT_S) == 0.0


def test_a_success_forgets_all_failures() -> None:
    """The next failure is a first one again."""
    breaker = StoreBreaker()
    for _ in range(9):
        breaker.failed("away", 0.0)
    breaker.succeeded()
    assert (breaker.wait_s(0.0), breaker.failures) == (0.0, 0)
