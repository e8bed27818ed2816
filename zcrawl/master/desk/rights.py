"""What each role may ask for. `READS` is what changes nothing: all that a viewer may ask, and a
read-only console.

The one list of it. Called by the machine of every master, leader or not, before anything else is
done with a request; consoles go by it too. The role of a request is its key's, put there at the
border (`mesh.border`); an empty one is a request without keys, which may do all. Pure.
"""

from __future__ import annotations

from typing import Final

from zcrawl.errors import RefusedError
from zcrawl.master.desk.replies import Pending, refuse, reply
from zcrawl.master.events import ClientAsked, Effects
from zcrawl.mesh.messages import Request
from zcrawl.mesh.roles import Role
from zcrawl.model.reasons.cluster import FORBIDDEN

ROLE: Final = "role"  # asks which role the key has
READS: Final = frozenset(
    (
        ROLE,
        "masters",
        "jobs",
        "job",
        "nodes",
        "overview",
        "hosts",
        "queues",
        "lanes",
        "errors",
        "events",
        "history",
        "in_flight",
        "node",
        "depths",
        "items",
        "failed",
    )
)


OF_WORKERS: Final = frozenset((ROLE, "masters"))  # where there is no Consul a worker asks for them


def may_ask(role: str, op: str) -> bool:
    """A role that this master does not know may ask nothing: a newer one may have sent it."""
    match role:
        case "" | Role.OPERATOR:
            return True
        case Role.VIEWER:
            return op in READS
        case Role.WORKER:
            return op in OF_WORKERS
        case _:
            return False


def may_act(role: str) -> bool:
    """Whether there is something that a console with this role may change."""
    return role in ("", Role.OPERATOR)


def _forbidden(request: Request) -> str:
    """Whose key it is, and what it lacks."""
    what = request.args.get("action") if request.op == "act" else request.op
    kind = "may only watch" if request.role == Role.VIEWER else f"is one of a {request.role}"
    lacks = "viewer or operator" if request.op in READS else "operator"
    return (
        f"{str(what)[:50]}: the key of {request.key or 'this client'} {kind}; this needs the role "
        f"{lacks} in the masters' list"
    )


def settle(asked: ClientAsked) -> Effects | None:
    """The answer, if it is about rights alone; None for what has to be done."""
    request = asked.request
    effects: Effects = []
    if not may_ask(request.role, request.op):
        error = RefusedError(_forbidden(request), code=FORBIDDEN)
        refuse(Pending(asked.client, request), error, effects)
    elif request.op == ROLE:
        reply(Pending(asked.client, request), {"role": request.role}, effects)
    else:
        return None
    return effects
