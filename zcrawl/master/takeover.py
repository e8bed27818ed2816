"""What a new leader takes over, what it refuses to run, and how it hears of the next one.

**Grants** of the predecessor, once, when the leader is made. The hosts that were granted are owned
by somebody who lives, or by somebody who just left: nobody else may ask there before the longest
attempt that a worker could still be making is over. Also when it is over, because nobody led for
long, their owners may live and hold pages and results: they are waited for until GREETING_S after
the first BEAT, by which they learn who leads. An owner that greets earlier goes on at once; a host
without a stored owner does not wait.

**Refusals.** Runs whose stored spec this version does not run are ended, with the reason.
`dispatch.runs` finds them when it loads a run; nothing of them is dispatched.
They end as cancelled; `zcrawl job` shows the reason, the job's definition and pages stay. The
command is repeated until the run is gone from memory: ending a run twice changes nothing.

**Epoch hints.** A message has a higher epoch: has somebody else taken over, or is that only said? A
master that says so is believed: it holds the masters' key. Everybody else
(workers, clients) gives a hint, and the database decides: it is asked at most once a second, and
only a higher stored epoch ends leadership. So a worker's key cannot depose a leader. Waiting for
the answer is harmless: whoever was replaced is stopped by the store (G4). Pure.
"""

from __future__ import annotations

from typing import Final

from zcrawl.errors import StoreError
from zcrawl.master.events import Ask, Execute, MasterEffects, Note, StepDown
from zcrawl.master.leader_state import LeaderState
from zcrawl.mesh.messages import Header
from zcrawl.model.log_event import EPOCH_CHECK_FAILED, HIGHER_EPOCH_HEARD
from zcrawl.model.states import RunState
from zcrawl.store.commands import ChangeRun, Loaded
from zcrawl.store.queries import ReadEpoch, StoredEpoch

LEASE_S = 20.0  # how far ahead the stored lease reaches
GREETING_S = 3.0  # a worker that lives and hears the first BEAT has greeted by then


def inherit(state: LeaderState, loaded: Loaded, *, alone: bool, now: float) -> None:
    """`alone`: all workers ended with the predecessor, so only their last starts count."""
    if any(host.owners for host in loaded.hosts):  # somebody led before, or this process did
        state.planner.groups.began = now
    # No lease reaches further ahead than this, unless a clock was set back since.
    lease_until = min(loaded.lease_until - state.clock_offset, now + LEASE_S)
    last_start_at = min(now, lease_until)
    if alone:
        for host in loaded.hosts:
            if host.owners:
                state.planner.granter.assume_a_start(host.id, last_start_at)
        return
    longest = max(
        (active_run.spec.fetch.timeout for active_run in state.runs.active.values()), default=20.0
    )
    over_at = lease_until + longest
    for host in loaded.hosts:
        if host.owners:
            state.planner.granter.inherit(host, over_at, max(over_at, now + GREETING_S))


REQUEST: Final = "refusal"  # the commands' own: no client waits for the answer
AGAIN_S: Final = 5.0


class Refusals:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._again_at: dict[int, float] = {}  # run → when its command is repeated

    def tick(self, now: float, effects: MasterEffects) -> None:
        state = self._state
        refused = state.runs.refused
        if not refused:
            self._again_at.clear()
            return
        for run, reason in refused.items():
            if now >= self._again_at.get(run, now):
                self._again_at[run] = now + AGAIN_S
                effects.append(Note("run_refused", f"run {run}: {reason}", run))
                command = ChangeRun(
                    state.epoch, REQUEST, run, RunState.CANCELLED, reason, state.utc(now)
                )
                effects.append(Execute(command))


CHECK_AGAIN_S = 1.0


class EpochHints:
    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._check_at = float("-inf")  # not before
        self._checking = False

    def heard(self, header: Header, by_master: bool, now: float, effects: MasterEffects) -> None:
        """A message with a higher epoch. Its sender repeats it if it is true."""
        if by_master:
            effects.append(StepDown(f"{header.source} leads in epoch {header.epoch}"))
        elif not self._checking and now >= self._check_at:
            self._checking, self._check_at = True, now + CHECK_AGAIN_S
            text = f"{header.source} speaks of epoch {header.epoch}, this is {self._epoch}"
            effects.append(Note(HIGHER_EPOCH_HEARD, f"{text}: asking the database"))
            effects.append(Ask(ReadEpoch(), f"epoch {self._epoch}"))

    def answered(self, answer: StoredEpoch, effects: MasterEffects) -> None:
        self._checking = False
        if answer.epoch > self._epoch:
            effects.append(StepDown(f"the database holds epoch {answer.epoch}"))

    def failed(self, error: StoreError, effects: MasterEffects) -> None:
        """The next hint asks again."""
        self._checking = False
        effects.append(Note(EPOCH_CHECK_FAILED, f"{error.code}: {error}"))
