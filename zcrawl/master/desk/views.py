"""What consoles ask for beyond the snapshot: hosts, queues, errors, events, a node.

A part of the desk. Everything here is read from the leader's memory, page by page. An answer is
kept for a moment, longer the more rows stand behind it, and given to all who ask for the same: the
cost is that of the cluster's size, not of the number of consoles.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from zcrawl.dispatch.balance import HostMove
from zcrawl.dispatch.balancer import Balancer
from zcrawl.dispatch.host_state import HostState, sort_by_score
from zcrawl.dispatch.in_flight import NONE, InFlight, by_host, grouped
from zcrawl.dispatch.leases import Lease
from zcrawl.dispatch.limits import limits
from zcrawl.dispatch.why import host_queue, queued, task_why, why
from zcrawl.frontier.frontier import Lane
from zcrawl.master.desk.actions import NodeUnknown
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.paging import page, read_want
from zcrawl.master.desk.queues import queues
from zcrawl.master.failure_groups import FailureGroup, GroupKey
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.snapshot import flights, worker_view
from zcrawl.model.process_name import worker_of
from zcrawl.model.rows import NO_HOST
from zcrawl.ownership import fingerprint
from zcrawl.standalone.shares import host_resource, typed_resource
from zcrawl.telemetry.log_lines import read_filter

KEPT_S: Final = 1.0
ROWS_PER_KEPT_S: Final = 2_500  # an answer with twice as many rows behind it is kept twice as long
ANSWERS_KEPT: Final = 50
TASKS: Final = "tasks"  # shown as the host of tasks that have none

View = Callable[[Arguments, float], dict[str, Any]]


class DeskViews:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._kept: dict[bytes, tuple[float, dict[str, Any]]] = {}  # asked → (until, answer)

    def answer(self, op: str, view: View, args: Arguments, now: float) -> dict[str, Any]:
        """Return the answer that is kept, or the view's."""
        key = msgspec.msgpack.encode((op, sorted(args.items())))
        until, answer = self._kept.get(key, (0.0, {}))
        if now < until:
            return answer
        answer = view(args, now)
        for old in [kept_key for kept_key, (until, _) in self._kept.items() if until <= now]:
            del self._kept[old]
        if len(self._kept) < ANSWERS_KEPT:
            behind = max(len(self._state.planner.hosts), len(self._state.frontier.lanes))
            kept_s = KEPT_S * max(1.0, behind * (1 + len(self._kept)) / ROWS_PER_KEPT_S)
            self._kept[key] = (now + kept_s, answer)
        return answer

    # ------------------------------------------------------------ why it is not faster

    def overview(self, args: Arguments, now: float) -> dict[str, Any]:
        state = self._state
        speed_limits = limits(state.planner, grouped(flights(state), by_host), now)
        return {
            "limits": msgspec.to_builtins(speed_limits),
            "commit_queue": len(state.receiver.queue),
            "window_rows": state.frontier.rows,
            "hosts": len(state.planner.hosts),
        }

    def balance(self, args: Arguments, now: float) -> dict[str, Any]:
        """How busy the workers are, and which hosts would move."""
        balancer = self._state.planner.balancer
        return balance_view(balancer, balancer.moves(now), now)

    # ------------------------------------------------------------ hosts

    def hosts(self, args: Arguments, now: float) -> dict[str, Any]:
        state, run = self._state, args.get("run")
        hosts = state.planner.hosts.values()
        numbers = grouped(flights(state), by_host)
        return page(
            hosts if run is None else [host for host in hosts if run in host.runs],
            read_want(args),
            text=lambda host: f"{host.origin} {_owners(host)}",
            keys={
                "queued": lambda host: queued(host, state.frontier),
                "host": lambda host: host.origin,
                "in_flight": lambda host: numbers.get(host.id, NONE).total,
                "fetching": lambda host: numbers.get(host.id, NONE).fetching,
                "owner": _owners,
                "interval": lambda host: host.demand.interval_s,
                "next": lambda host: host.pace.next_at,
            },
            view=lambda host: self._host_view(host, numbers.get(host.id, NONE), now),
        )

    def _host_view(self, host: HostState, numbers: InFlight, now: float) -> dict[str, Any]:
        state = self._state
        queue = host_queue(host, state.frontier)
        reason = why(host, queue, state.planner, now)
        return {
            "id": host.id,
            "host": host.origin,
            "queued": queue.total,
            "ready": queue.ready,
            "delayed": queue.delayed,
            "in_flight": numbers.total,
            **numbers._asdict(),
            "owner": _owners(host),
            "interval_s": host.interval_s,
            "opens": host.manner.opens if host.manner is not None else 0,
            "failures": host.manner.failures if host.manner is not None else 0,
            "robots": host.robots is not None,
            "concurrency": host.demand.concurrency,
            "crawl_delay_s": host.crawl_delay_s,
            "next_in_s": round(max(0.0, host.pace.ready_at() - now), 2),
            "runs": list(host.runs),
            "why": reason.code,
            "reason": reason.text,
        }

    def _tasks_view(self, run: int, numbers: InFlight, now: float) -> dict[str, Any]:
        """The tasks of a run without a host, in the form of a host's row."""
        state = self._state
        reason, active = task_why(run, state.planner, now), state.runs.get(run)
        workers = {
            lease.worker.id for lease in state.leases.of_run(run) if lease.row.host == NO_HOST
        }
        return {
            "id": NO_HOST,
            "host": TASKS,
            "in_flight": numbers.total,
            **numbers._asdict(),
            "owner": ", ".join(sorted(workers)),
            "interval_s": 0.0,
            "opens": 0,
            "failures": 0,
            "robots": False,
            "concurrency": 0 if active is None else active.spec.concurrency,
            "crawl_delay_s": 0.0,
            "next_in_s": 0.0,
            "runs": [run],
            "why": reason.code,
            "reason": reason.text,
        }

    # ------------------------------------------------------------ queues

    def queues(self, args: Arguments, now: float) -> dict[str, Any]:
        return queues(self._state, args)

    def lanes(self, args: Arguments, now: float) -> dict[str, Any]:
        """The queues of one run, host by host."""
        state, run = self._state, args.integer("run")
        lanes = [lane for (of, _), lane in state.frontier.lanes.items() if of == run]
        numbers = flights(state)

        def total(lane: Lane) -> int:
            return lane.rows + lane.beyond

        def name(lane: Lane) -> str:
            host = state.planner.hosts.get(lane.host)
            return TASKS if host is None else host.origin

        def view(lane: Lane) -> dict[str, Any]:
            host = state.planner.hosts.get(lane.host)
            flight = numbers.get((run, lane.host), NONE)
            if host is None:
                whole = self._tasks_view(run, flight, now)
            else:
                whole = self._host_view(host, flight, now)
            return {
                **whole,
                "queued": total(lane),
                "ready": len(lane.ready),
                "delayed": len(lane.delayed),
                "beyond": lane.beyond,
                "kinds": _kinds(lane),
            }

        return page(
            lanes,
            read_want({key: value for key, value in args.items() if key != "run"}),
            text=name,
            keys={"queued": total, "host": name},
            view=view,
        )

    # ------------------------------------------------------------ errors and events

    def errors(self, args: Arguments, now: float) -> dict[str, Any]:
        state, run = self._state, args.get("run")
        failures = state.watch.failures
        groups = [(key, group) for key, group in failures.groups.items() if run in (None, key[0])]

        def name(entry: tuple[GroupKey, FailureGroup]) -> str:
            return "".join(self._job_of(entry[0][0])[:1]) or entry[1].name

        def origin(entry: tuple[GroupKey, FailureGroup]) -> str:
            host = state.planner.hosts.get(entry[0][1])
            return host.origin if host is not None else entry[1].origin

        def view(entry: tuple[GroupKey, FailureGroup]) -> dict[str, Any]:
            key, group = entry
            active = state.runs.active.get(key[0])
            row = active.row if active is not None else state.ended.get(key[0])
            return {
                "run": key[0],
                "job": row.job if row is not None else group.job,
                "name": name(entry),
                "host_id": key[1],
                "host": origin(entry),
                "reason": key[2],
                "status": group.status,
                "count": group.count,
                "url": group.url,
                "detail": group.detail,
                "at": group.at,
            }

        answer = page(
            groups,
            read_want(args),
            text=lambda entry: f"{entry[0][2]} {origin(entry)} {name(entry)} {entry[1].url}",
            keys={
                "count": lambda entry: entry[1].count,
                "at": lambda entry: entry[1].at,
                "reason": lambda entry: entry[0][2],
                "host": origin,
                "name": name,
            },
            view=view,
        )
        return {**answer, "complete": failures.complete}

    def events(self, args: Arguments, now: float) -> dict[str, Any]:
        """The leader's own and what all other nodes logged, by the filter of logs."""
        want, watch = read_want(args), self._state.watch
        lines: Iterable[dict[str, Any]] = itertools.chain(watch.events, watch.lines)
        if want.filter:
            log_filter = read_filter(want.filter)
            lines = (
                line
                for line in lines
                if log_filter.fits(line, self._job_of(line["run"])) is not want.inverse
            )
        return page(
            lines,
            msgspec.structs.replace(want, filter=""),
            text=lambda line: "",
            keys={"n": lambda line: line["n"]},
            view=lambda line: line,
        )

    def _job_of(self, run: int) -> tuple[str, ...]:
        """Its name and its number; nothing if it is not known any more."""
        active = self._state.runs.active.get(run)
        row = active.row if active is not None else self._state.ended.get(run)
        return (row.name, str(row.job)) if row is not None else ()

    # ------------------------------------------------------------ one thing, closely

    def in_flight(self, args: Arguments, now: float) -> dict[str, Any]:
        """Open requests, of a worker, a run or a host, or of all."""
        state = self._state
        filters = {name: args.get(name) for name in ("worker", "run", "host")}
        leases = [
            lease
            for lease in state.leases.by_seq.values()
            if filters["worker"] in (None, lease.worker.id)
            and filters["run"] in (None, lease.row.run)
            and filters["host"] in (None, lease.row.host)
        ]

        def view(lease: Lease) -> dict[str, Any]:
            return {
                "seq": lease.row.seq,
                "url": lease.row.url,
                "run": lease.row.run,
                "worker": lease.worker.id,
                "attempt": lease.row.attempts + 1,
                "since_s": round(now - lease.sent_at, 2),
                "state": _lease_state(lease),
            }

        return page(
            leases,
            read_want({key: value for key, value in args.items() if key not in filters}),
            text=lambda lease: lease.row.url,
            keys={"since": lambda lease: lease.sent_at, "url": lambda lease: lease.row.url},
            view=view,
        )

    def node(self, args: Arguments, now: float) -> dict[str, Any]:
        info = self._state.roster.workers.get(args.text("node"))
        if info is None:
            raise NodeUnknown(args.text("node"), self._state)
        hosts = [host for host in self._state.planner.hosts.values() if info.name in host.parts]
        return {
            **msgspec.to_builtins(worker_view(info, now)),
            "credit": info.credit,
            "hosts": len(hosts),
        }

    def owner(self, args: Arguments, now: float) -> dict[str, Any]:
        """Who owns a resource: the standalone node, or the worker that has or would get a host."""
        state, text = self._state, args.text("resource")
        if (shares := state.shares) is not None:
            resource = typed_resource(text, by_url=shares.by_url)
            nodes = list(shares.assigner.live_nodes)
            owner, held = shares.assigner.owner(resource), True
        else:
            resource = typed_resource(text)
            usable = [info for info in state.roster.workers.values() if info.usable]
            nodes = sorted(info.id for info in usable)
            origins = [
                host
                for host in state.planner.hosts.values()
                if host_resource(f"{host.origin}/") == resource
            ]
            owners = next((owners for host in origins if (owners := _owners(host))), "")
            held = bool(owners)
            origin = origins[0].origin if origins else f"https://{resource}"
            ranked = sort_by_score(origin, [info.name for info in usable])
            owner = owners or (worker_of(ranked[0]) if ranked else "")
        return {
            "resource": resource,
            "owner": owner,
            "held": held,
            "nodes": nodes,
            "fingerprint": fingerprint(nodes),
        }

    def depths(self, args: Arguments, now: float) -> dict[str, Any]:
        counts: Mapping[int, int] = self._state.watch.depths.get(args.integer("run"), {})
        return {"depths": {str(depth): n for depth, n in sorted(counts.items())}}


def balance_view(balancer: Balancer, moves: Sequence[HostMove], now: float) -> dict[str, Any]:
    """Return the workers with what they can and what they do, and these moves."""
    return {
        "workers": [
            {
                "id": worker_of(worker.name),
                "capacity": round(worker.slots, 1),
                "load": round(use, 3),
                "why": worker.why,
            }
            for worker, use in balancer.worker_use(now)
        ],
        "moves": [
            {
                "host": move.origin,
                "from": worker_of(move.source),
                "to": worker_of(move.target),
                "why": move.why,
            }
            for move in moves
        ],
    }


def _lease_state(lease: Lease) -> str:
    """Return which of the three numbers of `dispatch.in_flight` counts it."""
    if lease.received:
        return "uncommitted"
    return "waiting" if lease.started_at is None else "fetching"


def _owners(host: HostState) -> str:
    return ", ".join(worker_of(name) for name, part in host.parts.items() if part.granted > 0)


def _kinds(lane: Lane) -> dict[str, int]:
    """How many of the lane's rows in memory go to which extraction block."""
    delayed = (row for row, _ in lane.delayed.values())
    rows = itertools.chain(lane.ready.values(), delayed)
    return dict(Counter(row.block for row in rows if row.block).most_common())
