"""The queries of a store and their results, as data.

Used by the frontier (refills), the desk (views), the output files and `export`. They read by
cursor, so that a million rows are never in memory at once.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from zcrawl.model.history import HistoryPoint
from zcrawl.model.people import AuditRow, TokenRow, UserRow
from zcrawl.model.rows import (
    DefinitionRow,
    HeldSubmission,
    JobVersion,
    KnownRow,
    LaneWant,
    Refilled,
    RunRow,
)
from zcrawl.model.spec import Retention
from zcrawl.model.states import JobState, Kept, RequestState, RunState
from zcrawl.schedule.dependencies import FinishedRun
from zcrawl.store.output_pieces import PartsPlace, Progress


class Refill(msgspec.Struct, frozen=True):
    lanes: tuple[LaneWant, ...]


class ListJobs(msgspec.Struct, frozen=True):
    pass


class ReadParents(msgspec.Struct, frozen=True):
    """Read the ended runs of a job's parents that it has not used: the oldest of each parent."""

    job: int
    parents: tuple[tuple[str, tuple[str, ...]], ...]  # (name, outcomes that count)
    since: float  # UTC; runs that ended earlier do not count
    limit: int  # of each parent


class ParentRuns(msgspec.Struct, frozen=True):
    rows: list[FinishedRun]  # in the order in which they ended


class ReadChain(msgspec.Struct, frozen=True):
    """Read the runs of a chain of dependencies: the run that began it, and all that followed."""

    run: int
    limit: int


class ChainRun(msgspec.Struct, frozen=True):
    """One run of a chain."""

    id: int
    job: int
    name: str
    state: RunState
    reason: str
    started_at: float
    ended_at: float
    parents: tuple[int, ...]  # the runs that started it; empty: it began the chain


class ChainRuns(msgspec.Struct, frozen=True):
    rows: list[ChainRun]  # by id


class FindJob(msgspec.Struct, frozen=True):
    """Find a job by id or by name, or the job of a run."""

    ref: str
    run: int | None = None


NEWEST: Final = (1 << 63) - 1  # above all ids


class ReadRuns(msgspec.Struct, frozen=True):
    """Read the newest runs below an id, of all jobs; deleted ones are left out."""

    before: int
    limit: int


class RunRows(msgspec.Struct, frozen=True):
    rows: list[RunRow]  # newest first


class JobRow(msgspec.Struct, frozen=True):
    id: int
    name: str
    spec: bytes
    created_at: float
    runs: list[RunRow]  # newest first
    state: JobState = JobState.ACTIVE
    version: int = 1
    owner: str = ""
    updated_at: float = 0.0
    schedule_from: float = 0.0
    due_held: float | None = None
    due_note: str = ""
    held: HeldSubmission | None = None


def job_row(job: DefinitionRow, runs: list[RunRow]) -> JobRow:
    """Return a job with its runs."""
    return JobRow(
        job.id,
        job.name,
        job.spec,
        job.created_at,
        runs,
        job.state,
        job.version,
        job.owner,
        job.updated_at,
        job.schedule_from,
        job.due_held,
        job.due_note,
        job.held,
    )


class ReadVersions(msgspec.Struct, frozen=True):
    """Read the specs that a job has had, oldest first."""

    job: int


class JobVersions(msgspec.Struct, frozen=True):
    rows: list[JobVersion]


class JobList(msgspec.Struct, frozen=True):
    jobs: list[JobRow]


class Tallies(msgspec.Struct, frozen=True):
    """Read the counts by HTTP status and by reason, and the actions of people on the run."""

    run: int


class ActionRow(msgspec.Struct, frozen=True):
    """An action of a person on a run."""

    at: float
    what: str
    by: str  # user@host
    via: str  # the master that received it


class OutputFact(msgspec.Struct, frozen=True):
    """One output of a run, as `job` shows it."""

    path: str  # as the job names it
    format: str
    problem: str  # why it is not written now; empty: no problem
    part: int = 0  # the part that is being written; also the number of complete parts
    places: tuple[PartsPlace, ...] = ()  # where complete parts are


class ExampleRow(msgspec.Struct, frozen=True):
    """The first request of a tally: a reason of failures, skips or rejected items."""

    kind: str  # failed, skipped, rejected
    name: str  # the reason
    url: str
    detail: str  # for people; empty: the reason says it all


class KeptRun(msgspec.Struct, frozen=True):
    """An old run that could not be archived, so it was not removed."""

    run: int
    problem: str


class TallyRows(msgspec.Struct, frozen=True):
    statuses: dict[int, int]
    failed: dict[str, int]
    skipped: dict[str, int]
    links: dict[str, int] = {}  # links that cannot be crawled, by reason
    dropped: dict[str, int] = {}  # links outside of the crawl, by reason; each once per page
    rejected: dict[str, int] = {}  # items that were set aside, by reason
    filled: dict[str, int] = {}  # by field: how often it had a value,
    empty: dict[str, int] = {}  # had none,
    unread: dict[str, int] = {}  # had one that could not be read
    workers: dict[str, int] = {}  # by worker: requests of the run that it has ended
    actions: list[ActionRow] = []  # the latest few, newest first
    outputs: list[OutputFact] = []
    examples: list[ExampleRow] = []  # by kind and name
    not_removed: list[KeptRun] = []  # of all runs of the job, newest first


class ReadItems(msgspec.Struct, frozen=True):
    run: int
    after: int  # item id
    limit: int
    kind: Kept = Kept.ITEM


class ItemRow(msgspec.Struct, frozen=True):
    id: int
    data: bytes


SEARCHED_ITEMS: Final = 10_000  # a search looks at no more; `more` says that there are others


class FindItems(msgspec.Struct, frozen=True):
    """Find the newest items below an id, of a run or of all; `text` must occur in them."""

    run: int | None
    before: int  # item id
    limit: int
    text: str = ""


class FoundItem(msgspec.Struct, frozen=True):
    id: int
    run: int
    data: bytes


class FoundItems(msgspec.Struct, frozen=True):
    rows: list[FoundItem]  # newest first
    last: int  # the smallest id looked at; pass it as the next `before`
    more: bool


class ReadFailed(msgspec.Struct, frozen=True):
    run: int
    after: int  # request seq
    limit: int
    reason: str = ""  # only those that ended for it
    host: int = 0  # only those of it


class FailedRow(msgspec.Struct, frozen=True):
    seq: int
    url: str
    state: RequestState
    reason: str
    status: int
    attempts: int
    depth: int
    parent: str | None
    detail: str = ""  # what happened; kept of the first requests of each reason
    result: bytes = b""  # JSON: of a task that failed for good


class ReadOutputs(msgspec.Struct, frozen=True):
    """Read the outputs that are not complete or whose run is active, or those of one run."""

    run: int | None = None


class OutputRow(msgspec.Struct, frozen=True):
    run: int
    path: str
    format: str
    cursor: int
    length: int
    last_item: int  # newest committed item of the run: the file is complete when cursor is there
    part: int = 0
    part_at: float = 0.0
    ended: bool = False  # the run: nothing more comes
    spec: bytes = b"{}"  # of the run, for columns and rotation
    problem: str = ""  # what hindered it last
    progress: Progress = Progress()  # the pieces of the part, and where complete parts are
    began: float = 0.0  # UTC; when the run was created


class ReadRemovable(msgspec.Struct, frozen=True):
    """Find ended runs to remove (`store.retention`), in the order of jobs, oldest first."""

    now: float  # UTC
    defaults: Retention  # of the masters
    limit: int
    job: int | None = None  # only runs of it
    after: tuple[int, int] = (0, 0)  # job and run of the last one that was returned


class RemovableRun(msgspec.Struct, frozen=True):
    """An ended run to remove."""

    job: int
    name: str  # the job's
    run: int
    ended_at: float
    why: str
    archive: str  # where it is written before; empty: nowhere
    archive_format: str
    by_job: bool  # the job names the archive
    unwritten: tuple[str, ...] = ()  # its outputs that are not complete: it waits for them
    problem: str = ""  # why it could not be archived
    failures: int = 0  # how often


class RemovableRuns(msgspec.Struct, frozen=True):
    rows: list[RemovableRun]


class ReadKnown(msgspec.Struct, frozen=True):
    """Read the pages that a job knows and that are not gone, in the order of their first visit."""

    job: int
    after: int  # id
    limit: int


class KnownPages(msgspec.Struct, frozen=True):
    rows: list[KnownRow]


class FindReply(msgspec.Struct, frozen=True):
    """Find the stored answer to a client's request."""

    request: str


class FoundReply(msgspec.Struct, frozen=True):
    reply: bytes | None  # JSON


class ReadEpoch(msgspec.Struct, frozen=True):
    """Read the epoch of the newest leader, without a lock. Used only to decide a step down."""


class StoredEpoch(msgspec.Struct, frozen=True):
    epoch: int


class ReadFailureGroups(msgspec.Struct, frozen=True):
    """The failed requests of a run, or of the newest runs, counted by host and reason: what a
    retry of such a group would queue again."""

    run: int | None
    runs: int  # of all: the newest runs that have failures
    limit: int  # groups of a run, the largest first


class FailureGroupRow(msgspec.Struct, frozen=True):
    """Failed requests of one run and host with the same reason, and the newest of them."""

    run: int
    job: int
    name: str  # the job's
    host: int
    origin: str
    reason: str
    count: int
    status: int
    url: str


class FailureGroupRows(msgspec.Struct, frozen=True):
    rows: list[FailureGroupRow]


class ReadHistory(msgspec.Struct, frozen=True):
    """The newest intervals of one series, oldest first: of a run, of a host, or of the whole
    cluster."""

    step: int
    limit: int
    run: int | None = None
    host: int | None = None


class HistoryPoints(msgspec.Struct, frozen=True):
    points: list[HistoryPoint]


class ReadUsers(msgspec.Struct, frozen=True):
    """Read all users, by name."""


class UserRows(msgspec.Struct, frozen=True):
    rows: list[UserRow]


class ReadTokens(msgspec.Struct, frozen=True):
    """Read the tokens of a user, or of all; the newest first."""

    user: str = ""


class TokenRows(msgspec.Struct, frozen=True):
    rows: list[TokenRow]


class CheckToken(msgspec.Struct, frozen=True):
    """Read a token and its user, and compare the digest. The stored one stays in the store."""

    prefix: str
    digest: str


class TokenChecked(msgspec.Struct, frozen=True):
    token: TokenRow | None
    user: UserRow | None
    matches: bool


class ReadAudit(msgspec.Struct, frozen=True):
    """Read lines of the audit: the newest below `before`, or the oldest above `after`."""

    limit: int
    before: int = NEWEST  # id
    after: int | None = None  # id
    since: float = 0.0  # UTC
    until: float | None = None  # UTC; lines at this time or later do not count
    user: str = ""
    job: str = ""  # id or name


class AuditRows(msgspec.Struct, frozen=True):
    rows: list[AuditRow]


class Items(msgspec.Struct, frozen=True):
    rows: list[ItemRow]


class Failures(msgspec.Struct, frozen=True):
    rows: list[FailedRow]


class Outputs(msgspec.Struct, frozen=True):
    rows: list[OutputRow]


Query: TypeAlias = (
    Refill
    | ListJobs
    | ReadParents
    | ReadChain
    | FindJob
    | Tallies
    | ReadItems
    | FindItems
    | ReadFailed
    | ReadOutputs
    | ReadKnown
    | FindReply
    | ReadVersions
    | ReadRuns
    | ReadEpoch
    | ReadHistory
    | ReadFailureGroups
    | ReadRemovable
    | ReadUsers
    | ReadTokens
    | CheckToken
    | ReadAudit
)
QueryOutcome: TypeAlias = (
    Refilled
    | JobList
    | ParentRuns
    | ChainRuns
    | TallyRows
    | Items
    | FoundItems
    | Failures
    | Outputs
    | KnownPages
    | FoundReply
    | JobVersions
    | RunRows
    | StoredEpoch
    | HistoryPoints
    | FailureGroupRows
    | RemovableRuns
    | UserRows
    | TokenRows
    | TokenChecked
    | AuditRows
)
