"""What may be asked without changing anything: all that a watcher may do, and a read-only console.

The one list of it. Called by the machine of every master, leader or not, before anything else is
done with a request; consoles go by it too. Pure.
"""

from __future__ import annotations

from typing import Final

from zcrawl.errors import RefusedError
from zcrawl.master.events import ClientAsked, Effects
from zcrawl.master.replies import Pending, refuse, reply
from zcrawl.mesh.messages import Request

ROLE: Final = "role"  # asks which one has
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


def _forbidden(request: Request) -> str:
    """Whose key it is, and what it lacks."""
    what = request.args.get("action") if request.op == "act" else request.op
    return (
        f"{str(what)[:50]}: the key of {request.key or 'this client'} may only watch; to change "
        "something it needs a line without `watch` in the masters' list"
    )


def settle(asked: ClientAsked) -> Effects | None:
    """The answer, if it is about rights alone; None for what has to be done."""
    request = asked.request
    effects: Effects = []
    if request.op == ROLE:
        reply(Pending(asked.client, request), {"role": request.role}, effects)
    elif request.role and request.op not in READS:
        error = RefusedError(_forbidden(request), code="forbidden")
        refuse(Pending(asked.client, request), error, effects)
    else:
        return None
    return effects
