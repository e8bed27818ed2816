"""Jobs that follow other jobs: which child fires, and whether jobs follow each other in a circle.

Called by the firing of runs, by the check of a submission and by views of chains. Pure.

A **parent** of a job is a job in its `schedule.after`. A finished run of a parent matches if it
ended as `on` says. Each run of a parent is used by a child at most once; the store holds that with
one row for each (child, parent run).

- `all`: the child fires when every parent has a matching run that the child has not used. The
  newest of each parent counts, and the firing uses up the older ones as well. Otherwise a parent
  that runs more often than the others would leave runs behind, and the child would fire with them
  later although that parent had done nothing new.
- `any`: the child fires once for each matching run that it has not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from zcrawl.model.spec import After

SUCCESS: Final = "success"
FAILURE: Final = "failure"
END: Final = "end"
OUTCOMES: Final = (SUCCESS, FAILURE, END)
ALL: Final = "all"
ANY: Final = "any"
MODES: Final = (ALL, ANY)


class FinishedRun(msgspec.Struct, frozen=True):
    """A run of a parent that has ended."""

    job: str  # the parent's name
    run: int
    outcome: str  # success | failure | end: completed, failed, or ended in another way
    chain: int = 0  # the run that began its chain; 0: it did itself
    params: bytes = b""  # JSON; what it hands on


class DependencyFiring(msgspec.Struct, frozen=True):
    """One firing of a child: the run of each parent that it follows, and all that it uses up."""

    parents: tuple[int, ...]
    used: tuple[int, ...]


def matches(parent: After, outcome: str) -> bool:
    """Return whether a run that ended as `outcome` counts for this parent."""
    return parent.on in (END, outcome)


def firings(
    after: Sequence[After], mode: str, finished: Iterable[FinishedRun]
) -> list[DependencyFiring]:
    """Return the firings of a child, the first first. `finished` are the runs of its parents that
    it has not used, in the order in which they ended."""
    parents = {parent.job: parent for parent in after}
    matching: dict[str, list[int]] = {name: [] for name in parents}
    order: list[int] = []
    for run in finished:
        parent = parents.get(run.job)
        if parent is not None and matches(parent, run.outcome):
            matching[run.job].append(run.run)
            order.append(run.run)
    if mode == ANY:
        return [DependencyFiring((run,), (run,)) for run in order]
    if not parents or not all(matching.values()):
        return []
    newest = tuple(runs[-1] for runs in matching.values())
    return [DependencyFiring(newest, tuple(order))]


def cycle_with(name: str, parents: Sequence[str], graph: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the circle that a job closes, beginning and ending with it; empty if there is none.

    `graph` has the parents of each job by name; those of `name` are replaced by `parents`. The
    circle is the shortest one, in the order in which the jobs would start each other."""
    child_of: dict[str, str] = {}
    layer = list(dict.fromkeys(parents))
    for parent in layer:
        child_of[parent] = name
    while layer:
        if name in child_of:
            circle = [name]
            while len(circle) == 1 or circle[-1] != name:
                circle.append(child_of[circle[-1]])
            return circle
        following = []
        for job in layer:
            for parent in graph.get(job, ()):
                if parent not in child_of:
                    child_of[parent] = job
                    following.append(parent)
        layer = following
    return []


def circle_text(circle: Sequence[str]) -> str:
    """Return `a -> b -> a`: each job starts the next one."""
    return " -> ".join(circle)
