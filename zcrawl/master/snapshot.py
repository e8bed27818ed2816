"""Build one `ClusterSnapshot` per second from the leader's state, for consoles and `nodes`.

It only reads. Everything that shows the cluster uses this snapshot.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import msgspec

from zcrawl.dispatch.in_flight import NONE, InFlight, by_host, by_run, grouped, in_flight_by_lane
from zcrawl.dispatch.placement import lacked_by_all
from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.dispatch.runs import ActiveRun
from zcrawl.dispatch.why import host_queue, task_why, why
from zcrawl.frontier.frontier import LaneKey
from zcrawl.master.commits import Commits
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.unplaced import unplaced_runs
from zcrawl.model.reasons.waiting import AWAY, HOURS, IDLE, INHERITED, RETRY, TASK_LABEL_FULL
from zcrawl.model.reasons.waiting import NO_WORKER as NO_WORKER_CODE
from zcrawl.model.rows import RunRow
from zcrawl.model.snapshot import (
    ClusterSnapshot,
    LiveRunView,
    ProcessVitals,
    PublishedSnapshot,
    StoreHealth,
    WorkerView,
)
from zcrawl.model.states import RunState
from zcrawl.submit.tags import tags_of
from zcrawl.telemetry.views import LiveRun, run_view

MOST_WORKERS: Final = 1_000
MOST_RUNS: Final = 500
MOST_HOSTS: Final = 1_000  # hosts that are checked for why a run waits
NO_WORKER: Final = (
    "waiting: no worker takes work; start one (zcrawl worker), or undrain one (zcrawl nodes lists "
    "them)"
)
HELD_UP: Final = (HOURS, AWAY, INHERITED)  # of `dispatch.why`


def snapshot(state: LeaderState, commits: Commits, now: float) -> ClusterSnapshot:
    utc = state.utc(now)
    lanes = flights(state)
    in_flight = grouped(lanes, by_run)
    reasons = state.watch.reasons.current(state.planner, grouped(lanes, by_host), now)
    failing = commits.failing
    waits = waiting_runs(state, now)
    return ClusterSnapshot(
        leader=state.me,
        epoch=state.epoch,
        at=state.utc(now),
        masters=state.catalogue.masters_view(state.me, now),
        process=_process(state),
        workers=workers_view(state, now),
        runs=(
            *(
                msgspec.structs.replace(
                    _active_run(active, in_flight.get(run, NONE), utc, waits.get(run, "")),
                    why=reasons.get(run, ""),
                )
                for run, active in state.runs.active.items()
            ),
            *(
                _ended_run(row, utc)
                for row in state.ended.values()
                if row.state is not RunState.DELETED
            ),
        ),
        statuses={str(run): dict(tally.statuses) for run, tally in state.tallies.items()},
        failed={str(run): dict(tally.failed) for run, tally in state.tallies.items()},
        store=StoreHealth()
        if failing is None
        else StoreHealth("retrying", failing.code, now - commits.failing_since),
        mishaps=state.mishaps.view(now),
        next_retry_s=_next_retry_s(state, now),
        counters=dict(state.counters),
        standalone=None if state.shares is None else state.shares.view,
    )


def flights(state: LeaderState) -> dict[LaneKey, InFlight]:
    """Return the requests in flight of each lane."""
    return in_flight_by_lane(state.leases, state.roster, state.withheld.values())


def _process(state: LeaderState) -> ProcessVitals:
    measured = state.measured
    cpu = None if measured.cpu_percent is None else round(measured.cpu_percent, 1)
    return ProcessVitals(measured.rss_bytes, round(measured.lag_ms, 1), cpu)


def published(whole: ClusterSnapshot) -> PublishedSnapshot:
    """Shorten the snapshot for messages: the first workers and runs, and their total counts."""
    shown = {str(run.run) for run in whole.runs[:MOST_RUNS]}
    fields = msgspec.structs.asdict(whole) | {
        "workers": whole.workers[:MOST_WORKERS],
        "runs": whole.runs[:MOST_RUNS],
        "statuses": {run: counts for run, counts in whole.statuses.items() if run in shown},
        "failed": {run: counts for run, counts in whole.failed.items() if run in shown},
    }
    return PublishedSnapshot(**fields, workers_total=len(whole.workers), runs_total=len(whole.runs))


def _next_retry_s(state: LeaderState, now: float) -> float | None:
    due_at = state.frontier.next_due_at()
    return None if due_at == float("inf") else max(0.0, due_at - now)


def workers_view(state: LeaderState, now: float) -> tuple[WorkerView, ...]:
    return tuple(worker_view(info, now) for info in state.roster.workers.values())


def worker_view(info: WorkerInfo, now: float) -> WorkerView:
    rates = {"rate": round(info.vitals.rate, 2), "task_rate": round(info.vitals.task_rate, 2)}
    vitals = msgspec.structs.asdict(info.vitals) | rates
    return WorkerView(
        **vitals,
        id=info.id,
        state=str(info.state),
        deaf=info.deaf,
        leases=info.leases,
        uncommitted=info.uncommitted,
        drained=info.drained,
        heard_s_ago=round(now - info.heard_at, 3),
        pid=info.pid,
        hostname=info.hostname,
        version=info.version,
        labels=tuple(sorted(info.labels)),
    )


def nodes_view(state: LeaderState, now: float) -> dict[str, Any]:
    return {
        "leader": {"id": state.me, "epoch": state.epoch},
        "masters": msgspec.to_builtins(list(state.catalogue.masters_view(state.me, now))),
        "workers": msgspec.to_builtins(list(workers_view(state, now))),
        "drained": sorted(state.drains),  # also those that are not here
        "differences": state.catalogue.differences(state.roster.workers.values()),
        "catalogue": state.catalogue.away or "ok",
        "mishaps": msgspec.to_builtins(state.mishaps.view(now)),
    }


def live_run(state: LeaderState, run: int, *, now: float) -> LiveRun:
    leases = state.leases.of_run(run)
    active = state.runs.active.get(run)
    missing = ""
    if active is not None and not active.waits:
        usable = [info for info in state.roster.workers.values() if info.usable]
        missing = lacked_by_all(active, usable)
    return LiveRun(
        in_flight=grouped(flights(state), by_run).get(run, NONE),
        workers=sorted({lease.worker.id for lease in leases}),
        in_flight_urls=[lease.row.url for lease in leases[:50]],
        waiting=waiting(state, run, now) or state.mishaps.why(now),
        missing=missing,
    )


def waiting(state: LeaderState, run: int, now: float) -> str:
    """Return why a run cannot continue; empty: it can.

    No worker has what it needs, the masters do not allow it, or its hosts cannot be fetched now.
    """
    active = state.runs.active.get(run)
    return "" if active is None else active.waits or waiting_runs(state, now).get(run, "")


def waiting_runs(state: LeaderState, now: float) -> dict[int, str]:
    """Return why runs wait, without those that lack a right."""
    waits = {run: f"waiting: {text}" for run, text in unplaced_runs(state).items()}
    usable = any(info.usable for info in state.roster.workers.values())
    if not usable and now >= state.settled_at:
        waits = {
            run: NO_WORKER for run, active_run in state.runs.active.items() if active_run.dispatches
        }
    return waits | _held_up(state, waits, now)


def _held_up(state: LeaderState, waits: dict[int, str], now: float) -> dict[int, str]:
    """Return runs with nothing in flight because of their hosts, with the first host's reason, and
    runs whose labels have no room.

    A run with a host that only waits for its pace is not held up.
    """
    idle = {
        run
        for run, active in state.runs.active.items()
        if active.dispatches and run not in waits and not state.leases.by_run.get(run)
    }
    reasons: dict[int, str] = {}
    hosts = itertools.islice(state.planner.hosts.values(), MOST_HOSTS) if idle else ()
    for host in hosts:
        if idle.isdisjoint(host.runs):
            continue
        queue = host_queue(host, state.frontier)
        reason = why(host, queue, state.planner, now)
        for run in idle.intersection(host.runs):
            if reason.code in HELD_UP:
                reasons.setdefault(run, f"waiting: {host.origin}: {reason.text}")
            elif reason.code == RETRY and (postponed := state.postponed(run)):
                reasons.setdefault(run, f"waiting: {postponed}; {reason.text}")
            elif reason.code != IDLE:
                idle.discard(run)
                reasons.pop(run, None)
    for run in idle.intersection(state.planner.tasks.runs):
        reason = task_why(run, state.planner, now)
        if reason.code in (INHERITED, NO_WORKER_CODE, RETRY):
            reasons.setdefault(run, f"waiting: {reason.text}")
        elif reason.code != IDLE:
            reasons.pop(run, None)
    # Said also of a run with tasks in flight: its other tasks may wait for those of other jobs.
    tasks = state.planner.tasks
    for run in tasks.runs if tasks.labels.limits else ():
        if run not in waits and tasks.labels.labels_of(run):
            reason = task_why(run, state.planner, now)
            if reason.code == TASK_LABEL_FULL:
                reasons[run] = f"waiting: {reason.text}"
    return reasons


def _active_run(active: ActiveRun, in_flight: InFlight, utc: float, waits: str) -> LiveRunView:
    row, spec = active.row, active.spec
    reason = row.reason or active.waits
    counts = msgspec.structs.asdict(run_view(row, in_flight, utc))
    return LiveRunView(
        **counts | {"reason": reason or waits},
        tags=tuple(spec.tags),
        max_pages=spec.scope.max_pages,
        rate=spec.politeness.rate,
        concurrency=spec.politeness.concurrency,
        waits="" if reason else waits,
    )


def _ended_run(row: RunRow, utc: float) -> LiveRunView:
    counts = msgspec.structs.asdict(run_view(row, NONE, utc))
    return LiveRunView(**counts, tags=tuple(tags_of(row.spec)))
