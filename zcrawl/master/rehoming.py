"""Give rows to their owners when the list of standalone nodes has changed. A part of the leader.

At the start of each epoch, and whenever the shares change, all rows that wait or that another node
owned are looked at, in chunks, one transaction each. Nothing is dispatched meanwhile; then memory
is read again from the database. Requests in flight stay: this node finishes what it started. If one
of them belongs to another node now, it is looked at again until it has ended, because a failed one
would be queued here for its next attempt.

A cluster has no shares, and nothing here happens.
"""

from __future__ import annotations

from typing import Final

from zcrawl.master.events import Execute, MasterEffects, Note
from zcrawl.master.leader_state import LeaderState
from zcrawl.store.commands import Rehome, Rehomed

ROWS: Final = 1_000  # in one transaction
AGAIN_S: Final = 5.0  # while requests of other nodes are in flight here


class Rehoming:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._done = -1  # the revision of the shares that all rows have
        self._doing = -1
        self._again_at = float("inf")
        self._released = self._claimed = self._stayed = 0
        self._reload = False
        self.busy = False

    def tick(self, now: float, effects: MasterEffects) -> None:
        """Begin a pass if the shares changed."""
        shares = self._state.shares
        if shares is None or self.busy:
            return
        if shares.revision == self._done and now < self._again_at:
            return
        self.busy, self._doing, self._again_at = True, shares.revision, float("inf")
        self._released = self._claimed = self._stayed = 0
        self._next(0, 0, now, effects)

    def rehomed(self, done: Rehomed, now: float, effects: MasterEffects) -> bool:
        """Go on with the next chunk; return True if memory must be read again."""
        shares = self._state.shares
        assert shares is not None
        self._released += done.released
        self._claimed += done.claimed
        self._stayed += done.stayed
        if done.more:
            self._next(done.run, done.after, now, effects)
            return False
        self.busy, self._done = False, self._doing
        if self._stayed:
            self._again_at = now + AGAIN_S
        if not (self._released or self._claimed or self._reload):
            return False
        self._reload = False
        text = f"{self._claimed} requests are this node's now, {self._released} are others'"
        effects.append(Note("shares_moved", text))
        return True

    def uncertain(self) -> None:
        """Read memory again after this pass: a part may have been applied, and its repeat counts
        nothing."""
        self._reload = True

    def _next(self, run: int, after: int, now: float, effects: MasterEffects) -> None:
        state, shares = self._state, self._state.shares
        assert shares is not None
        held = frozenset((*state.leases.by_seq, *state.withheld, *state.planner.trials))
        utc = state.utc(now)
        command = Rehome(state.epoch, shares.division, run, after, ROWS, utc, held)
        effects.append(Execute(command))
