"""A short way to write the story of one store, for the contract tests, and stories they share."""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import msgspec

from zcrawl.mesh.messages import PageRecord, Traits
from zcrawl.model.rows import LaneWant, NewLink, QueuedRow, Refilled, RunRow
from zcrawl.model.states import Disposition, JobState, RequestState, RunState
from zcrawl.store.commands import (
    AddSeeds,
    AdmitKnown,
    Applied,
    ApplyResults,
    BeginRuns,
    Change,
    ChangeJob,
    ChangeRun,
    ClientAction,
    Command,
    CountCrash,
    CrashCounted,
    DrainSet,
    JobChanged,
    KnownAdmitted,
    Loaded,
    Reload,
    Retried,
    RetryDead,
    RunChanged,
    RunsBegun,
    SetDrain,
    SetWish,
    SubmitJob,
    Submitted,
    Sweep,
    Swept,
    TakeOver,
    WishSet,
)
from zcrawl.store.ports import Store
from zcrawl.store.queries import (
    Failures,
    Items,
    JobList,
    KnownPages,
    ListJobs,
    Outputs,
    Query,
    ReadFailed,
    ReadItems,
    ReadKnown,
    ReadOutputs,
    Refill,
    Tallies,
    TallyRows,
)

T = TypeVar("T")

A, B, C, D, E = (f"https://a.test/{name}" for name in "abcde")
DONE, DEAD, SKIPPED, QUEUED = (
    RequestState.DONE,
    RequestState.DEAD,
    RequestState.SKIPPED,
    RequestState.QUEUED,
)


def key_of(url: str) -> bytes:
    return hashlib.blake2b(url.encode(), digest_size=16).digest()


def link(url: str, depth: int = 1, prio: int = 0) -> NewLink:
    origin = "/".join(url.split("/")[:3])
    return NewLink(url=url, key=key_of(url), origin=origin, depth=depth, prio=prio)


def links(*urls: str) -> tuple[NewLink, ...]:
    return tuple(link(url) for url in urls)


def page(url: str, size: int = 10) -> PageRecord:
    return PageRecord(url, "title", "text/html", size, 5.0, 1.5)


def timeless(loaded: Loaded) -> Loaded:
    """Without the database's own time, which differs from one call to the next."""
    return msgspec.structs.replace(loaded, utc=0.0)


def client_action(request: str, at: float = 100.0, changed: int = 0) -> ClientAction:
    return ClientAction(request, "pause", "ann@laptop", "m2", at, changed)


class World:
    """A store, its epoch, and one worker's result numbers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 100.0
        self.epoch = 0
        self.numbers: dict[tuple[str, int], int] = {}
        self.requests = 0
        self.epoch = self.do(TakeOver("m1", 0, self.now), Loaded).epoch

    def do(self, command: Command, expected: type[T]) -> T:
        outcome = self.store.execute(command)
        assert isinstance(outcome, expected)
        return outcome

    def ask(self, query: Query, expected: type[T]) -> T:
        outcome = self.store.query(query)
        assert isinstance(outcome, expected)
        return outcome

    def submit(self, *urls: str, **changes: Any) -> Submitted:
        self.requests += 1
        fields: dict[str, Any] = {
            "epoch": self.epoch,
            "request": f"q{self.requests}",
            "name": f"job{self.requests}",
            "spec": b"{}",
            "mode": "new",
            "seeds": tuple(link(url, depth=0) for url in urls),
            "seed_hosts": (),
            "seeding": False,
            "output": None,
            "now": self.now,
        }
        return self.do(SubmitJob(**{**fields, **changes}), Submitted)

    def seeds(self, run: int, *urls: str, last: bool = False, **changes: Any) -> Submitted:
        self.requests += 1
        fields: dict[str, Any] = {"request": f"q{self.requests}", "seed_hosts": (), **changes}
        command = AddSeeds(
            epoch=self.epoch,
            run=run,
            seeds=tuple(link(url, depth=0) for url in urls),
            last=last,
            now=self.now,
            **fields,
        )
        return self.do(command, Submitted)

    def change(self, row: QueuedRow, state: RequestState | None, **changes: Any) -> Change:
        """The next result of its worker, about this request."""
        worker = (changes.pop("worker", "w1"), changes.pop("incarnation", 7))
        number = self.numbers.get(worker, 0) + 1
        self.numbers[worker] = number
        fields: dict[str, Any] = {"attempts": 1, "host": row.host}
        if state is RequestState.DONE:
            fields |= {"page": page(row.url), "status": 200, "items": (b'{"n":1}',)}
        return Change(
            worker=worker[0],
            incarnation=worker[1],
            number=number,
            seq=row.seq,
            run=row.run,
            state=state,
            **{**fields, **changes},
        )

    def apply(self, *changes: Change) -> Applied:
        return self.do(ApplyResults(self.epoch, list(changes), self.now), Applied)

    def finish(self, row: QueuedRow, state: RequestState | None, **changes: Any) -> Applied:
        applied = self.apply(self.change(row, state, **changes))
        assert applied.dispositions == [Disposition.APPLIED]
        return applied

    def change_run(self, run: int, state: RunState, reason: str = "") -> RunChanged:
        return self.do(ChangeRun(self.epoch, "r", run, state, reason, self.now), RunChanged)

    def begin(self, *runs: int) -> RunsBegun:
        """A worker has accepted assignments of these runs."""
        return self.do(BeginRuns(self.epoch, runs, self.now), RunsBegun)

    def change_job(self, job: int, state: JobState, request: str = "") -> JobChanged:
        action = client_action(request) if request else None
        return self.do(ChangeJob(self.epoch, request, job, state, self.now, action), JobChanged)

    def retry(
        self, run: int, limit: int = 10, request: str = "r", reason: str = "", host: int = 0
    ) -> Retried:
        """One part of a retry; under the same request the next one."""
        command = RetryDead(self.epoch, run, limit, self.now, client_action(request), reason, host)
        return self.do(command, Retried)

    def sweep(self, run: int, limit: int = 100) -> Swept:
        return self.do(Sweep(self.epoch, run, limit), Swept)

    def reload(self) -> Loaded:
        return timeless(self.do(Reload(self.epoch, self.now), Loaded))

    def run_row(self, run: int) -> RunRow:
        jobs = self.ask(ListJobs(), JobList).jobs
        return next(row for job in jobs for row in job.runs if row.id == run)

    def tallies(self, run: int) -> TallyRows:
        return self.ask(Tallies(run), TallyRows)

    def examples(self, run: int) -> dict[tuple[str, str], tuple[str, str]]:
        """(kind, reason) → (URL, detail)"""
        rows = self.tallies(run).examples
        return {(row.kind, row.name): (row.url, row.detail) for row in rows}

    def failures(self, run: int) -> list[tuple[str, RequestState, str]]:
        rows = self.ask(ReadFailed(run, 0, 1000), Failures).rows
        return [(row.url, row.state, row.reason) for row in rows]


def unstorable(good: Change) -> list[Change]:
    """Like a good one but for one value that no database takes."""
    assert good.page is not None
    surrogate = msgspec.structs.replace(link(B), url="https://a.test/\udfff")
    return [
        msgspec.structs.replace(good, reason="\ud800"),
        msgspec.structs.replace(good, links=(surrogate,)),
        msgspec.structs.replace(good, status=1 << 64),
        msgspec.structs.replace(good, page=msgspec.structs.replace(good.page, size=1 << 63)),
        msgspec.structs.replace(good, page=msgspec.structs.replace(good.page, title=["x"])),
        msgspec.structs.replace(good, items=(None,)),
    ]


def live_through(world: World) -> None:
    """Every kind of statement once: a run that ends and goes, and one that remembers its pages."""
    a, b, c = world.submit(A, B, C, output=("/x", "jsonl")).admitted
    world.finish(a, DONE, links=links("https://b.test/"))
    world.finish(b, DEAD, reason="dns")
    for after in (None, (0, 0, 1)):
        world.ask(Refill((LaneWant(a.run, a.host, after, 5),)), Refilled)
    world.retry(a.run, 1)
    world.do(SetDrain(1, "w1", True, 7, 1.0, "draining", client_action("d")), DrainSet)
    world.do(SetWish(1, a.host, "w1", b"{}", client_action("w")), WishSet)
    world.do(CountCrash(1, c.seq, 3, True, 1.0), CrashCounted)
    world.failures(a.run)
    world.ask(ReadItems(a.run, 0, 5), Items)
    world.ask(ReadOutputs(), Outputs)
    world.tallies(a.run)
    world.reload()
    spec = b'{"recrawl":{"incremental":true},"duplicates":{"near":"mark"}}'
    remembering = world.submit(A, B, spec=spec)
    traits = Traits(content=b"1", fingerprint=b"12345678")
    world.finish(remembering.admitted[0], DONE, traits=traits, links=links(C))
    world.ask(ReadKnown(remembering.job, 0, 5), KnownPages)
    command = AdmitKnown(1, remembering.run, 0, 1, links(A, C), False, 1.0)
    world.do(command, KnownAdmitted)
    for state in (RunState.CANCELLED, RunState.DELETED):
        for run in (a.run, remembering.run):
            world.change_run(run, state)
            while world.sweep(run).more:
                pass
