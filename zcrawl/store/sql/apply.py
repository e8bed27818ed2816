"""ApplyResults: pages, items, new links, counters and watermarks of a batch, in one transaction.

Three steps: read what the batch is about, decide change by change in memory, write each table
with one statement. Called by `store` after the epoch check; it commits afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from zcrawl.model.host import Manner
from zcrawl.model.reasons.skip import MAX_PAGES
from zcrawl.model.rows import NewLink, StoredRobots
from zcrawl.model.spec import OFF
from zcrawl.model.states import Disposition, Kept, RequestState
from zcrawl.store.commands import Applied, ApplyResults, Change
from zcrawl.store.redirects import reason_name
from zcrawl.store.rules import (
    MISSING_STATUSES,
    WORKER,
    check_changes,
    duplicates_of,
    result_gap,
)
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.examples import Examples
from zcrawl.store.sql.rows import (
    Admission,
    Ids,
    RunRecord,
    TallyChanges,
    host_rows,
    load_runs,
    save_runs,
    save_tallies,
)

if TYPE_CHECKING:
    from zcrawl.store.sql.known import Ending
    from zcrawl.store.sql.near import NearPages
    from zcrawl.store.sql.redirects import RedirectTargets


def apply_results(session: Session, command: ApplyResults) -> Applied:
    check_changes(command.changes)
    return _Batch(session, command).apply()


class _Batch:
    """One batch while it is applied; its dicts and lists hold the rows to write."""

    def __init__(self, session: Session, command: ApplyResults) -> None:
        self._session = session
        self._changes = command.changes
        self._now = command.now
        self._dispositions: list[Disposition] = []
        self._touched: dict[int, RunRecord] = {}
        self._seen: dict[tuple[int, bytes], None] = {}
        self._tallies: TallyChanges = TallyChanges()
        self._examples = Examples(session)
        self._updates: dict[int, tuple[Any, ...]] = {}
        self._pages: list[tuple[Any, ...]] = []
        self._items: list[tuple[int, int, int, int, bytes]] = []
        self._next_at: dict[int, float] = {}
        self._crawl_delays: dict[int, float] = {}
        self._manners: dict[int, Manner] = {}
        self._addresses: dict[int, str] = {}
        self._robots: dict[int, StoredRobots] = {}
        self._endings: list[Ending] = []  # of runs that remember their pages

    def apply(self) -> Applied:
        self._read()
        for change in self._changes:
            disposition = self._settle(change)
            self._dispositions.append(disposition)
            if disposition is Disposition.APPLIED:
                self._apply(change)
        for run in self._touched.values():
            run.complete_if_empty(self._now, self._tallies)
        self._write()
        admitted = [row for row in self._admission.rows if not self._runs[row.run].state.ended]
        return Applied(
            dispositions=self._dispositions,
            admitted=admitted,
            seen=list(self._seen),
            hosts=host_rows(self._session, (row.host for row in admitted)),
            runs=[self._touched[id].row() for id in sorted(self._touched)],
            skipped=sorted(
                seq for by in (self._near, self._targets) if by is not None for seq in by.skipped
            ),
        )

    # ------------------------------------------------------------ read

    def _read(self) -> None:
        session = self._session
        select = "SELECT worker, incarnation, watermark FROM workers WHERE worker IN ({})"
        workers = dict.fromkeys(c.worker for c in self._changes)
        self._stored_marks: dict[tuple[str, int], int] = {
            (worker, incarnation): mark
            for worker, incarnation, mark in session.all_in(select, (), workers)
        }
        self._marks = dict(self._stored_marks)
        self._runs = load_runs(session, dict.fromkeys(c.run for c in self._changes))
        select = "SELECT seq, run, state, url FROM requests WHERE seq IN ({})"
        self._requests: dict[int, tuple[int, bytes]] = {}
        self._queued: set[int] = set()
        for seq, run, state, url in session.all_in(
            select, (), dict.fromkeys(c.seq for c in self._changes)
        ):
            self._requests[seq] = (run, url)
            if state == RequestState.QUEUED:
                self._queued.add(seq)
        links: dict[int, list[NewLink]] = defaultdict(list)
        redirected: list[Change] = []
        for change in self._changes:
            if change.links and change.seq in self._queued:
                links[change.run] += change.links
            if change.final is not None and change.seq in self._queued:
                links[change.run].append(change.final)
                redirected.append(change)
        self._ids = Ids(session)
        self._admission = Admission(session, self._ids, links, self._runs, self._now)
        self._targets: RedirectTargets | None = None
        if redirected:
            from zcrawl.store.sql.redirects import RedirectTargets  # few pages are

            self._targets = RedirectTargets(
                session, redirected, self._admission, self._updates, self._tallies, self._examples
            )
        self._near: NearPages | None = None
        if any(duplicates_of(run.spec).near != OFF for run in self._runs.values()):
            from zcrawl.store.sql.near import NearPages  # few runs ask for it

            self._near = NearPages(session, self._changes, self._runs)

    # ------------------------------------------------------------ decide

    def _settle(self, change: Change) -> Disposition:
        worker = (change.worker, change.incarnation)
        mark = self._marks.get(worker, 0)
        if change.number <= mark:
            return Disposition.DUPLICATE
        if change.number != mark + 1:
            raise result_gap(change, mark)
        self._marks[worker] = change.number
        run = self._runs.get(change.run)
        if change.dropped or run is None or run.state.ended:
            return Disposition.DROPPED
        request = self._requests.get(change.seq)
        if request is None or request[0] != change.run:
            return Disposition.DROPPED
        if change.seq not in self._queued:
            return Disposition.DUPLICATE
        return Disposition.APPLIED

    def _apply(self, change: Change) -> None:
        run = self._runs[change.run]
        self._touched[run.id] = run
        run.begin(self._now)
        if change.final is not None and self._targets is not None:
            own_url = self._requests[change.seq][1].decode()
            change = self._targets.judge(run, change, own_url)
        if self._near is not None:
            change = self._near.judge(change, self._requests[change.seq][1])
        if change.state is not None:
            self._move(run, change, change.state)
        if change.seed_hosts:
            run.add_seed_hosts(change.seed_hosts)
        if change.cookies is not None:
            run.set_cookies(*change.cookies)
        if change.host_next_at > self._next_at.get(change.host, 0.0):
            self._next_at[change.host] = change.host_next_at
        if change.crawl_delay_s > 0:
            self._crawl_delays[change.host] = change.crawl_delay_s
        if change.manner is not None:
            self._manners[change.host] = change.manner
        if change.address:
            self._addresses[change.host] = change.address
        if change.robots is not None:
            self._robots[change.host] = change.robots
        if change.links:
            parent_url = self._requests[change.seq][1].decode()
            for link in change.links:
                self._seen[(run.id, link.key)] = None
                self._admission.add(run, link, link.depth, change.seq, parent_url)
        if run.max_pages is not None and run.done >= run.max_pages:
            run.finish(MAX_PAGES, self._now, self._tallies)

    def _move(self, run: RunRecord, change: Change, state: RequestState) -> None:
        seq, status = change.seq, change.status
        self._updates[seq] = (state, change.attempts, change.due_at, change.reason, status, seq)
        if status:
            self._tallies[(run.id, "status", str(status))] += 1
        for reason, count in change.rejected:
            self._tallies[(run.id, "link", reason)] += count
        for reason, count in change.links_dropped:
            self._tallies[(run.id, "dropped", reason)] += count
        if self._targets is not None:
            self._targets.moved(change, state)
        if state is RequestState.QUEUED:
            return
        self._queued.discard(seq)
        run.pending -= 1
        self._tallies[(run.id, WORKER, change.worker)] += 1
        if run.recall is not None:
            self._endings.append((seq, run, state, status, change.reason, change.traits))
        if state is RequestState.DONE:
            page = change.page
            assert page is not None  # check_changes refused it
            self._pages.append(
                (
                    seq,
                    page.final_url.encode(),
                    page.title,
                    page.content_type,
                    page.size,
                    page.fetched_at,
                    page.elapsed_ms,
                    page.body,
                    None if page.canonical is None else page.canonical.encode(),
                    msgspec.json.encode(page.alternates) if page.alternates else None,
                    msgspec.json.encode(page.files).decode() if page.files else None,
                )
            )
            run.done += 1
            run.unchanged += change.traits is not None and change.traits.unchanged
            run.bytes += page.size
            run.items += len(change.items)
            for data in change.items:
                self._items.append((self._ids.take("items"), run.id, seq, Kept.ITEM, data))
            for tally, name, count in change.tallies:
                self._tallies[(run.id, tally, name)] += count
            for reason, detail in change.examples:
                self._examples.add((run.id, "rejected", reason), seq, detail)
        elif state is RequestState.DEAD:
            run.failed += 1
            run.missing += status in MISSING_STATUSES
            self._tallies[(run.id, "failed", change.reason)] += 1
            self._examples.add((run.id, "failed", change.reason), seq, change.detail)
        else:
            run.skipped += 1
            key = (run.id, "skipped", reason_name(change.reason))
            self._tallies[key] += 1
            if change.detail:  # most skips are intended by the job and have no detail
                self._examples.add(key, seq, change.detail)
        for kind, data in change.others:
            self._items.append((self._ids.take("items"), run.id, seq, kind, data))

    # ------------------------------------------------------------ write

    def _write(self) -> None:
        session = self._session
        columns = ("state", "attempts", "due_at", "reason", "status")
        session.update_many("requests", columns, "seq", self._updates.values())
        session.insert_many(
            "pages",
            "seq, final_url, title, content_type, size, fetched_at, elapsed_ms, body, "
            "canonical, alternates, files",
            self._pages,
        )
        session.insert_many("items", "id, run, seq, kind, data", self._items)
        self._admission.save()
        if self._near is not None:
            self._near.save()
        if self._targets is not None:
            self._endings += self._targets.remembered
        if self._endings:
            from zcrawl.store.sql.known import remember

            remember(session, self._ids, self._endings, self._now)
        save_runs(session, self._touched.values())
        self._tallies.update(self._admission.skipped)  # `+` would drop negative counts
        save_tallies(session, self._tallies)
        self._examples.save()
        self._write_pace()
        self._write_manners()
        marks, now = self._marks.items(), self._now
        moved = [(*worker, n, now) for worker, n in marks if self._is_new(worker, n)]
        session.put_many("workers", "worker, incarnation", "watermark, moved_at", moved)
        self._ids.save()

    def _is_new(self, worker: tuple[str, int], mark: int) -> bool:
        return mark != self._stored_marks.get(worker)

    def _write_manners(self) -> None:
        manners = [(m.slow_s, m.failures, m.opens, host) for host, m in self._manners.items()]
        self._session.update_many("hosts", ("slow", "failures", "opens"), "id", manners)
        addresses = [(address, host) for host, address in self._addresses.items()]
        self._session.update_many("hosts", ("address",), "id", addresses)
        for host, file in self._robots.items():  # one in thousands of pages
            self._session.run("DELETE FROM robots WHERE host = ?", (host,))
            self._session.run(
                "INSERT INTO robots (host, status, body, fresh_until) VALUES (?, ?, ?, ?)",
                (host, file.status, file.body, file.until),
            )

    def _write_pace(self) -> None:
        """Write the next start of each host; it only moves forward."""
        session, next_at = self._session, self._next_at
        select = "SELECT id, next_at FROM hosts WHERE id IN ({})"
        stored = dict(session.all_in(select, (), next_at)) if next_at else {}
        later = [(at, host) for host, at in next_at.items() if stored.get(host, at) < at]
        session.update_many("hosts", ("next_at",), "id", later)
        delays = [(delay, host) for host, delay in self._crawl_delays.items()]
        session.update_many("hosts", ("crawl_delay",), "id", delays)
