"""Slow requests to a host down when it refuses them or answers slowly.

The worker that owns a host keeps one `Throttle` for it and reports how each request ended. A
429 or 503 doubles the interval, once for all requests that ran at the same time; a Retry-After
holds the whole host back. Answers that take several times as long as usual stretch the interval
to what the server can do. Every good answer removes two fifths of the extra interval, until the
host has its normal pace again. Pure.
"""

from __future__ import annotations

import math

import msgspec

FIRST_S = 0.5  # the least interval after a refusal
MOST_S = 60.0
GROWTH = 2.0
RECOVERY = 0.6  # what a good answer leaves of the slowness
LONGEST_HOLD_S = 300.0  # of a whole host for a Retry-After; the page itself waits as long as told
SLOW_LATENCY_S = 1.0  # answers faster than this are never slow
SLOW_TIMES = 4.0  # as long as usual


class Throttle(msgspec.Struct):
    slow_s: float = 0.0  # 0: the host is asked at its normal pace
    latency_s: float = 0.0  # of the last answers, smoothed
    usual_s: float = 0.0  # follows quick answers fast and slow ones hardly at all
    _slowed_at: float = -math.inf

    def refused(
        self, started_at: float, retry_after_s: float | None, interval_s: float, now: float
    ) -> float:
        """Slow down after a 429 or 503; return until when the host must not get a request.

        `interval_s` is the pace that the jobs allow. Requests that were running when the last
        refusal came do not count again.
        """
        if started_at >= self._slowed_at:
            self._slowed_at = now
            slower = max(self.slow_s, interval_s) * GROWTH
            self.slow_s = min(MOST_S, max(FIRST_S, slower))
        hold_s = self.slow_s if retry_after_s is None else max(retry_after_s, self.slow_s)
        return now + min(hold_s, LONGEST_HOLD_S)

    def answered(self, took_s: float, interval_s: float, concurrency: int) -> None:
        """Adapt to an answer that took `took_s`, with at most `concurrency` requests at a time."""
        if self._is_slow(took_s):
            # At the interval latency / concurrency all slots are full all the time; twice that
            # lets the server catch its breath.
            target_s = GROWTH * self.latency_s / max(1, concurrency)
            self.slow_s = min(MOST_S, max(self.slow_s, target_s))
            return
        self.slow_s *= RECOVERY
        if self.slow_s <= max(interval_s, FIRST_S / 10):
            self.slow_s = 0.0

    def _is_slow(self, took_s: float) -> bool:
        if self.usual_s == 0.0:
            self.usual_s = self.latency_s = took_s
        self.latency_s += (took_s - self.latency_s) * 0.3
        self.usual_s += (took_s - self.usual_s) * (0.2 if took_s < self.usual_s else 0.01)
        return self.latency_s > max(SLOW_LATENCY_S, SLOW_TIMES * self.usual_s)
