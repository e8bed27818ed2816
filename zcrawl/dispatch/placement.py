"""Which workers may take the work of a run: the one predicate, and the reason if none may.

A worker may not take a run if it lacks a label that the job requires, or if it said that it lacks
the run's spider, plugin or package. The planners ask `can_serve` before each dispatch; displays
and the log show `why_unplaced`.

`cover` chooses as few workers as serve all runs of a host, if no single one can. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.dispatch.runs import ActiveRun
from zcrawl.text.spelling import near_names


def can_serve(active: ActiveRun, worker: WorkerInfo) -> bool:
    """Return whether the worker has what the run needs."""
    require = active.require
    return active.row.id not in worker.lacks and (not require or require <= worker.labels)


def preference(runs: Iterable[ActiveRun], worker: WorkerInfo) -> int:
    """Return how many of the labels that these runs prefer the worker has."""
    return sum(label in worker.labels for active in runs for label in active.spec.placement.prefer)


def preferred(runs: Sequence[ActiveRun], workers: list[WorkerInfo]) -> list[WorkerInfo]:
    """Return the workers with the most preferred labels; all of them if no run prefers any."""
    if not any(active.spec.placement.prefer for active in runs):
        return workers
    best = max((preference(runs, worker) for worker in workers), default=0)
    return [worker for worker in workers if preference(runs, worker) == best]


def why_unplaced(active: ActiveRun, workers: Sequence[WorkerInfo]) -> str:
    """Return why none of these workers may take the run; empty if one may, or there is none."""
    if not workers or any(can_serve(active, worker) for worker in workers):
        return ""
    labels = dict.fromkeys(label for worker in workers for label in sorted(worker.labels))
    for label in active.spec.placement.require:
        if label not in labels:
            near = near_names(label, labels)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            return f"no worker with label {label}{meant}"
    lacks = [worker.lacks[active.row.id] for worker in workers if active.row.id in worker.lacks]
    if lacks and all(active.require <= worker.labels for worker in workers):
        return f"no live worker has {lacks[0]} yet"
    names = ", ".join(active.spec.placement.require)
    having = f"no worker with labels {names}" if "," in names else f"no worker with label {names}"
    return f"{having} has {lacks[0]}" if lacks else f"{having} together"


def lacked_by_all(active: ActiveRun, workers: Sequence[WorkerInfo]) -> str:
    """Return the code or plugin that all workers with the required labels lack; empty: none."""
    lacks = [
        worker.lacks.get(active.row.id, "") for worker in workers if active.require <= worker.labels
    ]
    return lacks[0] if lacks and all(lacks) else ""


def cover(
    servers: Mapping[int, Sequence[str]], rank: Callable[[str], tuple[object, ...]]
) -> list[str]:
    """Return as few workers as serve all runs; `servers` are the workers of each run.

    It takes the worker that serves most of the runs that are left, again and again. Of workers that
    serve as many, the one with the lowest `rank` is taken.
    """
    chosen: list[str] = []
    left = {run: set(names) for run, names in servers.items() if names}
    while left:
        counts: dict[str, int] = {}
        for names in left.values():
            for name in names:
                counts[name] = counts.get(name, 0) + 1
        best = min(counts, key=lambda name: (-counts[name], rank(name)))
        chosen.append(best)
        left = {run: names for run, names in left.items() if best not in names}
    return chosen
