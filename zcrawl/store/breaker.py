"""Wait before the next attempt after several failures, so that a server that is down is not
flooded. Used by `sql.store` for each of its connections; the caller passes the time.

    closed ──failure──▶ open until now + wait ──▶ one attempt ──ok──▶ closed
                             ▲                        │
                             └──── failure: wait × 2 ◀┘
"""

from __future__ import annotations

from typing import Final

FREE_ATTEMPTS: Final = 2  # without a wait, because a restart of the server is short
LEAST_WAIT_S: Final = 0.1
MOST_WAIT_S: Final = 2.0  # the most that this wait may add to a failover


class StoreBreaker:
    def __init__(self) -> None:
        self.failures = 0  # in a row
        self.reason = ""
        self._open_until = 0.0

    def wait_s(self, now: float) -> float:
        """Return how long to wait before the next attempt; 0: try now."""
        return max(0.0, self._open_until - now)

    def failed(self, reason: str, now: float) -> None:
        self.failures += 1
        self.reason = reason
        late = self.failures - FREE_ATTEMPTS
        if late > 0:
            self._open_until = now + min(LEAST_WAIT_S * 2.0 ** min(late - 1, 10), MOST_WAIT_S)

    def succeeded(self) -> None:
        self.failures = 0
        self.reason = ""
        self._open_until = 0.0
