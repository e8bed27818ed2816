"""No request of a client is carried out twice, however often and by whatever way it comes.

A client asks again, with the same id, until it is answered; followers forward; a master that slept
forwards late. So the answer to every action is stored under the request's id, and whoever leads
looks there before it does anything. Why that is enough:

- An action on the database and its answer are one transaction, fenced by the epoch (G4). Of two
  leaders that both hold the request, the older one either commits before the takeover of the newer,
  which then finds the answer, or not at all.
- Within one leader a request that is under way is known (`OpenRequests`), and forgotten only when
  its answer is stored.
- What outlives a transaction (drain, reassign, retry) is stored before anything follows from it,
  and the next leader goes on with it (`actions`).
- `step_down` names the epoch that is to end. It needs no database, which may be the very reason to
  ask for it, and the next leader keeps its own.
- `prune` only begins what the leader does anyway from time to time. Each run is archived under the
  same names and then deleted by a request of its own, whose id follows from the run.
- Submissions have the same in their own commands, because their answer brings rows with it.

A refusal changes nothing and is not kept: a repeat is judged anew. Answers are kept for a week
(`pruning`). Which of these ways an operation takes is declared (`Repeat`). Pure; used by the
desk.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zcrawl.master.desk.audit import entry_of, is_audited
from zcrawl.master.desk.replies import Pending
from zcrawl.master.leader_state import LeaderState
from zcrawl.mesh.messages import ClientRequest
from zcrawl.store.commands import ClientAction

_TOLD: Final = ("ref", "action", "run", "node", "host", "mode", "epoch", "secret")
_PACE: Final = ("rate", "concurrency", "burst")


def client_action(
    state: LeaderState, pending: Pending, now: float, detail: str = ""
) -> ClientAction:
    """Return what is stored of a client's action, beside its effect. `detail` is for the audit."""
    request, utc = pending.request, state.utc(now)
    via = request.via or state.me
    audit = None
    if is_audited(request):
        audit = entry_of(request, state.me, utc, detail or what(request))
        if pending.job is not None:
            audit = msgspec.structs.replace(audit, job=pending.job.id)
    return ClientAction(request.id, what(request), request.by, via, utc, pending.count, audit)


def what(request: ClientRequest) -> str:
    """The action in a few words: `pause`, `tune rate 2.5`, `retry reason dns`."""
    args = request.args
    if request.op == "act":
        words = [str(args.get("action", ""))]
        names: tuple[str, ...] = ("reason", "host")
    else:
        words, names = [request.op], (*_PACE, "host", "node", "secret")
    words += [f"{name} {args[name]}" for name in names if args.get(name)]
    return " ".join(words)[:100]


_DONE: Final = {
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
    "delete": "deleted",
    "retry": "retried failed URLs of",
    "tune": "changed the rate limit of",
    "submit": "submitted",
    "change_job": "changed the state of",
}


def deed(request: ClientRequest, name: str) -> str:
    """A sentence about an action that was done: `root@vm paused rust`."""
    action = str(request.args.get("action", "")) if request.op == "act" else request.op
    return f"{request.by or 'somebody'} {_DONE.get(action, action)} {name}"


def audit_line(request: ClientRequest, me: str) -> str:
    who = f"{request.by or 'unknown'} via {request.via or me}"
    return f"{request.op} by {who}: {_brief(request.args)}"


def _brief(args: dict[str, Any]) -> str:
    """What an action was about, without what may be long or secret."""
    spec = args.get("spec")
    name = spec.get("name", "") if isinstance(spec, dict) else ""
    details = {"name": name} | {key: args.get(key) for key in (*_TOLD, *_PACE)}
    return ", ".join(f"{key} {str(value)[:100]}" for key, value in details.items() if value)
