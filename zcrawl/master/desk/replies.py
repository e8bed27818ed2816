"""A client's request while it waits, and the two ways in which it ends. Shared by the leader's
desk and by followers.
"""

from __future__ import annotations

from traceback import format_exception
from typing import Any, Protocol

import msgspec

from zcrawl.errors import JobError, RefusedError, ZcrawlError
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.operations import find
from zcrawl.master.events import MasterEffects, Note, ReplyTo
from zcrawl.mesh.messages import ClientRequest, Reply
from zcrawl.model.log_event import REQUEST_REFUSED
from zcrawl.model.reasons.cluster import JOB_ARCHIVED, NAME_EXISTS, RUN_ENDED, RUN_REOPENED
from zcrawl.model.reasons.failure import INTERNAL_ERROR
from zcrawl.model.reasons.usage import BAD_DEPENDENCY
from zcrawl.model.rows import RunRow
from zcrawl.model.spec import ScheduleDefaults
from zcrawl.store.queries import JobRow, TallyRows


class Pending(msgspec.Struct):
    """A request that waits for the store, or for the leader."""

    client: bytes
    request: ClientRequest
    job: JobRow | None = None
    run: RunRow | None = None  # of a job's view: the one to show
    tallies: TallyRows | None = None  # of that run
    count: int = 0  # of what it changed
    schedule_defaults: ScheduleDefaults = ScheduleDefaults()  # of this master
    until: float = 0.0  # a follower's patience with the leader

    @property
    def args(self) -> Arguments:
        return Arguments(self.request)


def reply(pending: Pending, data: dict[str, Any], effects: MasterEffects) -> None:
    if pending.client:
        effects.append(ReplyTo(pending.client, Reply(pending.request.id, True, data)))


def refuse(pending: Pending, error: ZcrawlError, effects: MasterEffects) -> None:
    request = pending.request
    operation = find(request.op)
    # A console asks for its page every second. What it is refused it shows itself.
    if operation is None or operation.changes:
        who = request.by or "a client"
        effects.append(Note(REQUEST_REFUSED, f"{who} was refused {request.op}: {error.code}"))
    if pending.client:
        data = {"code": error.code, "message": str(error), "exit_code": error.exit_code}
        effects.append(ReplyTo(pending.client, Reply(pending.request.id, False, data)))


def refuse_error(pending: Pending, error: Exception, effects: MasterEffects) -> None:
    """Refuse what failed. An error without a name is a bug of this master, and not of its client:
    the log has its traceback. Only the planning of an answer fails like this, so memory is as it
    was, and a leader goes on leading."""
    if isinstance(error, ZcrawlError):
        refuse(pending, error, effects)
        return
    op = pending.request.op
    effects.append(Note(INTERNAL_ERROR, f"{op}: {''.join(format_exception(error)).rstrip()}"))
    text = f"{op}: an error of the master's own: {type(error).__name__}; its log has more"
    refuse(pending, RefusedError(text, code=INTERNAL_ERROR), effects)


class Witness(Protocol):
    """Who notes how requests end: the audit."""

    def refused(self, request: ClientRequest, error: ZcrawlError) -> None: ...

    def replied(self, request: ClientRequest) -> None: ...


class OpenRequests:
    """The requests that the desk has taken and not answered yet."""

    def __init__(self, witness: Witness) -> None:
        self._pending: dict[str, Pending] = {}
        self._witness = witness

    def __contains__(self, id: str) -> bool:
        return id in self._pending

    def get(self, id: str) -> Pending | None:
        return self._pending.get(id)

    def add(self, pending: Pending) -> None:
        self._pending[pending.request.id] = pending

    def withdraw(self, id: str) -> Pending | None:
        """Take out a request that somebody else answers."""
        return self._pending.pop(id, None)

    def reply(self, pending: Pending, data: dict[str, Any], effects: MasterEffects) -> None:
        self.withdraw(pending.request.id)
        self._witness.replied(pending.request)
        reply(pending, data, effects)

    def refuse(self, pending: Pending, error: ZcrawlError, effects: MasterEffects) -> None:
        self.withdraw(pending.request.id)
        self._witness.refused(pending.request, error)
        refuse(pending, error, effects)

    def fail(self, pending: Pending, error: Exception, effects: MasterEffects) -> None:
        """Refuse a request by the name of an error, or as a bug of this master."""
        self.withdraw(pending.request.id)
        if isinstance(error, ZcrawlError):
            self._witness.refused(pending.request, error)
        else:
            ours = RefusedError(type(error).__name__, code=INTERNAL_ERROR)
            self._witness.refused(pending.request, ours)
        refuse_error(pending, error, effects)

    def refuse_all(self, error: ZcrawlError, effects: MasterEffects) -> None:
        for pending in self._pending.values():
            refuse(pending, error, effects)
        self._pending.clear()


def refusal(code: str, job: int, run: int, why: str = "") -> ZcrawlError:
    """What a client is told when the store refused its command."""
    if code == BAD_DEPENDENCY:
        return JobError(why, code=code)
    messages = {
        NAME_EXISTS: f"a job of this name exists: {job}; --update replaces its spec and runs it,"
        " --again runs it as it is",
        JOB_ARCHIVED: f"job {job} is archived; `zcrawl archive {job} --undo` takes it back",
        RUN_REOPENED: "a retry has reopened the run, so it is not removed",
        RUN_ENDED: f"run {run} has ended" if run else "the run has ended",
    }
    if why:
        return RefusedError(why, code=code)
    return RefusedError(messages.get(code, code.replace("_", " ")), code=code)
