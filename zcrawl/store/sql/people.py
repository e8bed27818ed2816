"""Users, API tokens and the audit, as rows.

`write_audit` is called by `idempotency` too, in the transaction that carries out an action. Called
by `store` after the epoch check; it commits afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from zcrawl.model.people import AuditEntry, AuditRow, Quotas, TokenRow, UserRow
from zcrawl.store import people
from zcrawl.store.commands import (
    AddUser,
    ChangePeople,
    ChangeUser,
    ClientAction,
    CreateToken,
    Done,
    NoteTokenUse,
    PeopleChanged,
    RemoveAudit,
    RevokeToken,
    WriteAudit,
)
from zcrawl.store.queries import (
    AuditRows,
    CheckToken,
    ReadAudit,
    ReadTokens,
    TokenChecked,
    TokenRows,
    UserRows,
)
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.text.tokens import digests_match, stored_digest

_USER = (
    "SELECT name, role, rights, disabled, most_live_runs, most_queued, most_rate, created_at, "
    "created_by FROM users "
)
_TOKEN = (
    "SELECT prefix, user, role, scopes, created_at, created_by, expires_at, revoked_at, "
    "last_used_at FROM tokens "
)
_AUDIT_COLUMNS = "id, at, user, role, through, address, via, op, target, result, detail, job, run"


# ---------------------------------------------------------------- users and tokens


def change_people(session: Session, command: ChangePeople) -> PeopleChanged:
    from zcrawl.store.sql.idempotency import given_before, keep_request

    reply = given_before(session, command.client_action)
    if reply:
        return PeopleChanged(reply)
    outcome, detail = _change(session, command)
    if command.client_action is not None and not outcome.refused:
        action = with_detail(command.client_action, detail)
        keep_request(session, action, 0, 0, outcome.reply)
    return outcome


def with_detail(action: ClientAction, detail: str) -> ClientAction:
    if action.audit is None or not detail:
        return action
    audit = msgspec.structs.replace(action.audit, detail=detail)
    return msgspec.structs.replace(action, audit=audit)


def _change(session: Session, command: ChangePeople) -> tuple[PeopleChanged, str]:
    change = command.change
    match change:
        case AddUser(user):
            outcome = people.user_added(user, _user(session, user.name))
            if not outcome.refused:
                _put_user(session, user)
            return outcome, f"role {user.role}"
        case ChangeUser():
            outcome, changed_user, detail = people.user_changed(change, users(session))
            if changed_user is not None:
                _put_user(session, changed_user)
            return outcome, detail
        case CreateToken(token, digest):
            taken = _token(session, token.prefix) is not None
            outcome = people.token_created(change, _user(session, token.user), taken=taken)
            if not outcome.refused:
                _insert_token(session, token, digest)
            return outcome, f"user {token.user}, role {token.role}"
        case RevokeToken(prefix):
            outcome = people.token_revoked(change, _token(session, prefix), command.now)
            if not outcome.refused:
                session.run(
                    "UPDATE tokens SET revoked_at = ? WHERE prefix = ? AND revoked_at = 0",
                    (command.now, prefix),
                )
            return outcome, ""
        case NoteTokenUse(prefix):
            session.run(
                "UPDATE tokens SET last_used_at = ? WHERE prefix = ? AND last_used_at < ?",
                (command.now, prefix, command.now),
            )
            return people.changed(), ""
        case RemoveAudit():
            return _remove_audit(session, change)
        case _:
            assert_never(change)


def users(session: Session) -> list[UserRow]:
    """Return all users, by name."""
    return [_user_row(row) for row in session.all(_USER + "ORDER BY name")]


def _user(session: Session, name: str) -> UserRow | None:
    row = session.fetch_row(_USER + "WHERE name = ?", (name,))
    return None if row is None else _user_row(row)


def _user_row(row: Any) -> UserRow:
    name, role, rights, disabled, live_runs, queued, rate, created_at, created_by = row
    quotas = Quotas(live_runs, queued, rate)
    return UserRow(name, role, _names(rights), quotas, bool(disabled), created_at, created_by)


def _names(stored: str) -> tuple[str, ...]:
    return tuple(name for name in stored.split(",") if name)


def _put_user(session: Session, user: UserRow) -> None:
    quotas = user.quotas
    session.put_many(
        "users",
        "name",
        "role, rights, disabled, most_live_runs, most_queued, most_rate, created_at, created_by",
        [
            (
                user.name,
                user.role,
                ",".join(user.rights),
                int(user.disabled),
                quotas.most_live_runs,
                quotas.most_queued,
                quotas.most_rate,
                user.created_at,
                user.created_by[: people.TEXT_MOST],
            )
        ],
    )


def _token(session: Session, prefix: str) -> TokenRow | None:
    row = session.fetch_row(_TOKEN + "WHERE prefix = ?", (prefix,))
    return None if row is None else _token_row(row)


def _token_row(row: Any) -> TokenRow:
    prefix, user, role, scopes, *rest = row
    return TokenRow(prefix, user, role, None if scopes is None else _names(scopes), *rest)


def _insert_token(session: Session, token: TokenRow, digest: str) -> None:
    session.run(
        "INSERT INTO tokens (id, prefix, digest, user, role, scopes, created_at, created_by, "
        "expires_at, revoked_at, last_used_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            _take(session, "tokens", 1),
            token.prefix,
            stored_digest(digest, _hash_key(session)),
            token.user,
            token.role,
            None if token.scopes is None else ",".join(token.scopes),
            token.created_at,
            token.created_by[: people.TEXT_MOST],
            token.expires_at,
            token.revoked_at,
            token.last_used_at,
        ),
    )


def _hash_key(session: Session) -> bytes:
    return bytes(session.fetch_row("SELECT value FROM hash_keys WHERE id = 1")[0])


def _take(session: Session, name: str, count: int) -> int:
    """Take so many ids of a sequence; return the first."""
    session.run("UPDATE sequences SET value = value + ? WHERE name = ?", (count, name))
    last = session.fetch_row("SELECT value FROM sequences WHERE name = ?", (name,))[0]
    return int(last) - count + 1


def read_users(session: Session) -> UserRows:
    return UserRows(users(session))


def read_tokens(session: Session, query: ReadTokens) -> TokenRows:
    where, values = ("WHERE user = ? ", (query.user,)) if query.user else ("", ())
    rows = [_token_row(row) for row in session.all(_TOKEN + where + "ORDER BY id DESC", values)]
    return TokenRows(rows)


def check_token(session: Session, query: CheckToken) -> TokenChecked:
    token = _token(session, query.prefix)
    if token is None:
        return TokenChecked(None, None, False)
    stored = session.fetch_row("SELECT digest FROM tokens WHERE prefix = ?", (query.prefix,))[0]
    matches = digests_match(stored, query.digest, _hash_key(session))
    return TokenChecked(token, _user(session, token.user), matches)


# ---------------------------------------------------------------- audit


def write_audit(session: Session, entries: Iterable[AuditEntry]) -> None:
    rows = [people.bounded(entry) for entry in entries]
    if not rows:
        return
    first = _take(session, "audit", len(rows))
    session.insert_many(
        "audit",
        _AUDIT_COLUMNS,
        [
            (
                first + place,
                entry.at,
                entry.by,
                entry.role,
                entry.through,
                entry.address,
                entry.via,
                entry.op,
                entry.target,
                entry.result,
                entry.detail,
                entry.job,
                entry.run,
            )
            for place, entry in enumerate(rows)
        ],
    )


def write_batch(session: Session, command: WriteAudit) -> Done:
    from zcrawl.store.sql.idempotency import keep_request, stored_reply

    if stored_reply(session, command.batch) is None:
        write_audit(session, command.rows)
        keep_request(session, ClientAction(command.batch, "audit", "", "", command.now), 0, 0, b"1")
    return Done()


def read_audit(session: Session, query: ReadAudit) -> AuditRows:
    conditions, values = ["id < ?", "at >= ?"], [query.before, query.since]
    order = "DESC"
    if query.after is not None:
        order = "ASC"
        conditions.append("id > ?")
        values.append(query.after)
    if query.until is not None:
        conditions.append("at < ?")
        values.append(query.until)
    texts: list[Any] = []
    if query.user:
        conditions.append("user = ?")
        texts.append(query.user)
    if query.job:
        ids = _job_ids(session, query.job)
        marks = "".join(", ?" for _ in ids)
        conditions.append(f"(job IN (-1{marks}) OR target = ?)")
        texts += [*ids, query.job]
    rows = session.all(
        f"SELECT {_AUDIT_COLUMNS} FROM audit WHERE {' AND '.join(conditions)} "
        f"ORDER BY id {order} LIMIT ?",
        (*values, *texts, query.limit),
    )
    return AuditRows([_audit_row(row) for row in rows])


def _job_ids(session: Session, ref: str) -> list[int]:
    ids = [id for (id,) in session.all("SELECT id FROM jobs WHERE name = ?", (ref,))]
    return [*ids, int(ref)] if ref.isascii() and ref.isdigit() and len(ref) < 19 else ids


def _audit_row(row: Any) -> AuditRow:
    id, *fields = row
    return AuditRow(id, AuditEntry(*fields))


def _remove_audit(session: Session, change: RemoveAudit) -> tuple[PeopleChanged, str]:
    rows = session.all(
        "SELECT id FROM audit WHERE at < ? AND id <= ? ORDER BY id LIMIT ?",
        (change.before, change.last, change.limit),
    )
    session.run_in("DELETE FROM audit WHERE id IN ({})", (), [id for (id,) in rows])
    outcome = people.changed(removed=len(rows), more=len(rows) == change.limit)
    return outcome, f"{len(rows)} lines removed; they are in {change.file}"
