"""The election machine on a simulated Consul: the coordinator of simulated processes.

Like the real one, it makes one call at a time. A call that was sent takes effect even if its
process is then paused or dead, and answers are delayed by the simulated network.
Used by the contract suite and by the simulation of many masters under a seed.
"""

from __future__ import annotations

import functools
import heapq
import random
from collections.abc import Callable
from typing import Final

from zcrawl.coord import calls as c
from zcrawl.coord.election import Election
from zcrawl.coord.members import watched_by
from zcrawl.coord.ports import Condition, Member, MemberRole, OnEvent
from zcrawl.testing.lock_service import FakeConsul

CALL_TIMEOUT_S: Final = 1.5
LOOK_AGAIN_S: Final = 10.0  # blocking queries return without change
CONSUL_STEP_S: Final = 0.05


class Timeline:
    """Simulated time: a heap of things to happen."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 100.0
        self.rng = random.Random(seed)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = 0

    def at(self, delay: float, action: Callable[[], None]) -> None:
        self._turn += 1
        heapq.heappush(self._heap, (self.now + delay, self._turn, action))

    def latency(self) -> float:
        return self.rng.uniform(0.001, 0.01)

    def run_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Run until `done` is true; return whether it became true in time."""
        deadline = self.now + timeout_s
        while not done():
            if not self._heap or self._heap[0][0] > deadline:
                self.now = deadline
                return done()
            self.now, _, action = heapq.heappop(self._heap)
            action()
        return True


def let_run(consul: FakeConsul, time: Timeline) -> None:
    """Advance Consul's own timers, also without calls."""
    consul.advance(time.now)
    time.at(CONSUL_STEP_S, lambda: let_run(consul, time))


class SimCoordinator:
    """Implements `coord.ports.Coordinator`; can be paused, killed, stalled and cut off."""

    def __init__(self, consul: FakeConsul, time: Timeline) -> None:
        self._consul = consul
        self._time = time
        self._election: Election | None = None
        self._on_event: OnEvent | None = None
        self._calls: list[c.Call] = []
        self._calling = False
        self._waiting: list[c.ElectionEvent] = []
        self._watch_due = False
        self._read_at = 0.0
        self.alive = True
        self.paused = False
        self.cut_until = 0.0  # our own way to Consul
        self.lossy = 0.0  # share of answers that get lost

    @property
    def election(self) -> Election:
        assert self._election is not None
        return self._election

    # ------------------------------------------------------------ the port

    def start(self, me: Member, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._election = Election(me, self._time.now)
        self._consul.on_change.append(self._look_soon)
        self._tick()
        self._look_again()

    def loop_alive(self) -> None:
        if not self.paused:
            self._take(c.LoopLived(self._time.now))

    def update(self, condition: Condition) -> None:
        self._take(c.ConditionSet(condition))

    def resign(self) -> None:
        self._take(c.ResignAsked())

    async def close(self) -> None:
        self._on_event = None
        for effect in self.election.handle(c.CloseAsked(), self._time.now):
            if not isinstance(effect, c.Tell):
                self._consul.perform(self.election.me, effect, self._time.now)
        self.kill()

    # ------------------------------------------------------------ what can happen to a process

    def kill(self) -> None:
        self.alive = False
        if self._look_soon in self._consul.on_change:
            self._consul.on_change.remove(self._look_soon)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self._take(event)

    # ------------------------------------------------------------ machine

    def _tick(self) -> None:
        if not self.alive:
            return
        # A paused process does not collect ticks; it has one when it wakes.
        if not self.paused:
            self._take(c.ElectionTicked())
        wake = self.election.next_wakeup(self._time.now) - self._time.now
        self._time.at(max(wake, 0.01), self._tick)

    def _take(self, event: c.ElectionEvent) -> None:
        if not self.alive:
            return
        if self.paused:
            self._waiting.append(event)
            return
        effects = self.election.handle(event, self._time.now)
        self.election.check()
        for effect in effects:
            if isinstance(effect, c.Tell):
                if self._on_event is not None:
                    self._on_event(effect.event)
            elif isinstance(effect, c.PassCheck):
                self._calls.insert(0, effect)
            else:
                self._calls.append(effect)
        self._call_next()

    # ------------------------------------------------------------ calls

    def _call_next(self) -> None:
        if self._calling or not self._calls:
            return
        self._calling = True
        call = self._calls.pop(0)
        self._time.at(self._time.latency(), lambda: self._arrive(call))

    def _arrive(self, call: c.Call) -> None:
        """Carry out a call at Consul; from here on, the state of the caller does not matter."""
        failed = c.CallFailed(call, c.Trouble.AWAY, "does not answer in time")
        if self._is_cut():
            self._time.at(CALL_TIMEOUT_S, lambda: self._answered(failed))
            return
        answer = self._consul.perform(self.election.me, call, self._time.now)
        if self._time.rng.random() < self.lossy:
            self._time.at(CALL_TIMEOUT_S, lambda: self._answered(failed))
            return
        self._time.at(self._time.latency(), lambda: self._answered(answer))

    def _answered(self, answer: c.CallAnswer) -> None:
        if self.paused:
            self._time.at(0.05, lambda: self._answered(answer))  # it waits in the socket
            return
        self._calling = False
        self._take(answer)

    def _is_cut(self) -> bool:
        return self.cut_until > self._time.now

    # ------------------------------------------------------------ watches

    def _look_soon(self) -> None:
        if not self._watch_due:
            self._watch_due = True
            self._time.at(self._time.latency(), self._look)

    def _look_again(self) -> None:
        if self.alive:
            self._look_soon()
            self._time.at(LOOK_AGAIN_S, self._look_again)

    def _look(self) -> None:
        self._watch_due = False
        if self._is_cut() or not self.alive:
            return  # its connection is dead; it hears nothing
        me, now = self.election.me, self._time.now
        roles = watched_by(me.role)
        readings: list[c.ElectionEvent] = []
        if MemberRole.MASTER in roles:
            readings.append(self._consul.read_lock(me.cluster, now))
        readings += [self._consul.read_members(role, me.cluster, now) for role in roles]
        # In order among themselves, but they may overtake the answers of calls.
        self._read_at = max(self._read_at, now + self._time.latency())
        for reading in readings:
            self._time.at(self._read_at - now, functools.partial(self._take, reading))
