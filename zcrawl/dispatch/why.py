"""Explain why a host is not fetched right now, and what has to happen first (G8).

Called by `desk.views` and `master.snapshot` for people who look. `Gates.gate` names the obstacle;
this module describes it in words. Everything here only reads.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from zcrawl.dispatch.gates import Gate
from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.placement import can_serve, why_unplaced
from zcrawl.dispatch.planner import Planner
from zcrawl.dispatch.task_planner import TaskGate
from zcrawl.frontier.frontier import Frontier
from zcrawl.model.process_name import worker_of
from zcrawl.model.reasons.waiting import (
    AWAY,
    CONCURRENCY,
    CRAWL_DELAY,
    DUE,
    ENDING,
    FETCHING,
    HOURS,
    IDLE,
    INHERITED,
    LOADING,
    MOVING,
    NO_WORKER,
    PACE,
    PAGES_IN_FLIGHT,
    PAUSED,
    RETRY,
    SHARED,
    STORING,
    SUSPECTS,
    TASK_CONCURRENCY,
    TASK_LABEL_FULL,
    TASK_SLOTS_FULL,
    THROTTLED,
    TURN,
    WORKER_FULL,
)
from zcrawl.model.rows import NO_HOST


class HostQueue(msgspec.Struct, frozen=True):
    """Requests that wait for a host: ready in memory, delayed in memory, in the database."""

    ready: int
    delayed: int
    beyond: int

    @property
    def total(self) -> int:
        return self.ready + self.delayed + self.beyond


class Why(msgspec.Struct, frozen=True):
    """The code of a wait, and its text."""

    code: str
    text: str


def queued(host: HostState, frontier: Frontier) -> int:
    """Return how many requests wait for a host.

    Called for all hosts, so it allocates nothing.
    """
    total = len(host.trials)
    for run in host.runs:
        lane = frontier.lanes.get((run, host.id))
        if lane is not None:
            total += len(lane.ready) + len(lane.delayed) + lane.beyond
    return total


def host_queue(host: HostState, frontier: Frontier) -> HostQueue:
    """Return the queue of a host by where its requests wait."""
    ready = delayed = beyond = 0
    for run in host.runs:
        lane = frontier.lanes.get((run, host.id))
        if lane is not None:
            ready += len(lane.ready)
            delayed += len(lane.delayed)
            beyond += lane.beyond
    return HostQueue(ready + len(host.trials), delayed, beyond)


def why(host: HostState, queue: HostQueue, planner: Planner, now: float) -> Why:
    """Explain what the host waits for: the gate, or no work, or a paused run."""
    held = sum(part.held for part in host.parts.values())
    if queue.total == 0:
        return Why(FETCHING, "fetching, nothing queued") if held else Why(IDLE, "nothing queued")
    its_runs = [active for run in host.runs if (active := planner.runs.get(run)) is not None]
    if not any(active.dispatches for active in its_runs):
        waits = next((active.waits for active in its_runs if active.waits), "")
        code, _, text = waits.partition(": ")
        return Why(code, text) if waits else Why(PAUSED, "job paused")
    match planner.gates.gate(host, now):
        case Gate.STORING:
            return Why(STORING, "owner is being stored in the database")
        case Gate.NO_ROWS if queue.beyond == 0:
            return Why(RETRY, f"retry in {_next_retry(host, planner, now):.0f} s")
        case Gate.NO_ROWS:
            return Why(LOADING, "queue is being read from the database")
        case Gate.INHERITED:
            owners = ", ".join(sorted(worker_of(name) for name in host.inherited))
            left = host.inherited_until - now
            return Why(INHERITED, f"last owner {owners} may still fetch it, {left:.0f} s at most")
        case Gate.ENDING:
            reasons = ", ".join(sorted(set(host.verdicts.values())))
            return Why(ENDING, f"queued URLs end without a request: {reasons}")
        case Gate.HOURS:
            minutes = planner.gates.closed_s(host, now) / 60
            return Why(HOURS, f"outside the hours of its job, {minutes:.0f} min more")
        case Gate.PACE:
            return _pace(host, now)
        case Gate.SHARED:
            return _shared(host, planner, now)
        case Gate.NO_OWNER if host.clan is not None and host.id in host.clan.refused:
            return Why(MOVING, "another worker still has hosts that share its limits")
        case Gate.NO_OWNER:
            return _no_owner(planner)
        case (Gate.CREDIT | Gate.ROOM) as gate:
            if _is_held_by_pace(host, now):
                return _pace(host, now)
            if gate is Gate.CREDIT:
                return Why(WORKER_FULL, "worker full")
            return Why(CONCURRENCY, f"concurrency limit reached: {host.demand.concurrency}")
        case Gate.TRIAL:
            return Why(SUSPECTS, "URLs that may crash a worker wait for a trial")
        case Gate.RUNS:
            return _runs(host, planner)
        case Gate.OPEN:
            return Why(DUE, "sending")
        case other:
            assert_never(other)


def task_why(run: int, planner: Planner, now: float) -> Why:
    """Explain what the tasks of a run wait for that have no host."""
    tasks, lane = planner.tasks, planner.frontier.lanes.get((run, NO_HOST))
    active = planner.runs.get(run)
    if lane is None or active is None:
        return Why(IDLE, "nothing queued")
    if not active.dispatches:
        code, _, text = active.waits.partition(": ")
        return Why(code, text) if active.waits else Why(PAUSED, "job paused")
    match tasks.gate(run, now):
        case TaskGate.NO_ROWS if lane.delayed and not lane.beyond:
            due_at = min(due_at for _, due_at in lane.delayed.values())
            return Why(RETRY, f"retry in {max(0.0, due_at - now):.0f} s")
        case TaskGate.NO_ROWS:
            return Why(LOADING, "queue is being read from the database")
        case TaskGate.INHERITED:
            return Why(INHERITED, "workers of the last leader may still run its tasks")
        case TaskGate.RUN:
            return Why(PAGES_IN_FLIGHT, "page limit: the last tasks are in flight")
        case TaskGate.CONCURRENCY:
            most = active.spec.concurrency
            return Why(TASK_CONCURRENCY, f"concurrency limit reached: {most} tasks of the job")
        case TaskGate.LABEL:
            running = tasks.labels.running()
            label = tasks.labels.obstacle(run, running)
            most = tasks.labels.limits[label]
            text = f"label {label}: {running[label]} of {most} tasks are running"
            return Why(TASK_LABEL_FULL, text)
        case TaskGate.NO_WORKER:
            return _no_worker(planner, run)
        case TaskGate.SLOTS:
            return Why(TASK_SLOTS_FULL, "all task slots of the workers are in use")
        case TaskGate.OPEN:
            return Why(DUE, "sending")
        case other:
            assert_never(other)


def _no_worker(planner: Planner, run: int) -> Why:
    """Explain why no worker takes a request of a run."""
    workers = [info for info in planner.roster.workers.values() if info.usable]
    if not workers:
        return Why(NO_WORKER, "no worker takes work")
    active = planner.runs.get(run)
    if active is not None and (text := why_unplaced(active, workers)):
        return Why(NO_WORKER, text)
    if not any(info.vitals.task_slots for info in workers):
        return Why(NO_WORKER, "no worker has task slots: they run an older version")
    return Why(NO_WORKER, "no worker has what the job needs")


def _no_owner(planner: Planner) -> Why:
    """Explain why no worker has the host: only without workers a person has to start some."""
    if not any(info.usable for info in planner.roster.workers.values()):
        return Why(NO_WORKER, "no worker takes work")
    return Why(STORING, "being given to a worker")


def _next_retry(host: HostState, planner: Planner, now: float) -> float:
    """Return the seconds until the next retry of the host."""
    moments = [
        due_at
        for run in host.runs
        if (lane := planner.frontier.lanes.get((run, host.id))) is not None
        for _, due_at in lane.delayed.values()
    ]
    return max(0.0, min(moments, default=now) - now)


def _is_held_by_pace(host: HostState, now: float) -> bool:
    """Return whether the requests at its owner wait for the host's pace.

    A host that answers slowly falls behind its pace; a host that keeps up is limited by it.
    """
    manner = host.manner
    if manner is not None and (manner.opens or manner.slow_s > host.demand.interval_s):
        return True
    return host.interval_s > 0 and host.pace.ready_at() > now - host.interval_s


def _pace(host: HostState, now: float) -> Why:
    """Explain the wait for the pace by its strictest cause."""
    interval_s = host.interval_s
    next_s = max(0.0, host.pace.ready_at() - now)
    manner = host.manner
    if manner is not None and manner.opens:
        times = f"{manner.failures} failures in a row"
        return Why(AWAY, f"host down, retry in {next_s:.0f} s ({times})")
    if manner is not None and manner.slow_s > host.demand.interval_s:
        every = f"one request every {manner.slow_s:.3g} s"
        return Why(THROTTLED, f"throttled (429, 503 or slow): {every}, next in {next_s:.1f} s")
    if host.crawl_delay_s >= interval_s > 0:
        delay = f"crawl delay of robots.txt: {interval_s:g} s"
        return Why(CRAWL_DELAY, f"{delay}, next in {next_s:.1f} s")
    return Why(PACE, f"rate limit: {per_second(interval_s)}, next in {next_s:.1f} s")


def _shared(host: HostState, planner: Planner, now: float) -> Why:
    """Explain the wait for a limit that the host shares with others."""
    group = planner.groups.obstacle(host, now)
    assert group is not None
    pace, most = per_second(group.pace.interval_s), group.concurrency or "unlimited"
    line = f"{len(group.waiting)} hosts wait for it"
    return Why(SHARED, f"shared limit of {group.key}: {pace}, concurrency {most}; {line}")


def _runs(host: HostState, planner: Planner) -> Why:
    """Explain why no run with rows of the host may start one."""
    ready = [run for run in host.runs if planner.frontier.has_ready((run, host.id))]
    may = [
        run
        for run in ready
        if (active_run := planner.runs.get(run)) is not None and active_run.dispatches
    ]
    if not may:
        return Why(PAUSED, "job paused")
    workers = [planner.roster.workers.get(worker_of(name)) for name in host.parts]
    served = any(
        worker is not None
        and (active_run := planner.runs.get(run)) is not None
        and can_serve(active_run, worker)
        for worker in workers
        for run in may
    )
    if not served:
        if host.turn:
            return Why(TURN, "another worker has the host for a while; this job's worker is next")
        return _no_worker(planner, may[0])
    return Why(PAGES_IN_FLIGHT, "page limit: the last pages are in flight")


def per_second(interval_s: float) -> str:
    return f"{1 / interval_s:.3g}/s" if interval_s > 0 else "unlimited"
