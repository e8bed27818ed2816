"""SubmitJob and AddSeeds: a job, its run and its seeds, with the reply stored beside them (G1).
AdmitKnown: pages of earlier runs, from which a run starts in addition to its seeds.

Called by `store` after the epoch check; it commits afterwards.
"""

from __future__ import annotations

import msgspec

from zcrawl.model.reasons.cluster import (
    JOB_ARCHIVED,
    KEY_REUSED,
    NAME_EXISTS,
    NO_SUCH_JOB,
    RUN_ENDED,
)
from zcrawl.model.reasons.failure import NO_PARENT_RUN
from zcrawl.model.reasons.skip import CANCELLED
from zcrawl.model.reasons.usage import BAD_DEPENDENCY
from zcrawl.model.rows import DefinitionRow, NewLink, QueuedRow, RunRow
from zcrawl.model.states import JobState, RunState
from zcrawl.store.commands import (
    AddSeeds,
    AdmitFed,
    AdmitKnown,
    ClientAction,
    FireJob,
    KnownAdmitted,
    SubmitJob,
    Submitted,
)
from zcrawl.store.rules import (
    KEY_REUSED_TEXT,
    RECALLED,
    SEEDING,
    Beside,
    bad_dependency,
    beside_live_runs,
    first_recall,
    held_in,
    held_reply,
    is_fed,
    max_pages_of,
    outputs_of,
    seeds_from_of,
)
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.idempotency import is_key_reused, keep_request
from zcrawl.store.sql.jobs import create_job, job_named, job_names, load_job, save_held, store_spec
from zcrawl.store.sql.rows import (
    Admission,
    Ids,
    RunRecord,
    TallyChanges,
    host_rows,
    load_run,
    load_runs,
    save_run,
    save_runs,
    save_tallies,
    tune,
)


def submit_job(session: Session, command: SubmitJob) -> Submitted:
    repeated = _repeated(session, command.request)
    if repeated is not None:
        return repeated
    if is_key_reused(session, command.request):
        return Submitted(0, 0, KEY_REUSED, [], [], None, why=KEY_REUSED_TEXT)
    job = job_named(session, command.name)
    if job is not None and command.mode == "new":
        return Submitted(job.id, 0, NAME_EXISTS, [], [], None)
    if job is not None and command.mode == "again" and job.state is JobState.ARCHIVED:
        return Submitted(job.id, 0, JOB_ARCHIVED, [], [], None)
    stored = job.spec if job is not None and command.mode == "again" else None
    spec = command.spec if stored is None else stored
    max_pages_of(spec)  # refuse a spec that cannot be read before anything is written
    if stored is None:
        why = bad_dependency(command.name, spec, lambda: job_names(session))
        if why:
            return Submitted(0, 0, BAD_DEPENDENCY, [], [], None, why=why)
    live = live_runs(session, job.id) - {*command.cancels} if job is not None else set()
    beside = Beside() if job is None else beside_live_runs(job, command, spec, live)
    if job is not None and beside.refused:
        return Submitted(job.id, 0, beside.refused, [], [], None, why=beside.why)
    ids = Ids(session)
    job_existed = job is not None
    if job is None:
        job = create_job(session, ids.take("jobs"), command.name, spec, command.by, command.now)
        version = job.version
    else:
        version = store_spec(session, job, spec, command.by, command.now)
    action = ClientAction(
        command.request, f"submit {command.mode}", command.by, command.via, command.now
    )
    job = load_job(session, job.id)
    assert job is not None  # it was created or found above
    if not command.start:
        ids.save()
        changed = _tune_live(session, command, version)
        answer = {"job": job.id, "run": 0, "version": version, "changed": len(changed)}
        keep_request(session, action, job.id, 0, msgspec.json.encode(answer))
        return Submitted(job.id, 0, "", [], [], None, definition=job, changed=changed)
    if beside.waits:
        return _hold(session, ids, job, command, action, min(live))
    run_spec = command.run_spec or spec
    run = start_run(session, ids, job, run_spec, version, command, job_existed)
    if is_fed(run_spec) and not run.feed_run:
        run.end(RunState.FAILED, NO_PARENT_RUN, command.now, TallyChanges())
    cancelled = cancel_replaced(session, command)
    submitted = _admit_seeds(session, ids, run, action, () if run.state.ended else command.seeds)
    return msgspec.structs.replace(submitted, cancelled=cancelled, definition=job)


def _hold(
    session: Session,
    ids: Ids,
    job: DefinitionRow,
    command: SubmitJob,
    action: ClientAction,
    after: int,
) -> Submitted:
    """Store a submission that waits. It has the number of its run already, so its client knows
    which run comes of it, and no other start can use it."""
    assert command.hold is not None
    held = msgspec.structs.replace(command.hold, run=ids.take("runs"))
    ids.save()
    save_held(session, job.id, held)
    keep_request(session, action, job.id, held.run, held_reply(job.id, held.run, after))
    job = msgspec.structs.replace(job, held=held)
    return Submitted(job.id, 0, "", [], [], None, definition=job, held_run=held.run, after=after)


def live_runs(session: Session, job: int) -> set[int]:
    """Return the runs of a job that have not ended."""
    select = "SELECT id FROM runs WHERE job = ? AND state IN ('pending', 'running', 'paused')"
    return {id for (id,) in session.all(select, (job,))}


def _tune_live(session: Session, command: SubmitJob, version: int) -> list[RunRow]:
    """Give the new spec to runs that are alive."""
    specs = dict(command.live)
    live = [run for run in load_runs(session, specs).values() if not run.state.ended]
    for run in live:
        run.version = version
        tune(session, run, specs[run.id], command.now)
    return [run.row() for run in live]


def start_run(
    session: Session,
    ids: Ids,
    job: DefinitionRow,
    spec: bytes,
    version: int,
    command: SubmitJob | FireJob,
    job_existed: bool,
) -> RunRecord:
    """Store a pending run and its outputs. `known`: the job may have earlier runs."""
    recall, feed_run = first_recall(spec), 0
    if is_fed(spec):
        given = command.feed_run if isinstance(command, FireJob) else 0
        feed_run = given or _newest_completed(session, seeds_from_of(spec).job)
    seed_hosts = list(dict.fromkeys(command.seed_hosts))
    if recall is not None and job_existed:
        seed_hosts = _with_earlier_hosts(session, job.id, seed_hosts)
    held_run = command.held_run if isinstance(command, FireJob) else 0
    run_id, facts = held_run or ids.take("runs"), command.start_facts
    session.run(
        "INSERT INTO runs (id, job, state, spec, max_pages, seed_hosts, seeding, created_at, "
        "started_at, recall, canonical, version, cause, due_at, params, chain, feed_run, feed_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run_id,
            job.id,
            RunState.PENDING.value,
            spec,
            max_pages_of(spec),
            msgspec.json.encode(seed_hosts),
            command.seeding,
            command.now,
            0.0,
            recall,
            command.canonical,
            version,
            facts.cause.value,
            facts.due_at,
            facts.params or None,
            facts.chain,
            feed_run,
            0 if feed_run else None,
        ),
    )
    for path, format in outputs_of(spec, command.name, command.output, run_id):
        session.run(
            "INSERT INTO outputs (run, path, format) VALUES (?, ?, ?)",
            (run_id, encode_path(path), format),
        )
    run = load_run(session, run_id)
    assert run is not None
    return run


def cancel_replaced(session: Session, command: SubmitJob | FireJob) -> list[RunRow]:
    """Cancel the runs that the new one replaces; those that have ended stay as they are."""
    records = load_runs(session, command.cancels)
    tallies = TallyChanges()
    live = [run for run in records.values() if not run.state.ended]
    for run in live:
        run.end(RunState.CANCELLED, CANCELLED, command.now, tallies)
    save_runs(session, live)
    save_tallies(session, tallies)
    return [run.row() for run in live]


def add_seeds(session: Session, command: AddSeeds) -> Submitted:
    repeated = _repeated(session, command.request)
    if repeated is not None:
        return repeated
    run = load_run(session, command.run)
    if run is None:
        return Submitted(0, command.run, NO_SUCH_JOB, [], [], None)
    if run.state.ended:
        return Submitted(run.job, run.id, RUN_ENDED, [], [], run.row())
    run.add_seed_hosts(command.seed_hosts)
    if command.last:
        run.seeding = False
    action = ClientAction(command.request, SEEDING, "", "", command.now)
    return _admit_seeds(session, Ids(session), run, action, command.seeds)


def admit_known(session: Session, command: AdmitKnown) -> KnownAdmitted:
    run = load_run(session, command.run)
    if run is None or run.recall != command.after or run.state.ended:
        return KnownAdmitted([], [], None if run is None else run.row(), repeated=True)
    ids = Ids(session)
    run.recall = RECALLED if command.last else command.upto
    rows = admit(session, ids, run, [(link, link.depth) for link in command.links], command.now)
    return KnownAdmitted(rows, host_rows(session, (row.host for row in rows)), run.row())


def admit_fed(session: Session, command: AdmitFed) -> KnownAdmitted:
    run = load_run(session, command.run)
    if run is None or run.feed_at != command.after or run.state.ended:
        return KnownAdmitted([], [], None if run is None else run.row(), repeated=True)
    run.feed_at = None if command.last else command.upto
    run.add_seed_hosts(command.seed_hosts)
    links = [(link, 0) for link in command.links]
    rows = admit(session, Ids(session), run, links, command.now)
    return KnownAdmitted(rows, host_rows(session, (row.host for row in rows)), run.row())


def _newest_completed(session: Session, name: str) -> int:
    """Return the newest completed run of a job; 0: it has none."""
    row = session.fetch_row(
        "SELECT MAX(r.id) FROM runs r JOIN jobs j ON j.id = r.job "
        "WHERE j.name = ? AND j.state <> 'deleted' AND r.state = 'completed'",
        (name,),
    )
    return (row[0] or 0) if row else 0


def _with_earlier_hosts(session: Session, job: int, hosts: list[str]) -> list[str]:
    """Add the default scope of the job's newest run. A seed that redirects to another host may not
    be due now, but the pages of that host still belong to the crawl."""
    row = session.fetch_row(
        "SELECT seed_hosts FROM runs WHERE job = ? ORDER BY id DESC LIMIT 1", (job,)
    )
    earlier = msgspec.json.decode(row[0], type=list[str]) if row else []
    return list(dict.fromkeys([*hosts, *earlier]))


def encode_path(path: str) -> bytes:
    """Encode a path; a file name that is not UTF-8 keeps its bytes."""
    return path.encode("utf-8", "surrogateescape")


def decode_path(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogateescape")


def _repeated(session: Session, request: str) -> Submitted | None:
    stored = session.fetch_row(
        "SELECT job, run, reply FROM client_requests WHERE id = ?", (request,)
    )
    if stored is None:
        return None
    job, run_id, reply = stored
    run = load_run(session, run_id) if run_id else None
    held_run, after = held_in(bytes(reply or b""))
    if held_run and run is None:
        return Submitted(job, 0, "", [], [], None, repeated=True, held_run=held_run, after=after)
    return Submitted(job, run_id, "", [], [], None if run is None else run.row(), repeated=True)


def _admit_seeds(
    session: Session,
    ids: Ids,
    run: RunRecord,
    action: ClientAction,
    seeds: tuple[NewLink, ...],
) -> Submitted:
    rows = admit(session, ids, run, [(seed, 0) for seed in seeds], action.at)
    keep_request(session, action, run.job, run.id)
    hosts = host_rows(session, (row.host for row in rows))
    return Submitted(run.job, run.id, "", rows, hosts, run.row())


def admit(
    session: Session, ids: Ids, run: RunRecord, links: list[tuple[NewLink, int]], now: float
) -> list[QueuedRow]:
    """Admit links that come from no page, each with its depth, and update the run."""
    tallies = TallyChanges()
    links_by_run = {run.id: [link for link, _ in links]}
    admission = Admission(session, ids, links_by_run, {run.id: run}, now)
    for link, depth in links:
        admission.add(run, link, depth, None, None)
    run.complete_if_empty(now, tallies)
    admission.save()
    save_run(session, run)
    save_tallies(session, tallies + admission.skipped)
    ids.save()
    return admission.rows
