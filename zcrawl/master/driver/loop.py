"""Drives a Master with real parts: sockets, clock, the store's threads, clients.

Messages of one drained batch are handed over one by one, then one MasterTicked plans, commits
and beats for all of them. Clients within this process use a route of their own instead of a socket.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, assert_never

import msgspec

from zcrawl.errors import StoreError
from zcrawl.master import events as m
from zcrawl.master.crash_guard import in_words
from zcrawl.master.driver.store_threads import StoreThreads
from zcrawl.master.master import Master
from zcrawl.mesh.messages import BadBody, ClientRequest, LogRecords, Reply
from zcrawl.mesh.ports import Arrived, MasterMesh, Peers
from zcrawl.model.log_event import FORWARD_FAILED, Log
from zcrawl.model.reasons.cluster import MACHINE_ERROR
from zcrawl.model.reasons.failure import INTERNAL_ERROR
from zcrawl.model.reload_report import ReloadReport, refused
from zcrawl.model.snapshot import ClusterSnapshot
from zcrawl.runtime.loop import in_full, tell_unhandled
from zcrawl.store.commands import Applied, Command, CommandOutcome
from zcrawl.store.queries import Query, QueryOutcome

LEAST_WAIT_S: Final = 0.001
GATHER_S: Final = 0.002  # what happens within it is planned for, and answered, together
LOOK_S: Final = 1.0  # it looks at itself this often
SUBMIT: Final = "submit"

Prepare = Callable[[ClientRequest], Awaitable[ClientRequest]]


class MasterProcess(msgspec.Struct, frozen=True, kw_only=True):
    """What the process around a master gives to it, and does when the master says so."""

    clock: Callable[[], float]
    utc: Callable[[], float]
    log: Log
    log_told: Log | None = None  # for what the watchers know; None: `log`
    lines: Callable[[], LogRecords | None] = lambda: (
        None
    )  # what was logged by `log` since the last call
    rss_bytes: Callable[[], int] = lambda: 0
    cpu_percent: Callable[[], float | None] = lambda: None  # since the last call
    # Adds to a submission what has to be asked of the world before it is judged.
    prepare: Prepare | None = None
    on_applied: Callable[[], None] = lambda: None  # results were committed
    # Reads the configuration again, for a request of the leader; each request once.
    reload: Callable[[str], ReloadReport] = lambda request: ReloadReport()
    on_prune: Callable[[int | None], None] = lambda job: None  # remove old runs now, of a job
    on_step_down: Callable[[str], None] | None = None  # None: it leads again, as nobody else could


class MasterLoop:
    def __init__(
        self,
        machine: Master,
        mesh: MasterMesh,
        store: StoreThreads,
        process: MasterProcess,
        peers: Peers | None = None,
    ) -> None:
        """`peers` are the other masters; None: there are none."""
        self.machine = machine
        self.counters: Counter[str] = Counter()
        self._mesh, self._store = mesh, store
        self._clock, self._utc = process.clock, process.utc
        self._log, self._log_told = process.log, process.log_told or process.log
        self._lines = process.lines
        self._rss_bytes = process.rss_bytes
        self._cpu_percent = process.cpu_percent
        self._looked_at = float("-inf")  # at itself
        self._late_s = 0.0  # since then, at worst
        self._on_applied = process.on_applied
        self._on_prune = process.on_prune
        self._peers = peers
        self._reload = process.reload
        self._on_step_down = process.on_step_down or self._lead_again
        self._loop = asyncio.get_running_loop()
        self._planned: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._elected: m.Elected | None = None
        self._leads = asyncio.Event()
        self._closed = False
        self._last_snapshot = ClusterSnapshot(leader="", epoch=0)
        self._locals: dict[bytes, asyncio.Future[Reply]] = {}
        # A route like those of sockets, and as secret: a peer chooses its own, and by this one it
        # would answer the requests of this process.
        self._local = secrets.token_bytes(16)
        self._numbers = itertools.count(1)
        self._prepare = process.prepare
        self._preparing: dict[str, asyncio.Task[None]] = {}  # submissions, by their id
        self.takeover_error = ""  # why leadership was not reached yet

    # ------------------------------------------------------------ from outside

    async def lead(self, elected: m.Elected) -> None:
        """The lock is ours; returns when the database is loaded."""
        self._elected = elected
        self.handle(elected)
        await self._leads.wait()
        self.snapshot()  # there is one from now on, whatever happens next

    def listen(self) -> None:
        """Workers, clients and other masters are heard from now on."""
        tell_unhandled(self.note)
        self._mesh.listen(self._on_messages)
        if self._peers is not None:
            self._peers.listen(lambda arrived: self._on_messages(arrived, by_master=True))

    async def ask(self, request: ClientRequest) -> Reply:
        """A request of a client in this process."""
        route = self._local + str(next(self._numbers)).encode()
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._locals[route] = future
        try:
            if self._prepare is not None and request.op == SUBMIT:
                request = await self._prepare(request)
            self.handle(m.ClientAsked(route, request))
            return await future
        finally:
            del self._locals[route]

    def snapshot(self) -> ClusterSnapshot:
        leader = self.machine.leader
        if leader is not None:
            counters = leader.state.counters + self.counters + self._mesh.counters
            self._last_snapshot = msgspec.structs.replace(
                leader.current_snapshot(self._clock()), counters=dict(counters)
            )
        mishaps = self.machine.mishaps.view(self._clock())
        return msgspec.structs.replace(self._last_snapshot, mishaps=mishaps)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._preparing.values():
            task.cancel()

    # ------------------------------------------------------------ events

    def handle(self, event: m.MasterEvent) -> None:
        if self._closed:
            return
        self._settle(event, self._clock(), self._utc())
        self._plan_tick()

    def _settle(self, event: m.MasterEvent, now: float, utc: float) -> None:
        """Decide and do. A bug in the leader's memory is cured by the database: it leads again,
        loaded anew; `mishaps` has what is done about one that comes back."""
        try:
            for effect in self.machine.handle(event, now, utc):
                self._do(effect)
        except Exception as error:
            self.note(MACHINE_ERROR, traceback.format_exc())
            self.takeover_error = in_words(error)
            effects = self.machine.failed(event, self.takeover_error, now)
            self._on_step_down("an error of its own")
            for effect in effects:
                self._do(effect)

    def _lead_again(self, reason: str) -> None:
        """Where nobody else could lead. (A cluster's master gives the lock away instead.)"""
        self._leads.clear()
        if self._elected is not None:  # the lock is still ours; workers of the last epoch live
            elected = m.Elected(self._elected.hint, alone=False)
            wait_s = self.machine.mishaps.wait_s(self._clock())
            self._loop.call_later(wait_s, self.handle, elected)

    def note(self, name: str, detail: str = "", *, run: int = 0) -> None:
        self.counters[name] += 1
        self._log(name, detail, run=run)

    def _note_of_machine(self, note: m.Note) -> None:
        """A leader's watch has told it to those who watch."""
        self.counters[note.name] += 1
        log = self._log if self.machine.leader is None else self._log_told
        log(note.name, note.detail, run=note.run)

    def _on_messages(self, arrived: list[Arrived], by_master: bool = False) -> None:
        now, utc = self._clock(), self._utc()
        for arrival in arrived:
            message = arrival.message
            event: m.MasterEvent
            if not isinstance(message, BadBody) and isinstance(message.body, ClientRequest):
                if self._prepare is not None and message.body.op == SUBMIT:
                    self._prepare_then_ask(self._prepare, arrival.route, message.body)
                    continue
                event = m.ClientAsked(arrival.route, message.body)
            elif not isinstance(message, BadBody) and isinstance(message.body, Reply):
                event = m.ReplyCame(message.body)
            else:
                event = m.MessageCame(message, arrival.route, by_master)
            self._settle(event, now, utc)
        self._plan_tick()

    def _prepare_then_ask(self, prepare: Prepare, route: bytes, request: ClientRequest) -> None:
        """A client that waits asks again, with the same id: the first time is enough."""
        if request.id in self._preparing:
            return

        async def work() -> None:
            try:
                self.handle(m.ClientAsked(route, await prepare(request)))
            except Exception as error:  # a bug: whoever waits is told, and nothing is submitted
                self.note(MACHINE_ERROR, traceback.format_exc())
                data = {"code": INTERNAL_ERROR, "message": in_words(error), "exit_code": 1}
                self._reply(route, Reply(request.id, False, data))
            finally:
                del self._preparing[request.id]

        self._preparing[request.id] = self._loop.create_task(work(), name="submission")

    def _plan_tick(self) -> None:
        if self._planned is None:
            self._planned = self._loop.call_later(GATHER_S, self._tick)
            self._due_at = self._loop.time() + GATHER_S

    def _tick(self) -> None:
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
            self._late_s = max(self._late_s, self._loop.time() - self._due_at)
        if self._closed:
            return
        now = self._clock()
        wait_s = LOOK_S  # whatever fails here, there is a next tick
        try:
            self._settle(m.MasterTicked(), now, self._utc())
            if now >= self._looked_at + LOOK_S:
                self._look_at_itself(now)
            wait_s = max(self.machine.next_wakeup(now) - now, LEAST_WAIT_S)
        except Exception as error:  # no file descriptor is free, say: the next tick will tell
            self.note("tick_failed", in_full(error))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _look_at_itself(self, now: float) -> None:
        """For those who watch: what this process takes, and what it has logged."""
        self._looked_at = now
        measured = m.Measured(self._rss_bytes(), self._late_s * 1000, self._cpu_percent())
        self._settle(measured, now, self._utc())
        self._late_s = 0.0
        lines = self._lines()
        if lines is not None:
            self._settle(m.LinesLogged(lines), now, self._utc())

    # ------------------------------------------------------------ effects

    def _do(self, effect: m.MasterEffect) -> None:
        epoch = self.machine.epoch
        match effect:
            case m.SendToWorker(_, incarnation, route, body, sequence):
                self._mesh.send(route, epoch, body, sequence, incarnation)
            case m.Publish(body):
                self._mesh.publish(epoch, body)
            case m.Execute(command):
                self._execute(command)
            case m.Ask(query, tag):
                self._ask(query, tag)
            case m.Forward(master, request):
                self._forward(master, request)
            case m.ReplyTo(client, reply):
                self._reply(client, reply)
            case m.StepDown(reason):
                self._on_step_down(reason)
            case m.ReloadConfig(request):
                self._reload_config(request)
            case m.Note():
                self._note_of_machine(effect)
            case m.LeadershipBegan():
                self._leads.set()
            case m.TakeoverFailed(reason):
                self.takeover_error = reason
            case m.RemoveOldRuns(job):
                self._on_prune(job)
            case _:
                assert_never(effect)

    def _reload_config(self, request: str) -> None:
        try:
            report = self._reload(request)
        except Exception as error:  # a bug: the operator sees it, and this master goes on
            self.note(MACHINE_ERROR, traceback.format_exc())
            report = refused(in_words(error))
        # Not now: the effects of the event that asked for it are still being carried out.
        self._loop.call_soon(self.handle, m.ConfigReloaded(request, report))

    def _execute(self, command: Command) -> None:
        def then(outcome: CommandOutcome | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self.handle(m.CommandFailed(command, outcome))
                return
            self.handle(m.CommandDone(command, outcome))
            if isinstance(outcome, Applied):
                self._on_applied()

        self._store.execute(command, then, lambda: self.machine.is_wanted(command))

    def _ask(self, query: Query, tag: str) -> None:
        def then(outcome: QueryOutcome | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self.handle(m.QueryFailed(query, tag, outcome))
            else:
                self.handle(m.QueryDone(query, tag, outcome))

        self._store.query(query, then)

    def _forward(self, master: str, request: ClientRequest) -> None:
        if self._peers is None or not self._peers.send(master, request):
            self.note(FORWARD_FAILED, f"{request.op} to {master}")

    def _reply(self, client: bytes, reply: Reply) -> None:
        if not client.startswith(self._local):
            self._mesh.send(client, self.machine.epoch, reply)
            return
        future = self._locals.get(client)
        if future is not None and not future.done():
            future.set_result(reply)
