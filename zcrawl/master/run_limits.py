"""Fail runs that take longer than `max_runtime`; end runs that `expires`.

A run that has expired starts nothing more. What runs may finish; then the run ends, and all that is
queued counts as skipped (`expired`). It needs no worker for that, because often there was none. A
run that did nothing at all until then failed. The time counts from the creation of the run.

A part of the leader. The time counts from the first accepted assignment, without the time between
an end and a retry; a pause counts. Any leader can end the run, so nothing but its start is stored.
"""

from __future__ import annotations

from typing import Final

from zcrawl.master.events import Execute, MasterEffects, Note
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.takeover import REQUEST
from zcrawl.model.reasons.reason import with_detail
from zcrawl.model.reasons.skip import EXPIRED, RUNTIME_EXCEEDED
from zcrawl.model.states import RunState
from zcrawl.store.commands import ChangeRun
from zcrawl.telemetry.views import elapsed

AGAIN_S: Final = 5.0  # until a command that was lost is repeated


class RunLimits:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._check_at = 0.0
        self._again_at: dict[int, float] = {}  # run → when its command is repeated

    def tick(self, now: float, effects: MasterEffects) -> None:
        """End each run whose time is over; look once a second."""
        if now < self._check_at:
            return
        self._check_at = now + 1.0
        state, utc = self._state, self._state.utc(now)
        late = {
            run: active.spec.max_runtime
            for run, active in state.runs.active.items()
            if 0 < active.spec.max_runtime < elapsed(active.row, utc)
        }
        expired = self._expired(utc)
        self._again_at = {
            run: at for run, at in self._again_at.items() if run in late or run in expired
        }
        for run in expired:
            if run not in late and not self._is_in_flight(run):
                self._end_expired(run, now, effects)
        for run, most_s in late.items():
            if now >= self._again_at.get(run, now):
                self._again_at[run] = now + AGAIN_S
                reason = with_detail(RUNTIME_EXCEEDED, f"not done after {most_s:g} s")
                effects.append(Note("run_too_long", f"run {run}: {reason}", run))
                change = ChangeRun(state.epoch, REQUEST, run, RunState.FAILED, reason, utc)
                effects.append(Execute(change))

    def _expired(self, utc: float) -> list[int]:
        """Return the runs whose time to start requests is over, and stop their requests."""
        expired = []
        for run, active in self._state.runs.active.items():
            after_s = active.spec.expires
            over = 0 < after_s <= utc - active.row.created_at
            if over is not active.is_expired:
                self._state.runs.set_expired(run, over)
                self._state.planner.run_freed(run)
            if over:
                expired.append(run)
        return expired

    def _is_in_flight(self, run: int) -> bool:
        """Return whether a request of the run is at a worker, or its result is on its way."""
        rows = self._state.withheld.values()
        is_withheld = any(row is not None and row.run == run for row in rows)
        return bool(self._state.leases.by_run.get(run)) or is_withheld

    def _end_expired(self, run: int, now: float, effects: MasterEffects) -> None:
        if now < self._again_at.get(run, now):
            return
        self._again_at[run] = now + AGAIN_S
        state, active = self._state, self._state.runs.active[run]
        counters = active.row.counters
        did_nothing = counters.done + counters.failed == 0
        text = f"not started within {active.spec.expires:g} s: {counters.pending}"
        effects.append(Note("run_expired", f"run {run}: {text}", run))
        target = RunState.FAILED if did_nothing else RunState.COMPLETED
        reason = with_detail(EXPIRED, text)
        effects.append(
            Execute(ChangeRun(state.epoch, REQUEST, run, target, reason, state.utc(now)))
        )
