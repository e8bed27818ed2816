"""SubmitJob and AddSeeds: a job, its run and its seeds, with the reply stored beside them (G1).
AdmitKnown: pages of earlier runs, from which a run starts in addition to its seeds.

Called by `store` after the epoch check; it commits afterwards.
"""

from __future__ import annotations

import msgspec

from zcrawl.model.reasons.cluster import NAME_EXISTS, NO_SUCH_JOB, RUN_ENDED
from zcrawl.model.rows import NewLink, QueuedRow
from zcrawl.model.states import RunState
from zcrawl.store.commands import (
    AddSeeds,
    AdmitKnown,
    ClientAction,
    KnownAdmitted,
    SubmitJob,
    Submitted,
)
from zcrawl.store.rules import RECALLED, SEEDING, first_recall, max_pages_of, outputs_of
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.idempotency import keep_request
from zcrawl.store.sql.rows import (
    Admission,
    Ids,
    RunRecord,
    TallyChanges,
    host_rows,
    load_run,
    save_run,
    save_tallies,
)


def submit_job(session: Session, command: SubmitJob) -> Submitted:
    repeated = _repeated(session, command.request)
    if repeated is not None:
        return repeated
    job_row = _live_job(session, command.name)
    if job_row is not None and command.mode == "new":
        return Submitted(job_row[0], 0, NAME_EXISTS, [], [], None)
    spec = job_row[1] if job_row is not None and command.mode == "again" else command.spec
    max_pages = max_pages_of(spec)
    ids = Ids(session)
    if job_row is None:
        job = ids.take("jobs")
        session.run(
            "INSERT INTO jobs (id, name, spec, created_at) VALUES (?, ?, ?, ?)",
            (job, command.name, spec, command.now),
        )
    else:
        job = job_row[0]
        session.run("UPDATE jobs SET spec = ? WHERE id = ?", (spec, job))
    recall = first_recall(spec)
    seed_hosts = list(dict.fromkeys(command.seed_hosts))
    if recall is not None and job_row is not None:
        seed_hosts = _with_earlier_hosts(session, job, seed_hosts)
    run_id = ids.take("runs")
    session.run(
        "INSERT INTO runs (id, job, state, spec, max_pages, seed_hosts, seeding, created_at, "
        "started_at, recall, canonical) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run_id,
            job,
            RunState.RUNNING.value,
            spec,
            max_pages,
            msgspec.json.encode(seed_hosts),
            command.seeding,
            command.now,
            command.now,
            recall,
            command.canonical,
        ),
    )
    for path, format in outputs_of(spec, command.name, command.output, run_id):
        session.run(
            "INSERT INTO outputs (run, path, format) VALUES (?, ?, ?)",
            (run_id, encode_path(path), format),
        )
    run = load_run(session, run_id)
    assert run is not None
    action = ClientAction(
        command.request, f"submit {command.mode}", command.by, command.via, command.now
    )
    return _admit_seeds(session, ids, run, action, command.seeds)


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
    rows = _admit(session, ids, run, [(link, link.depth) for link in command.links], command.now)
    return KnownAdmitted(rows, host_rows(session, (row.host for row in rows)), run.row())


def _with_earlier_hosts(session: Session, job: int, hosts: list[str]) -> list[str]:
    """Add the default scope of the job's newest run. A seed that redirects to another host may not
    be due now, but the pages of that host still belong to the crawl."""
    row = session.one("SELECT seed_hosts FROM runs WHERE job = ? ORDER BY id DESC LIMIT 1", (job,))
    earlier = msgspec.json.decode(row[0], type=list[str]) if row else []
    return list(dict.fromkeys([*hosts, *earlier]))


def encode_path(path: str) -> bytes:
    """Encode a path; a file name that is not UTF-8 keeps its bytes."""
    return path.encode("utf-8", "surrogateescape")


def decode_path(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogateescape")


def _repeated(session: Session, request: str) -> Submitted | None:
    stored = session.one("SELECT job, run FROM client_requests WHERE id = ?", (request,))
    if stored is None:
        return None
    job, run_id = stored
    run = load_run(session, run_id)
    return Submitted(job, run_id, "", [], [], None if run is None else run.row(), repeated=True)


def _live_job(session: Session, name: str) -> tuple[int, bytes] | None:
    """Return id and spec of the job of that name; None if all its runs are deleted."""
    rows = session.all(
        "SELECT j.id, j.spec FROM jobs j WHERE j.name = ? AND EXISTS "
        "(SELECT 1 FROM runs r WHERE r.job = j.id AND r.state <> 'deleted')",
        (name,),
    )
    return rows[0] if rows else None


def _admit_seeds(
    session: Session,
    ids: Ids,
    run: RunRecord,
    action: ClientAction,
    seeds: tuple[NewLink, ...],
) -> Submitted:
    rows = _admit(session, ids, run, [(seed, 0) for seed in seeds], action.at)
    keep_request(session, action, run.job, run.id)
    hosts = host_rows(session, (row.host for row in rows))
    return Submitted(run.job, run.id, "", rows, hosts, run.row())


def _admit(
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
