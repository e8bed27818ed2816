"""The queues, summed up by job, by tag or by host: what is queued, what is in flight.

A part of the desk's views. One look at each lane makes the sums of runs or of hosts,
and those of tags are made of the runs'; filter, order and paging come after it. A job with two tags
counts under both, so the sums of all tags can be more than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.paging import page, read_want
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.snapshot import flights
from zcrawl.mesh.messages import Result
from zcrawl.model.reasons.cluster import BAD_REQUEST
from zcrawl.model.rows import NO_HOST
from zcrawl.submit.tags import NO_TAG, is_tagged

_COUNTS: Final = (
    *("ready", "delayed", "beyond"),
    *("fetching", "waiting", "uncommitted", "commit_queue"),
)


class Sums(msgspec.Struct):
    """Of one group."""

    ready: int = 0  # due, in memory
    delayed: int = 0  # waits for a retry
    beyond: int = 0  # in the database only
    fetching: int = 0  # started by a worker
    waiting: int = 0  # held by a worker, not started
    uncommitted: int = 0  # the result is here and not committed
    commit_queue: int = 0  # results that wait for the next commit
    runs: list[int] = []  # some may be in it twice: counted when somebody looks
    hosts: list[int] = []

    @property
    def queued(self) -> int:
        return self.ready + self.delayed + self.beyond

    def add(self, other: Sums) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.runs.extend(other.runs)
        self.hosts.extend(other.hosts)


class _Groups(dict[int, Sums]):
    """By run, or by host."""

    def __missing__(self, at: int) -> Sums:
        made = self[at] = Sums()
        return made


class Grouping(msgspec.Struct, frozen=True):
    sums: Callable[[LeaderState, set[int]], Mapping[Any, Sums]]  # of these runs
    view: Callable[[LeaderState, Any, Sums], dict[str, Any]]  # what a group's row is about
    text: Callable[[LeaderState, Any, Sums], str]  # that finds it


def queues(state: LeaderState, args: Arguments) -> dict[str, Any]:
    """One page of groups. `by` is job, tag or host; `tag` leaves out jobs that do not have it."""
    by, tag = args.text("by"), args.text("tag")
    if by not in GROUPINGS:
        names = ", ".join(GROUPINGS)
        raise RefusedError(f"queues by {by!r}; use one of {names}", code=BAD_REQUEST)
    grouping, active = GROUPINGS[by], state.runs.active
    runs = {run for run, active_run in active.items() if is_tagged(active_run.spec.tags, tag)}
    sums = grouping.sums(state, runs)
    answer = page(
        sums,
        read_want(args),
        text=lambda key: grouping.text(state, key, sums[key]),
        keys={
            "queued": lambda key: sums[key].queued,
            "name": lambda key: grouping.text(state, key, sums[key]),
            "due": lambda key: sums[key].ready,
            "fetching": lambda key: sums[key].fetching,
            "waiting": lambda key: sums[key].waiting,
            "uncommitted": lambda key: sums[key].uncommitted,
            "commit_queue": lambda key: sums[key].commit_queue,
            "hosts": lambda key: len(set(sums[key].hosts)),
            "jobs": lambda key: len(set(sums[key].runs)),
        },
        view=lambda key: {**grouping.view(state, key, sums[key]), **_numbers(sums[key])},
    )
    early = sum(len(stream.early) for stream in state.receiver.streams.values())
    return {**answer, "commit_queue": len(state.receiver.queue), "out_of_order": early}


def _summed(state: LeaderState, runs: set[int], *, by_host: bool) -> _Groups:
    """With ten thousand hosts and leases it is run often enough to be written plainly."""
    sums = _Groups() if by_host else _Groups((run, Sums(runs=[run])) for run in runs)
    for (run, host), lane in state.frontier.lanes.items():
        if run in runs:
            group = sums[host if by_host else run]
            group.ready += len(lane.ready)
            group.delayed += len(lane.delayed)
            group.beyond += lane.beyond
            group.runs.append(run)
            group.hosts.append(host)
    for (run, host), numbers in flights(state).items():
        if run in runs:
            group = sums[host if by_host else run]
            group.fetching += numbers.fetching
            group.waiting += numbers.waiting
            group.uncommitted += numbers.uncommitted
            group.runs.append(run)
    for received in state.receiver.queue:
        if isinstance(received.result, Result) and received.result.run in runs:
            sums[received.result.host if by_host else received.result.run].commit_queue += 1
    return sums


def _numbers(sums: Sums) -> dict[str, int]:
    return {
        **{name: getattr(sums, name) for name in _COUNTS},
        "queued": sums.queued,
        "jobs": len(set(sums.runs)),
        "hosts": len(set(sums.hosts)),
    }


def _trend(state: LeaderState, sums: Sums) -> list[int]:
    return [*state.watch.trends.of(set(sums.runs)), sums.queued]


# ---------------------------------------------------------------- by job


def _run_sums(state: LeaderState, runs: set[int]) -> Mapping[int, Sums]:
    return _summed(state, runs, by_host=False)


def _run_view(state: LeaderState, run: int, sums: Sums) -> dict[str, Any]:
    active = state.runs.active[run]
    row, tags = active.row, list(active.spec.tags)
    what = {"id": run, "job": row.job, "name": row.name, "tags": tags, "state": str(row.state)}
    return {**what, "trend": _trend(state, sums)}


def _run_text(state: LeaderState, run: int, sums: Sums) -> str:
    active = state.runs.active[run]
    return " ".join((active.row.name, *active.spec.tags))


# ---------------------------------------------------------------- by tag


def _tag_sums(state: LeaderState, runs: set[int]) -> Mapping[str, Sums]:
    tags: dict[str, Sums] = {}
    for run, sums in _summed(state, runs, by_host=False).items():
        for tag in state.runs.active[run].spec.tags or (NO_TAG,):
            tags.setdefault(tag, Sums()).add(sums)
    return tags


def _tag_view(state: LeaderState, tag: str, sums: Sums) -> dict[str, Any]:
    return {"id": tag, "tag": tag, "trend": _trend(state, sums)}


def _tag_text(state: LeaderState, tag: str, sums: Sums) -> str:
    """A tag is found by the names of its jobs too."""
    return " ".join((tag, *(state.runs.active[run].row.name for run in sorted(set(sums.runs)))))


# ---------------------------------------------------------------- by host


def _host_sums(state: LeaderState, runs: set[int]) -> Mapping[int, Sums]:
    return _summed(state, runs, by_host=True)


def _host_view(state: LeaderState, host: int, sums: Sums) -> dict[str, Any]:
    return {"id": host, "host": _host_text(state, host, sums)}


def _host_text(state: LeaderState, host: int, sums: Sums) -> str:
    host_state = state.planner.hosts.get(host)
    if host == NO_HOST:
        return "tasks"
    return host_state.origin if host_state is not None else ""


GROUPINGS: Final = {
    "job": Grouping(_run_sums, _run_view, _run_text),
    "tag": Grouping(_tag_sums, _tag_view, _tag_text),
    "host": Grouping(_host_sums, _host_view, _host_text),
}
