"""After failures in a row, wait before the next attempt instead of hammering a server that is
down. Used by `sql.store` for each of its connections; the clock is the caller's.

    closed ──failure──▶ open until now + wait ──▶ one attempt ──ok──▶ closed
                             ▲                        │
                             └──── failure: wait × 2 ◀┘
"""

from __future__ import annotations

from typing import Final

FREE_ATTEMPTS: Final = 2  # a restart is over in a moment: the first attempts come at once
LEAST_WAIT_S: Final = 0.1
MOST_WAIT_S: Final = 2.0  # a failover must not wait for us longer than this


class StoreBreaker:
    def __init__(self) -> None:
        self.failures = 0  # in a row
        self.reason = ""
        self._open_until = 0.0

    def wait_s(self, now: float) -> float:
        """How long nothing is to be tried; 0: try."""
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
