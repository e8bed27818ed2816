"""Users, API tokens and the audit in the fake store's tables: the twin of `sql.people`.

Only `store` and its parts call it, after the epoch check.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

import msgspec

from zcrawl.model.people import AuditEntry, AuditRow
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
)
from zcrawl.testing.store.tables import FakeAnswer, Tables
from zcrawl.text.tokens import digests_match, stored_digest

HASH_KEY: Final = b"the fake store has a fixed key.."


def change_people(tables: Tables, command: ChangePeople) -> PeopleChanged:
    action = command.client_action
    if action is not None and action.request in tables.answers:
        return PeopleChanged(tables.answers[action.request].reply or b"")
    outcome, detail = _change(tables, command)
    if action is not None and not outcome.refused:
        tables.answers[action.request] = FakeAnswer(action, 0, 0, outcome.reply)
        keep_audit(tables, action, 0, 0, detail)
    return outcome


def _change(tables: Tables, command: ChangePeople) -> tuple[PeopleChanged, str]:
    change = command.change
    match change:
        case AddUser(user):
            outcome = people.user_added(user, tables.users.get(user.name))
            if not outcome.refused:
                tables.users[user.name] = user
            return outcome, f"role {user.role}"
        case ChangeUser():
            outcome, changed_user, detail = people.user_changed(change, tables.users.values())
            if changed_user is not None:
                tables.users[changed_user.name] = changed_user
            return outcome, detail
        case CreateToken(token, digest):
            taken = token.prefix in tables.tokens
            outcome = people.token_created(change, tables.users.get(token.user), taken=taken)
            if not outcome.refused:
                tables.tokens[token.prefix] = token
                tables.digests[token.prefix] = stored_digest(digest, HASH_KEY)
            return outcome, f"user {token.user}, role {token.role}"
        case RevokeToken(prefix):
            stored = tables.tokens.get(prefix)
            outcome = people.token_revoked(change, stored, command.now)
            if stored is not None and not outcome.refused and not stored.revoked_at:
                tables.tokens[prefix] = msgspec.structs.replace(stored, revoked_at=command.now)
            return outcome, ""
        case NoteTokenUse(prefix):
            stored = tables.tokens.get(prefix)
            if stored is not None and stored.last_used_at < command.now:
                tables.tokens[prefix] = msgspec.structs.replace(stored, last_used_at=command.now)
            return people.changed(), ""
        case RemoveAudit(before, last, limit, file):
            old = [row for row in tables.audit if row.id <= last and row.entry.at < before][:limit]
            tables.audit = [row for row in tables.audit if row not in old]
            outcome = people.changed(removed=len(old), more=len(old) == limit)
            return outcome, f"{len(old)} lines removed; they are in {file}"
        case _:
            assert_never(change)


def read_tokens(tables: Tables, query: ReadTokens) -> TokenRows:
    tokens = reversed(tables.tokens.values())
    return TokenRows([token for token in tokens if query.user in ("", token.user)])


def check_token(tables: Tables, query: CheckToken) -> TokenChecked:
    token = tables.tokens.get(query.prefix)
    if token is None:
        return TokenChecked(None, None, False)
    matches = digests_match(tables.digests[token.prefix], query.digest, HASH_KEY)
    return TokenChecked(token, tables.users.get(token.user), matches)


def keep_audit(tables: Tables, action: ClientAction, job: int, run: int, detail: str = "") -> None:
    """Store the line of an action, beside its answer."""
    if action.audit is not None:
        entry = people.with_job(action.audit, job, run)
        entry = msgspec.structs.replace(entry, detail=detail) if detail else entry
        write_audit(tables, [entry])


def write_audit(tables: Tables, entries: Iterable[AuditEntry]) -> None:
    for entry in entries:
        tables.audit.append(AuditRow(tables.next_id("audit"), people.bounded(entry)))


def write_batch(tables: Tables, command: WriteAudit) -> Done:
    if command.batch not in tables.answers:
        write_audit(tables, command.rows)
        action = ClientAction(command.batch, "audit", "", "", command.now)
        tables.answers[command.batch] = FakeAnswer(action, 0, 0, b"1")
    return Done()


def read_audit(tables: Tables, query: ReadAudit) -> AuditRows:
    rows = [row for row in tables.audit if _is_meant(tables, row, query)]
    return AuditRows((rows if query.after is not None else rows[::-1])[: query.limit])


def _is_meant(tables: Tables, row: AuditRow, query: ReadAudit) -> bool:
    entry = row.entry
    if not (query.after or 0) < row.id < query.before:
        return False
    if entry.at < query.since or (query.until is not None and entry.at >= query.until):
        return False
    if query.user not in ("", entry.by):
        return False
    job = tables.jobs.get(entry.job)
    names = {entry.target, str(entry.job) if entry.job else ""} | ({job.name} if job else set())
    return not query.job or query.job in names
