"""Decide whether and when a failed request is tried again.

Called by `result.plan` for each result that says that an attempt failed. Pure: the jitter is drawn
by the caller, so that the same seed gives the same trace.
"""

from __future__ import annotations

import msgspec

from zcrawl.errors import RetryClass

BACKOFF_BASE_S = 1.0
BACKOFF_CAP_S = 300.0
# 2**9 s is above the cap already; a bounded exponent keeps a huge attempt number from overflowing.
_MAX_DOUBLINGS = 16


class Retry(msgspec.Struct, frozen=True):
    """Try again, `delay_s` from now at the earliest."""

    delay_s: float


class GiveUp(msgspec.Struct, frozen=True):
    """End the request as dead, with the reason of its last attempt."""


def decide(
    attempt: int,
    retries: int,
    retry_class: RetryClass,
    retry_after_s: float | None,
    jitter: float,
    backoff_s: float = BACKOFF_BASE_S,
    most_s: float = BACKOFF_CAP_S,
) -> Retry | GiveUp:
    """Return the delay before the next attempt, or give up. `attempt` counts from 1.

    `retries` is how many attempts may follow the first one. The delay is `backoff_s` at first, and
    doubles with each attempt up to `most_s`. `jitter` in [0, 1) spreads it over the upper half of
    its range; over the whole range, half of the retries would come before the server had time to
    recover. A Retry-After is a lower bound, even above the cap. Postponed requests are repeated
    without limit, because nothing was tried yet.
    """
    if attempt < 1:
        raise ValueError(f"attempts count from 1, not {attempt}")
    if not 0.0 <= jitter < 1.0:
        raise ValueError(f"jitter is in [0, 1), not {jitter}")
    if retry_class is RetryClass.POSTPONED:
        return Retry(max(retry_after_s or 0.0, BACKOFF_BASE_S) + jitter)
    if retry_class is RetryClass.PERMANENT or attempt > retries:
        return GiveUp()
    full = min(most_s, backoff_s * 2.0 ** min(attempt - 1, _MAX_DOUBLINGS))
    delay = full * (0.5 + 0.5 * jitter)
    if retry_after_s is not None:
        delay = max(delay, retry_after_s)
    return Retry(delay)
