"""The workers as the leader sees them: present or lost, and able to hear the leader.

Called by the leader on each message of a worker and on each tick. One incarnation of a worker id
counts at a time; a second live process with the same id is refused (rule `watermarks`).

    joining ──heartbeat──▶ idle ⇄ busy ──3 silent──▶ suspect ──10 silent──▶ lost
       ▲                     │  └────────deaf──────────▲                     │
       │                     └──drained, or it leaves──▶ draining ──BYE──▶ offline
       └───────────────────────────── HELLO ──────────────────────────────────┘

A worker that does not hear the leader counts as silent, even if its messages arrive. BEAT does not
list it, so it starts no request after PERMISSION_S, and its hosts can move as safely as those of a
silent worker (rules `heartbeats` and `permission`).

The roster also stores the route to each process, a secret that came with its HELLO. Another
connection cannot replace the route of a living process.

A heartbeat only proves that the leader hears the worker. `Hearing` finds out whether the worker
hears the leader: the leader numbers its messages to a worker, and HEARTBEAT and HELLO report the
highest number that arrived. A message that is not covered in time counts as lost. After two losses
in a row, with nothing heard in between, the worker is *deaf*:

    hears ──loss──▶ lost one ──loss──▶ deaf
      ▲                │ a higher number     │ a HELLO that has heard what was sent since
      └────────────────┴─────────────────────┘

Without this, a worker whose heartbeats arrive but which gets no ASSIGN would keep its hosts
forever.
"""

from __future__ import annotations

import enum
import math
from typing import Final

import msgspec

from zcrawl.mesh.messages import Heartbeat, Hello
from zcrawl.mesh.timing import (
    HEARTBEAT_MOST_S,
    HEARTBEAT_S,
    LOOKAHEAD_S,
    LOST_AFTER,
    SUSPECT_AFTER,
    WINDOW_RESULTS,
    WORKERS_PER_HEARTBEAT_S,
)
from zcrawl.model.process_name import NOBODY, ProcessName, process_name
from zcrawl.model.states import NodeState
from zcrawl.model.vitals import WorkerVitals

PATIENCE_S = 3.0  # a message that is not reported after this time was lost
LOSSES_MOST = 2  # in a row


class Hearing(msgspec.Struct):
    """The numbers by which the leader sees whether a worker hears it."""

    sent: int = 0  # number of the newest message to this worker
    heard: int = 0  # the highest number that it reported
    losses: int = 0  # in a row
    written_off: int = 0  # messages up to this number were counted as lost
    awaited: int = 0  # number that it should report; 0: none
    awaited_since: float = 0.0
    welcomed: int = 0  # number of the first WELCOME to its newest HELLO
    must_hear: int = 0  # if deaf: a HELLO must report at least this number

    @property
    def deaf(self) -> bool:
        """Whether the worker does not hear the leader."""
        return self.must_hear > 0

    def next_number(self) -> int:
        """Return the number for the next message to the worker."""
        self.sent += 1
        return self.sent

    def heartbeat_reported(self, heard: int, now: float) -> bool:
        """Take the highest number of a heartbeat; return whether the worker is deaf now.

        The time of a loss starts at the first heartbeat after the message was sent. Messages that
        were written off do not count again, so a second loss is always of a message sent after the
        first loss.
        """
        self._progress(heard)
        if self.deaf:
            return False
        if not self.awaited:
            if self.sent > max(self.heard, self.written_off):
                self.awaited, self.awaited_since = self.sent, now
            return False
        if now - self.awaited_since <= PATIENCE_S:
            return False
        return self._lost()

    def hello_reported(self, heard: int) -> bool:
        """Take the highest number of a new HELLO; return whether the worker is deaf now.

        A worker that got no WELCOME sends no heartbeats; its next HELLO shows that the WELCOME was
        lost.
        """
        self._progress(heard)
        return not self.deaf and self.heard < self.welcomed and self._lost()

    def shows_hearing(self, heard: int) -> bool:
        """Return whether a HELLO shows that a deaf worker hears again."""
        return self.deaf and heard >= self.must_hear

    def joined(self) -> None:
        """Start anew after a HELLO: earlier messages are void, the WELCOME has the next number."""
        self.must_hear = self.awaited = 0
        self.written_off = self.sent
        self.welcomed = self.sent + 1

    def _progress(self, heard: int) -> None:
        heard = min(heard, self.sent)  # a worker cannot hear more than was sent
        if heard > self.heard:
            self.heard, self.losses, self.awaited = heard, 0, 0

    def _lost(self) -> bool:
        self.losses += 1
        self.written_off, self.awaited = self.sent, 0
        if self.losses < LOSSES_MOST:
            return False
        self.must_hear = self.sent + 1
        return True

    def check(self) -> None:
        assert 0 <= self.heard <= self.sent, "a worker cannot hear what was not sent"
        assert self.written_off <= self.sent and self.awaited <= self.sent
        assert self.deaf or self.losses < LOSSES_MOST, (
            "a worker is deaf after LOSSES_MOST losses in a row"
        )


# The states of a worker that is heard and works, or would.
_HEARD = (NodeState.IDLE, NodeState.BUSY, NodeState.DRAINING, NodeState.DRAINED)
FORGET_AFTER_S = 600.0  # lost and offline workers are removed after this time
PREFETCH_FACTOR = 1.25
PREFETCH_S = 0.25  # of the measured rate
QUICK_S = PREFETCH_S / 2  # an interval in which quick tasks are counted
AHEAD_FACTOR = 1.25  # early requests, relative to what the worker fetches in LOOKAHEAD_S


# A tuple: the hash of an Enum member is computed in Python.
_WORKING: Final = (NodeState.JOINING, NodeState.IDLE, NodeState.BUSY)


class WorkerInfo(msgspec.Struct):
    """One worker: its current process, state, load and credit."""

    id: str
    incarnation: int
    vitals: WorkerVitals  # of its last heartbeat
    hello: int
    heard_at: float  # its last message; for a deaf worker, the last that counted
    beat_at: float = 0.0  # its last heartbeat, or the HELLO before it
    route: bytes = b""  # the secret address of its connection
    hearing: Hearing = msgspec.field(default_factory=Hearing)
    state: NodeState = NodeState.JOINING
    version: str = ""
    hostname: str = ""
    pid: int = 0
    echo: float = 0.0  # sent_at of the newest heartbeat under the current HELLO
    draining: bool = False  # it said that it is leaving
    drained: bool = False  # a person drained it; stored, and no work until it is undrained
    life: int = 0  # number of the supervisor's life
    leases: int = 0  # open: assigned, result not received
    tasks: int = 0  # of `leases`: of tasks without a host, which use slots of their own
    # Tasks that it ended soon after they were sent: in this interval of QUICK_S, in the one before.
    quick_tasks: int = 0
    earlier_quick_tasks: int = 0
    uncommitted: int = 0  # leases whose result is received and not committed
    fetching: dict[tuple[int, int], int] = msgspec.field(
        default_factory=dict
    )  # (run, host) → requests that it had started, by its last heartbeat
    unstarted: set[tuple[int, int]] = msgspec.field(
        default_factory=set
    )  # lease tokens, by its last heartbeat
    ahead: int = 0  # leases that were sent before their host's pace allows them
    runs: dict[int, int] = msgspec.field(default_factory=dict)  # run → revision that was sent to it
    labels: frozenset[str] = frozenset()  # by which jobs are placed
    lacks: dict[int, str] = msgspec.field(
        default_factory=dict
    )  # run → the code or plugin that it lacks
    strays: dict[tuple[int, int], float] = msgspec.field(default_factory=dict)  # see `overdue`
    on_trial: int = 0  # seq of the crash suspect that it holds (rule `crashes`)
    reserved: int = 0  # seq of the suspect that it must hold alone
    name: ProcessName = NOBODY  # the identity of the process, as hosts.owners stores it

    def __post_init__(self) -> None:
        self.name = process_name(self.id, self.incarnation)

    @property
    def usable(self) -> bool:
        """Whether it may get new work."""
        return self.state in _WORKING and not (self.draining or self.drained)

    @property
    def present(self) -> bool:
        """Whether it may still work on what it was given."""
        return self.state not in (NodeState.LOST, NodeState.OFFLINE)

    @property
    def deaf(self) -> bool:
        """Whether it does not hear the leader, although the leader hears it."""
        return self.hearing.deaf

    @property
    def credit(self) -> int:
        """How many more requests it may be sent that can start at once (rule `credit`)."""
        if self.reserved:
            return 0
        vitals = self.vitals
        prefetch = max(PREFETCH_FACTOR * vitals.slots, PREFETCH_S * vitals.rate)
        return int(prefetch) - self.leases + self.ahead + self.tasks

    @property
    def credit_ahead(self) -> int:
        """How many more early requests it may be sent, which wait for their hosts' pace.

        All requests that it holds must fit into its outbox. The limit is what it fetches in
        LOOKAHEAD_S, so that a busy worker does not hold requests that others could do.
        """
        if self.reserved:
            return 0
        vitals = self.vitals
        most = max(PREFETCH_FACTOR * vitals.slots, AHEAD_FACTOR * LOOKAHEAD_S * vitals.rate)
        return min(int(most) - self.ahead, WINDOW_RESULTS - self.leases)

    @property
    def task_credit(self) -> int:
        """How many more tasks without a host it may be sent (rule `tasks`).

        All that it holds must fit into its outbox. It gets more than it has slots only as far as
        it finishes tasks fast: a long task must not wait for another one. Heartbeats tell the rate
        only after a second, so tasks that ended quickly just now count as well.
        """
        if self.reserved:
            return 0
        vitals = self.vitals
        quick = self.quick_tasks + self.earlier_quick_tasks
        most = vitals.task_slots + max(int(PREFETCH_S * vitals.task_rate), quick)
        return min(most if vitals.task_slots else 0, WINDOW_RESULTS) - self.tasks

    def task_ended(self, took_s: float) -> None:
        """Note that a task ended so long after it was sent."""
        self.quick_tasks += took_s < PREFETCH_S

    def let_quick_tasks_age(self) -> None:
        """Called each QUICK_S: what ended quickly counts for at most two such intervals."""
        self.earlier_quick_tasks, self.quick_tasks = self.quick_tasks, 0

    def next_number(self) -> int:
        """Return the number for the next message to the worker."""
        return self.hearing.next_number()


class Greeting(enum.Enum):
    """How the leader answers a HELLO."""

    WELCOME = "welcome"
    AGAIN = "again"  # a repeated HELLO: repeat the answer
    OLD = "old"  # overtaken by a newer HELLO: ignore
    ANEW = "anew"  # it was lost after this HELLO was answered: ask for a new HELLO
    DEAF = "deaf"  # it does not hear the leader: wait for a HELLO that heard a newer message
    DUPLICATE = "duplicate"  # another live process has this id


class Roster:
    """All workers by id."""

    def __init__(self) -> None:
        self.workers: dict[str, WorkerInfo] = {}
        self._slowest_s = HEARTBEAT_S  # the longest interval that a worker may still use
        self._slowest_until = -math.inf

    @property
    def heartbeat_s(self) -> float:
        """The interval of heartbeats, longer with more workers."""
        if len(self.workers) <= WORKERS_PER_HEARTBEAT_S:
            return HEARTBEAT_S  # asked at each tick: most clusters are small
        present = sum(info.present for info in self.workers.values())
        interval_s = HEARTBEAT_S * max(1.0, present / WORKERS_PER_HEARTBEAT_S)
        return min(HEARTBEAT_MOST_S, interval_s)

    def _silence_interval_s(self, now: float) -> float:
        """Return the interval by which silence is measured.

        A shorter interval counts only when all workers know it: its BEAT may be one old interval
        away, and the heartbeat after it another.
        """
        current = self.heartbeat_s
        if current >= self._slowest_s or now >= self._slowest_until:
            self._slowest_s, self._slowest_until = current, now + 2 * current
        return self._slowest_s

    def judge(self, worker: str, incarnation: int, hello: Hello, route: bytes) -> Greeting:
        """Return how to answer a HELLO; change nothing.

        A process keeps its route while it lives, so a HELLO with another route is from another
        process.
        """
        current_info = self.workers.get(worker)
        if current_info is None:
            return Greeting.WELCOME
        if current_info.incarnation == incarnation and (
            current_info.route == route or not current_info.present
        ):
            if hello.hello < current_info.hello:
                return Greeting.OLD
            if current_info.deaf and not current_info.hearing.shows_hearing(hello.heard):
                return Greeting.DEAF
            if hello.hello > current_info.hello:
                return Greeting.WELCOME
            return Greeting.AGAIN if current_info.present else Greeting.ANEW
        # A silent worker may still start requests until it is lost.
        replaced = hello.replaces == current_info.incarnation != incarnation
        dead = replaced or not current_info.present
        return Greeting.WELCOME if dead else Greeting.DUPLICATE

    def join(
        self, worker: str, incarnation: int, hello: Hello, route: bytes, now: float
    ) -> WorkerInfo:
        """Add a worker, or reset the entry of a process that said HELLO again."""
        current_info = self.workers.get(worker)
        if (
            current_info is not None and current_info.incarnation == incarnation
        ):  # its leases point to it
            current_info.hello, current_info.heard_at, current_info.echo = hello.hello, now, 0.0
            current_info.beat_at = now
            current_info.state, current_info.runs, current_info.lacks = NodeState.JOINING, {}, {}
            current_info.labels = frozenset(hello.labels)
            current_info.route = route
            current_info.hearing.joined()
            return current_info
        info = WorkerInfo(
            id=worker,
            incarnation=incarnation,
            vitals=WorkerVitals(slots=hello.slots, task_slots=hello.task_slots),
            hello=hello.hello,
            heard_at=now,
            beat_at=now,
            route=route,
            life=hello.life,
            labels=frozenset(hello.labels),
            version=hello.version,
            hostname=hello.hostname,
            pid=hello.pid,
        )
        info.hearing.joined()
        self.workers[worker] = info
        return info

    def process(self, worker: str, incarnation: int) -> WorkerInfo | None:
        """Return the worker if this incarnation is the current one, even if it is lost."""
        info = self.workers.get(worker)
        return None if info is None or info.incarnation != incarnation else info

    def find(self, worker: str, incarnation: int) -> WorkerInfo | None:
        """Return the worker if this incarnation is the current one and is present."""
        info = self.process(worker, incarnation)
        return None if info is None or not info.present else info

    def heartbeat(self, info: WorkerInfo, beat: Heartbeat, now: float) -> None:
        """Store the contents of a heartbeat."""
        info.heard_at = info.beat_at = now
        info.vitals = beat.vitals
        info.draining = info.draining or beat.draining
        if beat.hello == info.hello:
            info.echo = max(info.echo, beat.sent_at)
        self._settle_state(info)

    def silence_s(self, info: WorkerInfo, now: float) -> float:
        """Return how long a worker was silent; 0 if only a few heartbeats were lost."""
        gap_s = now - info.beat_at
        return gap_s if gap_s > SUSPECT_AFTER * self.heartbeat_s else 0.0

    def heartbeat_reported(self, info: WorkerInfo, heard: int, now: float) -> bool:
        """Take the highest number of a heartbeat; return whether the worker is deaf now."""
        return self._suspect_if_deaf(info, info.hearing.heartbeat_reported(heard, now))

    def hello_reported(self, info: WorkerInfo, heard: int) -> bool:
        """Take the highest number of a new HELLO; return whether the worker is deaf now."""
        return self._suspect_if_deaf(info, info.hearing.hello_reported(heard))

    def _suspect_if_deaf(self, info: WorkerInfo, deaf: bool) -> bool:
        if deaf and info.present:
            info.state = NodeState.SUSPECT
        return deaf

    def hear(self, info: WorkerInfo, now: float) -> None:
        """Note that a message of the worker arrived."""
        if info.deaf:
            return
        info.heard_at = now
        if info.state is NodeState.SUSPECT:
            self._settle_state(info)

    def _settle_state(self, info: WorkerInfo) -> None:
        """Set the state of a worker that is heard."""
        if info.draining or (info.drained and info.leases):
            info.state = NodeState.DRAINING
        elif info.drained:
            info.state = NodeState.DRAINED
        else:
            info.state = NodeState.BUSY if info.leases else NodeState.IDLE

    def set_drained(self, info: WorkerInfo, drained: bool) -> None:
        """Store that a person drained or undrained the worker."""
        info.drained = drained
        if info.state in _HEARD:
            self._settle_state(info)

    def leave(self, info: WorkerInfo) -> None:
        """Note that the worker said BYE."""
        info.state = NodeState.OFFLINE

    def tick(self, now: float) -> list[WorkerInfo]:
        """Make silent workers suspect, then lost; return those that were lost just now."""
        lost = []
        interval_s = self._silence_interval_s(now)
        for info in list(self.workers.values()):
            silent = now - info.heard_at
            if not info.present:
                if silent > FORGET_AFTER_S:
                    del self.workers[info.id]
                continue
            if silent > LOST_AFTER * interval_s:
                info.state = NodeState.LOST
                lost.append(info)
            elif info.deaf or silent > SUSPECT_AFTER * interval_s:
                info.state = NodeState.SUSPECT
            elif info.state is not NodeState.JOINING:
                self._settle_state(info)
        return lost

    def check(self) -> None:
        for info in self.workers.values():
            assert 0 <= info.ahead <= info.leases, "early leases are a part of all leases"
            assert 0 <= info.tasks <= info.leases - info.ahead, "tasks are a part of all leases"
            assert info.id and info.vitals.slots > 0
            assert not (info.deaf and info.usable), "a deaf worker gets no work"
            info.hearing.check()
