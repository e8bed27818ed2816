"""Decide when a host counts as unreachable, and when it is tried again.

The worker that owns a host keeps one `HostBreaker` for it:

    unknown ──answer──▶ closed ──5 failures in a row──▶ open ──wait──▶ half open
       │ failures            ▲                            ▲ probe failed   │
       └─────────────────────│────────────────────────────┴────────────────┤
                             └───────────────── probe answered ────────────┘

While it is open, nothing is sent. While it is half open or the host is unknown, one request at a
time is sent, so that an unreachable host uses one slot and not all. Each open period is twice as
long as the one before. A host that could not be reached in DOWN_AFTER of them is *down*: all queued
requests of the running jobs to it end `dead: host_down`, so that a run can end. Pure.
"""

from __future__ import annotations

import math

import msgspec

from zcrawl.model.reasons.failure import (
    CONNECT,
    CONNECT_TIMEOUT,
    DNS,
    READ_TIMEOUT,
    RESET,
    TOTAL_TIMEOUT,
    http_status,
)

FAILURES = 5  # in a row
FIRST_OPEN_S = 2.0
MOST_OPEN_S = 300.0
DOWN_AFTER = 7  # failed probes in a row would follow 2 + 4 + … + 64 s of waiting

# Failures without an answer; the first three without a connection.
UNREACHABLE = frozenset({DNS, CONNECT, CONNECT_TIMEOUT})
SILENT = UNREACHABLE | {RESET, READ_TIMEOUT, TOTAL_TIMEOUT, http_status(502), http_status(504)}


class HostBreaker(msgspec.Struct):
    failures: int = 0
    opens: int = 0  # since the last answer
    has_answered: bool = False  # since the process started, or by the stored health
    _changed_at: float = -math.inf  # requests that began before this moment do not count

    @property
    def one_at_a_time(self) -> bool:
        """Whether only one request may run at a time."""
        return self.opens > 0 or not self.has_answered

    def answered(self) -> None:
        self.failures = self.opens = 0
        self.has_answered = True

    def failed(self, reason: str, started_at: float, now: float) -> float | None:
        """Count a failure; if the breaker opens, return until when the host must not be tried."""
        if started_at < self._changed_at:
            return None
        self.failures += 1
        if self.opens == 0 and self.failures < FAILURES:
            return None
        # A host that accepts connections but does not answer never counts as down.
        most = DOWN_AFTER if reason in UNREACHABLE else DOWN_AFTER - 1
        self.opens = max(self.opens, min(self.opens + 1, most))
        self._changed_at = now
        return now + min(MOST_OPEN_S, FIRST_OPEN_S * 2.0 ** (self.opens - 1))


def is_down(opens: int) -> bool:
    return opens >= DOWN_AFTER
