"""What limits the crawl: the reasons of all hosts with queued URLs, summed up, with advice.

`dispatch.why` explains one host. Here the reasons of all hosts become shares of the queue, and for
limits that a person can raise the gain is estimated. Called by `desk.views` for the overview and
by `master.run_reasons` for each run. Only reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.in_flight import NONE, InFlight
from zcrawl.dispatch.planner import Planner
from zcrawl.dispatch.why import Why, host_queue, per_second, task_why, why
from zcrawl.model.reasons.waiting import (
    AWAY,
    CONCURRENCY,
    CRAWL_DELAY,
    DUE,
    ENDING,
    HOURS,
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

SAMPLED_HOSTS: Final = 2_000
LEAST_GAIN: Final = 1.05  # less is not worth a word
# What a reason is called when several hosts have it.
NAMES: Final = {
    NO_WORKER: "no worker takes work",
    WORKER_FULL: "worker full",
    STORING: "owner is being stored",
    LOADING: "queue is being read from the database",
    INHERITED: "last owner may still fetch",
    MOVING: "hosts with shared limits are moving",
    PAUSED: "job paused",
    AWAY: "host down",
    ENDING: "queued URLs end without a request",
    THROTTLED: "throttled (429, 503 or slow)",
    HOURS: "outside the hours of the job",
    RETRY: "waiting for a retry",
    CRAWL_DELAY: "crawl delay of robots.txt",
    SHARED: "limit shared by a domain or address",
    PACE: "rate limit",
    CONCURRENCY: "concurrency limit reached",
    SUSPECTS: "URLs that may crash a worker",
    PAGES_IN_FLIGHT: "page limit: the last pages are in flight",
    TASK_CONCURRENCY: "concurrency of the job reached",
    TASK_LABEL_FULL: "limit of a label reached",
    TASK_SLOTS_FULL: "task slots in use",
    TURN: "another worker has the host for a while",
    DUE: "sending",
}


class SpeedLimit(msgspec.Struct, frozen=True):
    """One reason, of all hosts that have it."""

    code: str
    text: str
    hosts: int
    queued: int
    share: float  # of all queued URLs, 0 to 1
    host: str = ""  # the origin, if it is one host
    advice: str = ""
    gain: float | None = None  # how many times faster after the advice; None: not known


class _Group(msgspec.Struct):
    hosts: int = 0
    queued: int = 0
    fetching: int = 0
    most: int = 0  # the longest queue
    longest: HostState | None = None
    text: str = ""  # of that host
    rate: float = 0.0  # requests per second that its rate limits allow
    shareable: bool = False  # a second worker may take a part

    def add_tasks(self, queued: int, text: str) -> None:
        """Add the tasks of a run, which have no host."""
        self.queued += queued
        self.text = self.text or text


def limits(planner: Planner, flight: Mapping[int, InFlight], now: float) -> list[SpeedLimit]:
    """Return the reasons, the largest share of the queue first. `flight` is by host."""
    groups: dict[str, _Group] = {}
    for host, queued, reason, step in _reasons(planner, now):
        group = groups.setdefault(reason.code, _Group())
        _add(group, host, queued, flight.get(host.id, NONE), reason.text, step)
    for _, queued, reason in _task_reasons(planner, now):
        groups.setdefault(reason.code, _Group()).add_tasks(queued, reason.text)
    return _ranked(groups, _Capacity.of(planner))


def limits_by_run(
    planner: Planner, flight: Mapping[int, InFlight], now: float
) -> dict[int, list[SpeedLimit]]:
    """Return the reasons of each run's hosts, in one pass over all hosts."""
    runs: dict[int, dict[str, _Group]] = {}
    for host, queued, reason, step in _reasons(planner, now):
        for run in host.runs:
            group = runs.setdefault(run, {}).setdefault(reason.code, _Group())
            _add(group, host, queued, flight.get(host.id, NONE), reason.text, step)
    for run, queued, reason in _task_reasons(planner, now):
        group = runs.setdefault(run, {}).setdefault(reason.code, _Group())
        group.add_tasks(queued, reason.text)
    capacity = _Capacity.of(planner)
    return {run: _ranked(groups, capacity) for run, groups in runs.items()}


def _reasons(planner: Planner, now: float) -> Iterator[tuple[HostState, int, Why, int]]:
    """Yield hosts with queued URLs: host, URLs, reason, and how many hosts it stands for."""
    step = max(1, len(planner.hosts) // SAMPLED_HOSTS)
    for host in itertools.islice(planner.hosts.values(), 0, None, step):
        queue = host_queue(host, planner.frontier)
        if queue.total:
            yield host, queue.total, why(host, queue, planner, now), step


def _task_reasons(planner: Planner, now: float) -> Iterator[tuple[int, int, Why]]:
    """Yield runs with queued tasks that have no host: run, tasks, reason."""
    for run in planner.tasks.runs:
        lane = planner.frontier.lanes.get((run, NO_HOST))
        queued = 0 if lane is None else lane.rows + lane.beyond
        if queued:
            yield run, queued, task_why(run, planner, now)


def _ranked(groups: Mapping[str, _Group], capacity: _Capacity) -> list[SpeedLimit]:
    total = sum(group.queued for group in groups.values()) or 1
    speed_limits = [_limit(code, group, total, capacity) for code, group in groups.items()]
    return sorted(speed_limits, key=lambda limit: (-limit.queued, limit.code))


def _add(
    group: _Group, host: HostState, queued: int, flight: InFlight, text: str, step: int
) -> None:
    group.hosts += step
    group.queued += queued * step
    group.fetching += flight.fetching * step
    group.rate += step / host.interval_s if host.interval_s > 0 else 0.0
    group.shareable = group.shareable or host.demand.spread
    if queued > group.most:
        group.most, group.longest, group.text = queued, host, text


class _Capacity(msgspec.Struct, frozen=True):
    """What the workers do, and what they could do."""

    workers: int
    slots: int
    fetching: int
    rate: float  # results per second

    @classmethod
    def of(cls, planner: Planner) -> _Capacity:
        usable = [info for info in planner.roster.workers.values() if info.usable]
        return cls(
            len(usable),
            sum(info.vitals.slots for info in usable),
            sum(sum(info.fetching.values()) for info in usable),
            sum(info.vitals.rate for info in usable),
        )

    def bounded(self, gain: float) -> float | None:
        """Return a gain that the slots of the workers allow; None if it is not worth a word."""
        if self.fetching > 0:
            gain = min(gain, self.slots / self.fetching)
        return round(gain, 2) if gain >= LEAST_GAIN else None


def _limit(code: str, group: _Group, total: int, capacity: _Capacity) -> SpeedLimit:
    longest = group.longest
    single = group.hosts == 1 and longest is not None
    origin = longest.origin if single and longest is not None else ""
    name = group.text if single else NAMES.get(code, group.text)
    advice, gain = _advice(code, group, capacity)
    return SpeedLimit(
        code=code,
        text=name,
        hosts=group.hosts,
        queued=group.queued,
        share=round(group.queued / total, 4),
        host=origin,
        advice=advice,
        gain=gain,
    )


def _advice(code: str, group: _Group, capacity: _Capacity) -> tuple[str, float | None]:
    """Return what a person can do, and how much faster the crawl would be then.

    A limit that is doubled doubles the part of the crawl that it holds back.
    """
    longest = group.longest
    if code == PACE and longest is not None:
        limit = per_second(longest.interval_s)
        gain = 1 + min(1.0, group.rate / capacity.rate) if capacity.rate > 0 else 2.0
        return f"raise {limit}", capacity.bounded(gain)
    if code == CONCURRENCY and longest is not None:
        gain = 1 + (group.fetching / capacity.fetching if capacity.fetching else 0.0)
        return f"raise the concurrency of {longest.demand.concurrency}", capacity.bounded(gain)
    if code == TASK_CONCURRENCY:
        return "raise the concurrency of the job", None
    if code == TASK_SLOTS_FULL:
        return "add workers or task slots", None
    if code == SHARED:
        return "raise the limit of the domain or address", None
    if code == WORKER_FULL:
        if group.hosts > 1 or group.shareable:
            workers = max(1, capacity.workers)
            return "add workers or slots", round(1 + 1 / workers, 2)
        return "raise the slots of its worker: no second worker may share this host", None
    if code == NO_WORKER:
        missing = capacity.workers > 0
        return ("install what the job needs" if missing else "start workers"), None
    if code in (STORING, LOADING):
        return "passes by itself; if it stays, the database is slow", None
    if code in (INHERITED, MOVING, RETRY, SUSPECTS):
        return "passes by itself", None
    return ("resume the job" if code == PAUSED else ""), None
