"""What may be done to users and tokens, decided once for every store. Pure.

Called by `store.sql.people` and by its twin, inside one transaction, with the rows as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from zcrawl.model.people import ADMIN, AuditEntry, TokenRow, UserRow, rank
from zcrawl.model.reasons.cluster import (
    LAST_ADMIN,
    NO_SUCH_TOKEN,
    NO_SUCH_USER,
    ROLE_TOO_HIGH,
    TOKEN_EXISTS,
    USER_DISABLED,
    USER_EXISTS,
)
from zcrawl.store.commands import ChangeUser, CreateToken, PeopleChanged, RevokeToken

DETAIL_MOST: Final = 4_000  # characters
TEXT_MOST: Final = 255


def _refused(code: str, why: str) -> PeopleChanged:
    return PeopleChanged(b"", code, why)


def user_view(user: UserRow) -> dict[str, Any]:
    return {
        "name": user.name,
        "role": user.role,
        "rights": list(user.rights),
        "quotas": msgspec.to_builtins(user.quotas),
        "disabled": user.disabled,
        "created_at": user.created_at,
        "created_by": user.created_by,
    }


def token_view(token: TokenRow) -> dict[str, Any]:
    """What is shown of a token: nothing that could be used."""
    return {
        "prefix": token.prefix,
        "user": token.user,
        "role": token.role,
        "rights": None if token.scopes is None else list(token.scopes),
        "created_at": token.created_at,
        "created_by": token.created_by,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
        "last_used_at": token.last_used_at,
    }


def changed(**values: Any) -> PeopleChanged:
    return PeopleChanged(msgspec.json.encode(values))


def user_added(user: UserRow, stored: UserRow | None) -> PeopleChanged:
    if stored is not None:
        why = f"there is a user {user.name!r}; `zcrawl user change` changes it"
        return _refused(USER_EXISTS, why)
    return changed(user=user_view(user))


def user_changed(
    change: ChangeUser, users: Iterable[UserRow]
) -> tuple[PeopleChanged, UserRow | None, str]:
    """Return the answer, the user to store (None: refused), and what changed, for the audit."""
    by_name = {user.name: user for user in users}
    old = by_name.get(change.name)
    if old is None:
        return _refused(NO_SUCH_USER, f"there is no user {change.name!r}"), None, ""
    new = msgspec.structs.replace(
        old,
        role=old.role if change.role is None else change.role,
        rights=old.rights if change.rights is None else change.rights,
        quotas=old.quotas if change.quotas is None else change.quotas,
        disabled=old.disabled if change.disabled is None else change.disabled,
    )
    others = [user for user in by_name.values() if user is not old and _administers(user)]
    if _administers(old) and not _administers(new) and not others and not change.by_masters:
        why = (
            f"{change.name!r} is the last admin that is not disabled; make another one first, or "
            "do it on a master's machine with the masters' key"
        )
        return _refused(LAST_ADMIN, why), None, ""
    before, after = user_view(old), user_view(new)
    lines = [
        f"{key}: {_text(before[key])} → {_text(after[key])}"
        for key in before
        if before[key] != after[key]
    ]
    return changed(user=after, changed=int(old != new)), new, "; ".join(lines)


def _administers(user: UserRow) -> bool:
    return user.role == ADMIN and not user.disabled


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def token_created(change: CreateToken, user: UserRow | None, *, taken: bool) -> PeopleChanged:
    token = change.token
    if user is None:
        why = f"there is no user {token.user!r}; `zcrawl user add {token.user}` makes one"
        return _refused(NO_SUCH_USER, why)
    if user.disabled:
        return _refused(USER_DISABLED, f"the user {user.name!r} is disabled")
    if rank(token.role) > rank(user.role):
        why = f"the user {user.name!r} has the role {user.role}; its tokens cannot have more"
        return _refused(ROLE_TOO_HIGH, why)
    if taken:
        return _refused(TOKEN_EXISTS, "there is a token with this prefix; make another one")
    return changed(token=token_view(token))


def token_revoked(change: RevokeToken, token: TokenRow | None, now: float) -> PeopleChanged:
    if token is None or change.user not in ("", token.user):
        return _refused(NO_SUCH_TOKEN, f"there is no token {change.prefix}")
    if not token.revoked_at:
        token = msgspec.structs.replace(token, revoked_at=now)
        return changed(token=token_view(token), changed=1)
    return changed(token=token_view(token), changed=0)


def bounded(entry: AuditEntry) -> AuditEntry:
    """Return the entry as its columns hold it."""
    names = ("by", "role", "through", "address", "via", "op", "target", "result")
    cut = {name: getattr(entry, name)[:TEXT_MOST] for name in names}
    return msgspec.structs.replace(entry, **cut, detail=entry.detail[:DETAIL_MOST])


def with_job(entry: AuditEntry, job: int, run: int) -> AuditEntry:
    return msgspec.structs.replace(entry, job=job or entry.job, run=run or entry.run)
