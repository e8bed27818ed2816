"""Decides when a host counts as away, and when it is asked again.

The worker that owns a host keeps one `HostBreaker` for it:

    unknown ──answer──▶ closed ──5 failures in a row──▶ open ──wait──▶ half open
       │ failures            ▲                            ▲ probe failed   │
       └─────────────────────│────────────────────────────┴────────────────┤
                             └───────────────── probe answered ────────────┘

While it is open nothing is sent. Half open, and as long as the host is unknown, one request at a
time goes: a host that is away costs one slot and not all. Each open period is twice as long as
the one before. A host that could not even be reached in DOWN_AFTER of them is *down*: what the
running jobs have queued for it ends `dead: host_down`, so that a run ends. Pure.
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

# No answer came. With the first three not even a connection.
UNREACHABLE = frozenset({DNS, CONNECT, CONNECT_TIMEOUT})
SILENT = UNREACHABLE | {RESET, READ_TIMEOUT, TOTAL_TIMEOUT, http_status(502), http_status(504)}


class HostBreaker(msgspec.Struct):
    failures: int = 0
    opens: int = 0  # since the last answer
    known: bool = False  # it has answered before
    _changed_at: float = -math.inf  # requests that began before this tell nothing new

    @property
    def one_at_a_time(self) -> bool:
        return self.opens > 0 or not self.known

    def answered(self) -> None:
        self.failures = self.opens = 0
        self.known = True

    def failed(self, reason: str, started_at: float, now: float) -> float | None:
        """The moment before which the host is not asked again, if it opens by this failure."""
        if started_at < self._changed_at:
            return None
        self.failures += 1
        if self.opens == 0 and self.failures < FAILURES:
            return None
        # A host that takes connections and then is silent stays short of being down.
        most = DOWN_AFTER if reason in UNREACHABLE else DOWN_AFTER - 1
        self.opens = max(self.opens, min(self.opens + 1, most))
        self._changed_at = now
        return now + min(MOST_OPEN_S, FIRST_OPEN_S * 2.0 ** (self.opens - 1))


def is_down(opens: int) -> bool:
    return opens >= DOWN_AFTER
