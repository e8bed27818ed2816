"""A leader with a thousand workers, in simulated time: every worker keeps its permission."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest

from zcrawl.master import events as m
from zcrawl.master.master import Master
from zcrawl.mesh.messages import KIND_OF, PROTOCOL_VERSION, Beat, Body, Header, Message
from zcrawl.mesh.timing import HEARTBEAT_MOST_S, HEARTBEAT_S
from zcrawl.model.states import NodeState
from zcrawl.testing.store.store import FakeStore
from zcrawl.worker import events as w
from zcrawl.worker.machine import WorkerMachine

UTC = 1_700_000_000.0
TICK_S = 0.05
WATCH_S = 0.2
SETTLED_S = 8.0  # by then everybody is welcomed and knows the interval
LATENCY_S = 0.3  # at most, one way: a loaded leader answers late


class Crowd:
    """One leader, many workers, and a network that delays and loses."""

    def __init__(self, count: int, *, lossy: bool = False, seed: int = 1) -> None:
        self.now = 100.0
        self._rng = random.Random(seed)
        self._lossy = lossy
        self._counts: Counter[str] = Counter()  # messages by worker, from the crowd's settling on
        self._turn = itertools.count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._store = FakeStore()
        self._master = Master("m1", seen_slots=64)
        self.workers = [WorkerMachine(f"w{n}", n + 1, slots=4) for n in range(count)]
        self._wakes = [0.0] * count
        self.lapses: list[tuple[float, str]] = []  # when a worker had no permission
        self.suspected: set[str] = set()
        self._lead(m.Elected(0, alone=True))
        self._at(0.0, self._tick)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = until

    def leave(self, count: int) -> None:
        """The last ones say that they go."""
        for worker in self.workers[-count:]:
            self._tell(worker, w.DrainAsked())
        del self.workers[-count:]

    @property
    def interval_s(self) -> float:
        assert self._master.leader is not None
        return self._master.leader.state.roster.heartbeat_s

    def watch(self) -> None:
        """Look at every worker's permission and state from now on."""
        assert self._master.leader is not None
        roster = self._master.leader.state.roster
        for worker in self.workers:
            if worker.permitted_until < self.now:
                self.lapses.append((self.now, worker.worker))
            if roster.workers[worker.worker].state in (NodeState.SUSPECT, NodeState.LOST):
                self.suspected.add(worker.worker)
        self._at(WATCH_S, self.watch)

    def _at(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._turn), action))

    def _tick(self) -> None:
        self._lead(m.MasterTicked())
        self._at(TICK_S, self._tick)

    def _lead(self, event: m.MasterEvent) -> None:
        for effect in self._master.handle(event, self.now, UTC + self.now):
            match effect:
                case m.Execute(command):
                    self._lead(m.CommandDone(command, self._store.execute(command)))
                case m.Ask(query, tag):
                    self._lead(m.QueryDone(query, tag, self._store.query(query)))
                case m.Publish(Beat() as beat):
                    for worker in self.workers:
                        self._to_worker(worker, beat, 0)
                case m.SendToWorker(_, incarnation, _, body, sequence):
                    if incarnation <= len(self.workers):
                        self._to_worker(self.workers[incarnation - 1], body, sequence)

    def _to_worker(self, worker: WorkerMachine, body: Body, sequence: int) -> None:
        if not self._is_lost(worker, isinstance(body, Beat)):
            header = _header("m1", 9, self._master.epoch, body, sequence, 0)
            self._at(self._delay(), lambda: self._tell(worker, w.MasterMessageCame(header, body)))

    def _tell(self, worker: WorkerMachine, event: w.WorkerEvent) -> None:
        for effect in worker.handle(event, self.now):
            if isinstance(effect, w.SendToMaster | w.PublishToAll):
                self._to_leader(worker, effect)
        at = worker.next_wakeup(self.now)
        place = worker.incarnation - 1
        if at < float("inf") and not self.now < self._wakes[place] <= at:
            self._wakes[place] = at
            self._at(max(0.0, at - self.now), lambda: self._wake(worker, at))

    def _wake(self, worker: WorkerMachine, at: float) -> None:
        if self._wakes[worker.incarnation - 1] == at:
            self._wakes[worker.incarnation - 1] = 0.0
            self._tell(worker, w.WorkerTicked())

    def _to_leader(self, worker: WorkerMachine, sent: w.SendToMaster | w.PublishToAll) -> None:
        by_line = isinstance(sent, w.SendToMaster)
        if not self._is_lost(worker, not by_line):
            route = f"route of {worker.worker}".encode() if by_line else b""
            head = _header(worker.worker, worker.incarnation, worker.epoch, sent.body, 0, 0)
            came = m.MessageCame(Message(head, sent.body), route)
            self._at(self._delay(), lambda: self._lead(came))

    def _is_lost(self, worker: WorkerMachine, repeated: bool) -> bool:
        """Every ninth of what is said again in the next round, heartbeats and BEATs together."""
        if not self._lossy or not repeated or self.now < 100.0 + SETTLED_S:
            return False
        self._counts[worker.worker] += 1
        return (self._counts[worker.worker] + worker.incarnation) % 9 == 0

    def _delay(self) -> float:
        return self._rng.uniform(0.0, LATENCY_S)


def _header(
    source: str, incarnation: int, epoch: int, body: Body, sequence: int, subject: int
) -> Header:
    kind = int(KIND_OF[type(body)])
    return Header(PROTOCOL_VERSION, kind, 0, epoch, source, incarnation, sequence, subject)


@pytest.mark.parametrize("count", [100, 450, 1_000])
def test_permission_holds_although_one_message_of_a_round_is_lost(count: int) -> None:
    """If a heartbeat or its BEAT is lost, live workers keep permission and none is suspect."""
    crowd = Crowd(count, lossy=True)
    crowd.run(SETTLED_S)
    crowd.watch()
    crowd.run(12.0)
    assert not crowd.lapses
    assert not crowd.suspected


def test_permission_holds_with_two_thousand_workers() -> None:
    """The interval does not grow with them any further."""
    crowd = Crowd(2_000)
    crowd.run(SETTLED_S)
    crowd.watch()
    crowd.run(4.0)
    assert crowd.interval_s == HEARTBEAT_MOST_S
    assert not crowd.lapses
    assert not crowd.suspected


def test_a_crowd_that_shrinks_makes_nobody_suspect() -> None:
    """Those who stay hear of the shorter interval before their silence is judged by it."""
    crowd = Crowd(450)
    crowd.run(SETTLED_S)
    assert crowd.interval_s == HEARTBEAT_MOST_S
    crowd.watch()
    crowd.leave(400)
    crowd.run(15.0)
    assert crowd.interval_s == HEARTBEAT_S
    assert not crowd.lapses
    assert not crowd.suspected
    assert {worker._pulse.interval_s for worker in crowd.workers} == {HEARTBEAT_S}
