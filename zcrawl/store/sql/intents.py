"""SetDrain, SetWish and the position of a retry: requests of people that stay valid after a change
of the leader. Each is stored in the transaction that carries it out, or before.

Called by `store` and its parts after the epoch check; it commits afterwards.
"""

from __future__ import annotations

from zcrawl.store.commands import (
    ClientAction,
    DrainRow,
    DrainSet,
    RetryDead,
    RetryRow,
    SetDrain,
    SetWish,
    WishRow,
    WishSet,
)
from zcrawl.store.rules import drain_reply
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.idempotency import TEXT_CHARS, keep_audit, keep_request, stored_reply

RETRY_SELECT = (
    "SELECT request, what, asked_by, via, created_at, changed, run, reason, host, after_seq "
    "FROM retries "
)


# ---------------------------------------------------------------- drains


def set_drain(session: Session, command: SetDrain) -> DrainSet:
    action = command.client_action
    stored = _drain(session, command.worker)
    if action is None:
        if stored is not None and command.on and not stored.life:
            update = "UPDATE drains SET life = ? WHERE worker = ?"
            session.run(update, (command.life, command.worker))
        elif stored is not None and not command.on and stored.life not in (0, command.life):
            _end_drain(session, command.worker)
        return DrainSet(command.worker, _drain(session, command.worker))
    reply = stored_reply(session, action.request)
    if reply is not None:
        return DrainSet(command.worker, stored, reply)
    if command.on and stored is None:
        session.run(
            "INSERT INTO drains (worker, life, created_at) VALUES (?, ?, ?)",
            (command.worker, command.life, command.now),
        )
    elif command.on:  # requested again; the node may have been restarted meanwhile
        update = "UPDATE drains SET life = ? WHERE worker = ?"
        session.run(update, (command.life, command.worker))
    else:
        _end_drain(session, command.worker)
    reply = drain_reply(command, changed=command.on is (stored is None))
    keep_request(session, action, 0, 0, reply)
    return DrainSet(command.worker, _drain(session, command.worker), reply)


def _drain(session: Session, worker: str) -> DrainRow | None:
    row = session.fetch_row("SELECT worker, life FROM drains WHERE worker = ?", (worker,))
    return None if row is None else DrainRow(*row)


def _end_drain(session: Session, worker: str) -> None:
    session.run("DELETE FROM drains WHERE worker = ?", (worker,))


def drains(session: Session) -> list[DrainRow]:
    return [
        DrainRow(*row) for row in session.all("SELECT worker, life FROM drains ORDER BY worker")
    ]


# ---------------------------------------------------------------- wishes


def set_wish(session: Session, command: SetWish) -> WishSet:
    action = command.client_action
    reply = stored_reply(session, action.request)
    if reply is None:
        reply = command.reply
        hosts = [command.host, *command.others]
        session.run_in("DELETE FROM wishes WHERE host IN ({})", (), hosts)
        session.run(
            "INSERT INTO wishes (host, worker, created_at) VALUES (?, ?, ?)",
            (command.host, command.worker, action.at),
        )
        keep_request(session, action, 0, 0, reply)
    return WishSet(wishes(session), reply)


def wishes(session: Session) -> list[WishRow]:
    return [WishRow(*row) for row in session.all("SELECT host, worker FROM wishes ORDER BY host")]


# ---------------------------------------------------------------- retries


def retries(session: Session) -> list[RetryRow]:
    rows = [_retry_row(row) for row in session.all(RETRY_SELECT)]
    return sorted(rows, key=lambda row: (row.client_action.at, row.client_action.request))


def find_retry(session: Session, request: str) -> RetryRow | None:
    row = session.fetch_row(RETRY_SELECT + "WHERE request = ?", (request,))
    return None if row is None else _retry_row(row)


def _retry_row(row: tuple[str, str, str, str, float, int, int, str, int, int]) -> RetryRow:
    request, what, by, via, at, changed, run, reason, host, after = row
    return RetryRow(ClientAction(request, what, by, via, at, changed), run, reason, host, after)


def keep_retry(session: Session, command: RetryDead, after: int, changed: int) -> None:
    """Store the position of a retry, in the transaction that does one part of it."""
    action = command.client_action
    place = (after, changed, action.request)
    if session.run("UPDATE retries SET after_seq = ?, changed = ? WHERE request = ?", place):
        return
    keep_audit(session, action, 0, command.run)  # the rest may be done by another leader
    session.run(
        "INSERT INTO retries (request, run, reason, host, after_seq, changed, created_at, what, "
        "asked_by, via) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            action.request,
            command.run,
            command.reason[:TEXT_CHARS],
            command.host,
            after,
            changed,
            action.at,
            action.what[:TEXT_CHARS],
            action.by[:TEXT_CHARS],
            action.via[:TEXT_CHARS],
        ),
    )


def end_retry(session: Session, request: str) -> None:
    session.run("DELETE FROM retries WHERE request = ?", (request,))
