"""What operators change while a crawl goes on.

Requests whose effect outlives the transaction that does it: drain, undrain, reassign, retry.

A part of the desk. Each is stored by the fenced leader before anything follows from it, so it is
refused only if it is not done; the next leader loads what is stored and goes on from there:

- A drain holds for a worker's id, whatever process has it, until `undrain`, or until a person
  starts its node anew (`SetDrain`; `membership` meets the workers).
- A wish for a host holds until the next one for it (`SetWish`).
- A retry has its place and its count stored with each of its parts (`RetryDead`). Whoever leads
  goes on, also if its client does not ask again; the answer counts all parts.

Of the others `pause`, `resume`, `cancel`, `tune` and `delete` are one transaction and its answer.

A new leader knows no worker before it has said HELLO. So nothing is refused for want of a node
until `LeaderState.settled_at`; a worker that the database knows can be drained at once. Pure.

Plain functions from arguments to what has to be done. The pace and limits of a run are stored with
its spec, so they survive a failover.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.reads import wanted_run
from zcrawl.master.events import Execute, MasterEffects
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.reloads import belongs_to
from zcrawl.model.reasons.cluster import (
    BAD_REQUEST,
    NO_SUCH_HOST,
    NO_SUCH_NODE,
    SPREAD,
    UNSEEN_RUNS,
)
from zcrawl.model.rows import RunRow
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import NodeState
from zcrawl.store.commands import (
    ClientAction,
    JobChanged,
    Loaded,
    RetryDead,
    RetryRow,
    SetDrain,
    SetWish,
)
from zcrawl.store.queries import JobRow
from zcrawl.submit.read import to_json
from zcrawl.submit.validate import spec_from_dict
from zcrawl.telemetry.views import chosen_run

# What can change while a run goes on: argument → its section in the spec; "": the top.
TUNABLE: Final = {
    "rate": "politeness",
    "concurrency": "politeness",
    "burst": "politeness",
    "max_depth": "scope",
    "max_pages": "scope",
    "max_pages_per_host": "scope",
    "tags": "",
}
LIFTED: Final = ("max_pages", "max_pages_per_host")  # 0 stands for no limit


def tuned_spec(job: JobRow, args: Arguments) -> tuple[RunRow, bytes]:
    """The run that is meant and its spec with other values; validated like a new one."""
    changes = {name: args[name] for name in TUNABLE if args.get(name) is not None}
    if not changes:
        names = ", ".join(TUNABLE)
        raise RefusedError(f"nothing to change: give one of {names}", code=BAD_REQUEST)
    run = chosen_run(job, wanted_run(args))
    plain = msgspec.json.decode(run.spec)
    for name, value in changes.items():
        section = plain.setdefault(TUNABLE[name], {}) if TUNABLE[name] else plain
        if name == "max_pages_per_host" and section.get(name) is None:
            raise RefusedError(
                "max_pages_per_host can change only in a run that began with it: its pages of each "
                "host were not counted",
                code=BAD_REQUEST,
            )
        section[name] = None if value == 0 and name in LIFTED else value
    spec: JobSpec = spec_from_dict(plain, "change")
    return run, to_json(spec)


def seen_runs(args: Arguments) -> tuple[int, ...] | None:
    """Return the runs that the client saw when the deletion of a job was confirmed."""
    if args.get("runs") is None:
        return None
    if args.text("action") != "delete" or args.get("run") is not None:
        raise RefusedError("runs goes with delete, and without run", code=BAD_REQUEST)
    seen = args.sequence("runs")
    if not all(isinstance(number, int) for number in seen):
        raise RefusedError("act: runs must be numbers of runs", code=BAD_REQUEST)
    return tuple(seen)


def unseen_runs(done: JobChanged) -> RefusedError:
    """Return the refusal of a deletion of which not all runs were seen."""
    numbers = ", ".join(str(row.id) for row in done.runs)
    name = done.row.name if done.row is not None else ""
    return RefusedError(
        f"job {name!r} also has run {numbers}, which was not shown when its deletion was "
        "confirmed; nothing was deleted. Look at the job, and delete it again.",
        code=UNSEEN_RUNS,
    )


def given_params(args: Arguments) -> dict[str, str]:
    """Return the values that a client gives to the parameters of a job."""
    if args.get("params") is None:
        return {}
    params = args.table("params")
    for key, value in params.items():
        if not isinstance(value, str):
            raise RefusedError(f"params.{key} must be a text", code=BAD_REQUEST)
    return params


def step_down(state: LeaderState, args: Arguments) -> dict[str, Any]:
    """Which epoch ends, and which one is now. It is named, so that it can be asked again: the next
    leader keeps its own."""
    if args.get("epoch") is None:
        raise RefusedError(
            "name the epoch that is to end (`zcrawl nodes` shows it)", code=BAD_REQUEST
        )
    return {"leader": state.me, "epoch": args.integer("epoch"), "now": state.epoch}


RELOAD_ID_MOST: Final = 64  # characters


def begin_reload(state: LeaderState, args: Arguments, now: float) -> str:
    """Begin a reload of all nodes, or of those with a name; return its id. NodeUnknown: nobody has
    that name."""
    request, node = args.text("reload"), args.text("node")
    if not 0 < len(request) <= RELOAD_ID_MOST:
        raise RefusedError(
            f"reload: the id must have 1 to {RELOAD_ID_MOST} characters", code=BAD_REQUEST
        )
    masters = {entry.id for entry in state.catalogue.masters if entry.healthy} | {state.me}
    workers = {info.id for info in state.roster.workers.values() if info.present}
    if node:
        masters &= {node}
        workers = {worker for worker in workers if belongs_to(worker, node)}
        if not masters and not workers:
            raise NodeUnknown(node, state)
    state.reloads.begin(request, sorted(masters), sorted(workers), now)
    return request


RETRY_ROWS: Final = 1_000  # in one transaction


class NodeUnknown(RefusedError):
    """No worker of that name is here. It may come: not told before everybody has said HELLO."""

    def __init__(self, node: str, state: LeaderState, why: str = "") -> None:
        workers = ", ".join(sorted(state.roster.workers)) or "none"
        super().__init__(f"no worker {node!r}{why}; known: {workers}", code=NO_SUCH_NODE)


class Intents:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._retrying: set[str] = set()  # requests whose first part is stored
        self._inherited: list[RetryRow] = []

    # ------------------------------------------------------------ drains

    def drain(self, args: Arguments, on: bool, client_action: ClientAction) -> SetDrain:
        """Raise NodeUnknown for a worker that neither this leader nor the database knows."""
        state, node = self._state, args.text("node")
        info = state.roster.workers.get(node)
        if info is None and not self._is_stored(node):
            raise NodeUnknown(node, state)
        node_state = NodeState.OFFLINE if info is None else info.state
        if info is not None and info.present:
            works = NodeState.BUSY if info.leases else NodeState.IDLE
            drains = NodeState.DRAINING if info.draining or info.leases else NodeState.DRAINED
            node_state = drains if on or info.draining else works
        # Of one that is not here: the life that comes next. A HELLO that was refused counts, too:
        # its node was started anew, and its drain must not end with that start.
        life = state.lives.get(node, 0) if info is not None and info.present else 0
        return SetDrain(
            state.epoch, node, on, life, client_action.at, str(node_state), client_action
        )

    def _is_stored(self, node: str) -> bool:
        streams = self._state.receiver.streams
        return node in self._state.drains or any(worker == node for worker, _ in streams)

    # ------------------------------------------------------------ wishes

    def reassign(self, args: Arguments, client_action: ClientAction) -> SetWish:
        """A host goes to the named worker as soon as the one that has it lets go."""
        state, host_ref, node = self._state, args.text("host"), args.text("node")
        hosts = (
            candidate
            for candidate in state.planner.hosts.values()
            if host_ref in (candidate.origin, str(candidate.id))
        )
        host = next(hosts, None)
        if host is None:
            raise RefusedError(f"no host {host_ref!r} is being crawled", code=NO_SUCH_HOST)
        worker = state.roster.workers.get(node)
        if worker is None or not worker.usable:
            raise NodeUnknown(node, state, " that could take it")
        if host.demand.spread:
            raise RefusedError(
                f"{host.origin} is shared by several workers (spread): nobody owns it",
                code=SPREAD,
            )
        clan = host.clan.hosts if host.clan is not None else {}
        others = tuple(id for id in clan if id in state.wishes and id != host.id)
        reply = msgspec.json.encode({"host": host.origin, "node": worker.id})
        return SetWish(state.epoch, host.id, worker.id, reply, client_action, others)

    # ------------------------------------------------------------ retries

    def retry(self, run: int, args: Arguments, client_action: ClientAction) -> RetryDead | None:
        """None: it is under way, begun by this leader or by another; its end is its answer."""
        if client_action.request in self._retrying:
            return None
        reason, host = args.text("reason"), args.integer("host")
        return RetryDead(
            self._state.epoch, run, RETRY_ROWS, client_action.at, client_action, reason, host
        )

    def retried(self, command: RetryDead, more: bool, now: float, effects: MasterEffects) -> None:
        """A part is stored; the next one follows from where the retry stands."""
        if not more:
            self._retrying.discard(command.client_action.request)
            return
        self._retrying.add(command.client_action.request)
        utc = self._state.utc(now)
        effects.append(Execute(msgspec.structs.replace(command, now=utc)))

    def is_begun(self, command: RetryDead) -> bool:
        """Whether a failure of this part must not end the retry: an earlier one is stored."""
        return command.client_action.request in self._retrying

    # ------------------------------------------------------------ takeover

    def inherit(self, loaded: Loaded) -> None:
        self._inherited = list(loaded.retries)
        self._retrying.update(row.client_action.request for row in loaded.retries)

    def tick(self, now: float, effects: MasterEffects) -> None:
        """Go on with what the last leader had begun."""
        rows, self._inherited = self._inherited, []
        for row in rows:
            client_action = msgspec.structs.replace(row.client_action, changed=0)
            epoch, utc = self._state.epoch, self._state.utc(now)
            only = row.reason, row.host
            effects.append(
                Execute(RetryDead(epoch, row.run, RETRY_ROWS, utc, client_action, *only))
            )
