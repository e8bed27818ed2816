"""How many tasks that need a label may run at a time, over the whole cluster and all jobs.

A part of `task_planner`. The limits are `tasks.label_limits` of the masters. A task counts for each
limited label in `placement.require` of its job, from its lease until its result is here. Tasks that
workers bring with their HELLO count like those that this leader has sent.

The counts are computed anew from the leases before each plan, so they are right after a takeover
and after any change of a job. Within a plan, `sent` adds what is sent.

Invariant, asserted by `check`: of the tasks that this leader has sent under the limits in force, at
most as many as the limit are at workers. Tasks that were sent under a higher limit, or that a lost
worker brings back, can exceed it; then no task is sent until enough of them have ended. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from zcrawl.dispatch.gates import LeaderTables
from zcrawl.model.rows import NO_HOST


class LabelLimits:
    def __init__(self, tables: LeaderTables) -> None:
        self._leases, self._runs = tables.leases, tables.runs
        self.limits: dict[str, int] = {}
        self._counts: dict[str, int] = {}  # as of the plan that is being made
        self._sent: dict[int, frozenset[str]] = {}  # request → its labels when it was sent

    def change(self, limits: Mapping[str, int]) -> None:
        """Use other limits from now on."""
        self.limits = dict(limits)
        self._sent.clear()

    def labels_of(self, run: int) -> frozenset[str]:
        """Return the limited labels that the tasks of a run need."""
        active = self._runs.get(run)
        if active is None or not active.require or not self.limits:
            return frozenset()
        return active.require & self.limits.keys()

    def running(self) -> dict[str, int]:
        """Return how many tasks workers have now, by limited label."""
        counts = dict.fromkeys(self.limits, 0)
        if not counts:
            return counts
        for run in self._runs.active:
            lane = (run, NO_HOST)
            for label in self.labels_of(run):
                counts[label] += self._leases.by_lane.get(lane, 0)
                counts[label] -= self._leases.received_by_lane.get(lane, 0)
        return counts

    def recount(self) -> None:
        """Count again, before a plan."""
        self._counts = self.running()

    def obstacle(self, run: int, counts: Mapping[str, int] | None = None) -> str:
        """Return the first label of the run that has no room for one more task; empty: none.

        Without `counts`, those of the plan that is being made are used.
        """
        used = self._counts if counts is None else counts
        return next(
            (label for label in sorted(self.labels_of(run)) if used[label] >= self.limits[label]),
            "",
        )

    def sent(self, run: int, seq: int) -> None:
        """Count a task that is sent."""
        labels = self.labels_of(run)
        for label in labels:
            self._counts[label] += 1
        if labels:
            self._sent[seq] = labels

    def left(self, seq: int) -> None:
        """Note that a worker no longer holds a task."""
        self._sent.pop(seq, None)

    def check(self) -> None:
        for label, limit in self.limits.items():
            held = sum(
                label in labels and self._leases.holds(seq) for seq, labels in self._sent.items()
            )
            assert held <= limit, f"label {label}: {held} tasks were sent, and {limit} may be"
