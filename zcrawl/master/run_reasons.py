"""Why each run is not faster, in one line, for the list of jobs.

The reason of a run is that of most of its queued URLs. All hosts are looked at for it, so it is
kept for some seconds. A part of the leader's memory for displays.
"""

from __future__ import annotations

from typing import Final

from zcrawl.dispatch.in_flight import InFlight
from zcrawl.dispatch.limits import SpeedLimit, limits_by_run
from zcrawl.dispatch.planner import Planner
from zcrawl.model.reasons.waiting import DUE

KEPT_S: Final = 5.0


class RunReasons:
    def __init__(self) -> None:
        self._until = float("-inf")
        self._reasons: dict[int, str] = {}

    def current(self, planner: Planner, flight: dict[int, InFlight], now: float) -> dict[int, str]:
        """Return run → why it is not faster; a run without a queue has no reason."""
        if now >= self._until:
            self._until = now + KEPT_S
            self._reasons = {}
            for run, reasons in limits_by_run(planner, flight, now).items():
                main_limit = next((limit for limit in reasons if limit.code != DUE), None)
                active = planner.runs.get(run)
                if main_limit is not None and active is not None and active.dispatches:
                    self._reasons[run] = in_words(main_limit)
        return self._reasons


def in_words(limit: SpeedLimit) -> str:
    """`https://docs.test: rate limit: 40/s, next in 0.1 s`, `rate limit (12 hosts)`."""
    if not limit.hosts:  # of tasks that have none
        return limit.text
    return f"{limit.host}: {limit.text}" if limit.host else f"{limit.text} ({limit.hosts} hosts)"
