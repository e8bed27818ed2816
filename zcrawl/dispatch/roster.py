"""The workers as the leader knows them: who is there, how alive, and whether it hears.

Called by the leader on each message of a worker and on each tick. One incarnation of a worker id
counts at a time; a second live process with the same id is refused (rule `watermarks`).

    joining ──heartbeat──▶ idle ⇄ busy ──3 silent──▶ suspect ──10 silent──▶ lost
       ▲                     │  └────────deaf──────────▲                     │
       │                     └──drained, or it leaves──▶ draining ──BYE──▶ offline
       └───────────────────────────── HELLO ──────────────────────────────────┘

A worker that does not hear the leader counts as silent from then on, whatever it says:
BEAT does not list it, so it starts no request later than PERMISSION_S, and its hosts move with the
same certainty as those of a worker that is not heard (rules `heartbeats` and `permission`).

The roster also has the way to each process: its route, a secret, as its HELLO came. It is kept
as long as the entry, and no other line of a living process takes its place.

Heartbeats prove only that the leader hears a worker. Whether the worker hears the leader is seen
by numbers (`Hearing`): the leader numbers what it sends to a worker, HEARTBEAT and HELLO say the
highest number that came in. What is not covered in time is lost. After two losses in a row, with
nothing heard in between, the worker is *deaf*:

    hears ──loss──▶ lost one ──loss──▶ deaf
      ▲                │ a higher number     │ a HELLO that has heard what was sent since
      └────────────────┴─────────────────────┘

A worker whose heartbeats arrive and whose ASSIGNs do not would keep its hosts for ever otherwise.
"""

from __future__ import annotations

import enum
import math

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
from zcrawl.model.process_name import ProcessName, process_name
from zcrawl.model.states import NodeState
from zcrawl.model.vitals import WorkerVitals

PATIENCE_S = 3.0  # a message that is not heard of by then was lost
LOSSES_MOST = 2  # in a row


class Hearing(msgspec.Struct):
    sent: int = 0  # number of the newest message to this worker
    heard: int = 0  # the highest that it has heard, by its word
    losses: int = 0  # in a row
    written_off: int = 0  # messages up to here count as lost, once
    awaited: int = 0  # number that it should hear by now; 0: none
    awaited_since: float = 0.0
    welcomed: int = 0  # number of the first WELCOME to its newest HELLO
    must_hear: int = 0  # deaf: a HELLO counts only if it has heard this or a later one

    @property
    def deaf(self) -> bool:
        return self.must_hear > 0

    def next_number(self) -> int:
        self.sent += 1
        return self.sent

    def reported(self, heard: int, now: float) -> bool:
        """A heartbeat says how far it has heard; whether it became deaf by that.

        The clock of a loss starts at the first heartbeat after the message was sent, and what was
        written off counts no more: a second loss is one of something that was sent after the first
        was noticed.
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

    def greeted(self, heard: int) -> bool:
        """A HELLO under a new number; whether it became deaf by that. A worker that got no WELCOME
        sends no heartbeats: its next HELLO says that the last WELCOME was lost."""
        self._progress(heard)
        return not self.deaf and self.heard < self.welcomed and self._lost()

    def proves(self, heard: int) -> bool:
        """Whether a HELLO shows that a deaf worker hears again."""
        return self.deaf and heard >= self.must_hear

    def joined(self) -> None:
        """It is welcomed: what it was sent before is void, and the WELCOME has the next number."""
        self.must_hear = self.awaited = 0
        self.written_off = self.sent
        self.welcomed = self.sent + 1

    def _progress(self, heard: int) -> None:
        heard = min(heard, self.sent)  # more than was sent is not possible
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
        assert 0 <= self.heard <= self.sent, "nobody hears what was not sent"
        assert self.written_off <= self.sent and self.awaited <= self.sent
        assert self.deaf or self.losses < LOSSES_MOST, "losses in a row make deaf"


FORGET_AFTER_S = 600.0  # lost and offline workers leave the list
PREFETCH_FACTOR = 1.25
PREFETCH_S = 0.25  # of the measured rate
AHEAD_FACTOR = 1.25  # what waits for a pace, beyond what the measured rate takes in LOOKAHEAD_S


class WorkerInfo(msgspec.Struct):
    id: str
    incarnation: int
    vitals: WorkerVitals  # of its last heartbeat
    hello: int
    heard_at: float  # its last word; of a deaf one: the last that counted
    beat_at: float = 0.0  # its last heartbeat, or the HELLO before it
    route: bytes = b""  # the way to it
    hearing: Hearing = msgspec.field(default_factory=Hearing)
    state: NodeState = NodeState.JOINING
    version: str = ""
    hostname: str = ""
    pid: int = 0
    echo: float = 0.0  # sent_at of the newest heartbeat under the current HELLO
    draining: bool = False  # by its own word: it leaves
    drained: bool = False  # by a person's, which is stored: it gets nothing until it is undrained
    life: int = 0  # of its supervisor
    leases: int = 0  # open: assigned, result not received
    unstarted: set[tuple[int, int]] = msgspec.field(default_factory=set)  # tokens, by its last word
    ahead: int = 0  # of these, sent ahead of their hosts' pace
    runs: dict[int, int] = msgspec.field(default_factory=dict)  # run → revision it was told
    lacks: dict[int, str] = msgspec.field(default_factory=dict)  # run → what it has not
    strays: dict[tuple[int, int], float] = msgspec.field(default_factory=dict)  # see `overdue`
    on_trial: int = 0  # seq of the crash suspect that it holds (rule `crashes`)
    reserved: int = 0  # seq of the suspect that it is to hold, or holds, all alone

    @property
    def name(self) -> ProcessName:
        """Identity of the process, as hosts.owners stores it."""
        return process_name(self.id, self.incarnation)

    @property
    def usable(self) -> bool:
        """Whether new work may go there."""
        return not (self.draining or self.drained) and self.state in (
            NodeState.JOINING,
            NodeState.IDLE,
            NodeState.BUSY,
        )

    @property
    def present(self) -> bool:
        """Whether it may still act on what it was given."""
        return self.state not in (NodeState.LOST, NodeState.OFFLINE)

    @property
    def deaf(self) -> bool:
        """Whether it does not hear the leader, although the leader hears it."""
        return self.hearing.deaf

    @property
    def credit(self) -> int:
        """How many more assignments it may be sent that can start at once (rule `credit`)."""
        if self.reserved:
            return 0
        vitals = self.vitals
        prefetch = max(PREFETCH_FACTOR * vitals.slots, PREFETCH_S * vitals.rate)
        return int(prefetch) - self.leases + self.ahead

    @property
    def credit_ahead(self) -> int:
        """How many more it may be sent that wait there for their hosts' pace. What it holds in all
        fits into its outbox, and it is not more than it does in that time: one whose slots are
        full holds little of what others could do."""
        if self.reserved:
            return 0
        vitals = self.vitals
        most = max(PREFETCH_FACTOR * vitals.slots, AHEAD_FACTOR * LOOKAHEAD_S * vitals.rate)
        return min(int(most) - self.ahead, WINDOW_RESULTS - self.leases)

    def next_number(self) -> int:
        return self.hearing.next_number()


class Greeting(enum.Enum):
    WELCOME = "welcome"
    AGAIN = "again"  # the HELLO that is in force already: repeat the answer
    OLD = "old"  # overtaken by a newer HELLO: ignore
    ANEW = "anew"  # it was lost since this HELLO was answered: only a new one voids the answer
    DEAF = "deaf"  # it does not hear us: only a HELLO that has heard something new counts
    DUPLICATE = "duplicate"  # another live process has this id


class Roster:
    def __init__(self) -> None:
        self.workers: dict[str, WorkerInfo] = {}
        self._slowest_s = HEARTBEAT_S  # the interval of those who have not heard of a shorter one
        self._slowest_until = -math.inf

    @property
    def heartbeat_s(self) -> float:
        """How often workers and the leader say that they live, by the number of those who do."""
        present = sum(info.present for info in self.workers.values())
        interval_s = HEARTBEAT_S * max(1.0, present / WORKERS_PER_HEARTBEAT_S)
        return min(HEARTBEAT_MOST_S, interval_s)

    def _judged_by_s(self, now: float) -> float:
        """The interval by which silence is judged: a shorter one counts when everybody has heard of
        it. Its BEAT may be one old interval away, the heartbeat after it another."""
        current = self.heartbeat_s
        if current >= self._slowest_s or now >= self._slowest_until:
            self._slowest_s, self._slowest_until = current, now + 2 * current
        return self._slowest_s

    def judge(self, worker: str, incarnation: int, hello: Hello, route: bytes) -> Greeting:
        """What a HELLO is to the leader; changes nothing. A process keeps its route as long as it
        lives, so one of another route is another process, whatever number it says it has."""
        current_info = self.workers.get(worker)
        if current_info is None:
            return Greeting.WELCOME
        if current_info.incarnation == incarnation and (
            current_info.route == route or not current_info.present
        ):
            if hello.hello < current_info.hello:
                return Greeting.OLD
            if current_info.deaf and not current_info.hearing.proves(hello.heard):
                return Greeting.DEAF
            if hello.hello > current_info.hello:
                return Greeting.WELCOME
            return Greeting.AGAIN if current_info.present else Greeting.ANEW
        # Silence alone is no proof before the worker is lost: it may still start requests.
        replaced = hello.replaces == current_info.incarnation != incarnation
        dead = replaced or not current_info.present
        return Greeting.WELCOME if dead else Greeting.DUPLICATE

    def join(
        self, worker: str, incarnation: int, hello: Hello, route: bytes, now: float
    ) -> WorkerInfo:
        current_info = self.workers.get(worker)
        if (
            current_info is not None and current_info.incarnation == incarnation
        ):  # its leases point to it
            current_info.hello, current_info.heard_at, current_info.echo = hello.hello, now, 0.0
            current_info.beat_at = now
            current_info.state, current_info.runs, current_info.lacks = NodeState.JOINING, {}, {}
            current_info.route = route
            current_info.hearing.joined()
            return current_info
        info = WorkerInfo(
            id=worker,
            incarnation=incarnation,
            vitals=WorkerVitals(slots=hello.slots),
            hello=hello.hello,
            heard_at=now,
            beat_at=now,
            route=route,
            life=hello.life,
            version=hello.version,
            hostname=hello.hostname,
            pid=hello.pid,
        )
        info.hearing.joined()
        self.workers[worker] = info
        return info

    def process(self, worker: str, incarnation: int) -> WorkerInfo | None:
        """The worker, if this incarnation of it is the one that counts; it may be lost."""
        info = self.workers.get(worker)
        return None if info is None or info.incarnation != incarnation else info

    def find(self, worker: str, incarnation: int) -> WorkerInfo | None:
        """The worker, if this incarnation of it is the one that counts and is present."""
        info = self.process(worker, incarnation)
        return None if info is None or not info.present else info

    def heartbeat(self, info: WorkerInfo, beat: Heartbeat, now: float) -> None:
        info.heard_at = info.beat_at = now
        info.vitals = beat.vitals
        info.draining = info.draining or beat.draining
        if beat.hello == info.hello:
            info.echo = max(info.echo, beat.sent_at)
        self._settle_state(info)

    def silence_s(self, info: WorkerInfo, now: float) -> float:
        """How long a worker was silent beyond a few lost heartbeats; 0: not at all."""
        gap_s = now - info.beat_at
        return gap_s if gap_s > SUSPECT_AFTER * self.heartbeat_s else 0.0

    def reported(self, info: WorkerInfo, heard: int, now: float) -> bool:
        """How far it has heard us, by a heartbeat; whether it is deaf from now on."""
        return self._suspected(info, info.hearing.reported(heard, now))

    def greeted(self, info: WorkerInfo, heard: int) -> bool:
        """The same, by a HELLO under a new number."""
        return self._suspected(info, info.hearing.greeted(heard))

    def _suspected(self, info: WorkerInfo, deaf: bool) -> bool:
        if deaf and info.present:
            info.state = NodeState.SUSPECT
        return deaf

    def hear(self, info: WorkerInfo, now: float) -> None:
        if info.deaf:
            return
        info.heard_at = now
        if info.state is NodeState.SUSPECT:
            self._settle_state(info)

    def _settle_state(self, info: WorkerInfo) -> None:
        if info.draining or info.drained:
            info.state = NodeState.DRAINING
        else:
            info.state = NodeState.BUSY if info.leases else NodeState.IDLE

    def set_drained(self, info: WorkerInfo, drained: bool) -> None:
        info.drained = drained
        if info.state in (NodeState.IDLE, NodeState.BUSY, NodeState.DRAINING):
            self._settle_state(info)

    def leave(self, info: WorkerInfo) -> None:
        info.state = NodeState.OFFLINE

    def tick(self, now: float) -> list[WorkerInfo]:
        """Silent workers become suspect, then lost; returns those that were lost just now."""
        lost = []
        interval_s = self._judged_by_s(now)
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
            assert 0 <= info.ahead <= info.leases, "leases are counted"
            assert info.id and info.vitals.slots > 0
            assert not (info.deaf and info.usable), "who does not hear gets no work"
            info.hearing.check()
