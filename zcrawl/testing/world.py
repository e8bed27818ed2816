"""The simulated world: masters, workers, network, lock, store and web in one process, one seed.

The machines are the real ones; only the edge is fake. Time is a heap of events, so a crawl with
crashes, pauses, partitions and leader changes takes milliseconds, and the same seed gives the
same story. `run()` ends when all submitted runs have ended; `verify()` states what must be true
then, whatever happened (G1-G5).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping

from zcrawl.errors import StoreError, StoreUnavailable
from zcrawl.master import events as m
from zcrawl.master.master import MasterState
from zcrawl.mesh.messages import (
    KIND_OF,
    PROTOCOL_VERSION,
    BadBody,
    Beat,
    Body,
    Header,
    Message,
    Result,
)
from zcrawl.model.spec import Politeness, Recrawl
from zcrawl.store.commands import Command
from zcrawl.store.queries import Query
from zcrawl.testing.chaos import Chaos
from zcrawl.testing.clients import Clients
from zcrawl.testing.faults import Faults
from zcrawl.testing.fetches import Fetches
from zcrawl.testing.operators import Operators
from zcrawl.testing.outputs import SimOutputs
from zcrawl.testing.processes import Process, SimMaster, SimWorker
from zcrawl.testing.store.store import FakeStore, Fault
from zcrawl.testing.tasks import SimTasks, TaskJob
from zcrawl.testing.web import FakeWeb
from zcrawl.worker import events as w

START_UTC = 1_700_000_000.0
LOCK_TTL_S = 3.0
PEER = b"peer:"  # the route of a request that another master forwarded
GIVE_UP_S = 900.0


class World:
    def __init__(
        self,
        seed: int,
        faults: Faults,
        *,
        masters: int = 2,
        workers: int = 3,
        pages: int = 25,
        hosts: int = 3,
        politeness: Politeness | None = None,
        runs: int = 2,
        recrawl: Recrawl | None = None,
        tasks: tuple[TaskJob, ...] = (),
        labels: tuple[tuple[str, ...], ...] = (),
        label_limits: Mapping[str, int] | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.recrawl = recrawl or Recrawl()
        self.now = 100.0
        self.began = self.now
        self.store = FakeStore()
        self.web = FakeWeb(self.rng, pages, hosts, killers=faults.killers, poison=faults.poison)
        self.web.moves_at = self.now + 20.0
        self.masters = {
            name: SimMaster(name, label_limits) for name in (f"m{n}" for n in range(masters))
        }
        self.workers = {
            f"w{n}": SimWorker(f"w{n}", labels[n] if n < len(labels) else ())
            for n in range(workers)
        }
        self.politeness = politeness or self.rng.choice(
            [
                Politeness(rate=0, concurrency=3, spread=True, robots=False),
                Politeness(rate=0, concurrency=2, robots=False),
                Politeness(rate=4, concurrency=2, robots=False),
                Politeness(rate=2, concurrency=1, robots=False),
            ]
        )
        self.applied_epochs: list[int] = []
        self.spoilt: set[int] = set()  # requests whose result was made unreadable once
        self.trace: list[tuple[float, str]] = []
        self.events_handled = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = 0
        self.cuts: dict[frozenset[str], float] = {}
        self.stalls: dict[tuple[str, str], float] = {}  # (source, target) → until when it waits
        self.deaf: dict[str, float] = {}  # workers whom no message of a master reaches → until
        self._lock_holder: str | None = None
        self._lock_life = 0  # the lock belongs to a process, not to a name
        self._lock_renewed = 0.0
        self._lock_index = 0
        self.clients = Clients(self, runs)
        self.operators = Operators(self)
        self.chaos = Chaos(self)
        self.fetches = Fetches(self)
        self.outputs = SimOutputs(self, seed)
        self.tasks = SimTasks(self, seed, tasks)
        self.wakes: dict[str, float] = {}

    @property
    def divides_hosts(self) -> bool:
        """Whether workers share hosts because none of them serves all jobs."""
        return any(worker.labels for worker in self.workers.values())

    # ------------------------------------------------------------ running

    def run(self) -> None:
        for process in (*self.masters.values(), *self.workers.values()):
            self.wake(process, 0.0)
        self.at(0.0, self._lock_service)
        self.clients.begin()
        self.outputs.begin()
        self.tasks.begin()
        self.chaos.plan()
        while self._heap:
            moment, _, action = heapq.heappop(self._heap)
            if moment - self.began > GIVE_UP_S:
                raise AssertionError(f"not finished after {GIVE_UP_S} s: {self._story()}")
            self.now = moment
            action()
            if self._finished():
                return

    @property
    def answered(self) -> list[tuple[int, int]]:
        """(job, run) of submissions that were answered."""
        return self.clients.answered

    def _finished(self) -> bool:
        clients = self.clients
        if len(clients.answered) < clients.runs_wanted or not self.operators.content:
            return False
        runs = self.store.tables.runs
        for _, run in self.clients.answered:  # after each action: a generator costs as much again
            row = runs.get(run)
            if row is None or not row.state.ended:
                return False
        return self.tasks.done and self.outputs.is_done()

    def at(self, delay: float, action: Callable[[], None]) -> None:
        self._turn += 1
        heapq.heappush(self._heap, (self.now + delay, self._turn, action))

    def happens_to(self, process: Process, delay: float, action: Callable[[], None]) -> None:
        """Run an action in a process: not if it died, later if it is paused."""
        life = process.life

        def happen() -> None:
            if not process.alive or process.life != life:
                return
            if process.paused_until > self.now:
                process.waiting.append(happen)
                return
            action()

        self._turn += 1
        heapq.heappush(self._heap, (self.now + delay, self._turn, happen))

    # ------------------------------------------------------------ machines

    def _master(self, master: SimMaster, event: m.MasterEvent) -> None:
        self.events_handled += 1
        effects = master.machine.handle(event, self.now, START_UTC + self.now)
        if not isinstance(event, m.MasterTicked):
            effects += master.machine.handle(m.MasterTicked(), self.now, START_UTC + self.now)
        master.machine.check(self.now)
        if master.machine.leader is not None:
            master.machine.leader.check_awake(self.now)
        for effect in effects:
            self._master_effect(master, effect)
        self.wake(master, master.machine.next_wakeup(self.now) - self.now)

    def _master_effect(self, master: SimMaster, effect: m.MasterEffect) -> None:
        match effect:
            case m.SendToWorker(_, incarnation, route, body, sequence):
                epoch = master.machine.epoch
                message = self._message(master.name, 1, epoch, body, sequence, incarnation)
                for worker in self.workers.values():
                    if worker.route == route:
                        self.operators.sent(master, worker.name, body)
                        if self.deaf.get(worker.name, 0.0) <= self.now:
                            self._deliver(master.name, worker.name, message)
                        break
            case m.Publish(body):
                message = self._message(master.name, 1, master.machine.epoch, body, 0, 0)
                listeners = (
                    [*self.workers, *self.masters] if isinstance(body, Beat) else self.masters
                )
                for listener in listeners:
                    if listener != master.name:
                        self._deliver(master.name, listener, message)
            case m.Forward(target, request):
                event = m.ClientAsked(PEER + master.name.encode(), request)
                self._between_masters(master.name, target, event)
            case m.ReplyTo(client, reply) if client.startswith(PEER):
                came = m.ReplyCame(reply)
                self._between_masters(master.name, client.removeprefix(PEER).decode(), came)
            case m.Execute(command):
                master.commands.append(command)
                self._write(master)
            case m.Ask(query, tag):
                self.happens_to(master, self.latency(), lambda: self._query(master, query, tag))
            case m.ReplyTo(_, reply):
                self.operators.said(master, reply)
                self.clients.take(reply)
                self.tasks.take(reply)
            case m.StepDown(reason):
                self.trace.append((self.now, f"{master.name} steps down: {reason}"))
                if self._lock_holder == master.name:
                    self._lock_holder = None
            case m.Note(name, detail):
                self.trace.append((self.now, f"{master.name} {name} {detail}"))

    def tell_worker(self, worker: SimWorker, event: w.WorkerEvent) -> None:
        self.events_handled += 1
        effects = worker.machine.handle(event, self.now)
        worker.machine.check()
        for effect in effects:
            self._worker_effect(worker, effect)
        self.wake(worker, worker.machine.next_wakeup(self.now) - self.now)

    def _worker_effect(self, worker: SimWorker, effect: w.WorkerEffect) -> None:
        machine = worker.machine
        match effect:
            case w.SendToMaster(master, body, sequence, subject):
                message = self._message(
                    worker.name, machine.incarnation, machine.epoch, body, sequence, subject
                )
                self._deliver(worker.name, master, message, worker.route)
            case w.PublishToAll(body, sequence, subject):
                self.publish(worker, machine.epoch, body, sequence, subject)
            case w.StartFetch(held):
                self.fetches.start(worker, held)
            case w.CancelFetch(seq):
                self.fetches.cancel(worker, seq)
            case w.PermitHop() | w.AdoptRun() | w.AdoptRobots() | w.ForgetRun():
                pass
            case w.Exit(reason):
                self.trace.append((self.now, f"{worker.name} ends: {reason}"))
                self.happens_to(worker, 0.0, lambda: self.chaos.crash_worker(worker))
            case w.Note(name, detail):
                self.trace.append((self.now, f"{worker.name} {name} {detail}"))

    def wake(self, process: Process, delay: float) -> None:
        moment = self.now + max(delay, 0.001)
        if self.wakes.get(process.name, float("inf")) <= moment:
            return
        self.wakes[process.name] = moment

        def tick() -> None:
            if self.wakes.get(process.name) == moment:
                del self.wakes[process.name]
                if isinstance(process, SimMaster):
                    self._master(process, m.MasterTicked())
                elif isinstance(process, SimWorker):
                    self.tell_worker(process, process.measured)

        self.happens_to(process, moment - self.now, tick)

    # ------------------------------------------------------------ network

    def _message(
        self, source: str, incarnation: int, epoch: int, body: Body, sequence: int, subject: int
    ) -> Message:
        kind = int(KIND_OF[type(body)])
        header = Header(PROTOCOL_VERSION, kind, 0, epoch, source, incarnation, sequence, subject)
        return Message(header, body)

    def publish(
        self, worker: SimWorker, epoch: int, body: Body, sequence: int = 0, subject: int = 0
    ) -> None:
        incarnation = worker.machine.incarnation
        message = self._message(worker.name, incarnation, epoch, body, sequence, subject)
        for master in self.masters:
            self._deliver(worker.name, master, message)

    def _deliver(self, source: str, target: str, message: Message, route: bytes = b"") -> None:
        """Deliver a message. `route` is that of the sender; published messages have none."""
        for _ in range(self.copies()):
            if not self._is_cut(source, target):
                stalled_s = self.stalls.get((source, target), 0.0) - self.now
                self._arrive(target, message, route, stalled_s if stalled_s > 0 else self.latency())

    def _arrive(self, target: str, message: Message, route: bytes, delay: float) -> None:
        if target in self.masters:
            master = self.masters[target]
            by_master = message.header.source in self.masters
            came = m.MessageCame(self._spoil(message), route, by_master)
            self.happens_to(master, delay, lambda: self._master(master, came))
        elif target in self.workers:
            worker = self.workers[target]
            event = w.MasterMessageCame(message.header, message.body)
            self.happens_to(worker, delay, lambda: self.tell_worker(worker, event))

    def _between_masters(self, source: str, target: str, event: m.MasterEvent) -> None:
        for _ in range(self.copies()):
            if not self._is_cut(source, target):
                self.tell_master(self.masters[target], event)

    def _spoil(self, message: Message) -> Message | BadBody:
        body = message.body
        if not isinstance(body, Result) or not self.faulty():
            return message
        if self.rng.random() >= self.faults.spoil:
            return message
        self.spoilt.add(body.seq)
        return BadBody(message.header, "spoilt on purpose")

    def copies(self) -> int:
        if not self.faulty():
            return 1
        if self.rng.random() < self.faults.drop:
            return 0
        return 2 if self.rng.random() < self.faults.duplicate else 1

    def latency(self) -> float:
        longest = self.faults.longest_delay_s if self.faulty() else 0.01
        return self.rng.uniform(0.0005, 0.005) + self.rng.random() ** 4 * longest

    def _is_cut(self, name: str, other: str) -> bool:
        return bool(self.cuts) and self.cuts.get(frozenset((name, other)), 0.0) > self.now

    def faulty(self) -> bool:
        return self.now - self.began < self.faults.until_s

    # ------------------------------------------------------------ store

    def _write(self, master: SimMaster) -> None:
        """Run the writer thread: one command at a time, in order, even if its master dies."""
        if master.writing or not master.commands:
            return
        master.writing = True
        command = master.commands.pop(0)
        life = master.life
        self.at(self.latency(), lambda: self._write_now(master, command, life))

    def _write_now(self, master: SimMaster, command: Command, life: int) -> None:
        self.store.faults = self._store_fault
        event: m.MasterEvent
        try:
            outcome = self.operators.watch(command, lambda: self.store.execute(command))
            event = m.CommandDone(command, outcome)
        except StoreError as error:
            event = m.CommandFailed(command, error)
        if self.store.history and len(self.store.history) > len(self.applied_epochs):
            epoch = getattr(command, "epoch", self.store.tables.epoch)
            self.applied_epochs.append(epoch)
        if master.life != life:
            return

        def tell() -> None:
            master.writing = False
            self._master(master, event)
            self._write(master)

        self.happens_to(master, self.latency(), tell)

    def _store_fault(self, command: Command) -> Fault | None:
        if not self.faulty():
            return None
        if self.rng.random() < self.faults.store_fails:
            return "fail"
        if self.rng.random() < self.faults.store_unknown:
            return "unknown_applied" if self.rng.random() < 0.5 else "unknown_lost"
        return None

    def _query(self, master: SimMaster, query: Query, tag: str) -> None:
        if self.faulty() and self.rng.random() < self.faults.store_fails:
            error = StoreUnavailable("injected: the reader is away")
            answer: m.MasterEvent = m.QueryFailed(query, tag, error)
        else:
            answer = m.QueryDone(query, tag, self.store.query(query))
        self.happens_to(master, self.latency(), lambda: self._master(master, answer))

    # ------------------------------------------------------------ the lock

    def _lock_service(self) -> None:
        holder = self.masters.get(self._lock_holder or "")
        same = holder is not None and holder.life == self._lock_life and holder.alive
        if holder is not None and same and holder.paused_until <= self.now:
            self._lock_renewed = self.now
        if holder is None or self.now - self._lock_renewed > LOCK_TTL_S:
            self.pass_lock()
        self.at(0.5, self._lock_service)

    def pass_lock(self) -> None:
        ready = [
            master
            for master in self.masters.values()
            if master.alive
            and master.paused_until <= self.now
            and (master.name, master.life) != (self._lock_holder, self._lock_life)
        ]
        if not ready:
            return
        old, new = self.masters.get(self._lock_holder or ""), self.rng.choice(ready)
        self._lock_holder, self._lock_life, self._lock_renewed = new.name, new.life, self.now
        self._lock_index += 1
        elected = m.Elected(self._lock_index, alone=False)
        self.happens_to(new, 0.01, lambda: self._master(new, elected))
        if old is not None and old is not new and old.alive:
            # The old leader learns it late, or only when it is fenced.
            self.happens_to(old, self.rng.uniform(0, 4), lambda: self._depose(old))

    def _depose(self, master: SimMaster) -> None:
        if (self._lock_holder, self._lock_life) != (master.name, master.life):
            self._master(master, m.Deposed("the lock has another holder"))

    def tell_master(self, master: SimMaster, event: m.MasterEvent) -> None:
        self.happens_to(master, self.latency(), lambda: self._master(master, event))

    def _story(self) -> str:
        leaders = [
            master.name
            for master in self.masters.values()
            if master.machine.role is MasterState.LEADER
        ]
        tail = [f"{moment:.2f} {what}" for moment, what in self.trace[-25:]]
        return f"leaders {leaders}, runs {self.store.runs()}\n" + "\n".join(tail)
