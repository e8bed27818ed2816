"""What the console knows of a cluster: the leader's snapshot and answers, typed and checked.

A master of another version may leave fields out or send new ones: what is missing has a default,
what is new is ignored, and what is of a wrong kind makes the message invalid, which is counted
and shown instead of drawn.
"""

from __future__ import annotations

from typing import Any

import msgspec


class _Data(msgspec.Struct, frozen=True):
    pass


class Worker(_Data, frozen=True):
    id: str
    state: str = "joining"
    slots: int = 0
    running: int = 0
    waiting: int = 0
    leases: int = 0
    rate: float = 0.0
    outbox: int = 0
    rss_bytes: int = 0
    lag_ms: float = 0.0
    heard_s_ago: float = 0.0
    pid: int = 0
    hostname: str = ""
    version: str = ""


class Run(_Data, frozen=True):
    run: int
    job: int
    name: str = ""
    tags: tuple[str, ...] = ()
    state: str = ""
    reason: str = ""
    pages: int = 0
    items: int = 0
    failed: int = 0
    skipped: int = 0
    queued: int = 0
    in_flight: int = 0
    admitted: int = 0
    bytes: int = 0
    seconds: float = 0.0
    max_pages: int | None = None
    rate: float | None = None
    concurrency: int | None = None

    @property
    def ended(self) -> bool:
        return self.state in ("completed", "cancelled", "deleted")

    @property
    def final(self) -> int:
        return self.pages + self.failed + self.skipped

    @property
    def share(self) -> float:
        """How far it is, 0 to 1: final requests of all admitted ones, or pages of max_pages."""
        if self.ended:
            return 1.0
        share = self.final / self.admitted if self.admitted else 0.0
        if self.max_pages:
            share = max(share, self.pages / self.max_pages)
        return min(0.999, share)

    @property
    def left(self) -> int:
        """Requests that are still to be made, as far as known."""
        open_ = self.queued + self.in_flight
        return min(open_, max(0, self.max_pages - self.pages)) if self.max_pages else open_


class StoreHealth(_Data, frozen=True):
    state: str = "ok"
    error: str | None = None
    since_s: float = 0.0


class Process(_Data, frozen=True):
    """What the leader's own process takes."""

    rss_bytes: int = 0
    lag_ms: float = 0.0


class Snapshot(_Data, frozen=True):
    leader: str
    epoch: int
    at: float = 0.0
    workers: tuple[Worker, ...] = ()
    runs: tuple[Run, ...] = ()
    statuses: dict[str, dict[str, int]] = {}
    failed: dict[str, dict[str, int]] = {}
    store: StoreHealth = StoreHealth()
    next_retry_s: float | None = None
    counters: dict[str, int] = {}
    masters: tuple[Any, ...] = ()
    process: Process = Process()
    workers_total: int = 0  # more than are listed, in a very large cluster
    runs_total: int = 0


def read_snapshot(data: dict[str, Any]) -> Snapshot:
    """Raises msgspec.ValidationError for what is no snapshot."""
    return msgspec.convert(data, Snapshot)
