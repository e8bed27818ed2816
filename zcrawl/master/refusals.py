"""Refusals: runs whose stored spec this version does not run are ended, with the reason.

A part of the leader. `dispatch.runs` finds them when it loads a run; nothing of them is dispatched.
They end as cancelled; `zcrawl job` shows the reason, the job's definition and pages stay. The
command is repeated until the run is gone from memory: ending a run twice changes nothing.
"""

from __future__ import annotations

from typing import Final

from zcrawl.master.events import Effects, Execute, Note
from zcrawl.master.leader_state import LeaderState
from zcrawl.model.states import RunState
from zcrawl.store.commands import ChangeRun

REQUEST: Final = "refusal"  # the commands' own: no client waits for the answer
AGAIN_S: Final = 5.0


class Refusals:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._again_at: dict[int, float] = {}  # run → when its command is repeated

    def tick(self, now: float, effects: Effects) -> None:
        state = self._state
        refused = state.runs.refused
        if not refused:
            self._again_at.clear()
            return
        for run, reason in refused.items():
            if now >= self._again_at.get(run, now):
                self._again_at[run] = now + AGAIN_S
                effects.append(Note("run_refused", f"run {run}: {reason}"))
                command = ChangeRun(
                    state.epoch, REQUEST, run, RunState.CANCELLED, reason, state.utc(now)
                )
                effects.append(Execute(command))
