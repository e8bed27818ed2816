"""The workers of a snapshot as tiles of the heat map. Pure."""

from __future__ import annotations

from console.drawing.heat_map import Tile
from console.latest import Latest
from console.plain import plain
from console.state import ConsolePage, Place, View
from console.units import rate, size
from zcrawl.model.snapshot import PublishedSnapshot, WorkerView

SILENT = ("lost", "offline")  # states without figures: old ones would look real


def tiles(view: View) -> list[Tile]:
    """Return one tile for each worker, in the order of their names."""
    return _latest_tiles(view.content.snapshot)


def worker_place(worker: str) -> Place:
    """Return the page about one worker."""
    return Place(ConsolePage.NODE, worker, (("id", worker), ("kind", "worker")))


def _tiles(snapshot: PublishedSnapshot | None) -> list[Tile]:
    workers = snapshot.workers if snapshot is not None else ()
    return [_tile(worker) for worker in sorted(workers, key=_natural)]


_latest_tiles = Latest(_tiles)


def _natural(worker: WorkerView) -> tuple[str, int, str]:
    """`w2` before `w10`."""
    head = worker.id.rstrip("0123456789")
    digits = worker.id[len(head) :][:15]
    return head, int(digits) if digits else -1, worker.id


def _tile(worker: WorkerView) -> Tile:
    name, state = plain(worker.id, 60), plain(worker.state, 12)
    if state in SILENT:
        heard = f"last heard {worker.heard_s_ago:.0f} s ago"
        return Tile(worker.id, name, state, 0.0, "", f"{name}: {state}, {heard}")
    load = worker.running / worker.slots if worker.slots else 0.0
    detail = (
        f"{name}: {state}, fetching {worker.running} of {worker.slots}, {worker.waiting} waiting, "
        f"{rate(worker.rate)}/s, {size(worker.rss_bytes)}, lag {worker.lag_ms:.0f} ms"
    )
    return Tile(worker.id, name, state, load, f"{rate(worker.rate)}/s", detail)
