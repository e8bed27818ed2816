"""The queues, summed up by job, by tag or by host: what waits, what is out, what is not committed.

A part of the desk's views. One look at each lane and each lease makes all sums, whichever way they
are grouped; filter, order and paging come after it. A job with two tags counts under both, so the
sums of all tags can be more than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.master.paging import page, read_want
from zcrawl.master.state import LeaderState
from zcrawl.mesh.messages import Result
from zcrawl.submit.tags import NO_TAG, is_tagged

Key: TypeAlias = int | str  # a run, a tag or a host


class Sums(msgspec.Struct):
    """Of one group."""

    ready: int = 0  # due, in memory
    delayed: int = 0  # waits for a retry
    beyond: int = 0  # in the database only
    leased: int = 0  # at a worker, no result yet
    unacked: int = 0  # the result is here and not committed
    backlog: int = 0  # results that wait for the next commit
    runs: set[int] = msgspec.field(default_factory=set)
    hosts: set[int] = msgspec.field(default_factory=set)

    @property
    def queued(self) -> int:
        return self.ready + self.delayed + self.beyond


class Grouping(NamedTuple):
    groups: Callable[[LeaderState, int], tuple[Key, ...]]  # that a run, or a host, counts for
    view: Callable[[LeaderState, Key], dict[str, Any]]  # what a group's row is about
    text: Callable[[LeaderState, Key, Sums], str]  # that finds it
    by_host: bool = False  # `groups` takes a host


def queues(state: LeaderState, args: Mapping[str, Any]) -> dict[str, Any]:
    """One page of groups. `by` is job, tag or host; `tag` leaves out jobs that do not have it."""
    by = str(args.get("by", "job"))
    if by not in GROUPINGS:
        known = ", ".join(GROUPINGS)
        raise RefusedError(f"queues by {by!r}: there is {known}", code="bad_request")
    grouping = GROUPINGS[by]
    sums = summed(state, grouping, str(args.get("tag", "")))
    answer = page(
        sums,
        read_want(args),
        text=lambda key: grouping.text(state, key, sums[key]),
        keys={
            "queued": lambda key: sums[key].queued,
            "name": lambda key: grouping.text(state, key, sums[key]),
            "due": lambda key: sums[key].ready,
            "leased": lambda key: sums[key].leased,
            "unacked": lambda key: sums[key].unacked,
            "backlog": lambda key: sums[key].backlog,
            "hosts": lambda key: len(sums[key].hosts),
            "jobs": lambda key: len(sums[key].runs),
        },
        view=lambda key: {
            **grouping.view(state, key),
            **_numbers(sums[key]),
            **({} if grouping.by_host else _trend(state, sums[key])),
        },
    )
    early = sum(len(stream.early) for stream in state.receiver.streams.values())
    return {**answer, "commit_backlog": len(state.receiver.queue), "out_of_order": early}


def summed(state: LeaderState, grouping: Grouping, tag: str) -> dict[Key, Sums]:
    """The sums of every group, also of those in which nothing waits."""
    active = state.runs.active
    wanted = {run for run, one in active.items() if is_tagged(one.spec.tags, tag)}
    sums: dict[Key, Sums] = {}
    found: dict[int, list[Sums]] = {}  # by run, or by host

    def groups(run: int, host: int) -> list[Sums]:
        if run not in wanted:
            return []
        at = host if grouping.by_host else run
        known = found.get(at)
        if known is None:
            keys = grouping.groups(state, at)
            known = found[at] = [sums.setdefault(key, Sums()) for key in keys]
        return known

    if not grouping.by_host:
        for run in wanted:
            for group in groups(run, 0):
                group.runs.add(run)
    for (run, host), lane in state.frontier.lanes.items():
        for group in groups(run, host):
            group.ready += len(lane.ready)
            group.delayed += len(lane.delayed)
            group.beyond += lane.beyond
            group.runs.add(run)
            group.hosts.add(host)
    for (run, host), leases in state.leases.by_lane.items():
        for group in groups(run, host):
            group.leased += leases
            group.runs.add(run)
    for lease in state.leases.by_seq.values():
        if lease.received:
            for group in groups(lease.row.run, lease.row.host):
                group.leased -= 1
                group.unacked += 1
    for row in state.withheld.values():
        if row is not None:
            for group in groups(row.run, row.host):
                group.unacked += 1
    for one in state.receiver.queue:
        if isinstance(one.result, Result):
            for group in groups(one.result.run, one.result.host):
                group.backlog += 1
    return sums


def _numbers(sums: Sums) -> dict[str, int]:
    return {
        "ready": sums.ready,
        "delayed": sums.delayed,
        "beyond": sums.beyond,
        "queued": sums.queued,
        "leased": sums.leased,
        "unacked": sums.unacked,
        "backlog": sums.backlog,
        "jobs": len(sums.runs),
        "hosts": len(sums.hosts),
    }


def _trend(state: LeaderState, sums: Sums) -> dict[str, list[int]]:
    return {"trend": [*state.watch.trends.of(sums.runs), sums.queued]}


# ---------------------------------------------------------------- by job


def _run_groups(state: LeaderState, run: int) -> tuple[Key, ...]:
    return (run,)


def _run_view(state: LeaderState, key: Key) -> dict[str, Any]:
    active = state.runs.active[int(key)]
    row, tags = active.row, list(active.spec.tags)
    return {"id": key, "job": row.job, "name": row.name, "tags": tags, "state": str(row.state)}


def _run_text(state: LeaderState, key: Key, sums: Sums) -> str:
    active = state.runs.active[int(key)]
    return " ".join((active.row.name, *active.spec.tags))


# ---------------------------------------------------------------- by tag


def _tag_groups(state: LeaderState, run: int) -> tuple[Key, ...]:
    return state.runs.active[run].spec.tags or (NO_TAG,)


def _tag_view(state: LeaderState, key: Key) -> dict[str, Any]:
    return {"id": key, "tag": key}


def _tag_text(state: LeaderState, key: Key, sums: Sums) -> str:
    """A tag is found by the names of its jobs too."""
    return " ".join((str(key), *(state.runs.active[run].row.name for run in sorted(sums.runs))))


# ---------------------------------------------------------------- by host


def _host_groups(state: LeaderState, host: int) -> tuple[Key, ...]:
    return (host,)


def _host_view(state: LeaderState, key: Key) -> dict[str, Any]:
    return {"id": key, "host": _origin(state, key)}


def _host_text(state: LeaderState, key: Key, sums: Sums) -> str:
    return _origin(state, key)


def _origin(state: LeaderState, key: Key) -> str:
    host = state.planner.hosts.get(int(key))
    return host.origin if host is not None else ""


GROUPINGS: Final = {
    "job": Grouping(_run_groups, _run_view, _run_text),
    "tag": Grouping(_tag_groups, _tag_view, _tag_text),
    "host": Grouping(_host_groups, _host_view, _host_text, by_host=True),
}
