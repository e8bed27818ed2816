"""Rows that several commands read and write: runs, sequences, tallies, hosts, new requests.

Used by the other modules of `store.sql`, always inside one transaction of the writer.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from zcrawl.model.host import Manner
from zcrawl.model.process_name import ProcessName
from zcrawl.model.reasons.skip import MAX_PAGES
from zcrawl.model.rows import (
    NO_HOST,
    HostRow,
    NewLink,
    QueuedRow,
    RunCounters,
    RunRow,
    StoredRobots,
)
from zcrawl.model.states import RequestState, RunCause, RunState
from zcrawl.store.rules import (
    RECALLED,
    Counted,
    merge_cookies,
    recall_left,
    recrawl_of,
    skip_reason,
    stored_max_pages,
    verdict,
)
from zcrawl.store.sql.dialects.dialect import Session

if TYPE_CHECKING:
    from zcrawl.frontier.recrawl import KnownPage

Blob = bytes  # an alias, because a record has a field named `bytes`
RUN_COLUMNS = (
    "r.id, r.job, j.name, r.state, r.reason, r.spec, r.max_pages, r.seed_hosts, r.seeding, "
    "r.created_at, r.started_at, r.ended_at, "
    "r.admitted, r.pending, r.done, r.failed, r.skipped, r.items, r.bytes, r.cookies, "
    "r.unchanged, r.recall, r.canonical, r.idle_s, r.unfetched, "
    "r.version, r.cause, r.due_at, r.params, r.chain, r.missing, r.feed_run, r.feed_at"
)
RUN_SELECT = f"SELECT {RUN_COLUMNS} FROM runs r JOIN jobs j ON j.id = r.job "
QUEUED_SELECT = (
    "SELECT q.run, q.host, q.prio, q.depth, q.seq, q.url, q.attempts, q.crashes, q.due_at, p.url, "
    "q.label, q.extra, q.known "
    "FROM requests q LEFT JOIN requests p ON p.seq = q.parent "
)

_strings = msgspec.json.Decoder(tuple[str, ...]).decode


@functools.lru_cache(maxsize=64)
def _netlocs(stored: bytes) -> tuple[str, ...]:
    """Decode netlocs. Cached, because 100,000 seed hosts would cost 5 ms in every commit."""
    return _strings(stored)


class RunRecord(msgspec.Struct):
    """One row of `runs` while a transaction works on it. Fields in the order of RUN_COLUMNS."""

    id: int
    job: int
    name: str
    state: RunState
    reason: str
    spec: bytes
    max_pages: int | None
    seed_hosts: bytes
    seeding: bool
    created_at: float
    started_at: float
    ended_at: float
    admitted: int
    pending: int
    done: int
    failed: int
    skipped: int
    items: int
    bytes: int
    cookies: Blob  # NULL in the row: empty here
    unchanged: int
    recall: int | None
    canonical: int
    idle_s: float
    unfetched: int
    version: int
    cause: RunCause
    due_at: float | None
    params: Blob  # NULL in the row: empty here
    chain: int
    missing: int
    feed_run: int
    feed_at: int | None
    cookies_changed: bool = False
    hosts_changed: bool = False  # `seed_hosts` is written only when it must be

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> RunRecord:
        record = cls(*row)
        record.state = RunState(record.state)
        record.seeding = bool(record.seeding)
        record.cookies = record.cookies or b""
        record.cause = RunCause(record.cause)
        record.params = record.params or b""
        return record

    def row(self) -> RunRow:
        counters = RunCounters(
            self.admitted,
            self.pending,
            self.done,
            self.failed,
            self.skipped,
            self.items,
            self.bytes,
            self.unchanged,
        )
        return RunRow(
            id=self.id,
            job=self.job,
            name=self.name,
            state=self.state,
            reason=self.reason,
            spec=self.spec,
            seed_hosts=_netlocs(self.seed_hosts),
            seeding=self.seeding,
            counters=counters,
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
            cause=self.cause,
            due_at=self.due_at,
            params=self.params,
            chain=self.chain,
            missing=self.missing,
            feed_run=self.feed_run,
            feed_at=self.feed_at,
        )

    def begin(self, now: float) -> None:
        """Run, if it is pending: a worker works on it."""
        if self.state is RunState.PENDING:
            self.state, self.started_at = RunState.RUNNING, now

    def set_cookies(self, host: str, cookies: Blob) -> None:
        self.cookies = merge_cookies(self.cookies, host, cookies)
        self.cookies_changed = True

    def add_seed_hosts(self, netlocs: Iterable[str]) -> None:
        hosts = dict.fromkeys(_netlocs(self.seed_hosts))
        more = {**hosts, **dict.fromkeys(netlocs)}
        if len(more) > len(hosts):
            self.seed_hosts = msgspec.json.encode(list(more))
            self.hosts_changed = True

    def end(self, state: RunState, reason: str, now: float, tallies: TallyChanges) -> None:
        """End the run. Pending requests now count as skipped; their rows are swept later."""
        self.state, self.reason, self.ended_at, self.seeding = state, reason, now, False
        tallies[(self.id, "skipped", skip_reason(state, reason))] += self.pending
        self.skipped += self.pending
        self.unfetched += self.pending
        self.pending = 0
        self.recall = None if self.recall is None else RECALLED
        self.feed_at = None

    def finish(self, reason: str, now: float, tallies: TallyChanges) -> None:
        """End the run as completed or failed."""
        counted = Counted(
            self.done, self.failed, self.missing, self.skipped, self.recall is not None
        )
        state, reason = verdict(self.spec, counted, reason)
        self.end(state, reason, now, tallies)

    def reopen(self, now: float) -> None:
        """Go on with a run that completed or failed. The time since its end does not count."""
        self.idle_s += max(0.0, now - self.ended_at)
        self.state, self.reason, self.ended_at = RunState.RUNNING, "", 0.0

    def complete_if_empty(self, now: float, tallies: TallyChanges) -> None:
        goes_on = self.seeding or recall_left(self.recall) is not None or self.feed_at is not None
        if not self.state.ended and not goes_on and self.pending == 0:
            self.finish("", now, tallies)


def load_runs(session: Session, ids: Iterable[int]) -> dict[int, RunRecord]:
    rows = session.all_in(RUN_SELECT + "WHERE r.id IN ({}) ORDER BY r.id", (), ids)
    return {row[0]: RunRecord.of(row) for row in rows}


def load_run(session: Session, id: int) -> RunRecord | None:
    return load_runs(session, (id,)).get(id)


_RUN_CHANGES = (
    "state",
    "reason",
    "seeding",
    "started_at",
    "ended_at",
    "missing",
    "admitted",
    "pending",
    "done",
    "failed",
    "skipped",
    "items",
    "bytes",
    "unchanged",
    "recall",
    "feed_at",
    "idle_s",
    "unfetched",
)


def save_runs(session: Session, runs: Iterable[RunRecord]) -> None:
    runs = list(runs)
    hosts = [(run.seed_hosts, run.id) for run in runs if run.hosts_changed]
    session.update_many("runs", ("seed_hosts",), "id", hosts)
    jars = [(run.cookies, run.id) for run in runs if run.cookies_changed]
    session.update_many("runs", ("cookies",), "id", jars)
    rows = [
        (
            run.state.value,
            run.reason,
            run.seeding,
            run.started_at,
            run.ended_at,
            run.missing,
            run.admitted,
            run.pending,
            run.done,
            run.failed,
            run.skipped,
            run.items,
            run.bytes,
            run.unchanged,
            run.recall,
            run.feed_at,
            run.idle_s,
            run.unfetched,
            run.id,
        )
        for run in runs
    ]
    session.update_many("runs", _RUN_CHANGES, "id", rows)


def tune(session: Session, run: RunRecord, spec: Blob, now: float) -> None:
    """Give a live run another spec. It ends if it has as many pages as the new spec allows."""
    run.spec, run.max_pages = spec, stored_max_pages(spec)
    session.run(
        "UPDATE runs SET spec = ?, max_pages = ?, version = ? WHERE id = ?",
        (run.spec, run.max_pages, run.version, run.id),
    )
    if run.max_pages is not None and run.done >= run.max_pages:
        tallies = TallyChanges()
        run.finish(MAX_PAGES, now, tallies)
        save_run(session, run)
        save_tallies(session, tallies)


def save_run(session: Session, run: RunRecord) -> None:
    save_runs(session, (run,))


# ---------------------------------------------------------------- ids and tallies


class Ids:
    """Ids given in this transaction; `save` writes the sequences that moved."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stored: dict[str, int] = dict(session.all("SELECT name, value FROM sequences"))
        self._last = dict(self._stored)

    def take(self, name: str) -> int:
        self._last[name] = value = self._last[name] + 1
        return value

    def save(self) -> None:
        moved = [(name, n) for name, n in self._last.items() if n != self._stored[name]]
        self._session.put_many("sequences", "name", "value", moved)


TallyChanges = Counter[tuple[int, str, str]]  # (run, kind, name) → change


def save_tallies(session: Session, changes: TallyChanges) -> None:
    rows = [(*key, n) for key, n in changes.items() if n]
    session.add_many("tallies", "run, kind, name", "n", rows)


# ---------------------------------------------------------------- hosts


def host_row(row: tuple[Any, ...]) -> HostRow:
    id, origin, owners, next_at, crawl_delay, slow, failures, opens, address = row[:9]
    status, body, until = row[9:]
    return HostRow(
        id,
        origin.decode(),
        tuple(map(ProcessName, _strings(owners))),
        next_at,
        crawl_delay,
        Manner(slow, failures, opens),
        None if status is None else StoredRobots(status, bytes(body), until),
        address,
    )


HOST_SELECT = (
    "SELECT h.id, h.origin, h.owners, h.next_at, h.crawl_delay, h.slow, h.failures, h.opens, "
    "h.address, r.status, r.body, r.fresh_until FROM hosts h LEFT JOIN robots r ON r.host = h.id "
)


def host_rows(session: Session, ids: Iterable[int]) -> list[HostRow]:
    rows = session.all_in(HOST_SELECT + "WHERE h.id IN ({})", (), sorted(set(ids)))
    return sorted((host_row(row) for row in rows), key=lambda host: host.id)


# ---------------------------------------------------------------- requests


def queued_row(row: tuple[Any, ...]) -> QueuedRow:
    """Return the QueuedRow of a row of QUEUED_SELECT."""
    run, host, prio, depth, seq, url, attempts, crashes, due_at, parent, block, extra, traits = row
    return QueuedRow(
        run,
        host,
        prio,
        depth,
        seq,
        url.decode(),
        attempts,
        crashes,
        due_at,
        None if parent is None else parent.decode(),
        block,
        extra or b"",
        traits or b"",
    )


class Admission:
    """New requests of one transaction: SELECT the existing keys, INSERT the rest.

    `links` are all that may be admitted; `add` admits one, `save` writes them. If the job remembers
    a page, its request gets that data, or is skipped because it is not due.
    """

    def __init__(
        self,
        session: Session,
        ids: Ids,
        links: Mapping[int, Collection[NewLink]],
        runs: Mapping[int, RunRecord],
        now: float,
    ) -> None:
        self.rows: list[QueuedRow] = []
        self._now = now
        self._validators: list[tuple[Blob, int]] = []
        self._remembered: dict[int, dict[Blob, tuple[int, KnownPage]]] = {}
        self._session = session
        self._ids = ids
        self.skipped: TallyChanges = TallyChanges()
        self._inserts: list[tuple[Any, ...]] = []
        self._reasons: list[tuple[int, str, int]] = []
        self._new_hosts: list[tuple[int, bytes, bytes]] = []
        self._known: dict[int, set[bytes]] = {}
        origins: set[str] = set()
        for run, of_run in links.items():
            keys = dict.fromkeys(link.key for link in of_run)
            select = "SELECT url_key FROM requests WHERE run = ? AND url_key IN ({})"
            known_keys = {key for (key,) in session.all_in(select, (run,), keys)}
            self._known[run] = known_keys
            # For every link, because two origins can share a key when variants collapse.
            origins.update(link.origin for link in of_run if link.key not in known_keys)
            record = runs.get(run)
            if record is not None and record.recall is not None:
                from zcrawl.store.sql.known import known_pages  # few runs remember any

                self._remembered[run] = known_pages(session, record.job, keys)
        origins.discard("")
        select = "SELECT origin, id FROM hosts WHERE origin IN ({})"
        hosts = session.all_in(select, (), [origin.encode() for origin in sorted(origins)])
        self._hosts: dict[str, int] = {origin.decode(): id for origin, id in hosts}
        self._hosts[""] = NO_HOST

    def add(
        self, run: RunRecord, link: NewLink, depth: int, parent: int | None, parent_url: str | None
    ) -> int:
        """Admit the link and return the seq of its request; 0 if the run knows its key."""
        known_keys = self._known[run.id]
        key = link.key
        if key in known_keys:
            return 0
        known_keys.add(key)
        host = self._hosts.get(link.origin)
        if host is None:
            host = self._hosts[link.origin] = self._ids.take("hosts")
            self._new_hosts.append((host, link.origin.encode(), b"[]"))
        seq = self._ids.take("requests")
        url = link.url
        block, extra = link.block, link.extra
        self._inserts.append(
            (seq, run.id, key, url.encode(), host, link.prio, depth, parent, block, extra or None)
        )
        run.admitted += 1
        skip, memory = link.skip, b""
        if self._remembered and not skip and not link.is_sitemap:
            skip, memory = self._recall(run, key)
        if skip:
            self._reasons.append((RequestState.SKIPPED, skip, seq))
            run.skipped += 1
            self.skipped[(run.id, "skipped", skip)] += 1
            return seq
        if memory:
            self._validators.append((memory, seq))
        prio = link.prio
        self.rows.append(
            QueuedRow(
                run.id, host, prio, depth, seq, url, 0, 0, 0.0, parent_url, block, extra, memory
            )
        )
        run.pending += 1
        return seq

    def added(self, run: int, key: Blob) -> tuple[int, str] | None:
        """Return (seq, skip reason) of a request that this transaction has admitted. Slow."""
        if key not in self._known.get(run, ()):
            return None
        for row in self._inserts:
            if (row[1], row[2]) == (run, key):
                return row[0], next((why for _, why, seq in self._reasons if seq == row[0]), "")
        return None

    def skip_otherwise(self, run: RunRecord, seq: int, reason: str) -> None:
        """Change the skip reason of a request that this transaction has admitted."""
        at = next(at for at, row in enumerate(self._reasons) if row[2] == seq)
        state, before, _ = self._reasons[at]
        self._reasons[at] = (state, reason, seq)
        self.skipped[(run.id, "skipped", before)] -= 1
        self.skipped[(run.id, "skipped", reason)] += 1

    def _recall(self, run: RunRecord, key: Blob) -> tuple[str, Blob]:
        """Return (reason why the page is not due, stored data for its request)."""
        _, page = self._remembered.get(run.id, {}).get(key, (0, None))
        if page is None:
            return "", b""
        from zcrawl.frontier.recrawl import on_admission

        return on_admission(page, run.spec, recrawl_of(run.spec), self._now)

    def save(self) -> None:
        self._session.insert_many("hosts", "id, origin, owners", self._new_hosts)
        columns = "seq, run, url_key, url, host, prio, depth, parent, label, extra"
        self._session.insert_many("requests", columns, self._inserts)
        # Few rows, so a second statement is cheaper than two more columns in the one above.
        self._session.update_many("requests", ("state", "reason"), "seq", self._reasons)
        self._session.update_many("requests", ("known",), "seq", self._validators)
