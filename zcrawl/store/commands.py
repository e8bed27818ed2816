"""The commands that write to a store, and their outcomes, as data.

Each command is one fenced transaction; `ports` has the guarantees. The master's machines create
commands, and the writer thread runs them in order.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from zcrawl.mesh.messages import PageRecord, Traits
from zcrawl.model.history import HistoryEntry
from zcrawl.model.host import Manner
from zcrawl.model.people import AuditEntry, Quotas, TokenRow, UserRow
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import (
    DefinitionRow,
    HeldSubmission,
    HostRow,
    LaneCount,
    NewLink,
    QueuedRow,
    RunRow,
    StoredRobots,
)
from zcrawl.model.states import (
    Disposition,
    JobState,
    Kept,
    RequestState,
    RunCause,
    RunState,
)
from zcrawl.standalone.shares import Division
from zcrawl.store.output_pieces import Progress


class TakeOver(msgspec.Struct, frozen=True):
    """Raise the epoch to max(stored + 1, hint) and load what a leader needs (rule `takeover`)."""

    holder: str
    hint: int
    now: float
    shard: int = 0


class CancelOffline(msgspec.Struct, frozen=True):
    """End a run without a leader: raise the epoch as a takeover does, and cancel the run, in one
    transaction. A leader that is alive, or wakes up later, is fenced by it (G4) and reloads. No
    spec is read. If the run has ended, the command is refused (`run_ended`); the epoch stays."""

    holder: str
    run: int
    now: float
    client_action: ClientAction | None = None
    shard: int = 0


class Reload(msgspec.Struct, frozen=True):
    """Load again without a new epoch, after a commit with unknown outcome (rule `plan, then
    commit`)."""

    epoch: int
    now: float


class Loaded(msgspec.Struct, frozen=True):
    """Outcome of TakeOver and Reload."""

    epoch: int
    lease_until: float  # UTC; until then workers may hold what the previous leader granted
    runs: list[RunRow]  # every run that has not ended, and ended ones with rows left to sweep
    lanes: list[LaneCount]  # of running and paused runs, queued > 0
    hosts: list[HostRow]  # those named by `lanes`, and all that are owned
    watermarks: dict[tuple[str, int], int]  # (worker, incarnation) → result number
    sweeps: list[int]  # ended runs that still have queued rows
    utc: float = 0.0  # by the database's own clock, at the end; 0: it has none
    pages: list[LaneCount] = []  # done requests by host, of live runs that limit them
    newest_seq: int | None = None  # the last number given to a request; None: not read
    moved: dict[tuple[str, int], float] = {}  # when watermarks moved last
    drains: list[DrainRow] = []  # workers that must not get work
    wishes: list[WishRow] = []  # hosts that people gave to a worker
    secrets: list[SecretRow] = []  # by name
    retries: list[RetryRow] = []  # retries that are not finished
    jobs: list[DefinitionRow] = []  # active jobs that have a [schedule]
    users: list[UserRow] = []


class Change(msgspec.Struct, frozen=True):
    """The planned effect of one result on its request."""

    worker: str
    incarnation: int
    number: int  # the result's number; applied strictly in sequence
    seq: int
    run: int
    state: RequestState | None  # None: the request's state stays (a part, a drop)
    dropped: bool = False  # the result is ignored; only the watermark moves
    reason: str = ""
    status: int = 0
    attempts: int = 0
    due_at: float = 0.0
    page: PageRecord | None = None
    items: tuple[bytes, ...] = ()
    others: tuple[tuple[Kept, bytes], ...] = ()  # stored records that are not items
    tallies: tuple[tuple[str, str, int], ...] = ()  # (kind, name, count) of an extraction
    links: tuple[NewLink, ...] = ()
    rejected: tuple[tuple[str, int], ...] = ()  # links that cannot be crawled: (reason, count)
    links_dropped: tuple[tuple[str, int], ...] = ()  # links outside of the crawl: (reason, count)
    # Netlocs to add to the run's default scope: a seed was redirected, a spider began.
    seed_hosts: tuple[str, ...] = ()
    host: int = 0
    host_next_at: float = 0.0  # UTC; 0: unchanged
    crawl_delay_s: float = 0.0
    cookies: tuple[str, bytes] | None = None  # a host's, to be kept with the run
    manner: Manner | None = None  # None: unchanged
    robots: StoredRobots | None = None
    traits: Traits | None = None  # of a page of a job that asks for them
    address: str = ""  # of the host; empty: unchanged
    final: NewLink | None = None  # the page that answered, if a redirect led there
    detail: str = ""  # of a failure or a skip, for people: what happened
    # Of items that were set aside: (reason, what is wrong with the first of them).
    examples: tuple[tuple[str, str], ...] = ()


class ApplyResults(msgspec.Struct, frozen=True):
    epoch: int
    changes: list[Change]
    now: float


class Applied(msgspec.Struct, frozen=True):
    """Outcome of ApplyResults."""

    dispositions: list[Disposition]  # one for each change
    admitted: list[QueuedRow]  # new requests, in seq order, of runs that go on
    seen: list[tuple[int, bytes]]  # (run, key) of every link of the batch: now certainly seen
    hosts: list[HostRow]  # hosts that `admitted` names
    runs: list[RunRow]  # runs that the batch touched, as they are now
    # Requests that are skipped although their results said done: duplicates of other pages.
    skipped: list[int] = []


class ClientAction(msgspec.Struct, frozen=True):
    """A client's request, stored with its answer so that a repeat is not carried out again."""

    request: str
    what: str  # in a few words
    by: str  # user@host
    via: str  # the master that received it
    at: float
    changed: int = 0  # number of requests or runs that it has changed so far
    audit: AuditEntry | None = None  # stored with the answer; None: it leaves no line


class DrainRow(msgspec.Struct, frozen=True):
    """A worker that must not get work, by its id."""

    worker: str
    life: int  # life of its supervisor when it was drained; 0: it was not connected


class WishRow(msgspec.Struct, frozen=True):
    """A host that a person gave to a worker."""

    host: int
    worker: str


class SecretRow(msgspec.Struct, frozen=True):
    """A stored secret. `sealed` opens with a key that only masters have."""

    name: str
    sealed: str
    key_id: str  # of the key that sealed it
    hosts: tuple[str, ...]  # that may get it
    commands: tuple[str, ...]  # that may get it in their environment
    updated_at: float
    updated_by: str


class RetryRow(msgspec.Struct, frozen=True):
    """An unfinished retry; `client_action.changed` requests are queued again so far."""

    client_action: ClientAction
    run: int
    reason: str
    host: int
    after: int  # requests up to this number have been handled


class StartFacts(msgspec.Struct, frozen=True):
    """What a new run stores about its start."""

    cause: RunCause = RunCause.SUBMITTED
    due_at: float | None = None
    params: bytes = b""  # JSON
    chain: int = 0


class SubmitJob(msgspec.Struct, frozen=True):
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
    by: str = ""  # who asked, and through which master
    via: str = ""
    canonical: int = 1  # version of the canonical form by which the keys of `seeds` are made
    start: bool = True  # False: only store the spec
    start_facts: StartFacts = StartFacts()
    cancels: tuple[int, ...] = ()  # live runs that are cancelled in the same transaction
    live: tuple[tuple[int, bytes], ...] = ()  # live runs that get this spec, if none is started
    run_spec: bytes = b""  # of the run, with its parameters filled in; empty: the job's
    # If a run of the job is alive and its overlap is `queue`, this is stored and no run is started.
    hold: HeldSubmission | None = None
    only_owner: str | None = None  # refused if the job is somebody else's; None: any job
    quotas: Quotas | None = None  # of `by`; compared with what is stored
    audit: AuditEntry | None = None  # stored with the answer, with what changed in the spec


class Submitted(msgspec.Struct, frozen=True):
    """Outcome of SubmitJob and AddSeeds. `refused` is the reason why nothing was stored."""

    job: int
    run: int  # 0: none was started
    refused: str  # "", name_exists, no_such_job, run_ended, start_is_held, bad_dependency, ...
    admitted: list[QueuedRow]
    hosts: list[HostRow]
    row: RunRow | None
    repeated: bool = False  # this request id was answered before
    cancelled: list[RunRow] = []
    changed: list[RunRow] = []  # live runs that have the new spec
    definition: DefinitionRow | None = None  # the job as it is now
    held_run: int = 0  # the number that the run will have, if the submission waits
    after: int = 0  # the live run that it waits for
    why: str = ""  # of a refusal, for people; empty: the code says it all


class DueMark(msgspec.Struct, frozen=True):
    """How far the due times of a job are dealt with."""

    done: float  # all up to it
    held: float | None = None  # besides this one, which waits


class FireJob(msgspec.Struct, frozen=True):
    """Start a run of a job by its schedule; or, without `start`, store that a due time or runs of
    its parents start none.

    The run is stored together with the due time, the held submission or the parents' runs that it
    uses up. So whoever leads, each of them starts one run; a repeat changes nothing.
    """

    epoch: int
    job: int
    version: int  # of the spec that the leader planned with; refused if the job has another
    now: float
    start: bool = True
    name: str = ""  # of the job, for its output files
    spec: bytes = b""  # of the run, with its parameters filled in
    seeds: tuple[NewLink, ...] = ()
    seed_hosts: tuple[str, ...] = ()
    seeding: bool = False
    output: tuple[str, str] | None = None
    canonical: int = 1
    start_facts: StartFacts = StartFacts()
    cancels: tuple[int, ...] = ()  # live runs that are cancelled in the same transaction
    # The live runs that the leader decided with; refused if there is another. None: any may live.
    beside: tuple[int, ...] | None = None
    due: DueMark | None = None  # None: it is not about a due time
    used: tuple[int, ...] = ()  # runs of parents
    held_run: int = 0  # the held submission that it starts or drops, by the number of its run
    feed_run: int = 0  # whose items are seeds; 0: the newest completed run of `seeds_from.job`
    note: str = ""  # why none starts, for people
    failure: str = ""  # the run fails at once, for this reason


class JobFired(msgspec.Struct, frozen=True):
    """Outcome of FireJob. `refused`: no_such_job, job_changed, run_is_alive."""

    refused: str
    definition: DefinitionRow | None  # the job as it is now
    row: RunRow | None = None  # the run; None: none was started
    admitted: list[QueuedRow] = []
    hosts: list[HostRow] = []
    cancelled: list[RunRow] = []
    repeated: bool = False  # it was dealt with before: nothing was done


class AddSeeds(msgspec.Struct, frozen=True):
    epoch: int
    request: str
    run: int
    seeds: tuple[NewLink, ...]
    seed_hosts: tuple[str, ...]
    last: bool  # closes the seed list
    now: float
    only_owner: str | None = None  # as in SubmitJob
    quotas: Quotas | None = None
    by: str = ""


class AdmitKnown(msgspec.Struct, frozen=True):
    """Admit pages that the job knows from earlier runs, up to an id. A repeat changes nothing,
    because the position of the run has moved."""

    epoch: int
    run: int
    after: int  # the position of the run, see `RunRow.recall`
    upto: int
    links: tuple[NewLink, ...]
    last: bool  # the job knows no more
    now: float


class KnownAdmitted(msgspec.Struct, frozen=True):
    admitted: list[QueuedRow]
    hosts: list[HostRow]
    row: RunRow | None  # None: there is no such run
    repeated: bool = False  # the run has another position: nothing was done


class AdmitFed(msgspec.Struct, frozen=True):
    """Admit seeds from the items of another run, up to an id. A repeat changes nothing, because
    the position of the run has moved. The outcome is KnownAdmitted."""

    epoch: int
    run: int
    after: int  # the position of the run, see `RunRow.feed_at`
    upto: int
    links: tuple[NewLink, ...]
    seed_hosts: tuple[str, ...]
    last: bool  # the other run has no more items
    now: float


class ChangeRun(msgspec.Struct, frozen=True):
    """Pause, resume or end a run by changing one row. Queued rows of an ended run count as skipped.
    `others` are changed in the same transaction: all live runs of a job."""

    epoch: int
    request: str
    run: int
    state: RunState
    reason: str
    now: float
    client_action: ClientAction | None = None  # the client's request, stored with its answer
    others: tuple[int, ...] = ()
    # Delete the run only if this is its end: a retry reopens runs, and then they go on.
    only_ended_at: float | None = None


class BeginRuns(msgspec.Struct, frozen=True):
    """Let pending runs run: a worker has accepted an assignment of each. Others do not change."""

    epoch: int
    runs: tuple[int, ...]
    now: float


class RunsBegun(msgspec.Struct, frozen=True):
    rows: list[RunRow]  # of those that exist


class ChangeJob(msgspec.Struct, frozen=True):
    """Change the state of a job. DELETED also deletes all its runs and frees its name.

    `seen`: the runs that were shown when the deletion was confirmed; it is refused if there are
    others. One that is gone meanwhile does not matter."""

    epoch: int
    request: str
    job: int
    state: JobState
    now: float
    client_action: ClientAction | None = None
    seen: tuple[int, ...] | None = None


class JobChanged(msgspec.Struct, frozen=True):
    """Outcome of ChangeJob. `refused`: no_such_job, unseen_runs: `runs` has those."""

    refused: str
    row: DefinitionRow | None
    runs: list[RunRow] = []  # that it has deleted
    reply: bytes = b""  # that was given before: nothing was done


class TuneRun(msgspec.Struct, frozen=True):
    """Change what an active run does by storing another spec. A run that has `max_pages` pages
    already is completed by it."""

    epoch: int
    request: str
    run: int
    spec: bytes
    client_action: ClientAction | None = None
    now: float = 0.0


class RunChanged(msgspec.Struct, frozen=True):
    """Outcome of ChangeRun, TuneRun and CancelOffline. `refused`: no_such_run, run_ended,
    run_reopened."""

    refused: str
    row: RunRow | None
    reply: bytes = b""  # that was given before: nothing was done
    others: list[RunRow] = []


class SetDrain(msgspec.Struct, frozen=True):
    """Store that a worker gets no work, or may get work again. It is valid until the next SetDrain,
    also after a change of the leader or of the worker's process.

    With `client_action` a person asked for it. Without, the leader sends it when the worker
    connects: `on` stores the life of its supervisor, if none is stored; without `on` a drain of an
    earlier life ends.
    """

    epoch: int
    worker: str
    on: bool
    life: int
    now: float
    state: str = ""  # of the worker, for the answer
    client_action: ClientAction | None = None


class DrainSet(msgspec.Struct, frozen=True):
    worker: str
    row: DrainRow | None  # as it is stored now; None: it may work
    reply: bytes = b""  # to `client_action`, also if it was given before


class SetWish(msgspec.Struct, frozen=True):
    """Store the worker that a person chose for a host. The wishes of `others` are removed, because
    these hosts share limits with it and must have the same worker."""

    epoch: int
    host: int
    worker: str
    reply: bytes  # JSON
    client_action: ClientAction
    others: tuple[int, ...] = ()


class WishSet(msgspec.Struct, frozen=True):
    wishes: list[WishRow]  # all that are stored now
    reply: bytes


class SecretChange(msgspec.Struct, frozen=True):
    """A row to store. With `before`, only if the stored row is still sealed like this."""

    row: SecretRow
    before: str = ""


class ChangeSecrets(msgspec.Struct, frozen=True):
    """Store secrets, and remove those of `drop`. It never has a value that is not sealed."""

    epoch: int
    put: tuple[SecretChange, ...]
    drop: tuple[str, ...]
    reply: bytes  # JSON
    client_action: ClientAction


class SecretsChanged(msgspec.Struct, frozen=True):
    secrets: list[SecretRow]  # all that are stored now, by name
    reply: bytes  # to `client_action`, also if it was given before


class Sweep(msgspec.Struct, frozen=True):
    """Turn up to `limit` queued rows of an ended run into skipped; delete rows of a deleted one.

    Counters do not change: they changed when the run ended.
    """

    epoch: int
    run: int
    limit: int


class Swept(msgspec.Struct, frozen=True):
    run: int
    more: bool


class RetryDead(msgspec.Struct, frozen=True):
    """Queue up to `limit` dead requests of a run again; reopens the run.

    The position of a retry is stored with each part, under its request, so any leader can continue
    it with the same command. The last part stores the answer: the count of all parts.
    """

    epoch: int
    run: int
    limit: int
    now: float
    client_action: ClientAction
    reason: str = ""  # only requests that failed for this reason
    host: int = 0  # only requests of this host


class Retried(msgspec.Struct, frozen=True):
    refused: str  # "", no_such_run, run_ended (cancelled and deleted runs stay ended)
    rows: list[QueuedRow]
    hosts: list[HostRow]
    row: RunRow | None
    changed: int  # requests that all parts so far have queued
    more: bool
    reply: bytes = b""  # that was given before: nothing was done


class GrantHosts(msgspec.Struct, frozen=True):
    """Store the processes that may start requests to these hosts, before the first ASSIGN (rule
    `takeover`)."""

    epoch: int
    owners: list[tuple[int, tuple[ProcessName, ...]]]


class ExtendLease(msgspec.Struct, frozen=True):
    """Store the time until which workers may start requests. No BEAT allows a later time."""

    epoch: int
    until: float


class CountCrash(msgspec.Struct, frozen=True):
    """Store that a worker died while it had only this request (rule `crashes`)."""

    epoch: int
    seq: int
    crashes: int
    quarantine: bool  # it ends dead: quarantined
    now: float


class CrashCounted(msgspec.Struct, frozen=True):
    row: RunRow | None


class Done(msgspec.Struct, frozen=True):
    """Outcome of commands that return nothing."""


class AdvanceOutput(msgspec.Struct, frozen=True):
    """Store that the first `length` bytes of the output file hold the items up to `cursor`."""

    epoch: int
    run: int
    path: str
    cursor: int
    length: int
    part: int = 0  # the part that is being written, if the output has parts
    part_at: float = 0.0  # UTC; when the part got its first item; 0: it has none
    progress: Progress = Progress()
    problem: str = ""


class NoteOutput(msgspec.Struct, frozen=True):
    """Store the problem of an output, shown by `job`; empty: the problem is over."""

    epoch: int
    run: int
    path: str
    problem: str


class NoteArchive(msgspec.Struct, frozen=True):
    """Store why an ended run could not be archived, and count it; empty: the problem is over."""

    epoch: int
    run: int
    problem: str


class Forget(msgspec.Struct, frozen=True):
    """Remove watermarks that have not moved since `before`, of these streams, and up to `limit`
    answers to clients that are older than `answers_before` (`master.pruning`)."""

    epoch: int
    streams: tuple[tuple[str, int], ...]  # (worker, incarnation)
    before: float
    answers_before: float
    limit: int


class Forgotten(msgspec.Struct, frozen=True):
    more: bool  # there are more such answers


class SaveHistory(msgspec.Struct, frozen=True):
    """Add what was counted since the last entry to the rows of its ten seconds and its minute, and
    remove rows that are too old. It is not repeated: a second one would count twice."""

    epoch: int
    at: float
    entry: HistoryEntry


class Rehome(msgspec.Struct, frozen=True):
    """Give the rows of one run to their owners, after the list of standalone nodes has changed.

    Queued rows that another node owns now are skipped as `owned by …`; skipped ones that are this
    node's now are queued, which reopens a completed run. Works on up to `limit` rows of the first
    run, the newest of its job, that comes at or after the position (`run`, `after`).
    """

    epoch: int
    division: Division
    run: int  # 0: begin
    after: int  # request number
    limit: int
    now: float
    held: frozenset[int] = frozenset()  # requests in flight: they stay, whoever owns them


class Rehomed(msgspec.Struct, frozen=True):
    run: int  # where the next one begins
    after: int
    more: bool
    released: int = 0  # queued rows that another node owns
    claimed: int = 0  # skipped rows that are this node's
    stayed: int = 0  # rows in flight that another node owns


# ---------------------------------------------------------------- users, tokens, audit


class AddUser(msgspec.Struct, frozen=True):
    user: UserRow


class ChangeUser(msgspec.Struct, frozen=True):
    """Change what is not None. The last admin stays one, unless the masters' own key says so."""

    name: str
    role: str | None = None
    rights: tuple[str, ...] | None = None
    quotas: Quotas | None = None
    disabled: bool | None = None
    by_masters: bool = False


class CreateToken(msgspec.Struct, frozen=True):
    """Store a token. The store keeps a keyed digest of `digest`."""

    token: TokenRow
    digest: str


class RevokeToken(msgspec.Struct, frozen=True):
    prefix: str
    user: str = ""  # only a token of this user; empty: of anybody


class NoteTokenUse(msgspec.Struct, frozen=True):
    prefix: str


class RemoveAudit(msgspec.Struct, frozen=True):
    """Remove up to `limit` lines that are older than `before` and were written to an archive."""

    before: float  # UTC
    last: int  # the archive has no later line
    limit: int
    file: str


PeopleChange: TypeAlias = (
    AddUser | ChangeUser | CreateToken | RevokeToken | NoteTokenUse | RemoveAudit
)


class ChangePeople(msgspec.Struct, frozen=True):
    """Change users, tokens or the audit. The answer and a line of the audit are stored with it."""

    epoch: int
    change: PeopleChange
    now: float
    client_action: ClientAction | None = None


class PeopleChanged(msgspec.Struct, frozen=True):
    reply: bytes  # JSON; empty: refused
    refused: str = ""
    why: str = ""


class WriteAudit(msgspec.Struct, frozen=True):
    """Store lines of the audit that have no transaction of their own. The batch has an id, so a
    repeat writes nothing."""

    epoch: int
    batch: str
    rows: tuple[AuditEntry, ...]
    now: float


LeaderCommand: TypeAlias = (
    Reload
    | ApplyResults
    | SubmitJob
    | AddSeeds
    | AdmitKnown
    | AdmitFed
    | FireJob
    | ChangeRun
    | BeginRuns
    | ChangeJob
    | TuneRun
    | SetDrain
    | SetWish
    | ChangeSecrets
    | Sweep
    | RetryDead
    | GrantHosts
    | ExtendLease
    | CountCrash
    | AdvanceOutput
    | NoteOutput
    | NoteArchive
    | Forget
    | SaveHistory
    | Rehome
    | ChangePeople
    | WriteAudit
)
Command: TypeAlias = TakeOver | CancelOffline | LeaderCommand
CommandOutcome: TypeAlias = (
    Loaded
    | Applied
    | Submitted
    | KnownAdmitted
    | JobFired
    | RunChanged
    | RunsBegun
    | JobChanged
    | DrainSet
    | WishSet
    | SecretsChanged
    | Swept
    | Retried
    | CrashCounted
    | Forgotten
    | Rehomed
    | PeopleChanged
    | Done
)
