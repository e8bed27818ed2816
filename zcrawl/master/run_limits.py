"""Fail runs that take longer than `max_runtime`.

A part of the leader. The time counts from the first accepted assignment, without the time between
an end and a retry; a pause counts. Any leader can end the run, so nothing but its start is stored.
"""

from __future__ import annotations

from typing import Final

from zcrawl.master.events import Execute, MasterEffects, Note
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.takeover import REQUEST
from zcrawl.model.reasons.reason import with_detail
from zcrawl.model.reasons.skip import MAX_RUNTIME
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
        self._again_at = {run: at for run, at in self._again_at.items() if run in late}
        for run, most_s in late.items():
            if now >= self._again_at.get(run, now):
                self._again_at[run] = now + AGAIN_S
                reason = with_detail(MAX_RUNTIME, f"not done after {most_s:g} s")
                effects.append(Note("run_too_long", f"run {run}: {reason}", run))
                change = ChangeRun(state.epoch, REQUEST, run, RunState.FAILED, reason, utc)
                effects.append(Execute(change))
