"""What the leader asks of a store: commands that write in one fenced transaction each, and
queries that read. The database is the truth; the leader's memory is a window on it.

Who calls: the master's machines make commands and queries as data, the master loop runs commands
on one writer thread in order and queries on one reader thread, and hands the outcome back as an
event. Backends: `store_peewee` (SQLite, later MySQL) and `testing.fake_store`; one contract suite
runs on all.

Guarantees of every backend:
- A command is one transaction. Its first statement is the epoch check, with a lock (G4): a lower
  epoch than the stored one raises `Fenced` and nothing is written.
- `StoreDataError` and `StoreUnavailable` mean that nothing was applied; `CommitUnknown` that it
  may have been.
- `ApplyResults` moves watermarks strictly forward; a request that is final never changes (G3).
- Times are UTC seconds.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from zcrawl.mesh.messages import Page
from zcrawl.model import Disposition, RequestState, RunState


class _Data(msgspec.Struct, frozen=True):
    pass


class NewLink(_Data, frozen=True):
    """A URL that may be new to a run. The store finds out, and gives it its seq if it is."""

    url: str
    key: bytes
    origin: str
    depth: int
    prio: int = 0


class QueuedRow(_Data, frozen=True):
    """A queued request as the frontier's window holds it."""

    run: int
    host: int
    prio: int
    depth: int
    seq: int
    url: str
    attempts: int = 0  # attempts that were made and failed
    crashes: int = 0  # crashes with this request alone
    due_at: float = 0.0  # UTC; 0: at once
    parent: str | None = None  # the parent's URL

    @property
    def order(self) -> tuple[int, int, int]:
        return (self.prio, self.depth, self.seq)


class RunCounters(_Data, frozen=True):
    """`admitted = pending + done + failed + skipped`, always (G2)."""

    admitted: int = 0
    pending: int = 0
    done: int = 0  # answered with 2xx: pages
    failed: int = 0
    skipped: int = 0
    items: int = 0
    bytes: int = 0


class RunRow(_Data, frozen=True):
    id: int
    job: int
    name: str  # the job's name
    state: RunState
    reason: str  # why it ended or is paused
    spec: bytes  # JSON of JobSpec, as of the run's start
    seed_hosts: tuple[str, ...]  # netlocs that the default scope allows
    seeding: bool  # its submitter still sends seeds: it cannot complete
    counters: RunCounters
    created_at: float
    started_at: float
    ended_at: float  # 0: not ended


class HostRow(_Data, frozen=True):
    id: int
    origin: str
    owners: tuple[str, ...]  # workers that may start requests; empty: free
    next_at: float  # UTC
    crawl_delay_s: float


class LaneCount(_Data, frozen=True):
    run: int
    host: int
    queued: int


# ---------------------------------------------------------------- commands


class TakeOver(_Data, frozen=True):
    """Raise the epoch to max(stored + 1, hint) and load what a leader needs (rule 12)."""

    holder: str
    hint: int
    now: float
    shard: int = 0


class Reload(_Data, frozen=True):
    """The same load without a new epoch, after a commit with unknown outcome (rule 14)."""

    epoch: int
    now: float


class Loaded(_Data, frozen=True):
    """Outcome of TakeOver and Reload."""

    epoch: int
    lease_until: float  # UTC; until then workers may hold what the previous leader granted
    runs: list[RunRow]  # every run that has not ended, and ended ones with rows left to sweep
    lanes: list[LaneCount]  # of running and paused runs, queued > 0
    hosts: list[HostRow]  # those named by `lanes`, and all that are owned
    watermarks: dict[tuple[str, int], int]  # (worker, incarnation) → result number
    sweeps: list[int]  # ended runs that still have queued rows


class Change(_Data, frozen=True):
    """One result, planned: what the leader wants to become of its request."""

    worker: str
    incarnation: int
    number: int  # the result's number; applied strictly in sequence
    seq: int
    run: int
    state: RequestState | None  # None: the request's state stays (a part, a drop)
    dropped: bool = False  # decided beforehand: only the watermark moves
    reason: str = ""
    status: int = 0
    attempts: int = 0
    due_at: float = 0.0
    page: Page | None = None
    items: tuple[bytes, ...] = ()
    links: tuple[NewLink, ...] = ()
    seed_host: str = ""  # netloc to add to the run's default scope (a seed was redirected)
    host: int = 0
    host_next_at: float = 0.0  # UTC; 0: unchanged
    crawl_delay_s: float = 0.0


class ApplyResults(_Data, frozen=True):
    epoch: int
    changes: list[Change]
    now: float


class Applied(_Data, frozen=True):
    """Outcome of ApplyResults."""

    dispositions: list[Disposition]  # one for each change
    admitted: list[QueuedRow]  # new requests, in seq order, of runs that go on
    seen: list[tuple[int, bytes]]  # (run, key) of every link of the batch: now certainly seen
    hosts: list[HostRow]  # hosts that `admitted` names
    runs: list[RunRow]  # runs that the batch touched, as they are now


class SubmitJob(_Data, frozen=True):
    """Store a job and start a run. The reply is stored under `request`, so a repeat is harmless."""

    epoch: int
    request: str
    name: str
    spec: bytes
    mode: str  # new: refuse a known name; update: new spec and new run; again: new run
    seeds: tuple[NewLink, ...]
    seed_hosts: tuple[str, ...]
    seeding: bool  # more seeds follow by AddSeeds
    output: tuple[str, str] | None  # (path, format) of a file that derives from the items
    now: float


class Submitted(_Data, frozen=True):
    """Outcome of SubmitJob and AddSeeds. `refused` tells why nothing was stored."""

    job: int
    run: int
    refused: str  # "", name_exists, no_such_job, run_ended
    admitted: list[QueuedRow]
    hosts: list[HostRow]
    row: RunRow | None
    repeated: bool = False  # this request id was answered before


class AddSeeds(_Data, frozen=True):
    epoch: int
    request: str
    run: int
    seeds: tuple[NewLink, ...]
    seed_hosts: tuple[str, ...]
    last: bool  # closes the seed list
    now: float


class ChangeRun(_Data, frozen=True):
    """One row: running ⇄ paused, or the end of a run, whose queued rows then derive skipped."""

    epoch: int
    request: str
    run: int
    state: RunState
    reason: str
    now: float


class RunChanged(_Data, frozen=True):
    """Outcome of ChangeRun. `refused`: no_such_run, run_ended."""

    refused: str
    row: RunRow | None


class Sweep(_Data, frozen=True):
    """Turn up to `limit` queued rows of an ended run into skipped; delete rows of a deleted one.

    Counters do not change: they changed when the run ended.
    """

    epoch: int
    run: int
    limit: int


class Swept(_Data, frozen=True):
    run: int
    more: bool


class RetryDead(_Data, frozen=True):
    """Queue up to `limit` dead requests of a run again, with seq > after; reopens the run."""

    epoch: int
    run: int
    after: int
    limit: int
    now: float


class Retried(_Data, frozen=True):
    refused: str  # "", no_such_run, run_ended (cancelled and deleted runs stay ended)
    rows: list[QueuedRow]
    hosts: list[HostRow]
    row: RunRow | None
    last: int  # the greatest seq looked at; pass it as the next `after`
    more: bool


class GrantHosts(_Data, frozen=True):
    """Who may start requests to these hosts; committed before the first ASSIGN (rule 12)."""

    epoch: int
    owners: list[tuple[int, tuple[str, ...]]]


class ExtendLease(_Data, frozen=True):
    """No BEAT goes out that would let a worker start a request later than this moment."""

    epoch: int
    until: float


class CountCrash(_Data, frozen=True):
    """A worker died with this request alone (rule 9)."""

    epoch: int
    seq: int
    crashes: int
    quarantine: bool  # it ends dead: quarantined
    now: float


class CrashCounted(_Data, frozen=True):
    row: RunRow | None


class Done(_Data, frozen=True):
    """Outcome of commands that have nothing to tell."""


class AdvanceOutput(_Data, frozen=True):
    """The output file holds the items up to `cursor` in its first `length` bytes."""

    epoch: int
    run: int
    path: str
    cursor: int
    length: int


Command: TypeAlias = (
    TakeOver
    | Reload
    | ApplyResults
    | SubmitJob
    | AddSeeds
    | ChangeRun
    | Sweep
    | RetryDead
    | GrantHosts
    | ExtendLease
    | CountCrash
    | AdvanceOutput
)
CommandOutcome: TypeAlias = (
    Loaded | Applied | Submitted | RunChanged | Swept | Retried | CrashCounted | Done
)

# ---------------------------------------------------------------- queries


class LaneWant(_Data, frozen=True):
    run: int
    host: int
    after: tuple[int, int, int] | None  # rows that sort after this (prio, depth, seq)
    limit: int


class Refill(_Data, frozen=True):
    lanes: tuple[LaneWant, ...]


class Refilled(_Data, frozen=True):
    """For each wanted lane its next rows in order, and whether the lane ends there."""

    lanes: list[tuple[LaneWant, list[QueuedRow], bool]]


class ListJobs(_Data, frozen=True):
    pass


class FindJob(_Data, frozen=True):
    """By id or by name."""

    ref: str


class JobRow(_Data, frozen=True):
    id: int
    name: str
    spec: bytes
    created_at: float
    runs: list[RunRow]  # newest first


class JobList(_Data, frozen=True):
    jobs: list[JobRow]


class Tallies(_Data, frozen=True):
    """Counts by HTTP status and by reason, kept in the result transaction."""

    run: int


class TallyRows(_Data, frozen=True):
    statuses: dict[int, int]
    failed: dict[str, int]
    skipped: dict[str, int]


class ReadItems(_Data, frozen=True):
    run: int
    after: int  # item id
    limit: int


class ItemRow(_Data, frozen=True):
    id: int
    data: bytes


class ReadFailed(_Data, frozen=True):
    run: int
    after: int  # request seq
    limit: int


class FailedRow(_Data, frozen=True):
    seq: int
    url: str
    state: RequestState
    reason: str
    status: int
    attempts: int
    depth: int
    parent: str | None


class ReadOutputs(_Data, frozen=True):
    """Output files that are not complete on disk or whose run goes on, or those of one run."""

    run: int | None = None


class OutputRow(_Data, frozen=True):
    run: int
    path: str
    format: str
    cursor: int
    length: int
    last_item: int  # newest committed item of the run: the file is complete when cursor is there


class Items(_Data, frozen=True):
    rows: list[ItemRow]


class Failures(_Data, frozen=True):
    rows: list[FailedRow]


class Outputs(_Data, frozen=True):
    rows: list[OutputRow]


Query: TypeAlias = Refill | ListJobs | FindJob | Tallies | ReadItems | ReadFailed | ReadOutputs
QueryOutcome: TypeAlias = Refilled | JobList | TallyRows | Items | Failures | Outputs


class Store(Protocol):
    """One store; `execute` is called by one thread at a time, `query` by another."""

    def execute(self, command: Command) -> CommandOutcome: ...

    def query(self, query: Query) -> QueryOutcome: ...

    def close(self) -> None: ...
