"""Checks the arrival times in a server's log against what the crawler was allowed.

Requests travel, and a busy machine notes them late: one that is noted late and one that is not
seem nearer to each other than they started. `JITTER_S` is what that may come to, once in a
window of any length: over a longer one it does not add up, and a broken pace does.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.web.server import Hit

JITTER_S = 0.4
CATCH_UP = 0.5  # of an interval: what paces above 10 a second may make good


def never_more_than(rate: float, hits: Iterable[Hit]) -> None:
    """In no window of any length are there more requests than the rate gives, and one."""
    log = sorted(hits, key=lambda hit: hit.at)
    moments = [hit.at for hit in log]
    slack = CATCH_UP if rate > 10 else 0.0
    for first, begin in enumerate(moments):
        for last in range(first + 1, len(moments)):
            most = 1 + slack + (moments[last] - begin + JITTER_S) * rate
            assert last - first + 1 <= most, (
                f"{last - first + 1} requests in {moments[last] - begin:.3f} s at {rate}/s: "
                f"{[(round(hit.at - log[0].at, 3), hit.path) for hit in log[: last + 2]]}"
            )
