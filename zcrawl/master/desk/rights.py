"""What each role may ask for, as the operations declare it.

`READS` is what changes nothing: all that a viewer may ask, and a read-only console.

Called by the machine of every master, leader or not, before anything else is done with a request;
consoles go by it too. The role of a request is its key's, put there at the border (`mesh.border`);
an empty one is a request without keys, which may do all. Pure.
"""

from __future__ import annotations

from typing import Final

from zcrawl.errors import RefusedError
from zcrawl.master.desk.operation import OPERATIONS, Right
from zcrawl.master.desk.operations import ROLE, find
from zcrawl.master.desk.replies import Pending, refuse
from zcrawl.master.events import ClientAsked, MasterEffects
from zcrawl.mesh.messages import ClientRequest
from zcrawl.mesh.roles import KeyRole
from zcrawl.model.reasons.cluster import FORBIDDEN

__all__ = ["READS", "ROLE", "may_act", "may_ask", "refusal"]

READS: Final = frozenset(
    operation.name
    for operation in OPERATIONS.values()
    if not operation.changes and KeyRole.VIEWER in operation.right.value
)


def may_ask(role: str, op: str) -> bool:
    """A role that this master does not know may ask nothing: a newer one may have sent it."""
    operation = find(op)
    if role == "" or (operation is None and role in Right.OPERATOR.value):
        return True  # also what this master does not know: that has an error of its own
    return operation is not None and role in operation.right.value


def may_act(role: str) -> bool:
    """Whether there is something that a console with this role may change."""
    return role == "" or role in Right.SUBMITTER.value


def _forbidden(request: ClientRequest) -> str:
    """Whose key it is, and what it lacks."""
    what = request.args.get("action") if request.op == "act" else request.op
    kind = "may only watch" if request.role == KeyRole.VIEWER else f"is one of a {request.role}"
    operation = find(request.op)
    lacks = operation.right.name_in_list if operation is not None else "operator"
    who = f"the key of {request.key or 'this client'}"
    where = "in the masters' list"
    if request.key and request.by != request.key:  # a gateway speaks for a user
        who, where = f"the user {request.by}", "(`zcrawl user change`)"
    return f"{str(what)[:50]}: {who} {kind}; this needs the role {lacks} {where}"


def error_of(request: ClientRequest) -> RefusedError:
    """Return the error of a request that its role may not make."""
    return RefusedError(_forbidden(request), code=FORBIDDEN)


def refusal(event: ClientAsked) -> MasterEffects | None:
    """Return the refusal of a request that its role may not make; None: it may."""
    request = event.request
    if may_ask(request.role, request.op):
        return None
    effects: MasterEffects = []
    refuse(Pending(event.client, request), error_of(request), effects)
    return effects
