"""The reloads that operators asked for, and which nodes have answered.

Called by the leader. A reload has an id, which the client chose: a request that comes twice finds
the first one. Nothing is stored: after a failover the client asks the new leader with the same id,
and a node that has done it already answers from memory.

State of one process in a reload:

    waiting ──RELOADED──▶ answered
       │ sent again every second
       └──10 s, or the worker is lost──▶ silent

The processes of one node share its report. Invariant: a process is in `waiting` or not part of the
reload any more, and `rows` has at most one row for each node. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from zcrawl.model.reload_report import ReloadReport, refused

SEND_AGAIN_S: Final = 1.0
PATIENCE_S: Final = 10.0
MOST_KEPT: Final = 20
MASTER, WORKER = "master", "worker"


class NodeRow(msgspec.Struct, frozen=True):
    """What one node has answered."""

    node: str
    kind: str
    report: ReloadReport


class ConfigReload(msgspec.Struct):
    """One reload."""

    began: float
    waiting: dict[tuple[str, str], float]  # (kind, process) → when to send it again
    rows: dict[tuple[str, str], NodeRow] = {}  # (kind, node) → its report

    def answered(self, kind: str, process: str, node: str, report: ReloadReport) -> None:
        """Take the answer of a process. An empty node: another process speaks for it."""
        if self.waiting.pop((kind, process), None) is None or not node:
            return
        self.rows.setdefault((kind, node), NodeRow(node, kind, report))

    def silent(self, kind: str, process: str, why: str) -> None:
        """Give up a process that does not answer."""
        self.answered(kind, process, process, refused(why))


class DueReloads(msgspec.Struct, frozen=True):
    """What has to be sent now for one reload."""

    request: str
    masters: list[str]
    workers: list[str]


class Reloads:
    def __init__(self) -> None:
        self._reloads: dict[str, ConfigReload] = {}  # by id, the newest last

    def begin(
        self, request: str, masters: Iterable[str], workers: Iterable[str], now: float
    ) -> None:
        """Begin a reload of these processes; one that has begun goes on."""
        if request in self._reloads:
            return
        processes = [(MASTER, name) for name in masters] + [(WORKER, name) for name in workers]
        self._reloads[request] = ConfigReload(now, dict.fromkeys(processes, now))
        while len(self._reloads) > MOST_KEPT:
            del self._reloads[next(iter(self._reloads))]

    def due(self, now: float) -> list[DueReloads]:
        """Return what must be sent now, and give up those who have been silent for too long."""
        due = []
        for request, reload in self._reloads.items():
            for kind, process in list(reload.waiting):
                if now - reload.began > PATIENCE_S:
                    reload.silent(kind, process, f"no answer within {PATIENCE_S:.0f} s")
            processes = [entry for entry, at in reload.waiting.items() if at <= now]
            for entry in processes:
                reload.waiting[entry] = now + SEND_AGAIN_S
            masters = [process for kind, process in processes if kind == MASTER]
            workers = [process for kind, process in processes if kind == WORKER]
            if processes:
                due.append(DueReloads(request, masters, workers))
        return due

    def answered(
        self, request: str, kind: str, process: str, node: str, report: ReloadReport
    ) -> None:
        reload = self._reloads.get(request)
        if reload is not None:
            reload.answered(kind, process, node, report)

    def view(self, request: str) -> dict[str, Any]:
        """Return what a client sees; `began` is false if this leader does not have the reload."""
        reload = self._reloads.get(request)
        if reload is None:
            return {"began": False, "waiting": [], "nodes": []}
        rows = sorted(reload.rows.values(), key=lambda row: (row.kind, row.node))
        return {
            "began": True,
            "waiting": sorted(process for _, process in reload.waiting),
            "nodes": [
                {
                    "node": row.node,
                    "kind": row.kind,
                    "changed": row.report.changed,
                    "needs_restart": row.report.waiting,
                    "error": row.report.error,
                }
                for row in rows
            ],
        }

    def check(self) -> None:
        assert len(self._reloads) <= MOST_KEPT, "old reloads are forgotten"


def belongs_to(worker: str, node: str) -> bool:
    """Return whether a worker process is the node of that name, or one of its processes."""
    base, _, number = worker.rpartition("-")
    return worker == node or (base == node and number.isdecimal())
