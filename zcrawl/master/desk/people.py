"""What clients do to users and API tokens, and the leader's part of `authenticate`.

A part of the desk. Each change is one command; its answer and its line of the audit are stored with
it. `people_reads` has the reads. An admin may do all; others only make and revoke tokens of their
own, with at most the role and the rights that their request has.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.master.desk import idempotency
from zcrawl.master.desk.audit import AuditLog
from zcrawl.master.desk.people_reads import administers, token_problem
from zcrawl.master.desk.replies import OpenRequests, Pending
from zcrawl.master.events import Execute, MasterEffects, Note
from zcrawl.master.leader_state import LeaderState
from zcrawl.mesh.messages import ClientRequest
from zcrawl.mesh.security import MASTERS
from zcrawl.model.people import ADMIN, RIGHTS, ROLES, Quotas, TokenRow, UserRow, rank
from zcrawl.model.reasons.cluster import BAD_REQUEST, BAD_TOKEN, FORBIDDEN, ROLE_TOO_HIGH
from zcrawl.store.commands import (
    AddUser,
    ChangePeople,
    ChangeUser,
    CreateToken,
    NoteTokenUse,
    PeopleChange,
    PeopleChanged,
    RemoveAudit,
    RevokeToken,
)
from zcrawl.store.queries import TokenChecked
from zcrawl.text.patterns import lazy_pattern
from zcrawl.text.tokens import full_prefix, is_digest

NOTE_USE_S: Final = 60.0  # between two writes of a token's last use
USES_KEPT: Final = 10_000  # tokens whose last write is remembered
MOST_DAYS: Final = 36_500
REMOVED_AT_ONCE: Final = 2_000  # lines of the audit in one transaction
_NAME = lazy_pattern(r"[A-Za-z0-9._@-]{1,64}")
_QUOTAS: Final = Quotas.__struct_fields__
_OPERATOR: Final = ROLES.index("operator")


class People:
    def __init__(self, state: LeaderState, requests: OpenRequests, audit: AuditLog) -> None:
        self._state, self._requests, self._audit = state, requests, audit
        self._uses: dict[str, float] = {}  # prefix → UTC of the last write

    # ------------------------------------------------------------ tokens that are used

    def checked(
        self, pending: Pending, outcome: TokenChecked, now: float, effects: MasterEffects
    ) -> None:
        """Note the use of a token, or why it did not count: only the audit says it."""
        utc = self._state.utc(now)
        problem = token_problem(outcome, utc)
        if problem:
            self._audit.note(pending.request, BAD_TOKEN, problem)
            return
        token = outcome.token
        assert token is not None  # it counts
        last = max(token.last_used_at, self._uses.get(token.prefix, 0.0))
        if utc - last >= NOTE_USE_S:
            if len(self._uses) >= USES_KEPT:
                self._uses.clear()
            self._uses[token.prefix] = utc
            effects.append(
                Execute(ChangePeople(self._state.epoch, NoteTokenUse(token.prefix), utc))
            )

    # ------------------------------------------------------------ users

    def add_user(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        args = pending.args
        name, role = args.text("name"), args.text("role")
        if not _NAME.fullmatch(name) or name == MASTERS:
            raise RefusedError(
                f"{name[:64]!r} is not a name for a user: use 1 to 64 letters, digits and "
                f"the characters . _ @ -, and not {MASTERS!r}",
                code=BAD_REQUEST,
            )
        user = UserRow(
            name,
            _role(role),
            _rights(args.sequence("rights")) if args.get("rights") is not None else (),
            _quotas(args.table("quotas")) if args.get("quotas") is not None else Quotas(),
            created_at=self._state.utc(now),
            created_by=pending.request.by,
        )
        self._execute(AddUser(user), pending, now, effects)

    def change_user(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        args = pending.args
        disabled = args.get("disabled")
        if disabled is not None and not isinstance(disabled, bool):
            raise RefusedError("user_change: disabled must be true or false", code=BAD_REQUEST)
        change = ChangeUser(
            args.text("name"),
            role=_role(args.text("role")) if args.get("role") is not None else None,
            rights=_rights(args.sequence("rights")) if args.get("rights") is not None else None,
            quotas=_quotas(args.table("quotas")) if args.get("quotas") is not None else None,
            disabled=disabled,
            by_masters=is_of_masters(pending.request),
        )
        self._execute(change, pending, now, effects)

    # ------------------------------------------------------------ tokens

    def create_token(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        args, request, utc = pending.args, pending.request, self._state.utc(now)
        user = args.text("user") or request.by
        role = _role(args.text("role"))
        if not administers(request):
            if user != request.by:
                raise RefusedError(
                    f"{request.by} may make tokens of its own only; an admin may make those of "
                    "others",
                    code=FORBIDDEN,
                )
            if rank(role) > rank(request.role):
                raise RefusedError(
                    f"this request has the role {request.role}; a token that it makes cannot have "
                    f"the role {role}",
                    code=ROLE_TOO_HIGH,
                )
        prefix, digest = full_prefix(args.text("prefix")), args.text("digest")
        if not prefix or not is_digest(digest):
            raise RefusedError("prefix or digest is not one of a token", code=BAD_REQUEST)
        days = args.number("days")
        if not 0 <= days <= MOST_DAYS:
            raise RefusedError(f"days must be 0 (for ever) to {MOST_DAYS}", code=BAD_REQUEST)
        token = TokenRow(
            prefix,
            user,
            role,
            self._scopes(pending),
            created_at=utc,
            created_by=request.by,
            expires_at=utc + days * 86_400 if days else 0.0,
        )
        self._execute(CreateToken(token, digest), pending, now, effects)

    def _scopes(self, pending: Pending) -> tuple[str, ...] | None:
        """Return the rights that a token keeps of its user's; None: all. A request with few rights
        makes no token with more."""
        request, given = pending.request, pending.args.get("rights")
        scopes = None if given is None else _rights(pending.args.sequence("rights"))
        if request.role == "" or rank(request.role) >= _OPERATOR:
            return scopes
        own = tuple(right for right in RIGHTS if right in request.rights)
        return own if scopes is None else tuple(right for right in scopes if right in own)

    def revoke_token(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        prefix = full_prefix(pending.args.text("prefix"))
        if not prefix:
            raise RefusedError("prefix is not one of a token: zc_ and 8 letters", code=BAD_REQUEST)
        user = "" if administers(pending.request) else pending.request.by
        self._execute(RevokeToken(prefix, user), pending, now, effects)

    # ------------------------------------------------------------ audit

    def remove_audit(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        """Remove lines that the client has written to a file."""
        args = pending.args
        before, last, file = args.number("before"), args.integer("last"), args.text("file")
        if not file:
            raise RefusedError("audit_archive: name the file of the archive", code=BAD_REQUEST)
        change = RemoveAudit(before, last, REMOVED_AT_ONCE, file[:1_000])
        self._execute(change, pending, now, effects)

    # ------------------------------------------------------------ the store's answers

    def _execute(
        self, change: PeopleChange, pending: Pending, now: float, effects: MasterEffects
    ) -> None:
        action = idempotency.client_action(self._state, pending, now)
        effects.append(Execute(ChangePeople(self._state.epoch, change, action.at, action)))

    def done(
        self,
        command: ChangePeople,
        pending: Pending,
        done: PeopleChanged,
        effects: MasterEffects,
    ) -> None:
        if command.client_action is None:
            return
        if done.refused:
            self._requests.refuse(pending, RefusedError(done.why, code=done.refused), effects)
            return
        effects.append(Note("people_changed", _sentence(command)))
        data = msgspec.json.decode(done.reply)
        if isinstance(data.get("user"), dict):
            user = data["user"]
            self._state.put_quotas(user["name"], msgspec.convert(user["quotas"], Quotas))
        self._requests.reply(pending, data, effects)


def _sentence(command: ChangePeople) -> str:
    action = command.client_action
    assert action is not None
    target = action.audit.target if action.audit is not None else ""
    return f"{action.by or 'somebody'}: {action.what} {target}".rstrip()


def is_of_masters(request: ClientRequest) -> bool:
    """Whether it comes with the masters' own key, or without keys: the private socket."""
    return request.role == "" or (request.role == ADMIN and request.key == request.by == MASTERS)


def _role(text: str) -> str:
    if text not in ROLES:
        raise RefusedError(f"no role {text[:50]!r}; there are {', '.join(ROLES)}", code=BAD_REQUEST)
    return text


def _rights(values: list[Any]) -> tuple[str, ...]:
    for value in values:
        if value not in RIGHTS:
            raise RefusedError(
                f"no right {str(value)[:50]!r}; there are {', '.join(RIGHTS)}", code=BAD_REQUEST
            )
    return tuple(right for right in RIGHTS if right in values)


def _quotas(values: dict[str, Any]) -> Quotas:
    """Read quotas; a missing one is no limit."""
    for name, value in values.items():
        if name not in _QUOTAS:
            names = ", ".join(_QUOTAS)
            raise RefusedError(f"no quota {name[:50]!r}; there are {names}", code=BAD_REQUEST)
        if value is not None and (isinstance(value, bool) or not _is_limit(name, value)):
            raise RefusedError(f"quotas.{name} must be a number from 0 on", code=BAD_REQUEST)
    return Quotas(**values)


def _is_limit(name: str, value: object) -> bool:
    kinds = (int, float) if name == "most_rate" else (int,)
    return isinstance(value, kinds) and 0 <= value < 2**53
