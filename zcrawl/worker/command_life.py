"""How a command of a shell job ends, with everything that it started.

The machine of `extensions.shell_child`, the process that watches one command. Pure: events and the
time come in, effects go out. The phases:

| phase   | event                                      | next                             | effect |
|---------|--------------------------------------------|----------------------------------|--------|
| running | the command exits                          | killing: what it left behind     | KILL   |
| running | its time is over                           | ending, `timeout`                | TERM   |
| running | the worker cancels it                      | ending, `cancelled`              | TERM   |
| running | the worker is gone                         | ending, `worker_gone`            | TERM   |
| running | it has too many processes                  | killing, `too_many_processes`    | KILL   |
| running | its processes use too much memory          | killing, `memory`                | KILL   |
| ending  | the grace is over                          | killing                          | KILL   |
| ending  | the worker is gone                         | ending, with the shorter grace   |        |
| killing | any, and every few milliseconds            | killing                          | KILL   |
| ending, killing | no child is left                   | over                             |        |

A command beyond its limits gets no grace: it would go on forking, or take more memory.

Invariants: a command that has not exited is never `over`; the cause is that of the first event.

The watching process is a subreaper: whatever the command starts becomes its child when the parent
dies, also a daemon that left its session. So KILL needs to know only its own children: each time
they die, their children become its own, until none is left. Nothing else can take the number of a
child that was not waited for, so no other process is ever hit.
"""

from __future__ import annotations

import enum
import math
from typing import Final

GRACE_S: Final = 2.0  # between TERM and KILL
SHORT_GRACE_S: Final = 0.5  # if the worker is gone: all is over within two seconds
KILL_EVERY_S: Final = 0.005


class LifePhase(enum.Enum):
    RUNNING = "running"
    ENDING = "told to end"
    KILLING = "killing"
    OVER = "over"


class LifeEvent(enum.Enum):
    EXITED = "exited"  # the command itself
    CANCELLED = "cancelled"
    WORKER_GONE = "worker_gone"
    TOO_MANY_PROCESSES = "too_many_processes"
    MEMORY = "memory"
    NO_CHILDREN = "no_children"
    TICKED = "ticked"


class LifeEffect(enum.Enum):
    TERM = "term"  # SIGTERM to the command's group, and to every child
    KILL = "kill"  # SIGKILL to every child


_BEYOND_LIMITS: Final = (LifeEvent.TOO_MANY_PROCESSES, LifeEvent.MEMORY)


class CommandLife:
    def __init__(self, timeout_s: float, now: float) -> None:
        self.phase = LifePhase.RUNNING
        self.cause = ""  # exited, timeout, or the value of the event that ended it
        self._exited = False
        self._deadline = now + timeout_s
        self._kill_at = math.inf

    def handle(self, event: LifeEvent, now: float) -> list[LifeEffect]:
        if event is LifeEvent.EXITED:
            self._exited = True
        elif event is LifeEvent.NO_CHILDREN and self._exited:
            self.cause = self.cause or "exited"
            self.phase = LifePhase.OVER
        if self.phase is LifePhase.OVER:
            return []
        if self.phase is LifePhase.RUNNING:
            return self._run(event, now)
        if event is LifeEvent.WORKER_GONE:
            self._kill_at = min(self._kill_at, now + SHORT_GRACE_S)
        if now >= self._kill_at:
            self.phase = LifePhase.KILLING
        return [LifeEffect.KILL] if self.phase is LifePhase.KILLING else []

    def _run(self, event: LifeEvent, now: float) -> list[LifeEffect]:
        if self._exited:
            self.phase, self.cause, self._kill_at = LifePhase.KILLING, "exited", now
            return [LifeEffect.KILL]
        if event in _BEYOND_LIMITS:
            self.phase, self.cause, self._kill_at = LifePhase.KILLING, event.value, now
            return [LifeEffect.KILL]
        if event in (LifeEvent.CANCELLED, LifeEvent.WORKER_GONE):
            self.cause = event.value
        elif now >= self._deadline:
            self.cause = "timeout"
        else:
            return []
        grace_s = SHORT_GRACE_S if event is LifeEvent.WORKER_GONE else GRACE_S
        self.phase, self._kill_at = LifePhase.ENDING, now + grace_s
        return [LifeEffect.TERM]

    def next_wakeup(self, now: float) -> float:
        match self.phase:
            case LifePhase.RUNNING:
                return self._deadline
            case LifePhase.ENDING:
                return self._kill_at
            case LifePhase.KILLING:
                return now + KILL_EVERY_S
            case LifePhase.OVER:
                return now

    def check(self) -> None:
        assert self._exited or self.phase is not LifePhase.OVER, "a command that runs is not over"
        assert bool(self.cause) == (self.phase is not LifePhase.RUNNING), "an end has a cause"
