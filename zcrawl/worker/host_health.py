"""The health of one host: update throttle and breaker with each finished request.

Called by `held_requests`, which keeps one `HostManners` per host between requests. Changes
are sent with the result to the leader, which stores them and sends them to the next owner, so that
they survive a restart or failover. Pure.
"""

from __future__ import annotations

import msgspec

from zcrawl.errors import RetryClass
from zcrawl.frontier.breaker import SILENT, HostBreaker
from zcrawl.frontier.throttle import Throttle
from zcrawl.model.host import Manner
from zcrawl.model.reasons.skip import ROBOTS_UNAVAILABLE
from zcrawl.model.states import Outcome
from zcrawl.worker.results.attempt import Attempt

NOTHING_SPECIAL = Manner()


class HostManners(msgspec.Struct):
    throttle: Throttle = msgspec.field(default_factory=Throttle)
    breaker: HostBreaker = msgspec.field(default_factory=HostBreaker)
    _told: Manner = NOTHING_SPECIAL

    def adopt(self, manner: Manner) -> None:
        """Take over what a previous owner knew, if this one knows nothing yet."""
        if not self.breaker.has_answered and self.breaker.failures == 0:
            self.throttle.slow_s = manner.slow_s
            self.breaker.failures, self.breaker.opens = manner.failures, manner.opens
            self.breaker.has_answered = manner.failures == 0
            self._told = manner

    def ended(
        self,
        attempt: Attempt,
        started_at: float,
        interval_s: float,
        concurrency: int,
        now: float,
        *,
        timed: bool = True,
    ) -> float | None:
        """Count a finished request; return until when the host must get no request, if at all.

        `interval_s` is what the jobs allow, `concurrency` this owner's part. Without `timed` this
        process was suspended meanwhile, so times say nothing about the host.
        """
        if attempt.reason == ROBOTS_UNAVAILABLE and attempt.retry is RetryClass.POSTPONED:
            return now + (attempt.retry_after_s or 0.0)
        if attempt.reason in SILENT:
            return self.breaker.failed(attempt.reason, started_at, now) if timed else None
        if attempt.status == 0:
            return None  # no request was sent
        self.breaker.answered()
        if attempt.retry is RetryClass.THROTTLED:
            return self.throttle.refused(started_at, attempt.retry_after_s, interval_s, now)
        if attempt.outcome is not Outcome.FAILED or attempt.status < 500:
            took_s = self.throttle.usual_s
            if timed and attempt.page is not None:
                took_s = attempt.page.elapsed_ms / 1000
            self.throttle.answered(took_s, interval_s, concurrency)
        return None

    def news(self) -> Manner | None:
        """Return the state if the leader does not know it yet."""
        last_report, throttle, breaker = self._told, self.throttle, self.breaker
        if (
            last_report.slow_s == throttle.slow_s
            and last_report.failures == breaker.failures
            and last_report.opens == breaker.opens
        ):
            return None
        self._told = Manner(throttle.slow_s, breaker.failures, breaker.opens)
        return self._told
