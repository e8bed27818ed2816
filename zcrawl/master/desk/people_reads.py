"""Users, tokens and the audit, as any master reads them from the database. A part of `reads`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zcrawl.errors import RefusedError
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.replies import Pending
from zcrawl.mesh.messages import ClientRequest
from zcrawl.model.people import ADMIN, AuditRow, TokenRow, lower_role
from zcrawl.model.reasons.cluster import BAD_REQUEST, BAD_TOKEN
from zcrawl.store.people import token_view, user_view
from zcrawl.store.queries import (
    NEWEST,
    AuditRows,
    CheckToken,
    Query,
    QueryOutcome,
    ReadAudit,
    ReadTokens,
    ReadUsers,
    TokenChecked,
    TokenRows,
    UserRows,
)
from zcrawl.telemetry.views import LiveRun
from zcrawl.text.tokens import full_prefix, is_digest

MOST_LINES: Final = 500
Live = Callable[[int], LiveRun | None]


def administers(request: ClientRequest) -> bool:
    """Whether a request may be about users other than its own; empty: a client without keys."""
    return request.role in ("", ADMIN)


def token_problem(checked: TokenChecked, utc: float) -> str:
    """Return why a token does not count, for the audit; empty: it does."""
    token, user = checked.token, checked.user
    if token is None or user is None:
        return "unknown token"
    if not checked.matches:
        return "wrong token with this prefix"
    if token.revoked_at:
        return "revoked token"
    if token.expires_at and token.expires_at <= utc:
        return "expired token"
    return f"disabled user {user.name}" if user.disabled else ""


def rights_of(token: TokenRow, rights: tuple[str, ...]) -> list[str]:
    return [right for right in rights if token.scopes is None or right in token.scopes]


class PeopleReads:
    def check_token(self, args: Arguments) -> Query:
        digest = args.text("digest")
        if not digest and not args.text("prefix"):
            return ReadTokens("")  # a gateway asks whether there are any
        # What has not the form of a token is as unknown as one that was never made.
        prefix = full_prefix(args.text("prefix")) if is_digest(digest) else ""
        return CheckToken(prefix, digest)

    def token_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> dict[str, Any]:
        if isinstance(outcome, TokenRows):
            if outcome.rows:  # also one that was revoked: a cluster that has tokens stays closed
                raise RefusedError("a token is needed", code=BAD_TOKEN)
            return {"open": True}
        assert isinstance(outcome, TokenChecked)
        token, user = outcome.token, outcome.user
        if token is None or user is None or token_problem(outcome, utc):
            raise RefusedError("this token does not count", code=BAD_TOKEN)
        return {
            "user": user.name,
            "role": lower_role(token.role, user.role),
            "rights": rights_of(token, user.rights),
            "token": token.prefix,
            "expires_at": token.expires_at,
            "quotas": user_view(user)["quotas"],
        }

    def read_users(self, args: Arguments) -> Query:
        return ReadUsers()

    def users_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> dict[str, Any]:
        assert isinstance(outcome, UserRows)
        return {"users": [user_view(user) for user in outcome.rows]}

    def read_tokens(self, args: Arguments) -> Query:
        return ReadTokens(args.text("user"))

    def tokens_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> dict[str, Any]:
        """Everybody sees its own tokens, and an admin those of all."""
        assert isinstance(outcome, TokenRows)
        request = pending.request
        rows = [row for row in outcome.rows if administers(request) or row.user == request.by]
        return {"tokens": [token_view(row) for row in rows]}

    def read_audit(self, args: Arguments) -> Query:
        limit = args.integer("limit")
        if not 1 <= limit <= MOST_LINES:
            raise RefusedError(f"limit must be 1 to {MOST_LINES}", code=BAD_REQUEST)
        after = args.integer("after") if args.get("after") is not None else None
        until = args.number("until") if args.get("until") is not None else None
        before = args.integer("before") or NEWEST
        since, user, job = args.number("since"), args.text("user"), args.text("job")
        return ReadAudit(limit, before, after, since, until, user, job)

    def audit_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> dict[str, Any]:
        assert isinstance(outcome, AuditRows)
        return {"rows": [_line(row) for row in outcome.rows]}


def _line(row: AuditRow) -> dict[str, Any]:
    entry = row.entry
    return {
        "id": row.id,
        "at": entry.at,
        "user": entry.by,
        "role": entry.role,
        "through": entry.through,
        "address": entry.address,
        "via": entry.via,
        "op": entry.op,
        "target": entry.target,
        "job": entry.job,
        "run": entry.run,
        "result": entry.result,
        "detail": entry.detail,
    }
