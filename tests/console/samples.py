"""Snapshots and views to look at, without a cluster."""

from __future__ import annotations

from typing import Any

from console.state import SnapshotCame, View
from console.view import reduce

AT = 1_700_000_000.0


def worker(name: str = "w1", **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "state": "busy",
        "slots": 32,
        "running": 8,
        "waiting": 3,
        "leases": 11,
    }
    fields |= {"rate": 40.0, "outbox": 2, "rss_bytes": 48_000_000, "lag_ms": 2.0}
    fields |= {"heard_s_ago": 0.4, "pid": 7, "hostname": "here", "version": "0.1.0"}
    return {"id": name, **fields, **changes}


def run(number: int = 1, name: str = "docs", **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"job": number, "state": "running", "reason": "", "pages": 500}
    fields |= {"items": 500, "failed": 3, "skipped": 7, "queued": 480, "in_flight": 10}
    fields |= {"admitted": 1000, "bytes": 5_000_000, "seconds": 12.5}
    return {"run": number, "name": name, **fields, **changes}


def snapshot(at: float = 0.0, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "leader": "m1",
        "epoch": 3,
        "workers": [worker("w1"), worker("w2", state="idle", running=0, rate=0.0)],
        "runs": [run(1), run(2, "shop", state="paused", in_flight=0)],
        "statuses": {"1": {"200": 500, "404": 3}},
        "failed": {"1": {"http_404": 3}},
        "store": {"state": "ok", "error": None, "since_s": 0.0},
        "next_retry_s": None,
        "counters": {},
    }
    return {**fields, "at": AT + at, **changes}


def heard(*snapshots: dict[str, Any], view: View | None = None) -> View:
    """A view that heard these, a second apart."""
    view = view or View(cluster="test")
    for one in snapshots:
        view = reduce(view, SnapshotCame(one, one["at"] - AT))
    return view
