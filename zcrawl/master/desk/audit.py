"""The audit as the leader writes it: what an action's line says, and lines without a transaction.

An action that is one transaction stores its line in it (`ClientAction.audit`). All others come
here: what was refused, what needs no transaction (reload, step-down), tokens that did not count.
They are written in batches. Each caller has a few lines a second, and what is left out is counted
in its next line, so nobody can fill the database by being refused. Pure; a part of the desk.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zcrawl.errors import ZcrawlError
from zcrawl.master.desk.operation import Repeat
from zcrawl.master.desk.operations import find
from zcrawl.master.events import Execute, MasterEffects
from zcrawl.master.leader_state import LeaderState
from zcrawl.mesh.messages import ClientRequest
from zcrawl.model.people import AuditEntry
from zcrawl.store.commands import WriteAudit

LINES_PER_S: Final = 5  # of one caller
MOST_CALLERS: Final = 1_000  # remembered at a time
MOST_WAITING: Final = 2_000  # lines, while the database is away
BATCH: Final = 200
SOCKET: Final = "socket"  # how a client without keys proved who it is
_MOST_TEXT: Final = 200  # characters of an argument
_IN_TRANSACTION: Final = (Repeat.ANSWER_STORED, Repeat.OWN_COMMAND)


def entry_of(request: ClientRequest, me: str, utc: float, detail: str = "") -> AuditEntry:
    """Return the line of a request that is carried out."""
    return AuditEntry(
        at=utc,
        by=request.by,
        role=request.role,
        through=request.through or ("" if request.role else SOCKET),
        address=request.address,
        via=request.via or me,
        op=_name(request),
        target=target_of(request.args),
        detail=detail,
    )


def _name(request: ClientRequest) -> str:
    """The operation; of `act` also the action: `act pause`."""
    return f"act {_text(request.args.get('action'))}" if request.op == "act" else request.op


def _text(value: Any) -> str:
    """Return a short text; empty for what is none: nobody has checked the arguments yet."""
    return str(value)[:_MOST_TEXT] if isinstance(value, str | int | float) else ""


def target_of(args: dict[str, Any]) -> str:
    """Return what a request is about: a job, a run, a node, a user or a token."""
    spec = args.get("spec")
    named = spec.get("name") if isinstance(spec, dict) else None
    for value in (args.get("ref"), named, args.get("name"), args.get("prefix"), args.get("user")):
        if _text(value):
            return _text(value)
    for key in ("run", "host", "node", "epoch", "file"):
        if args.get(key) and _text(args[key]):
            return f"{key} {_text(args[key])}"
    return ""


def is_audited(request: ClientRequest) -> bool:
    """A dry run only looks."""
    operation = find(request.op)
    return operation is not None and operation.audited and not request.args.get("dry_run")


class _Caller:
    """The lines of one caller in the current second."""

    def __init__(self, began: float) -> None:
        self.began, self.lines = began, 0
        self.left_out: AuditEntry | None = None  # the latest of them
        self.count = 0


class AuditLog:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._now = 0.0
        self._waiting: list[AuditEntry] = []
        self._callers: dict[str, _Caller] = {}
        self._batches = 0
        self._under_way = False

    def at(self, now: float) -> None:
        self._now = now

    # ------------------------------------------------------------ what comes

    def refused(self, request: ClientRequest, error: ZcrawlError, detail: str = "") -> None:
        """Note a refusal of an audited operation."""
        if is_audited(request):
            self.note(request, error.code, detail)

    def replied(self, request: ClientRequest) -> None:
        """Note an audited operation that is done, if no transaction has stored it."""
        operation = find(request.op)
        in_transaction = operation is not None and operation.repeat in _IN_TRANSACTION
        if is_audited(request) and not in_transaction:
            self.note(request, "ok")

    def note(self, request: ClientRequest, result: str, detail: str = "") -> None:
        entry = entry_of(request, self._state.me, self._state.utc(self._now), detail)
        self._add(request, msgspec.structs.replace(entry, result=result))

    def _add(self, request: ClientRequest, entry: AuditEntry) -> None:
        name = request.address or request.key or request.by
        caller = self._callers.get(name)
        if caller is None:
            if len(self._callers) >= MOST_CALLERS:
                self._end(next(iter(self._callers)))
            caller = self._callers[name] = _Caller(self._now)
        if self._now - caller.began >= 1.0:
            self._end(name)
            caller = self._callers[name] = _Caller(self._now)
        if caller.lines < LINES_PER_S and len(self._waiting) < MOST_WAITING:
            caller.lines += 1
            self._waiting.append(entry)
        else:
            caller.left_out, caller.count = entry, caller.count + 1

    def _end(self, name: str) -> None:
        """Forget a caller's second; what was left out becomes one line."""
        caller = self._callers.pop(name)
        if caller.left_out is not None:
            detail = f"and {caller.count} lines like this were left out"
            self._waiting.append(msgspec.structs.replace(caller.left_out, detail=detail))

    # ------------------------------------------------------------ what goes

    def tick(self, now: float, effects: MasterEffects) -> None:
        self._now = now
        for name in [key for key, caller in self._callers.items() if now - caller.began >= 1.0]:
            self._end(name)
        if not self._under_way:
            self.flush(effects)

    def flush(self, effects: MasterEffects) -> None:
        """Write what waits now."""
        rows, self._waiting = tuple(self._waiting[:BATCH]), self._waiting[BATCH:]
        if rows:
            self._under_way = True
            self._batches += 1
            state = self._state
            utc = state.utc(self._now)
            batch = f"audit-{state.me}-{state.epoch}-{self._batches}"
            effects.append(Execute(WriteAudit(state.epoch, batch, rows, utc)))

    def written(self) -> None:
        self._under_way = False
