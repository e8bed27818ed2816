"""The rows of the fake store, in dicts, and the few writes that several commands share.

Only `store` uses it. Rows are mutable here and copied into the frozen types of
`store.ports` when they leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from zcrawl.mesh.messages import PageRecord
from zcrawl.model.history import HistoryEntry
from zcrawl.model.host import Manner
from zcrawl.model.people import AuditRow, TokenRow, UserRow
from zcrawl.model.process_name import ProcessName
from zcrawl.model.reasons.skip import MAX_PAGES
from zcrawl.model.rows import (
    NO_HOST,
    DefinitionRow,
    HeldSubmission,
    HostRow,
    JobVersion,
    NewLink,
    QueuedRow,
    RunCounters,
    RunRow,
    StoredRobots,
)
from zcrawl.model.spec import OFF
from zcrawl.model.states import JobState, Kept, RequestState, RunState
from zcrawl.store.commands import (
    Change,
    ClientAction,
    DrainRow,
    RetryRow,
    SecretRow,
    StartFacts,
)
from zcrawl.store.near import MOST_IN_BAND, Original, bands, fingerprint_in, judged, nearest
from zcrawl.store.output_pieces import Progress
from zcrawl.store.rules import (
    MOST_EXAMPLE_REASONS,
    MOST_EXAMPLES,
    RECALLED,
    Counted,
    duplicates_of,
    is_scheduled,
    recall_left,
    schedule_of,
    skip_reason,
    stored_max_pages,
    verdict,
)
from zcrawl.testing.store.known import FakeKnown, recall

NOTHING_SPECIAL = Manner()
SUBMITTED_NOW = StartFacts()


@dataclass(slots=True)
class FakeJob:
    id: int
    name: str
    spec: bytes
    created_at: float
    state: JobState = JobState.ACTIVE
    version: int = 1
    owner: str = ""
    updated_at: float = 0.0
    versions: list[JobVersion] = field(default_factory=list)
    schedule_from: float = 0.0
    due_done: float = 0.0
    due_held: float | None = None
    due_note: str = ""
    held: HeldSubmission | None = None

    def row(self) -> DefinitionRow:
        return DefinitionRow(
            self.id,
            self.name,
            self.spec,
            self.created_at,
            self.state,
            self.version,
            self.owner,
            self.updated_at,
            self.schedule_from,
            self.due_done,
            self.due_held,
            self.due_note,
            self.held,
        )

    def store_spec(self, spec: bytes, author: str, now: float) -> None:
        if self.versions and spec == self.spec:
            return
        if not self.versions or schedule_of(spec) != schedule_of(self.spec):
            self.begin_schedule(now if is_scheduled(spec) else 0.0)
        self.version = len(self.versions) + 1
        self.spec, self.updated_at = spec, now
        self.versions.append(JobVersion(self.version, spec, now, author))

    def begin_schedule(self, since: float) -> None:
        """Let due times and parents count from a moment on."""
        self.schedule_from, self.due_held, self.held = since, None, None


@dataclass(slots=True)
class FakeRun:
    id: int
    job: FakeJob
    spec: bytes
    max_pages: int | None
    seed_hosts: list[str]
    seeding: bool
    created_at: float
    state: RunState = RunState.PENDING
    started_at: float = 0.0
    reason: str = ""
    ended_at: float = 0.0
    cookies: bytes = b""
    admitted: int = 0
    pending: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    items: int = 0
    bytes: int = 0
    unchanged: int = 0
    recall: int | None = None
    canonical: int = 1
    idle_s: float = 0.0
    unfetched: int = 0
    version: int = 1
    start_facts: StartFacts = SUBMITTED_NOW
    missing: int = 0
    feed_run: int = 0
    feed_at: int | None = None

    def begin(self, now: float) -> None:
        if self.state is RunState.PENDING:
            self.state, self.started_at = RunState.RUNNING, now

    def row(self) -> RunRow:
        return RunRow(
            id=self.id,
            job=self.job.id,
            name=self.job.name,
            state=self.state,
            reason=self.reason,
            spec=self.spec,
            seed_hosts=tuple(self.seed_hosts),
            seeding=self.seeding,
            counters=RunCounters(
                self.admitted,
                self.pending,
                self.done,
                self.failed,
                self.skipped,
                self.items,
                self.bytes,
                self.unchanged,
            ),
            created_at=self.created_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            cookies=self.cookies,
            recall=recall_left(self.recall),
            canonical=self.canonical,
            recalled=self.recall == RECALLED,
            idle_s=self.idle_s,
            unfetched=self.unfetched,
            version=self.version,
            cause=self.start_facts.cause,
            due_at=self.start_facts.due_at,
            params=self.start_facts.params,
            chain=self.start_facts.chain,
            missing=self.missing,
            feed_run=self.feed_run,
            feed_at=self.feed_at,
        )

    @property
    def recalls(self) -> bool:
        return recall_left(self.recall) is not None

    def add_seed_hosts(self, netlocs: Iterable[str]) -> None:
        self.seed_hosts += [n for n in dict.fromkeys(netlocs) if n not in self.seed_hosts]


@dataclass(slots=True)
class FakeRequest:
    seq: int
    run: int
    key: bytes
    url: str
    host: int
    prio: int
    depth: int
    parent: int | None
    state: RequestState = RequestState.QUEUED
    attempts: int = 0
    crashes: int = 0
    due_at: float = 0.0
    reason: str = ""
    status: int = 0
    block: str = ""
    extra: bytes = b""
    known: bytes = b""


@dataclass(slots=True)
class FakeHost:
    id: int
    origin: str
    owners: tuple[ProcessName, ...] = ()
    next_at: float = 0.0
    crawl_delay_s: float = 0.0
    manner: Manner = NOTHING_SPECIAL
    robots: StoredRobots | None = None
    address: str = ""

    def row(self) -> HostRow:
        return HostRow(
            self.id,
            self.origin,
            self.owners,
            self.next_at,
            self.crawl_delay_s,
            self.manner,
            self.robots,
            self.address,
        )


@dataclass(slots=True)
class FakeItem:
    id: int
    run: int
    seq: int
    data: bytes
    kind: Kept = Kept.ITEM


@dataclass(slots=True)
class FakeOutput:
    run: int
    path: str
    format: str
    cursor: int = 0
    length: int = 0
    part: int = 0
    part_at: float = 0.0
    problem: str = ""
    progress: Progress = field(default_factory=Progress)


@dataclass(slots=True)
class FakeAnswer:
    client_action: ClientAction
    job: int
    run: int
    reply: bytes | None


@dataclass(slots=True)
class Tables:
    """Everything the database would hold."""

    epoch: int = 0
    holder: str = ""
    lease_until: float = 0.0
    sequences: dict[str, int] = field(default_factory=dict)
    jobs: dict[int, FakeJob] = field(default_factory=dict)
    runs: dict[int, FakeRun] = field(default_factory=dict)
    requests: dict[int, FakeRequest] = field(default_factory=dict)
    seqs: dict[tuple[int, bytes], int] = field(default_factory=dict)  # (run, key) → seq
    queued: dict[int, dict[int, dict[int, None]]] = field(default_factory=dict)  # run → host → seqs
    hosts: dict[int, FakeHost] = field(default_factory=dict)
    origins: dict[str, FakeHost] = field(default_factory=dict)
    pages: dict[int, PageRecord] = field(default_factory=dict)
    items: dict[int, dict[int, FakeItem]] = field(default_factory=dict)  # run → id → item
    watermarks: dict[tuple[str, int], int] = field(default_factory=dict)
    moved: dict[tuple[str, int], float] = field(default_factory=dict)
    answers: dict[str, FakeAnswer] = field(default_factory=dict)  # by the request's id
    drains: dict[str, DrainRow] = field(default_factory=dict)  # by the worker's id
    secrets: dict[str, SecretRow] = field(default_factory=dict)  # by name
    wishes: dict[int, str] = field(default_factory=dict)  # host → worker
    retries: dict[str, RetryRow] = field(default_factory=dict)  # by the request's id
    run_parents: dict[tuple[int, int], int] = field(default_factory=dict)  # (child, run) → run
    outputs: dict[tuple[int, str], FakeOutput] = field(default_factory=dict)
    tallies: dict[tuple[int, str, str], int] = field(default_factory=dict)
    # (run, kind, name) → seq → detail
    examples: dict[tuple[int, str, str], dict[int, str]] = field(default_factory=dict)
    known_pages: dict[int, dict[bytes, FakeKnown]] = field(default_factory=dict)  # job → key → page
    # (run, band) → pages that resemble no earlier one
    originals: dict[tuple[int, int], list[Original]] = field(default_factory=dict)
    history: dict[tuple[int, int], HistoryEntry] = field(default_factory=dict)  # (step, at) → row
    users: dict[str, UserRow] = field(default_factory=dict)  # by name
    tokens: dict[str, TokenRow] = field(default_factory=dict)  # by prefix
    digests: dict[str, str] = field(default_factory=dict)  # of tokens, by prefix
    audit: list[AuditRow] = field(default_factory=list)  # by id

    def next_id(self, name: str) -> int:
        value = self.sequences.get(name, 0) + 1
        self.sequences[name] = value
        return value

    def host_of(self, origin: str) -> FakeHost:
        host = self.origins.get(origin)
        if host is None:
            host = FakeHost(self.next_id("hosts"), origin)
            self.origins[origin] = self.hosts[host.id] = host
        return host

    def host_rows(self, ids: Iterable[int]) -> list[HostRow]:
        return [self.hosts[id].row() for id in sorted({*ids} - {NO_HOST})]

    def admit(
        self, run: FakeRun, link: NewLink, depth: int, parent: int | None, now: float
    ) -> int | None:
        """Return the seq of the new request; None if the run knows the key or it is skipped."""
        if (run.id, link.key) in self.seqs:
            return None
        seq = self.next_id("requests")
        host = self.host_of(link.origin).id if link.origin else NO_HOST
        self.seqs[(run.id, link.key)] = seq
        self.requests[seq] = FakeRequest(
            seq,
            run.id,
            link.key,
            link.url,
            host,
            link.prio,
            depth,
            parent,
            block=link.block,
            extra=link.extra,
        )
        run.admitted += 1
        skip, self.requests[seq].known = recall(self, run, link, now)
        if skip:
            self.requests[seq].state = RequestState.SKIPPED
            self.requests[seq].reason = skip
            run.skipped += 1
            self.tally(run.id, "skipped", skip)
            return None
        self.enqueue(self.requests[seq])
        run.pending += 1
        return seq

    def enqueue(self, request: FakeRequest) -> None:
        request.state = RequestState.QUEUED
        self.queued.setdefault(request.run, {}).setdefault(request.host, {})[request.seq] = None

    def dequeue(self, request: FakeRequest, state: RequestState) -> None:
        request.state = state
        lanes = self.queued[request.run]
        lane = lanes[request.host]
        del lane[request.seq]
        if not lane:
            del lanes[request.host]
            if not lanes:
                del self.queued[request.run]

    def queued_row(self, request: FakeRequest) -> QueuedRow:
        return QueuedRow(
            run=request.run,
            host=request.host,
            prio=request.prio,
            depth=request.depth,
            seq=request.seq,
            url=request.url,
            attempts=request.attempts,
            crashes=request.crashes,
            due_at=request.due_at,
            parent=self.url_of(request.parent),
            block=request.block,
            extra=request.extra,
            known=request.known,
        )

    def url_of(self, seq: int | None) -> str | None:
        parent = None if seq is None else self.requests.get(seq)
        return None if parent is None else parent.url

    def judge(self, run: FakeRun, change: Change, skipped: list[int]) -> Change:
        """Return the change as its job wants it, if its page is a near duplicate."""
        rules, fingerprint = duplicates_of(run.spec), fingerprint_in(change)
        if rules.near == OFF:
            return change
        places = [(run.id, band) for band in bands(fingerprint)] if fingerprint else []
        met = [candidate for place in places for candidate in self.originals.get(place, ())]
        original = nearest(fingerprint, met, rules)
        if original is None:
            new = Original(fingerprint, change.seq, self.requests[change.seq].url)
            for place in places:
                in_band = self.originals.setdefault(place, [])
                if len(in_band) < MOST_IN_BAND:
                    in_band.append(new)
        verdict = judged(change, original, rules)
        if verdict.state is not change.state:
            skipped.append(change.seq)
        return verdict

    def tally(self, run: int, kind: str, name: str, n: int = 1) -> None:
        key = (run, kind, name)
        value = self.tallies.get(key, 0) + n
        if value:
            self.tallies[key] = value
        else:
            self.tallies.pop(key, None)

    def add_example(self, run: int, kind: str, name: str, seq: int, detail: str) -> None:
        """Keep a request that stands for a tally, if there is room for it."""
        kept = self.examples.get((run, kind, name))
        if kept is None:
            reasons = [key for key in self.examples if key[:2] == (run, kind)]
            if len(reasons) == MOST_EXAMPLE_REASONS:
                return
            kept = self.examples[(run, kind, name)] = {}
        if len(kept) < MOST_EXAMPLES:
            kept.setdefault(seq, detail)

    def drop_examples(self, seq: int) -> None:
        """Remove the examples of a request that now ends in another way."""
        for key in list(self.examples):
            self.examples[key].pop(seq, None)
            if not self.examples[key]:
                del self.examples[key]

    def end(self, run: FakeRun, state: RunState, reason: str, now: float) -> None:
        """End a run. Pending requests now count as skipped; their rows are swept later."""
        run.state, run.reason, run.ended_at, run.seeding = state, reason, now, False
        if run.pending:
            self.tally(run.id, "skipped", skip_reason(state, reason), run.pending)
        run.skipped += run.pending
        run.unfetched += run.pending
        run.pending = 0
        run.recall = None if run.recall is None else RECALLED
        run.feed_at = None

    def complete_if_empty(self, run: FakeRun, now: float) -> None:
        goes_on = run.seeding or run.recalls or run.feed_at is not None
        if not run.state.ended and not goes_on and run.pending == 0:
            self.finish(run, "", now)

    def tune(self, run: FakeRun, spec: bytes, now: float) -> None:
        """Give a live run another spec."""
        run.spec, run.max_pages = spec, stored_max_pages(spec)
        if run.max_pages is not None and run.done >= run.max_pages:
            self.finish(run, MAX_PAGES, now)

    def finish(self, run: FakeRun, reason: str, now: float) -> None:
        """End a run as completed or failed."""
        counted = Counted(run.done, run.failed, run.missing, run.skipped, run.recall is not None)
        state, reason = verdict(run.spec, counted, reason)
        self.end(run, state, reason, now)
