"""Why a host is not being fetched right now, and what has to happen for it to go on (G8).

Called by `desk.views` and `master.snapshot` for people who look. It reads the planner's state and
changes nothing; the order of the questions is the order in which the planner asks them.
"""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.planner import Planner
from zcrawl.dispatch.roster import Roster
from zcrawl.dispatch.runs import Runs
from zcrawl.frontier.frontier import Frontier
from zcrawl.frontier.pace import opens_in_s
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
    PAUSED,
    RETRY,
    SHARED,
    STORING,
    THROTTLED,
    WORKER_FULL,
)

SAMPLED_HOSTS: Final = 2_000


class HostQueue(NamedTuple):
    """What waits for a host: in memory and ready, in memory for a later moment, in the database."""

    ready: int
    delayed: int
    beyond: int

    @property
    def total(self) -> int:
        return self.ready + self.delayed + self.beyond


class Why(NamedTuple):
    code: str
    text: str


def queued(host: HostState, frontier: Frontier) -> int:
    """How many requests wait for a host; asked of all hosts, so it makes nothing."""
    total = len(host.trials)
    for run in host.runs:
        lane = frontier.lanes.get((run, host.id))
        if lane is not None:
            total += len(lane.ready) + len(lane.delayed) + lane.beyond
    return total


def host_queue(host: HostState, frontier: Frontier) -> HostQueue:
    ready = delayed = beyond = 0
    for run in host.runs:
        lane = frontier.lanes.get((run, host.id))
        if lane is not None:
            ready += len(lane.ready)
            delayed += len(lane.delayed)
            beyond += lane.beyond
    return HostQueue(ready + len(host.trials), delayed, beyond)


def why(
    host: HostState,
    queue: HostQueue,
    frontier: Frontier,
    runs: Runs,
    roster: Roster,
    now: float,
    clock_offset: float,
) -> Why:
    held = sum(part.held for part in host.parts.values())
    if queue.total == 0:
        return Why(FETCHING, f"{held} in flight, none waiting") if held else Why(IDLE, "no work")
    its_runs = [active for run in host.runs if (active := runs.get(run)) is not None]
    if not any(active.dispatches for active in its_runs):
        waits = next((active.waits for active in its_runs if active.waits), "")
        code, _, text = waits.partition(": ")
        return Why(code, text) if waits else Why(PAUSED, "its jobs are paused")
    if host.inherited and now < host.inherited_until:
        owners = ", ".join(sorted(name.rpartition("#")[0] for name in host.inherited))
        left = host.inherited_until - now
        return Why(INHERITED, f"its last owner {owners} may still fetch; at most {left:.0f} s")
    if host.verdicts:
        reasons = ", ".join(sorted(set(host.verdicts.values())))
        return Why(ENDING, f"its rows end without a request: {reasons}")
    if host.storing:
        return Why(STORING, "its new owner is being stored")
    if queue.ready == 0 and queue.beyond == 0:
        return Why(RETRY, f"waits for a retry, {_next_retry(host, frontier, now):.0f} s")
    if queue.ready == 0:
        return Why(LOADING, "its queue is being read from the database")
    closed_s = opens_in_s(host.demand.hours, now + clock_offset)
    if closed_s > 0:
        return Why(HOURS, f"outside the hours of its job; {closed_s / 60:.0f} min more")
    return _why_not_sent(host, held, roster, now)


def _next_retry(host: HostState, frontier: Frontier, now: float) -> float:
    moments = [
        due_at
        for run in host.runs
        if (lane := frontier.lanes.get((run, host.id))) is not None
        for _, due_at in lane.delayed.values()
    ]
    return max(0.0, min(moments, default=now) - now)


def _why_not_sent(host: HostState, held: int, roster: Roster, now: float) -> Why:
    granted = full = 0
    for name, part in host.parts.items():
        worker = roster.workers.get(name.rpartition("#")[0])
        if part.granted == 0 or worker is None or worker.name != name or not worker.usable:
            continue
        granted += 1
        full += worker.credit <= 0
    if not granted and host.clan is not None and host.id in host.clan.refused:
        return Why(MOVING, "another worker still has hosts that share its limits")
    if not granted:
        return Why(NO_WORKER, "no worker has it now")
    interval_s = host.interval_s
    next_s = max(0.0, host.pace.ready_at() - now)
    manner = host.manner
    if manner is not None and manner.opens:
        times = f"{manner.failures} failures in a row"
        return Why(AWAY, f"it does not answer, {times}; asked again in {next_s:.0f} s")
    if manner is not None and manner.slow_s > host.demand.interval_s:
        every = f"every {manner.slow_s:.3g} s"
        return Why(THROTTLED, f"it asks for patience: {every}; next in {next_s:.1f} s")
    for group in host.groups:
        if host.id in group.waiting:
            pace, at_a_time = _per_second(group.pace.interval_s), group.concurrency or "any number"
            line = f"{len(group.waiting)} hosts in line"
            return Why(SHARED, f"{group.key}: {pace}, {at_a_time} at a time; {line}")
    # A host whose answers are slow falls behind its pace; one that keeps up with it is held by it.
    if interval_s > 0 and host.pace.ready_at() > now - interval_s:
        if host.crawl_delay_s >= interval_s > 0:
            return Why(CRAWL_DELAY, f"robots.txt: every {interval_s:g} s; next in {next_s:.1f} s")
        return Why(PACE, f"pace: {_per_second(interval_s)}; next in {next_s:.1f} s")
    if full == granted:
        return Why(WORKER_FULL, "its worker has no credit left")
    if held >= host.demand.concurrency:
        return Why(CONCURRENCY, f"{held} in flight, {host.demand.concurrency} at a time")
    return Why(DUE, "goes out now")


def _per_second(interval_s: float) -> str:
    return f"{1 / interval_s:.3g}/s" if interval_s > 0 else "unlimited"


def why_counts(
    planner: Planner, frontier: Frontier, runs: Runs, roster: Roster, now: float
) -> dict[str, tuple[int, int]]:
    """code → (hosts, queued requests), of all hosts with work; estimated when there are many."""
    clock_offset = planner.granter.clock_offset
    counts: dict[str, tuple[int, int]] = {}
    step = max(1, len(planner.hosts) // SAMPLED_HOSTS)
    for host in itertools.islice(planner.hosts.values(), 0, None, step):
        queue = host_queue(host, frontier)
        if queue.total:
            code = why(host, queue, frontier, runs, roster, now, clock_offset).code
            hosts, waiting = counts.get(code, (0, 0))
            counts[code] = (hosts + step, waiting + queue.total * step)
    return counts
