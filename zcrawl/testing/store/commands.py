"""Carry out commands on the fake store's tables. Only `store` calls it, after the epoch
check. A function that can refuse its data does so before its first write, so a failed command
changes nothing.
"""

from __future__ import annotations

import msgspec

from zcrawl.errors import StoreDataError
from zcrawl.model.reasons.cluster import (
    JOB_ARCHIVED,
    KEY_REUSED,
    NAME_EXISTS,
    NO_SUCH_JOB,
    NOT_OWNER,
    QUOTA_EXCEEDED,
    RUN_ENDED,
)
from zcrawl.model.reasons.failure import NO_PARENT_RUN
from zcrawl.model.reasons.skip import MAX_PAGES
from zcrawl.model.reasons.usage import BAD_DEPENDENCY
from zcrawl.model.rows import LaneCount, NewLink
from zcrawl.model.states import Disposition, JobState, Kept, RequestState, RunState
from zcrawl.store.access import owner_problem, quota_problem
from zcrawl.store.commands import (
    AddSeeds,
    Applied,
    ApplyResults,
    Change,
    ClientAction,
    Loaded,
    SubmitJob,
    Submitted,
)
from zcrawl.store.redirects import reason_name
from zcrawl.store.rules import (
    KEY_REUSED_TEXT,
    MISSING_STATUSES,
    SEEDING,
    WORKER,
    Beside,
    bad_dependency,
    beside_live_runs,
    check_changes,
    held_in,
    held_reply,
    is_fed,
    max_pages_of,
    max_pages_per_host_of,
    merge_cookies,
    result_gap,
    same_key,
    submit_action,
)
from zcrawl.testing.store import idempotency as once
from zcrawl.testing.store.firing import cancel_replaced, job_names, start_run
from zcrawl.testing.store.intents import wishes
from zcrawl.testing.store.known import remember_all, remember_target
from zcrawl.testing.store.redirects import RedirectTarget, collapse
from zcrawl.testing.store.secrets import secrets
from zcrawl.testing.store.tables import (
    FakeItem,
    FakeJob,
    FakeRequest,
    FakeRun,
    Tables,
)

POISON = b"poison"  # an item that holds it cannot be stored


def load(tables: Tables) -> Loaded:
    sweeps = [
        run.id
        for run in tables.runs.values()
        if run.state is RunState.DELETED or (run.state.ended and run.id in tables.queued)
    ]
    lanes = [
        LaneCount(run.id, host, len(seqs))
        for run in tables.runs.values()
        if not run.state.ended
        for host, seqs in sorted(tables.queued.get(run.id, {}).items())
    ]
    owned = [host.id for host in tables.hosts.values() if host.owners]
    return Loaded(
        epoch=tables.epoch,
        lease_until=tables.lease_until,
        runs=[r.row() for r in tables.runs.values() if not r.state.ended or r.id in sweeps],
        lanes=lanes,
        hosts=tables.host_rows([*owned, *(lane.host for lane in lanes)]),
        watermarks=dict(tables.watermarks),
        sweeps=sweeps,
        pages=_pages(tables),
        newest_seq=tables.sequences.get("requests", 0),
        moved=dict(tables.moved),
        drains=sorted(tables.drains.values(), key=lambda row: row.worker),
        wishes=wishes(tables),
        secrets=secrets(tables),
        retries=list(tables.retries.values()),
        jobs=[
            job.row()
            for job in tables.jobs.values()
            if job.schedule_from and job.state is JobState.ACTIVE
        ],
        users=sorted(tables.users.values(), key=lambda user: user.name),
    )


def _pages(tables: Tables) -> list[LaneCount]:
    """Done requests by (run, host), of live runs that limit them."""
    counts: dict[tuple[int, int], int] = {}
    for request in tables.requests.values():
        run = tables.runs[request.run]
        limited = max_pages_per_host_of(run.spec) is not None
        if request.state is RequestState.DONE and limited and not run.state.ended:
            lane = (request.run, request.host)
            counts[lane] = counts.get(lane, 0) + 1
    return [LaneCount(*lane, n) for lane, n in sorted(counts.items())]


# ---------------------------------------------------------------- results


def apply_results(tables: Tables, command: ApplyResults) -> Applied:
    _refuse_bad_changes(tables, command.changes)
    dispositions: list[Disposition] = []
    admitted: list[int] = []
    seen: dict[tuple[int, bytes], None] = {}
    touched: dict[int, FakeRun] = {}
    skipped: list[int] = []
    ended: list[tuple[FakeRun, FakeRequest, Change]] = []
    targets: list[RedirectTarget] = []
    newest = tables.sequences.get("requests", 0)  # a result for a later number is impossible
    for change in command.changes:
        disposition = _settle(tables, change, newest, command.now)
        if disposition is Disposition.APPLIED:
            run = touched.setdefault(change.run, tables.runs[change.run])
            change = collapse(tables, run, change, skipped, targets, command.now)
            change = tables.judge(run, change, skipped)
            _apply(tables, run, change, command.now)
            ended.append((run, tables.requests[change.seq], change))
            for link in change.links:
                seen[(run.id, link.key)] = None
                seq = tables.admit(run, link, link.depth, change.seq, command.now)
                if seq is not None:
                    admitted.append(seq)
            if run.max_pages is not None and run.done >= run.max_pages:
                tables.finish(run, MAX_PAGES, command.now)
        dispositions.append(disposition)
    for run in touched.values():
        tables.complete_if_empty(run, command.now)
    for run, request, change in ended:
        _keep_examples(tables, run, request, change)
    remember_all(tables, ended, command.now)
    for run, change, target in targets:
        remember_target(tables, run, change, target, command.now)
    rows = [tables.requests[seq] for seq in admitted]
    queued = [tables.queued_row(row) for row in rows if not tables.runs[row.run].state.ended]
    return Applied(
        dispositions=dispositions,
        admitted=queued,
        seen=list(seen),
        hosts=tables.host_rows(row.host for row in queued),
        runs=[touched[id].row() for id in sorted(touched)],
        skipped=sorted(skipped),
    )


def _refuse_bad_changes(tables: Tables, changes: list[Change]) -> None:
    check_changes(changes)
    marks: dict[tuple[str, int], int] = {}
    for change in changes:
        worker = (change.worker, change.incarnation)
        mark = marks.get(worker, tables.watermarks.get(worker, 0))
        if change.number > mark + 1:
            raise result_gap(change, mark)
        marks[worker] = max(mark, change.number)
        if any(POISON in item for item in change.items):
            raise StoreDataError(f"request {change.seq} has a poisoned item")


def _settle(tables: Tables, change: Change, newest: int, now: float) -> Disposition:
    worker = (change.worker, change.incarnation)
    if change.number <= tables.watermarks.get(worker, 0):
        return Disposition.DUPLICATE
    tables.watermarks[worker], tables.moved[worker] = change.number, now
    run = tables.runs.get(change.run)
    request = tables.requests.get(change.seq)
    if change.dropped or run is None or run.state.ended:
        return Disposition.DROPPED
    if request is None or request.run != change.run or request.seq > newest:
        return Disposition.DROPPED
    if request.state is not RequestState.QUEUED:
        return Disposition.DUPLICATE
    return Disposition.APPLIED


def _apply(tables: Tables, run: FakeRun, change: Change, now: float) -> None:
    request = tables.requests[change.seq]
    run.begin(now)
    if change.state is not None:
        request.attempts, request.due_at = change.attempts, change.due_at
        request.reason, request.status = change.reason, change.status
        if change.status:
            tables.tally(run.id, "status", str(change.status))
        if change.state is not RequestState.QUEUED:
            tables.dequeue(request, change.state)
            run.pending -= 1
            tables.tally(run.id, WORKER, change.worker)
    if change.state is RequestState.DONE and change.page is not None:
        tables.pages[change.seq] = change.page
        run.done += 1
        run.unchanged += change.traits is not None and change.traits.unchanged
        run.bytes += change.page.size
        run.items += len(change.items)
        for tally, name, count in change.tallies:
            tables.tally(run.id, tally, name, count)
    elif change.state is RequestState.DEAD:
        run.failed += 1
        run.missing += change.status in MISSING_STATUSES
        tables.tally(run.id, "failed", change.reason)
    elif change.state is RequestState.SKIPPED:
        run.skipped += 1
        tables.tally(run.id, "skipped", reason_name(change.reason))
    items = change.items if change.state is RequestState.DONE else ()
    for kind, data in [*((Kept.ITEM, data) for data in items), *change.others]:
        id = tables.next_id("items")
        item = FakeItem(id, run.id, change.seq, data, kind)
        tables.items.setdefault(run.id, {})[id] = item
    for reason, count in change.rejected:
        tables.tally(run.id, "link", reason, count)
    for reason, count in change.links_dropped:
        tables.tally(run.id, "dropped", reason, count)
    run.add_seed_hosts(change.seed_hosts)
    if change.cookies is not None:
        run.cookies = merge_cookies(run.cookies, *change.cookies)
    host = tables.hosts.get(change.host)
    if host is not None:
        host.next_at = max(host.next_at, change.host_next_at)
        if change.crawl_delay_s > 0:
            host.crawl_delay_s = change.crawl_delay_s
        host.manner = change.manner or host.manner
        host.robots = change.robots or host.robots
        host.address = change.address or host.address


def _keep_examples(tables: Tables, run: FakeRun, request: FakeRequest, change: Change) -> None:
    """Store examples after all changes of a batch, because one may make this row a duplicate."""
    if (request.state, request.reason) != (change.state, change.reason):
        return
    if request.state is RequestState.DONE:
        for reason, detail in change.examples:
            tables.add_example(run.id, "rejected", reason, request.seq, detail)
    elif request.state is RequestState.DEAD:
        tables.add_example(run.id, "failed", change.reason, request.seq, change.detail)
    elif request.state is RequestState.SKIPPED and change.detail:
        name = reason_name(change.reason)
        tables.add_example(run.id, "skipped", name, request.seq, change.detail)


# ---------------------------------------------------------------- jobs and runs


def submit_job(tables: Tables, command: SubmitJob) -> Submitted:
    repeated = _repeated(tables, command.request, command.only_owner)
    if repeated is not None:
        return repeated
    first = same_key(command.request)
    if first and any(request.startswith(first) for request in tables.answers):
        return Submitted(0, 0, KEY_REUSED, [], [], None, why=KEY_REUSED_TEXT)
    job = _job_named(tables, command.name)
    if job is not None and command.mode == "new":
        return Submitted(job.id, 0, NAME_EXISTS, [], [], None)
    if job is not None:
        why = owner_problem(command.only_owner, job.name, job.owner)
        if why:
            return Submitted(job.id, 0, NOT_OWNER, [], [], None, why=why)
    if job is not None and command.mode == "again" and job.state is JobState.ARCHIVED:
        return Submitted(job.id, 0, JOB_ARCHIVED, [], [], None)
    stored = job.spec if job is not None and command.mode == "again" else None
    spec = command.spec if stored is None else stored
    max_pages_of(spec)  # refuse a spec that cannot be read before anything is written
    why = (
        "" if stored is not None else bad_dependency(command.name, spec, lambda: job_names(tables))
    )
    if why:
        return Submitted(0, 0, BAD_DEPENDENCY, [], [], None, why=why)
    live_ids = {
        run.id
        for run in tables.runs.values()
        if run.job is job and not run.state.ended and run.id not in command.cancels
    }
    beside = Beside()
    if job is not None:
        beside = beside_live_runs(job.row(), command, spec, live_ids)
        if beside.refused:
            return Submitted(job.id, 0, beside.refused, [], [], None, why=beside.why)
    due_at = command.start_facts.due_at
    if due_at is not None and job is not None:
        due_times = {run.start_facts.due_at for run in tables.runs.values() if run.job is job}
        if due_at in due_times:
            raise StoreDataError(f"job {job.id} has a run for {due_at}")
    runs = int(command.start and not beside.waits)
    why = _over_quota(tables, command, runs, len(command.seeds) if runs else 0)
    if why:
        return Submitted(0 if job is None else job.id, 0, QUOTA_EXCEEDED, [], [], None, why=why)
    before = job.spec if job is not None else None
    if job is None:
        id = tables.next_id("jobs")
        job = tables.jobs[id] = FakeJob(id, command.name, spec, command.now, owner=command.by)
    job.store_spec(spec, command.by, command.now)
    action = submit_action(command, before, job.version)
    if not command.start:
        live = [(tables.runs[id], of_run) for id, of_run in command.live if id in tables.runs]
        live = [(run, of_run) for run, of_run in live if not run.state.ended]
        for run, of_run in live:
            run.version = job.version
            tables.tune(run, of_run, command.now)
        changed = [run.row() for run, _ in sorted(live, key=lambda pair: pair[0].id)]
        answer = {"job": job.id, "run": 0, "version": job.version, "changed": len(changed)}
        reply = msgspec.json.encode(answer)
        once.keep(tables, action, job.id, 0, reply)
        return Submitted(job.id, 0, "", [], [], None, definition=job.row(), changed=changed)
    if beside.waits and command.hold is not None:
        after, held_run = min(live_ids), tables.next_id("runs")
        job.held = msgspec.structs.replace(command.hold, run=held_run)
        reply = held_reply(job.id, held_run, after)
        once.keep(tables, action, job.id, held_run, reply)
        stored_job = job.row()
        return Submitted(
            job.id, 0, "", [], [], None, definition=stored_job, held_run=held_run, after=after
        )
    run_spec = command.run_spec or spec
    run = start_run(tables, job, run_spec, command)
    seeds = command.seeds
    if is_fed(run_spec) and not run.feed_run:
        tables.end(run, RunState.FAILED, NO_PARENT_RUN, command.now)
        seeds = ()
    cancelled = cancel_replaced(tables, command)
    submitted = _admit_seeds(tables, run, action, seeds, ())
    rows = [other.row() for other in cancelled]
    return msgspec.structs.replace(submitted, cancelled=rows, definition=job.row())


def add_seeds(tables: Tables, command: AddSeeds) -> Submitted:
    repeated = _repeated(tables, command.request, command.only_owner)
    if repeated is not None:
        return repeated
    run = tables.runs.get(command.run)
    if run is None:
        return Submitted(0, command.run, NO_SUCH_JOB, [], [], None)
    why = owner_problem(command.only_owner, run.job.name, run.job.owner)
    if why:
        return Submitted(run.job.id, run.id, NOT_OWNER, [], [], None, why=why)
    if run.state.ended:
        return Submitted(run.job.id, run.id, RUN_ENDED, [], [], run.row())
    why = _over_quota(tables, command, 0, len(command.seeds))
    if why:
        return Submitted(run.job.id, run.id, QUOTA_EXCEEDED, [], [], None, why=why)
    if command.last:
        run.seeding = False
    action = ClientAction(command.request, SEEDING, "", "", command.now)
    return _admit_seeds(tables, run, action, command.seeds, command.seed_hosts)


def _over_quota(tables: Tables, command: SubmitJob | AddSeeds, runs: int, urls: int) -> str:
    if command.quotas is None:
        return ""
    replaced = command.cancels if isinstance(command, SubmitJob) else ()
    live = [
        run.pending
        for run in tables.runs.values()
        if run.job.owner == command.by and not run.state.ended and run.id not in replaced
    ]
    return quota_problem(command.quotas, command.by, len(live), sum(live), runs, urls)


def _repeated(tables: Tables, request: str, only_owner: str | None) -> Submitted | None:
    answer = tables.answers.get(request)
    if answer is None:
        return None
    job = tables.jobs.get(answer.job)
    why = owner_problem(only_owner, job.name, job.owner) if job is not None else ""
    if why:
        return Submitted(answer.job, 0, NOT_OWNER, [], [], None, why=why)
    run = tables.runs.get(answer.run)  # none, if the submission only stored the job
    held_run, after = held_in(answer.reply or b"")
    if held_run and run is None:
        return Submitted(
            answer.job, 0, "", [], [], None, repeated=True, held_run=held_run, after=after
        )
    row = None if run is None else run.row()
    return Submitted(answer.job, answer.run, "", [], [], row, repeated=True)


def _job_named(tables: Tables, name: str) -> FakeJob | None:
    """Return the job of that name; the name of a deleted job is free."""
    for job in tables.jobs.values():
        if job.name == name and job.state is not JobState.DELETED:
            return job
    return None


def _admit_seeds(
    tables: Tables,
    run: FakeRun,
    action: ClientAction,
    seeds: tuple[NewLink, ...],
    seed_hosts: tuple[str, ...],
) -> Submitted:
    run.add_seed_hosts(seed_hosts)
    seqs = [tables.admit(run, seed, 0, None, action.at) for seed in seeds]
    tables.complete_if_empty(run, action.at)
    once.keep(tables, action, run.job.id, run.id, None)
    rows = [tables.queued_row(tables.requests[seq]) for seq in seqs if seq is not None]
    hosts = tables.host_rows(row.host for row in rows)
    return Submitted(run.job.id, run.id, "", rows, hosts, run.row())
