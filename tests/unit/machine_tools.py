"""Short ways to build the pure machines' inputs, and a leader that can be told a story.

`LeaderStory` runs a real `Master` on the fake store: commands and queries are answered at once,
unless a test holds them back or makes them fail. There is no clock but `now`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.errors import StoreError
from zcrawl.frontier.url import DEFAULT, canonicalize
from zcrawl.master import events as m
from zcrawl.master.leader import Leader
from zcrawl.master.master import Master
from zcrawl.mesh.messages import (
    KIND_OF,
    PROTOCOL_VERSION,
    Assign,
    Assignment,
    BadBody,
    Body,
    CanonicalLink,
    ClientRequest,
    Grant,
    Header,
    Heartbeat,
    HeldLease,
    Hello,
    Message,
    MessageKind,
    PageRecord,
    Reply,
    Result,
)
from zcrawl.model.host import Manner
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import HostRow, QueuedRow, RunCounters, RunRow
from zcrawl.model.spec import Fetch, JobSpec, Politeness, Scope
from zcrawl.model.states import NodeState, Outcome
from zcrawl.model.vitals import WorkerVitals
from zcrawl.store.commands import Command
from zcrawl.submit.output_rights import OutputRights
from zcrawl.testing.store.store import FakeStore
from zcrawl.worker.results.attempt import Attempt

T = TypeVar("T")
UTC = 1_700_000_000.0  # the wall clock is this far ahead of `now`
NO_PACE = Politeness(robots=False, rate=0, concurrency=4)


def row(seq: int, *, run: int = 1, host: int = 1, prio: int = 0, depth: int = 0) -> QueuedRow:
    return QueuedRow(run, host, prio, depth, seq, f"http://h{host}.test/{seq}")


def worker_info(name: str = "w1", **changes: Any) -> WorkerInfo:
    task_slots = changes.pop("task_slots", 0)
    vitals = WorkerVitals(slots=changes.pop("slots", 4), task_slots=task_slots)
    fields = {"incarnation": 1, "vitals": vitals, "hello": 1, "heard_at": 0.0}
    return WorkerInfo(name, **{**fields, "state": NodeState.IDLE, **changes})


def header(
    body: Body | MessageKind,
    source: str = "w1",
    incarnation: int = 1,
    *,
    epoch: int = 1,
    sequence: int = 0,
    subject: int = 0,
) -> Header:
    kind = body if isinstance(body, MessageKind) else KIND_OF[type(body)]
    return Header(PROTOCOL_VERSION, kind, 0, epoch, source, incarnation, sequence, subject)


def route_of(worker: str, incarnation: int) -> bytes:
    """The line of a process, in stories; nothing in it is secret."""
    return f"line of {worker}, {incarnation}".encode()


def hello(number: int = 1, **changes: Any) -> Hello:
    fields: dict[str, Any] = {"held": [], "produced": 0, "acked": 0, "slots": 4, "reported": []}
    fields |= {"version": "0", "hostname": "here", "pid": 7, "hello": number}
    return Hello(**{**fields, **changes})


def heartbeat(sent_at: float = 0.0, **changes: Any) -> Heartbeat:
    vital = {name: changes.pop(name) for name in WorkerVitals.__struct_fields__ if name in changes}
    vitals = WorkerVitals(**{"slots": 4, **vital})
    fields: dict[str, Any] = {"held": [], "produced": 0, "acked": 0, "assigned": 0}
    fields |= {"vitals": vitals, "draining": False, "hello": 1, "sent_at": sent_at}
    return Heartbeat(**{**fields, **changes})


def assignment(n: int, seq: int, *, run: int = 1, host: int = 1, **changes: Any) -> Assignment:
    fields: dict[str, Any] = {"url": f"http://h{host}.test/{seq}", "depth": 0, "attempt": 1}
    return Assignment(n, seq, run, host, **{**fields, "parent": None, **changes})


def grant(host: int = 1, concurrency: int = 2, revision: int = 1, **changes: Any) -> Grant:
    """Of a host that has answered before: an unknown one is asked one page at a time."""
    fields: dict[str, Any] = {"interval_s": 0.0, "burst": 1, "next_in_s": 0.0}
    fields["manner"] = Manner()
    origin = f"http://h{host}.test"
    return Grant(host, origin, revision, concurrency, **{**fields, **changes})


def link(url: str) -> CanonicalLink:
    canonical = canonicalize(url)
    return canonical, DEFAULT.key(canonical)


def result(seq: int = 1, outcome: Outcome = Outcome.DONE, **changes: Any) -> Result:
    fields: dict[str, Any] = {"lease_epoch": 1, "lease_n": 1, "run": 1, "host": 1, "attempt": 1}
    if outcome is Outcome.DONE:
        page = PageRecord(f"http://h1.test/{seq}", "title", "text/html", 10, UTC, 1.0)
        fields |= {"page": page, "status": 200, "items": [b'{"n":1}']}
    return Result(seq=seq, outcome=outcome, **{**fields, **changes})


def attempt(seq: int = 1, outcome: Outcome = Outcome.DONE, **changes: Any) -> Attempt:
    """What a pipeline would report as `result(seq, outcome, **changes)`."""
    made = Attempt(assignment(1, seq), outcome=outcome)
    if outcome is Outcome.DONE:
        made.page = PageRecord(f"http://h1.test/{seq}", "title", "text/html", 10, UTC, 1.0)
        made.status, made.items = 200, [b'{"n":1}']
    return msgspec.structs.replace(made, **changes)


def result_of(assignment: Assignment, epoch: int = 1, **changes: Any) -> Result:
    lease = {
        "lease_epoch": epoch,
        "lease_n": assignment.n,
        "run": assignment.run,
        "host": assignment.host,
    }
    return result(
        assignment.seq,
        **{**lease, "attempt": assignment.attempt, "depth": assignment.depth, **changes},
    )


def spec(politeness: Politeness = NO_PACE, scope: Scope | None = None, retries: int = 3) -> JobSpec:
    scope = scope or Scope()
    return JobSpec("job", scope=scope, politeness=politeness, fetch=Fetch(retries=retries))


def run_row(run: int = 1, of: JobSpec | None = None, **changes: Any) -> RunRow:
    fields: dict[str, Any] = {"job": 1, "name": "job", "state": "running", "reason": ""}
    fields |= {"spec": msgspec.json.encode(of or spec()), "seed_hosts": (), "seeding": False}
    fields |= {"counters": RunCounters(), "created_at": 0.0, "started_at": 0.0, "ended_at": 0.0}
    return msgspec.convert(
        msgspec.to_builtins(RunRow(run, **{**fields, **changes}), builtin_types=(bytes,)),
        RunRow,
        builtin_types=(bytes,),
    )


def host_row(host: int = 1, owners: tuple[ProcessName, ...] = (), next_at: float = 0.0) -> HostRow:
    return HostRow(host, f"http://h{host}.test", owners, next_at, 0.0)


class LeaderStory:
    """A master, its store, and everything that it said."""

    def __init__(self, store: FakeStore | None = None, me: str = "m1", now: float = 100.0) -> None:
        self.store = store or FakeStore()
        # Of the machine's own user, who may have items written anywhere.
        self.master = Master(me, seen_slots=64, outputs=OutputRights(owner=True))
        self.now = now
        self.sent: list[m.SendToWorker] = []
        self.published: list[Body] = []
        self.replies: list[Reply] = []
        self.notes: list[m.Note] = []
        self.prunes: list[int | None] = []  # jobs whose old runs are to be removed now
        self.takeovers: list[m.LeadershipBegan | m.TakeoverFailed] = []
        self.hold: Callable[[Any], bool] = lambda what: False  # commands and queries to keep back
        self.held: list[Command | m.Ask] = []
        self.request_count = 0
        self.numbers: dict[tuple[str, int], int] = {}

    @property
    def leader(self) -> Leader:
        assert self.master.leader is not None
        return self.master.leader

    def elect(self, alone: bool = True) -> LeaderStory:
        self.handle(m.Elected(0, alone=alone))
        self.tick()
        return self

    def handle(self, event: m.MasterEvent) -> None:
        for effect in self.master.handle(event, self.now, UTC + self.now):
            self._do(effect)
        self.master.check(self.now)

    def tick(self, after_s: float = 0.02) -> None:
        self.now += after_s
        self.handle(m.MasterTicked())

    def wait(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """Time passes in steps of a quarter of a second, `each` before every tick."""
        for _ in range(round(seconds * 4)):
            each()
            self.tick(0.25)

    def _do(self, effect: m.MasterEffect) -> None:
        match effect:
            case m.Execute(command):
                if self.hold(command):
                    self.held.append(command)
                else:
                    self.run(command)
            case m.Ask(query, _):
                if self.hold(query):
                    self.held.append(effect)
                else:
                    self.run(effect)
            case m.SendToWorker():
                self.sent.append(effect)
            case m.Publish(body):
                self.published.append(body)
            case m.ReplyTo(_, reply):
                self.replies.append(reply)
            case m.Note():
                self.notes.append(effect)
            case m.LeadershipBegan() | m.TakeoverFailed():
                self.takeovers.append(effect)
            case m.RemoveOldRuns(job):
                self.prunes.append(job)
            case m.StepDown():
                pass

    def run(self, what: Command | m.Ask) -> None:
        """The store does what it was asked, and the master hears of it."""
        event: m.MasterEvent
        try:
            if isinstance(what, m.Ask):
                event = m.QueryDone(what.query, what.tag, self.store.query(what.query))
            else:
                event = m.CommandDone(what, self.store.execute(what))
        except StoreError as error:
            if isinstance(what, m.Ask):
                event = m.QueryFailed(what.query, what.tag, error)
            else:
                event = m.CommandFailed(what, error)
        self.handle(event)

    def release(self) -> None:
        """What was held back happens now, in order."""
        self.hold = lambda what: False
        held, self.held = self.held, []
        for what in held:
            self.run(what)

    # ------------------------------------------------------------ workers and clients

    def hear(
        self,
        body: Body,
        worker: str = "w1",
        incarnation: int = 1,
        *,
        route: bytes | None = None,
        **about: Any,
    ) -> None:
        """By the worker's own line, or `route`."""
        about = {"epoch": self.master.epoch, **about}
        message = Message(header(body, worker, incarnation, **about), body)
        line = b"" if isinstance(body, Heartbeat) else route_of(worker, incarnation)
        self.handle(m.MessageCame(message, line if route is None else route))

    def join(self, worker: str = "w1", incarnation: int = 1, **changes: Any) -> None:
        heard = self.heard(worker, incarnation)
        self.hear(hello(**{"heard": heard, **changes}), worker, incarnation)
        held = [
            (lease.epoch, lease.assignment.n, lease.started) for lease in changes.get("held", [])
        ]
        self.beat(worker, incarnation, held=held)
        self.tick()

    def beat(self, worker: str = "w1", incarnation: int = 1, **changes: Any) -> None:
        changes = {"heard": self.heard(worker, incarnation), **changes}
        self.hear(heartbeat(self.now, **changes), worker, incarnation)

    def beat_all(self, *workers: str) -> None:
        for worker in workers:
            self.beat(worker)

    def heard(self, worker: str = "w1", incarnation: int = 1) -> int:
        """The number of the newest message to this worker: everything arrives."""
        mine = [
            message
            for message in self.sent
            if (message.worker, message.incarnation) == (worker, incarnation)
        ]
        return max((message.sequence for message in mine), default=0)

    def report(self, body: Result, worker: str = "w1", incarnation: int = 1) -> None:
        """The next result of a worker, and time to commit it."""
        self.publish(body, worker, incarnation)
        self.tick()

    def publish(self, body: Result, worker: str = "w1", incarnation: int = 1) -> None:
        number = self.numbers.get((worker, incarnation), 0) + 1
        self.numbers[(worker, incarnation)] = number
        self.hear(body, worker, incarnation, sequence=number, subject=body.seq)

    def spoilt(self, seq: int, worker: str = "w1", incarnation: int = 1) -> None:
        number = self.numbers.get((worker, incarnation), 0) + 1
        self.numbers[(worker, incarnation)] = number
        epoch = self.master.epoch
        head = header(
            MessageKind.RESULT, worker, incarnation, epoch=epoch, sequence=number, subject=seq
        )
        self.handle(m.MessageCame(BadBody(head, "spoilt")))
        self.tick()

    def ask(self, op: str, id: str = "", client: bytes = b"c", **args: Any) -> Reply | None:
        """Ask and return the newest reply, if one came at once."""
        self.request_count += 1
        before = len(self.replies)
        self.handle(m.ClientAsked(client, ClientRequest(id or f"q{self.request_count}", op, args)))
        self.tick()
        return self.replies[-1] if len(self.replies) > before else None

    def submit(self, *urls: str, of: JobSpec | None = None, **changes: Any) -> dict[str, Any]:
        args = {"spec": msgspec.to_builtins(of or spec()), "mode": "new", "seeds": list(urls)}
        reply = self.ask("submit", **{**args, **changes})
        assert reply is not None, reply
        assert reply.ok, reply
        return reply.data

    # ------------------------------------------------------------ what was said

    def bodies(self, kind: type[T], worker: str | None = None) -> list[T]:
        messages = (message for message in self.sent if worker in (None, message.worker))
        return [message.body for message in messages if isinstance(message.body, kind)]

    def assigned(self, worker: str | None = None) -> list[Assignment]:
        return [url for body in self.bodies(Assign, worker) for url in body.urls]

    def states(self, run: int = 1) -> dict[str, str]:
        return {request.url: request.state.name for request in self.store.requests(run)}


def urls(count: int, host: str = "a.test") -> list[str]:
    return [f"http://{host}/{n}" for n in range(count)]


def held_leases(assigned: Iterable[Assignment], epoch: int, started: bool) -> list[HeldLease]:
    return [HeldLease(epoch, started, assignment) for assignment in assigned]
