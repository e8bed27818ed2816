"""The nodes that are registered with the coordinator, and differences from the mesh.

Every master keeps it, leader or follower. Without a coordinator (embedded form) it stays empty, and
nothing is compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.master.events import CatalogueSeen, NodeEntry
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.snapshot import DOWN, FOLLOWER, LEADER, SILENT, MasterView
from zcrawl.model.vitals import Vitals

SILENT_S: Final = 5.0  # a master reports once a second


class Catalogue:
    def __init__(self) -> None:
        self.masters: tuple[NodeEntry, ...] = ()
        self.workers: tuple[NodeEntry, ...] | None = None  # None: not read yet
        self.away = ""  # why it cannot be read at the moment
        self._own: Endpoints | None = None
        self._vitals: dict[
            str, tuple[Vitals, float]
        ] = {}  # master → its vitals, and when they arrived

    def see(self, seen: CatalogueSeen) -> None:
        if seen.masters is not None:
            self.masters = seen.masters
            names = {entry.id for entry in seen.masters}
            self._vitals = {name: report for name, report in self._vitals.items() if name in names}
        if seen.workers is not None:
            self.workers = seen.workers
        if seen.away is not None:
            self.away = seen.away
        if seen.own is not None:
            self._own = seen.own

    def hear(self, master: str, vitals: Vitals, now: float) -> None:
        """Keep the vitals of a registered master; other names are ignored to bound memory."""
        if any(entry.id == master for entry in self.masters):
            self._vitals[master] = (vitals, now)

    def endpoints(self) -> list[dict[str, Any]]:
        """Return how to reach each master: the answer of `masters`.

        This master is always listed, even if the catalogue cannot be read or does not show it yet.
        """
        addresses = [entry.endpoints for entry in self.masters if entry.endpoints is not None]
        if self._own is not None and all(
            address.master != self._own.master for address in addresses
        ):
            addresses.append(self._own)
        return [msgspec.to_builtins(address) for address in addresses]

    def masters_view(self, leader: str, now: float) -> tuple[MasterView, ...]:
        return tuple(
            MasterView(
                id=entry.id,
                role=self._role(entry, leader, now),
                healthy=entry.healthy,
                detail=entry.detail,
                control=entry.endpoints.control if entry.endpoints is not None else "",
                pid=entry.pid,
                hostname=entry.hostname,
                version=entry.version,
                **self._vitals_view(entry.id, now),
            )
            for entry in sorted(self.masters, key=lambda entry: entry.id)
        )

    def _role(self, entry: NodeEntry, leader: str, now: float) -> str:
        """Return what a master does: one that is dead does not follow."""
        if entry.id == leader:
            return LEADER
        if not entry.healthy:
            return DOWN
        report = self._vitals.get(entry.id)
        return SILENT if report is not None and now - report[1] > SILENT_S else FOLLOWER

    def _vitals_view(self, master: str, now: float) -> dict[str, Any]:
        """Return the vitals of a master; nothing if it sent none, because a zero would look
        real. Old ones are left out, because they would look like those of now."""
        if master not in self._vitals:
            return {}
        vitals, at = self._vitals[master]
        silence = {"heard_s_ago": round(now - at, 1)}
        if now - at > SILENT_S:
            return silence
        cpu = {} if vitals.cpu_percent is None else {"cpu_percent": round(vitals.cpu_percent, 1)}
        return {
            "rss_bytes": vitals.rss_bytes,
            "lag_ms": round(vitals.lag_ms, 1),
            **cpu,
            **silence,
        }

    def differences(self, mesh: Iterable[WorkerInfo]) -> list[dict[str, str]]:
        """Return workers that only one side lists, or that one side considers dead."""
        if self.workers is None:
            return []
        present = {info.id for info in mesh if info.present}
        healthy = {entry.id: entry.healthy for entry in self.workers}
        differences = []
        for node in sorted(present | healthy.keys()):
            in_mesh = "present" if node in present else "absent"
            state = healthy.get(node)
            in_catalogue = "absent" if state is None else "passing" if state else "critical"
            if (in_mesh, in_catalogue) not in (("present", "passing"), ("absent", "critical")):
                differences.append({"node": node, "mesh": in_mesh, "catalogue": in_catalogue})
        return differences
