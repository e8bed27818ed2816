"""What changed between two snapshots of the leader: runs, nodes and the leader itself. Pure.

`hub` calls `see` with each snapshot and publishes the changes as events. The first snapshot is
where it begins and gives no events. A snapshot has only the first of very many runs and workers,
so a run that disappears says nothing: it is in `missing` until `hub` has asked for its state.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zcrawl.model.snapshot import ENDED, LiveRunView, PublishedSnapshot

RUN: Final = "run"
NODE: Final = "node"
LEADER: Final = "leader"
WORKER: Final = "worker"
MASTER: Final = "master"
GONE: Final = "gone"
KEPT_ENDED: Final = 5_000  # runs whose end was published, so that it is published once


class StateChange(msgspec.Struct, frozen=True):
    """An event to publish. `job`, `run` and `name` are what clients filter by."""

    kind: str
    data: dict[str, Any]
    job: int = 0
    run: int = 0
    name: str = ""  # of the job


class SeenRun(msgspec.Struct, frozen=True):
    """The last published state of a run."""

    job: int
    run: int
    name: str
    state: str
    reason: str = ""


class StateChanges:
    def __init__(self) -> None:
        self._begun = False
        self._leader = ("", 0)
        self._runs: dict[int, SeenRun] = {}
        self._ended: dict[int, None] = {}  # in the order of their ends
        self._nodes: dict[tuple[str, str], str] = {}
        self.missing: dict[int, SeenRun] = {}  # they were alive, and are in no snapshot any more

    def see(self, snapshot: PublishedSnapshot) -> list[StateChange]:
        """Return what changed since the last snapshot."""
        changes = [
            *self._leader_change(snapshot),
            *self._node_changes(snapshot),
            *self._run_changes(snapshot),
        ]
        if not self._begun:
            self._begun = True
            return []
        return changes

    def job_of(self, run: int) -> SeenRun | None:
        """Return what is known about a run, to say which job an event is about."""
        return self._runs.get(run) or self.missing.get(run)

    def settle(self, run: int, state: str, reason: str) -> list[StateChange]:
        """Take in the answer about a missing run."""
        seen = self.missing.pop(run, None)
        if seen is None:
            return []
        now = msgspec.structs.replace(seen, state=state, reason=reason)
        if state in ENDED:
            self._keep_end(run)
        else:  # alive, and beyond the end of the snapshot: the last to be asked about again
            self.missing[run] = now
        if (seen.state, seen.reason) == (state, reason):
            return []
        return [_run_change(now, seen.state)]

    def _leader_change(self, snapshot: PublishedSnapshot) -> list[StateChange]:
        leader = (snapshot.leader, snapshot.epoch)
        if leader == self._leader:
            return []
        old, self._leader = self._leader[0], leader
        data = {"leader": snapshot.leader, "epoch": snapshot.epoch, "was": old}
        return [StateChange(LEADER, data)]

    def _node_changes(self, snapshot: PublishedSnapshot) -> list[StateChange]:
        nodes = {(MASTER, master.id): master.role for master in snapshot.masters}
        for worker in snapshot.workers:
            deaf = " deaf" if worker.deaf else ""
            nodes[WORKER, worker.id] = f"{'drained' if worker.drained else worker.state}{deaf}"
        changes = [
            _node_change(node, state, self._nodes.get(node, ""))
            for node, state in nodes.items()
            if self._nodes.get(node) != state
        ]
        if snapshot.workers_total > len(snapshot.workers):
            self._nodes |= nodes
        else:
            gone = self._nodes.keys() - nodes.keys()
            changes += [_node_change(node, GONE, self._nodes[node]) for node in sorted(gone)]
            self._nodes = nodes
        return changes

    def _run_changes(self, snapshot: PublishedSnapshot) -> list[StateChange]:
        changes: list[StateChange] = []
        runs: dict[int, SeenRun] = {}
        for view in snapshot.runs:
            runs[view.run] = now = _seen(view)
            before = self._runs.get(view.run) or self.missing.pop(view.run, None)
            is_news = before is None or (before.state, before.reason) != (now.state, now.reason)
            if not is_news or (before is None and view.run in self._ended):
                continue
            changes.append(_run_change(now, before.state if before is not None else ""))
            if now.state in ENDED:
                self._keep_end(now.run)
        for run, seen in self._runs.items():
            if run not in runs and seen.state not in ENDED:
                self.missing[run] = seen
        self._runs = runs
        return changes

    def _keep_end(self, run: int) -> None:
        self._ended.pop(run, None)
        self._ended[run] = None
        while len(self._ended) > KEPT_ENDED:
            del self._ended[next(iter(self._ended))]


def _seen(view: LiveRunView) -> SeenRun:
    return SeenRun(view.job, view.run, view.name, str(view.state), view.reason)


def _run_change(now: SeenRun, was: str) -> StateChange:
    return StateChange(RUN, msgspec.structs.asdict(now) | {"was": was}, now.job, now.run, now.name)


def _node_change(node: tuple[str, str], state: str, was: str) -> StateChange:
    return StateChange(NODE, {"node": node[1], "role": node[0], "state": state, "was": was})
