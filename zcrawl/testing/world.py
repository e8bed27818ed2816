"""The simulated world: masters, workers, network, lock, store and web in one process, one seed.

The machines are the real ones; only the edge is fake. Time is a heap of events, so a crawl with
crashes, pauses, partitions and leader changes takes milliseconds, and the same seed gives the
same story. `run()` ends when all submitted runs have ended; `verify()` states what must be true
then, whatever happened (G1-G5).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import msgspec

from zcrawl.errors import StoreError
from zcrawl.master import events as m
from zcrawl.master.master import Master, Role
from zcrawl.mesh.messages import (
    KIND_OF,
    PROTOCOL_VERSION,
    BadBody,
    Body,
    Header,
    Message,
    Reply,
    Request,
    Result,
)
from zcrawl.store.ports import Command
from zcrawl.submit.spec import Fetch, JobSpec, Politeness, Scope
from zcrawl.testing.fake_store import FakeStore, Fault
from zcrawl.testing.sim_faults import Faults
from zcrawl.testing.sim_web import FakeWeb, Visit
from zcrawl.worker import events as w
from zcrawl.worker.machine import WorkerMachine

START_UTC = 1_700_000_000.0
LOCK_TTL_S = 3.0
GIVE_UP_S = 900.0
CLIENT_AGAIN_S = 2.0


class Process:
    """Something that can crash, be paused and be cut off."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused_until = 0.0
        self.life = 0  # events of an earlier life are void
        self.waiting: list[Callable[[], None]] = []


class SimMaster(Process):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.machine = Master(name, seen_slots=64)
        self.writing = False
        self.commands: list[Command] = []


class SimWorker(Process):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.machine = WorkerMachine(name, 1, slots=4)
        self.visits: dict[int, Visit] = {}


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
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.now = 100.0
        self.began = self.now
        self.store = FakeStore()
        self.web = FakeWeb(self.rng, pages, hosts, killers=faults.killers, poison=faults.poison)
        self.masters = {f"m{n}": SimMaster(f"m{n}") for n in range(masters)}
        self.workers = {f"w{n}": SimWorker(f"w{n}") for n in range(workers)}
        self.politeness = politeness or self.rng.choice(
            [
                Politeness(rate=0, concurrency=3, spread=True, robots=False),
                Politeness(rate=0, concurrency=2, robots=False),
                Politeness(rate=4, concurrency=2, robots=False),
                Politeness(rate=2, concurrency=1, robots=False),
            ]
        )
        self.answered: list[tuple[int, int]] = []  # (job, run) of submissions that were answered
        self.applied_epochs: list[int] = []
        self.spoilt: set[int] = set()  # requests whose result was made unreadable once
        self.trace: list[tuple[float, str]] = []
        self.events_handled = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = 0
        self._cuts: dict[frozenset[str], float] = {}
        self._lock_holder: str | None = None
        self._lock_life = 0  # the lock belongs to a process, not to a name
        self._lock_renewed = 0.0
        self._lock_index = 0
        self._runs_wanted = runs
        self._actions = 0
        self._acted: set[str] = set()
        self._life_serial = 1
        self._wakes: dict[str, float] = {}

    # ------------------------------------------------------------ running

    def run(self) -> None:
        for process in (*self.masters.values(), *self.workers.values()):
            self._wake(process, 0.0)
        self._at(0.0, self._lock_service)
        self._at(0.1, lambda: self._submit(1))
        self._plan_faults()
        while self._heap:
            moment, _, action = heapq.heappop(self._heap)
            if moment - self.began > GIVE_UP_S:
                raise AssertionError(f"not finished after {GIVE_UP_S} s: {self._story()}")
            self.now = moment
            action()
            if self._finished():
                return

    def _finished(self) -> bool:
        if len(self.answered) < self._runs_wanted:
            return False
        runs = self.store.tables.runs
        return all(run in runs and runs[run].state.ended for _, run in self.answered)

    def _at(self, delay: float, action: Callable[[], None]) -> None:
        self._turn += 1
        heapq.heappush(self._heap, (self.now + delay, self._turn, action))

    def _for(self, process: Process, delay: float, action: Callable[[], None]) -> None:
        """Something that a process experiences: not if it died, later if it is paused."""
        life = process.life

        def happen() -> None:
            if not process.alive or process.life != life:
                return
            if process.paused_until > self.now:
                process.waiting.append(happen)
                return
            action()

        self._at(delay, happen)

    # ------------------------------------------------------------ machines

    def _master(self, master: SimMaster, event: m.Event) -> None:
        self.events_handled += 1
        effects = master.machine.handle(event, self.now, START_UTC + self.now)
        if not isinstance(event, m.Ticked):
            effects += master.machine.handle(m.Ticked(), self.now, START_UTC + self.now)
        master.machine.check(self.now)
        for effect in effects:
            self._master_effect(master, effect)
        self._wake(master, master.machine.next_wakeup(self.now) - self.now)

    def _master_effect(self, master: SimMaster, effect: m.Effect) -> None:
        match effect:
            case m.SendToWorker(worker, body, sequence):
                message = self._message(master.name, 1, master.machine.epoch, body, sequence, 0)
                self._deliver(master.name, worker, message)
            case m.Publish(body):
                if KIND_OF[type(body)].name == "BEAT":
                    message = self._message(master.name, 1, master.machine.epoch, body, 0, 0)
                    for worker in self.workers:
                        self._deliver(master.name, worker, message)
            case m.Execute(command):
                master.commands.append(command)
                self._write(master)
            case m.Ask(query, tag):
                self._for(master, self._latency(), lambda: self._query(master, query, tag))
            case m.ReplyTo(_, reply):
                self._deliver_reply(master.name, reply)
            case m.StepDown(reason):
                self.trace.append((self.now, f"{master.name} steps down: {reason}"))
                if self._lock_holder == master.name:
                    self._lock_holder = None
            case m.Note(name, detail):
                self.trace.append((self.now, f"{master.name} {name} {detail}"))

    def _worker(self, worker: SimWorker, event: w.Event) -> None:
        self.events_handled += 1
        effects = worker.machine.handle(event, self.now)
        worker.machine.check()
        for effect in effects:
            self._worker_effect(worker, effect)
        self._wake(worker, worker.machine.next_wakeup(self.now) - self.now)

    def _worker_effect(self, worker: SimWorker, effect: w.Effect) -> None:
        machine = worker.machine
        match effect:
            case w.SendToMaster(master, body, sequence, subject):
                message = self._message(
                    worker.name, machine.incarnation, machine.epoch, body, sequence, subject
                )
                self._deliver(worker.name, master, message)
            case w.PublishToAll(body, sequence, subject):
                message = self._message(
                    worker.name, machine.incarnation, machine.epoch, body, sequence, subject
                )
                for master in self.masters:
                    self._deliver(worker.name, master, message)
            case w.StartFetch(held):
                one = held.assignment
                visit = self.web.start(one.url, worker.name, self.now)
                worker.visits[one.seq] = visit
                took = self.rng.uniform(0.01, 0.4) if self.rng.random() < 0.9 else 6.0
                life = worker.life
                self._at(took, lambda: self._answered(visit))
                self._for(worker, took, lambda: self._fetched(worker, one.seq, life))
            case w.CancelFetch(seq):
                cut = worker.visits.pop(seq, None)
                if cut is not None:
                    self._answered(cut)
            case w.PermitHop() | w.AdoptRun() | w.Exit():
                pass
            case w.Note(name, detail):
                self.trace.append((self.now, f"{worker.name} {name} {detail}"))

    def _answered(self, visit: Visit) -> None:
        if visit.ended is None:
            visit.ended = self.now

    def _fetched(self, worker: SimWorker, seq: int, life: int) -> None:
        visit = worker.visits.pop(seq, None)
        held = worker.machine.intake.held.get(seq)
        if visit is None or held is None:
            return
        if self.web.pages[visit.url].kills:
            self._crash_worker(worker)
            return
        one = held.assignment
        result = self.web.answer(seq, one.run, one.host, one.depth, one.url, self.now)
        self._worker(worker, w.FetchEnded(seq, result))

    def _wake(self, process: Process, delay: float) -> None:
        moment = self.now + max(delay, 0.001)
        if self._wakes.get(process.name, float("inf")) <= moment:
            return
        self._wakes[process.name] = moment

        def tick() -> None:
            if self._wakes.get(process.name) == moment:
                del self._wakes[process.name]
                if isinstance(process, SimMaster):
                    self._master(process, m.Ticked())
                elif isinstance(process, SimWorker):
                    self._worker(process, w.Ticked())

        self._for(process, moment - self.now, tick)

    # ------------------------------------------------------------ network

    def _message(
        self, source: str, incarnation: int, epoch: int, body: Body, sequence: int, subject: int
    ) -> Message:
        kind = int(KIND_OF[type(body)])
        header = Header(PROTOCOL_VERSION, kind, 0, epoch, source, incarnation, sequence, subject)
        return Message(header, body)

    def _deliver(self, source: str, target: str, message: Message) -> None:
        for _ in range(self._copies()):
            if not self._is_cut(source, target):
                self._arrive(target, message, self._latency())

    def _arrive(self, target: str, message: Message, delay: float) -> None:
        if target in self.masters:
            master = self.masters[target]
            came = m.MessageCame(self._spoil(message))
            self._for(master, delay, lambda: self._master(master, came))
        elif target in self.workers:
            worker = self.workers[target]
            told = w.MessageCame(message.header, message.body)
            self._for(worker, delay, lambda: self._worker(worker, told))

    def _spoil(self, message: Message) -> Message | BadBody:
        body = message.body
        if not isinstance(body, Result) or not self._faulty():
            return message
        if self.rng.random() >= self.faults.spoil:
            return message
        self.spoilt.add(body.seq)
        return BadBody(message.header, "spoilt on purpose")

    def _copies(self) -> int:
        if not self._faulty():
            return 1
        if self.rng.random() < self.faults.drop:
            return 0
        return 2 if self.rng.random() < self.faults.duplicate else 1

    def _latency(self) -> float:
        longest = self.faults.longest_delay_s if self._faulty() else 0.01
        return self.rng.uniform(0.0005, 0.005) + self.rng.random() ** 4 * longest

    def _is_cut(self, one: str, other: str) -> bool:
        return self._cuts.get(frozenset((one, other)), 0.0) > self.now

    def _faulty(self) -> bool:
        return self.now - self.began < self.faults.until_s

    # ------------------------------------------------------------ store

    def _write(self, master: SimMaster) -> None:
        """The writer thread: one command at a time, in order; it goes on when its master dies."""
        if master.writing or not master.commands:
            return
        master.writing = True
        command = master.commands.pop(0)
        life = master.life
        self._at(self._latency(), lambda: self._write_now(master, command, life))

    def _write_now(self, master: SimMaster, command: Command, life: int) -> None:
        self.store.faults = self._store_fault
        event: m.Event
        try:
            outcome = self.store.execute(command)
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

        self._for(master, self._latency(), tell)

    def _store_fault(self, command: Command) -> Fault | None:
        if not self._faulty():
            return None
        if self.rng.random() < self.faults.store_fails:
            return "fail"
        if self.rng.random() < self.faults.store_unknown:
            return "unknown_applied" if self.rng.random() < 0.5 else "unknown_lost"
        return None

    def _query(self, master: SimMaster, query: object, tag: str) -> None:
        outcome = self.store.query(query)  # type: ignore[arg-type]
        done = m.QueryDone(query, tag, outcome)  # type: ignore[arg-type]
        self._for(master, self._latency(), lambda: self._master(master, done))

    # ------------------------------------------------------------ the lock

    def _lock_service(self) -> None:
        holder = self.masters.get(self._lock_holder or "")
        same = holder is not None and holder.life == self._lock_life and holder.alive
        if holder is not None and same and holder.paused_until <= self.now:
            self._lock_renewed = self.now
        if holder is None or self.now - self._lock_renewed > LOCK_TTL_S:
            self._pass_lock()
        self._at(0.5, self._lock_service)

    def _pass_lock(self) -> None:
        ready = [
            one
            for one in self.masters.values()
            if one.alive
            and one.paused_until <= self.now
            and (one.name, one.life) != (self._lock_holder, self._lock_life)
        ]
        if not ready:
            return
        old, new = self.masters.get(self._lock_holder or ""), self.rng.choice(ready)
        self._lock_holder, self._lock_life, self._lock_renewed = new.name, new.life, self.now
        self._lock_index += 1
        elected = m.Elected(self._lock_index, alone=False)
        self._for(new, 0.01, lambda: self._master(new, elected))
        if old is not None and old is not new and old.alive:
            # It hears of it late, or never before it is fenced.
            self._for(old, self.rng.uniform(0, 4), lambda: self._depose(old))

    def _depose(self, master: SimMaster) -> None:
        if (self._lock_holder, self._lock_life) != (master.name, master.life):
            self._master(master, m.Deposed("the lock has another holder"))

    # ------------------------------------------------------------ clients

    def _submit(self, number: int) -> None:
        spec = JobSpec(
            name="sim",
            seeds=(self.web.seed,),
            scope=Scope(hosts=tuple(self.web.hosts), max_pages=self.faults.max_pages),
            politeness=self.politeness,
            fetch=Fetch(retries=4, timeout=10.0),
        )
        request = Request(
            f"submit-{number}",
            "submit",
            {
                "spec": msgspec.to_builtins(spec),
                "mode": "new" if number == 1 else "again",
                "seeds": [self.web.seed],
                "seeding": False,
                "output": None,
            },
        )
        self._ask(request, number)

    def _ask(self, request: Request, number: int) -> None:
        if len(self.answered) >= number:
            return
        master = self.rng.choice(list(self.masters.values()))
        if self._copies():
            self._tell_master(master, m.ClientAsked(request.id.encode(), request))
        self._at(CLIENT_AGAIN_S, lambda: self._ask(request, number))

    def _deliver_reply(self, master: str, reply: Reply) -> None:
        kind, _, digits = reply.id.partition("-")
        if not self._copies() or not reply.ok:
            return
        if kind == "act":
            self._acted.add(reply.id)
            return
        number = int(digits)
        if len(self.answered) >= number:
            return

        def take() -> None:
            if len(self.answered) < number:
                self.answered.append((reply.data["job"], reply.data["run"]))
                if number < self._runs_wanted:
                    self._at(self.rng.uniform(0.5, 20), lambda: self._submit(number + 1))

        self._at(self._latency(), take)

    def _pause_run(self) -> None:
        """An operator pauses the newest run and resumes it, whatever it takes."""
        if not self.answered:
            return
        self._actions += 2
        pause, resume, run = self._actions, self._actions + 1, self.answered[-1][1]
        self._act(pause, "pause", run, tries=1)
        self._at(self.rng.uniform(1, 8), lambda: self._act(resume, "resume", run, tries=1_000))

    def _act(self, number: int, action: str, run: int, tries: int) -> None:
        args = {"ref": "sim", "action": action, "run": run}
        request = Request(f"act-{number}", "act", args)
        # A pause may be carried out late, by a master that slept: the operator looks again.
        ended = self.store.tables.runs[run].state.ended
        if tries == 0 or ended or (request.id in self._acted and not self._faulty()):
            return
        for master in self.masters.values():
            self._tell_master(master, m.ClientAsked(request.id.encode(), request))
        self._at(CLIENT_AGAIN_S, lambda: self._act(number, action, run, tries - 1))

    def _tell_master(self, master: SimMaster, event: m.Event) -> None:
        self._for(master, self._latency(), lambda: self._master(master, event))

    # ------------------------------------------------------------ faults

    def _plan_faults(self) -> None:
        rng, faults = self.rng, self.faults
        plans: list[tuple[int, Callable[[], None]]] = [
            (faults.worker_crashes, lambda: self._crash_worker(self._any(self.workers))),
            (faults.worker_pauses, lambda: self._pause(self._any(self.workers))),
            (faults.master_crashes, lambda: self._crash_master(self._any(self.masters))),
            (faults.master_pauses, lambda: self._pause(self._any(self.masters))),
            (faults.leader_changes, self._pass_lock),
            (faults.partitions, self._partition),
            (faults.pauses_by_operator, self._pause_run),
        ]
        for count, action in plans:
            for _ in range(count):
                self._at(rng.uniform(0.5, faults.until_s), action)

    def _any(self, processes: dict[str, SimWorker] | dict[str, SimMaster]) -> Process:
        return self.rng.choice(list(processes.values()))

    def _crash_worker(self, process: Process) -> None:
        if not process.alive or not isinstance(process, SimWorker):
            return
        self.trace.append((self.now, f"{process.name} crashes"))
        for visit in process.visits.values():
            self._answered(visit)
        process.visits.clear()
        self._end(process)
        supervised = self.rng.random() < 0.7
        old = process.machine.incarnation

        def restart() -> None:
            self._life_serial += 1
            process.machine = WorkerMachine(
                process.name, self._life_serial, slots=4, replaces=old if supervised else 0
            )
            self._begin(process)

        self._at(self.rng.uniform(0.1, 2.0), restart)

    def _crash_master(self, process: Process) -> None:
        if not process.alive or not isinstance(process, SimMaster):
            return
        self.trace.append((self.now, f"{process.name} crashes"))
        self._end(process)
        process.commands.clear()
        process.writing = False

        def restart() -> None:
            process.machine = Master(process.name, seen_slots=64)
            self._begin(process)

        self._at(self.rng.uniform(0.1, 3.0), restart)

    def _end(self, process: Process) -> None:
        process.alive = False
        process.life += 1
        process.waiting.clear()
        process.paused_until = 0.0
        self._wakes.pop(process.name, None)

    def _begin(self, process: Process) -> None:
        process.alive = True
        self._wake(process, 0.0)

    def _pause(self, process: Process) -> None:
        if not process.alive or process.paused_until > self.now:
            return
        for_s = self.rng.choice([2.0, 5.0, 12.0, 20.0])
        self.trace.append((self.now, f"{process.name} is paused for {for_s} s"))
        process.paused_until = self.now + for_s
        life = process.life

        def resume() -> None:
            if process.life == life:
                waiting, process.waiting = process.waiting, []
                for action in waiting:
                    action()

        self._at(for_s, resume)

    def _partition(self) -> None:
        one, other = self._any(self.masters), self._any(self.workers)
        until = self.now + self.rng.choice([1.0, 4.0, 15.0])
        self.trace.append((self.now, f"{one.name} and {other.name} are cut until {until}"))
        self._cuts[frozenset((one.name, other.name))] = until

    def _story(self) -> str:
        leaders = [one.name for one in self.masters.values() if one.machine.role is Role.LEADER]
        tail = [f"{moment:.2f} {what}" for moment, what in self.trace[-25:]]
        return f"leaders {leaders}, runs {self.store.runs()}\n" + "\n".join(tail)
