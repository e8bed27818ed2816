"""The decision whether and when a failed attempt is made again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.errors import RetryClass
from zcrawl.frontier.retry import BACKOFF_CAP_S, GiveUp, Retry, decide

AGAIN = [RetryClass.TRANSIENT, RetryClass.THROTTLED]
ALMOST_ONE = 0.999999


@pytest.mark.parametrize("attempt", [1, 2, 100])
def test_a_permanent_failure_is_never_repeated(attempt: int) -> None:
    """PERMANENT gives up at once, whatever is left and whatever the server says."""
    assert decide(attempt, 1000, RetryClass.PERMANENT, 5.0, 0.5) == GiveUp()


@pytest.mark.parametrize("kind", AGAIN)
def test_retries_count_the_attempts_after_the_first(kind: RetryClass) -> None:
    """Three retries make four attempts; none makes one."""
    assert [type(decide(n, 3, kind, None, 0.0)) for n in (1, 2, 3, 4)] == [Retry] * 3 + [GiveUp]
    assert decide(1, 0, kind, None, 0.0) == GiveUp()


def test_the_delay_doubles_up_to_the_cap() -> None:
    """1, 2, 4 … seconds at full jitter, half of it without, never more than the cap."""
    top = [decide(n, 99, RetryClass.TRANSIENT, None, ALMOST_ONE) for n in (1, 2, 3, 8, 9, 10, 50)]
    assert [round(r.delay_s, 2) for r in top if isinstance(r, Retry)] == (
        [1.0, 2.0, 4.0, 128.0, 256.0, 300.0, 300.0]
    )
    assert decide(3, 99, RetryClass.TRANSIENT, None, 0.0) == Retry(2.0)


def test_retry_after_is_a_lower_bound() -> None:
    """The server's wish counts when it is longer than the backoff, also beyond the cap."""
    assert decide(1, 3, RetryClass.THROTTLED, 120.0, 0.0) == Retry(120.0)
    assert decide(1, 3, RetryClass.THROTTLED, 3600.0, 0.0) == Retry(3600.0)
    assert decide(3, 3, RetryClass.THROTTLED, 0.1, 0.0) == Retry(2.0)
    assert decide(1, 3, RetryClass.TRANSIENT, 9.0, 0.0) == Retry(9.0)


@pytest.mark.parametrize(("attempt", "jitter"), [(0, 0.5), (-1, 0.5), (1, 1.0), (1, -0.1)])
def test_nonsense_is_refused(attempt: int, jitter: float) -> None:
    """Attempts count from 1 and jitter is in [0, 1)."""
    with pytest.raises(ValueError, match="not"):
        decide(attempt, 3, RetryClass.TRANSIENT, None, jitter)


@given(
    attempt=st.integers(1, 10**9),
    jitter=st.floats(0, 1, exclude_max=True),
    retry_after=st.none() | st.floats(0, 3600),
    kind=st.sampled_from(AGAIN),
)
def test_every_delay_is_within_its_bounds(
    attempt: int, jitter: float, retry_after: float | None, kind: RetryClass
) -> None:
    """Any delay is at least half the step and the server's wish, and at most cap or wish."""
    decision = decide(attempt, 10**9, kind, retry_after, jitter)
    assert isinstance(decision, Retry)
    wish = retry_after or 0.0
    assert max(0.5, wish) <= decision.delay_s <= max(BACKOFF_CAP_S, wish)
