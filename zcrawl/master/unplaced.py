"""Log which runs no worker can take, and when one can.

A part of the leader. The texts are those of `dispatch.placement`, which displays show as well. A
run is reported once, when all living workers must have said HELLO.
"""

from __future__ import annotations

from zcrawl.dispatch.placement import why_unplaced
from zcrawl.master.events import MasterEffects, Note
from zcrawl.master.leader_state import LeaderState

LOOK_S = 1.0


class UnplacedRuns:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._look_at = 0.0
        self._reported: dict[int, str] = {}

    def tick(self, now: float, effects: MasterEffects) -> None:
        """Look once a second."""
        state = self._state
        if now < self._look_at or now < state.settled_at:
            return
        self._look_at = now + LOOK_S
        unplaced = unplaced_runs(state)
        for run, text in unplaced.items():
            if self._reported.get(run) != text:
                effects.append(Note("run_unplaced", f"run {run} waits: {text}", run))
        for run in self._reported.keys() - unplaced.keys():
            active = state.runs.get(run)
            if active is not None and active.dispatches:
                effects.append(Note("run_placed", f"run {run}: a worker can take it now", run))
        self._reported = unplaced


def unplaced_runs(state: LeaderState) -> dict[int, str]:
    """Return the runs that no worker can take, with the reason."""
    workers = [info for info in state.roster.workers.values() if info.usable]
    if not state.planner.candidates.is_choosy(workers):
        return {}
    lacked = {run for worker in workers for run in worker.lacks}
    texts: dict[frozenset[str], str] = {}  # of runs that only need labels
    unplaced = {}
    for run, active in state.runs.active.items():
        if not active.dispatches:
            continue
        if run in lacked:
            text = why_unplaced(active, workers)
        elif active.require not in texts:
            text = texts[active.require] = why_unplaced(active, workers)
        else:
            text = texts[active.require]
        if text:
            unplaced[run] = text
    return unplaced
