"""Stored answers, so that a client's request is not carried out twice. The answer is stored in the
transaction that carries out the request. FindReply returns it to a client that repeats the request;
Forget removes old answers and watermarks.

Called by `store` and its parts after the epoch check; it commits afterwards.
"""

from __future__ import annotations

import msgspec

from zcrawl.model.rows import RunRow
from zcrawl.store.commands import ClientAction, Forget, Forgotten
from zcrawl.store.queries import ActionRow, FindReply, FoundReply
from zcrawl.store.rules import MOST_ACTIONS, SEEDING, run_reply, same_key
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.jobs import deleted_without_runs, remove_job

TEXT_CHARS = 255  # of the columns


def stored_reply(session: Session, request: str) -> bytes | None:
    """Return the stored answer to a request id; None: it was not carried out."""
    select = "SELECT job, run, reply FROM client_requests WHERE id = ?"
    row = session.fetch_row(select, (request,))
    if row is None:
        return None
    job, run, reply = row
    return bytes(reply) if reply is not None else msgspec.json.encode({"job": job, "run": run})


def is_key_reused(session: Session, request: str) -> bool:
    """Return whether a client's key was used for another body."""
    first = same_key(request)
    if not first:
        return False
    select = "SELECT id FROM client_requests WHERE id >= ? AND id < ? LIMIT 1"
    return session.fetch_row(select, (first, f"{first}~")) is not None


def keep_request(
    session: Session, action: ClientAction, job: int, run: int, reply: bytes | None = None
) -> None:
    session.run(
        "INSERT INTO client_requests (id, job, run, created_at, what, asked_by, via, reply) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            action.request,
            job,
            run,
            action.at,
            action.what[:TEXT_CHARS],
            action.by[:TEXT_CHARS],
            action.via[:TEXT_CHARS],
            reply,
        ),
    )


def keep_run_reply(
    session: Session, action: ClientAction | None, row: RunRow, changed: int
) -> None:
    if action is not None:
        keep_request(session, action, row.job, row.id, msgspec.json.encode(run_reply(row, changed)))


def given_before(session: Session, action: ClientAction | None) -> bytes:
    """Return the answer to a request that was already carried out; else empty."""
    return b"" if action is None else stored_reply(session, action.request) or b""


def latest_actions(session: Session, run: int) -> list[ActionRow]:
    select = (
        "SELECT created_at, what, asked_by, via FROM client_requests WHERE run = ? AND what <> ? "
        "ORDER BY created_at DESC LIMIT ?"
    )
    return [ActionRow(*row) for row in session.all(select, (run, SEEDING, MOST_ACTIONS))]


def find_reply(session: Session, query: FindReply) -> FoundReply:
    return FoundReply(stored_reply(session, query.request))


def forget(session: Session, command: Forget) -> Forgotten:
    """Remove old rows, few at a time, because the commits of results wait meanwhile."""
    for worker, incarnation in command.streams:
        session.run(
            "DELETE FROM workers WHERE worker = ? AND incarnation = ? AND moved_at < ?",
            (worker, incarnation, command.before),
        )
    select = "SELECT id FROM client_requests WHERE created_at < ? LIMIT ?"
    old = [id for (id,) in session.all(select, (command.answers_before, command.limit))]
    session.run_in("DELETE FROM client_requests WHERE id IN ({})", (), old)
    return Forgotten(more=len(old) == command.limit or _remove_deleted_jobs(session, command.limit))


def _remove_deleted_jobs(session: Session, limit: int) -> bool:
    """Remove deleted jobs without a run, after their known pages; return whether more is left."""
    from zcrawl.store.sql.known import forget as forget_pages

    for job in deleted_without_runs(session):
        limit -= forget_pages(session, job, limit)
        if limit == 0:
            return True
        remove_job(session, job)
    return False
