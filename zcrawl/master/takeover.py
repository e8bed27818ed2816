"""What a new leader inherits, which runs it ends, and how it learns of a newer leader.

**Grants** of the previous leader, once, when the leader is made. The owners of granted hosts may
still be alive or may just have left, so no other worker may fetch there until the longest possible
attempt is over. Even then, their owners may hold pages and results, so the leader waits until
GREETING_S after its first BEAT. An owner that says HELLO earlier continues at once; a host without
a stored owner does not wait.

**Refusals.** Runs whose stored spec this version cannot run are ended, with the reason.
`dispatch.runs` finds them when it loads a run, and none of their requests is sent. They end as
cancelled, `zcrawl job` shows the reason, and the job's definition and pages stay. The command is
repeated until the run is gone from memory; ending a run twice changes nothing.

**Epoch hints.** A message with a higher epoch may mean that another master took over. If a master
sent it, it is accepted, because the sender has the masters' key. If a worker or client sent it, the
database is asked, at most once a second, and only a higher stored epoch ends leadership. So nobody
can depose a leader with a worker's key. Waiting for the answer is safe, because the store refuses
commits of a leader that was replaced (G4). Pure.
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
GREETING_S = 3.0  # time for living workers to say HELLO after the first BEAT


def inherit(state: LeaderState, loaded: Loaded, *, alone: bool, now: float) -> None:
    """Apply the grants of the previous leader. `alone`: its workers ended with it."""
    if any(host.owners for host in loaded.hosts):  # there was a leader before
        state.planner.groups.began = now
    # A lease further ahead can only come from a clock that was set back.
    lease_until = min(loaded.lease_until - state.clock_offset, now + LEASE_S)
    last_start_at = min(now, lease_until)
    if alone:
        for host in loaded.hosts:
            if host.owners:
                state.planner.granter.assume_start(host.id, last_start_at)
        return
    longest = max(
        (active_run.spec.longest_request_s for active_run in state.runs.active.values()),
        default=20.0,
    )
    over_at = lease_until + longest
    for host in loaded.hosts:
        if host.owners:
            state.planner.granter.inherit(host, over_at, max(over_at, now + GREETING_S))


REQUEST: Final = "refusal"  # id of these commands: no client waits for the answer
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

    def higher_epoch_heard(
        self, header: Header, by_master: bool, now: float, effects: MasterEffects
    ) -> None:
        """Check a message with a higher epoch; its sender repeats it if it is true."""
        if by_master:
            effects.append(StepDown(f"{header.source} leads in epoch {header.epoch}"))
        elif not self._checking and now >= self._check_at:
            self._checking, self._check_at = True, now + CHECK_AGAIN_S
            text = f"{header.source} uses epoch {header.epoch}, this leader has {self._epoch}"
            effects.append(Note(HIGHER_EPOCH_HEARD, f"{text}: asking the database"))
            effects.append(Ask(ReadEpoch(), f"epoch {self._epoch}"))

    def answered(self, answer: StoredEpoch, effects: MasterEffects) -> None:
        self._checking = False
        if answer.epoch > self._epoch:
            effects.append(StepDown(f"the database holds epoch {answer.epoch}"))

    def failed(self, error: StoreError, effects: MasterEffects) -> None:
        """Ignore the error: the next hint starts a new query."""
        self._checking = False
        effects.append(Note(EPOCH_CHECK_FAILED, f"{error.code}: {error}"))
