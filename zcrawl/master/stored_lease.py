"""The lease that the leader keeps stored, and the beats that depend on it.

A part of the leader. Without a valid lease nothing is dispatched and no beat is sent, and without
beats workers stop. A leader that cannot extend its lease for LEASE_LOST_S steps down.
"""

from __future__ import annotations

import math

from zcrawl.master.events import Execute, MasterEffects, Publish, StepDown
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.takeover import GREETING_S, LEASE_S
from zcrawl.mesh.messages import Beat
from zcrawl.store.commands import ExtendLease

LEASE_MARGIN_S = 10.0  # no BEAT is sent later than this before its end
LEASE_LOST_S = 15.0  # after the last extension, which comes every 5 s


class StoredLease:
    def __init__(self, state: LeaderState, now: float, *, alone: bool) -> None:
        self._state, self._alone = state, alone
        self.until = 0.0  # the end of the lease, as stored
        self._wanted_since = now
        self._extending = False
        self._beat_at = now
        self._announced = False  # by the first beat

    def tick(self, now: float, effects: MasterEffects) -> None:
        self._extend(now, effects)
        self._beat(now, effects)

    def extended(self, command: ExtendLease, now: float) -> None:
        """Note that an extension is stored."""
        self._extending = False
        self.until = command.until - self._state.clock_offset
        self._wanted_since = now

    def next_beat_at(self, now: float) -> float:
        """Return when the next beat can be sent; infinity while the lease does not allow one."""
        return self._beat_at if now + LEASE_MARGIN_S <= self.until else math.inf

    def _extend(self, now: float, effects: MasterEffects) -> None:
        if not self._extending and self.until - now < LEASE_S - LEASE_MARGIN_S / 2:
            self._extending = True
            until = self._state.utc(now) + LEASE_S
            effects.append(Execute(ExtendLease(self._state.epoch, until)))
        # Nothing was committed for long, and without a lease workers stop. Maybe only this master
        # cannot reach the database. (Embedded: there is no other master.)
        if now - self._wanted_since > LEASE_LOST_S and not self._alone:
            effects.append(StepDown("the database has not answered for too long"))

    def _beat(self, now: float, effects: MasterEffects) -> None:
        due = now >= self._beat_at or self._state.beat_soon
        if not due or now + LEASE_MARGIN_S > self.until:
            return
        self._state.beat_sent()
        if not self._announced:
            self._announced = True
            self._state.planner.granter.await_owners(now + GREETING_S)
            self._state.planner.tasks.await_greetings(now + GREETING_S)
            self._state.await_greetings(now + GREETING_S)
        roster = self._state.roster
        self._beat_at = now + roster.heartbeat_s
        received = {
            info.id: (
                info.incarnation,
                self._state.receiver.stream((info.id, info.incarnation)).received,
                info.echo,
            )
            for info in roster.workers.values()
            if info.present and not info.deaf
        }
        effects.append(Publish(Beat(self._state.me, roster.heartbeat_s, received)))
