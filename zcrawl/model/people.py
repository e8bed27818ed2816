"""Users, their API tokens, and the rows of the audit, as they are stored. Frozen; no decisions.

The store reads and writes them, the desk makes views of them.
"""

from __future__ import annotations

from typing import Final

import msgspec

RIGHTS: Final = ("code", "shell", "private")  # besides the role; see docs/security.md
ROLES: Final = ("viewer", "submitter", "operator", "admin")  # each with the rights of those before
ADMIN: Final = ROLES[-1]


class Quotas(msgspec.Struct, frozen=True):
    """What a user may have at a time. None: no limit."""

    most_live_runs: int | None = None
    most_queued: int | None = None  # URLs, of all live runs
    most_rate: float | None = None  # requests a second of one host


class UserRow(msgspec.Struct, frozen=True):
    name: str
    role: str
    rights: tuple[str, ...] = ()
    quotas: Quotas = Quotas()
    disabled: bool = False
    created_at: float = 0.0
    created_by: str = ""


class TokenRow(msgspec.Struct, frozen=True):
    """An API token. Its digest stays in the store."""

    prefix: str
    user: str
    role: str  # at most its user's
    scopes: tuple[str, ...] | None = None  # of its user's rights; None: all of them
    created_at: float = 0.0
    created_by: str = ""
    expires_at: float = 0.0  # 0: never
    revoked_at: float = 0.0  # 0: it is not
    last_used_at: float = 0.0


class AuditEntry(msgspec.Struct, frozen=True):
    """One line of the audit: who did what to what, from where, and with which result."""

    at: float  # UTC
    by: str
    role: str  # of the request; empty: a client without keys
    through: str  # how the caller proved who it is
    address: str
    via: str  # the master that took the request
    op: str
    target: str
    result: str = "ok"  # or the code of the refusal
    detail: str = ""
    job: int = 0
    run: int = 0


class AuditRow(msgspec.Struct, frozen=True):
    id: int
    entry: AuditEntry


def rank(role: str) -> int:
    """Return the place of a role among `ROLES`; below all for one that is none of a user."""
    return ROLES.index(role) if role in ROLES else -1


def lower_role(role: str, other: str) -> str:
    """Return the role with fewer rights."""
    return min(role, other, key=rank)
