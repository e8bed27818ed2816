"""How often a master answers subscriptions: all of them together, at most once in 100 ms. Pure.

A new subscriber gets the last BEAT at once instead of in a second. That answer goes to everybody
who subscribes to beats, so without a limit whoever subscribes a thousand times sends a thousand
messages to each of the others.

    idle ──want──▶ sent now ──want within 100 ms──▶ planned (one answer for all who come) ──▶ idle
"""

from __future__ import annotations

from typing import Final

ANSWER_S: Final = 0.1


class AnswerPace:
    def __init__(self, interval_s: float = ANSWER_S) -> None:
        self._interval_s = interval_s
        self._sent_at = float("-inf")
        self._planned = False

    def want(self, now: float) -> float | None:
        """Return how long to wait before the answer is sent; None if it is planned already."""
        if self._planned:
            return None
        self._planned = True
        return max(0.0, self._sent_at + self._interval_s - now)

    def sent(self, now: float) -> None:
        self._sent_at = now
        self._planned = False
