"""The leader's state for displays: the contents of SNAPSHOT, sent once a second.

Made by `master.snapshot`; read by the console, the displays of the CLI and followers. Maps on the
wire and in JSON: a node of another version ignores fields that it does not know, and what is
missing has a default. A value of a wrong type makes the message unreadable.

Annotations are not strings here, as in `mesh.messages`.
"""

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from zcrawl.model.states import RunState
from zcrawl.model.vitals import WorkerVitals


class _Shown(msgspec.Struct, frozen=True):
    pass


class WorkerView(WorkerVitals, frozen=True, array_like=False, kw_only=True):
    """A worker: its vitals, and what the leader knows about it."""

    id: str
    state: str = "joining"
    deaf: bool = False  # it is heard, but does not hear the leader
    leases: int = 0
    uncommitted: int = 0  # its results that the leader has and the database has not
    drained: bool = False  # a person drained it; `undrain` takes it back
    heard_s_ago: float = 0.0
    pid: int = 0
    hostname: str = ""
    version: str = ""
    labels: tuple[str, ...] = ()


# The roles of a master, as displays name them.
LEADER: Final = "leader"
FOLLOWER: Final = "follower"
SILENT: Final = "silent"  # it has not reported for some seconds
DOWN: Final = "down"  # its health check fails


class MasterView(_Shown, frozen=True):
    """A registered master. Without a report it has no figures, because 0 would look real."""

    id: str
    role: str = FOLLOWER
    healthy: bool = True
    detail: str = ""
    control: str = ""
    pid: int = 0
    hostname: str = ""
    version: str = ""
    rss_bytes: int | UnsetType = UNSET
    lag_ms: float | UnsetType = UNSET
    cpu_percent: float | UnsetType = UNSET
    heard_s_ago: float | UnsetType = UNSET


class RunView(_Shown, frozen=True):
    """One run's counters. `queued` and `in_flight` together are what is not final yet.

    A request in flight is in one of three states: `fetching` (a worker has started it), `waiting`
    (a worker holds it for its turn) or `uncommitted` (its result is here, the commit is not).
    """

    job: int
    run: int
    name: str = ""
    state: str = ""
    reason: str = ""
    pages: int = 0
    unchanged: int = 0
    items: int = 0
    failed: int = 0
    skipped: int = 0
    queued: int = 0
    in_flight: int = 0  # the sum of the next three
    fetching: int = 0
    waiting: int = 0
    uncommitted: int = 0
    admitted: int = 0
    unfetched: int = 0  # requests that were not final when the run ended: they count as skipped
    bytes: int = 0
    seconds: float = 0.0
    pages_per_second: float = 0.0


class LiveRunView(RunView, frozen=True):
    """A run as the leader shows it."""

    tags: tuple[str, ...] = ()
    max_pages: int | None = None
    rate: float | None = None
    concurrency: int | None = None
    waits: str = ""  # `reason`, if that is what the run waits for
    why: str = ""  # what keeps most of its queue from being fetched faster

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def final(self) -> int:
        return self.pages + self.failed + self.skipped

    @property
    def share(self) -> float:
        """The progress, 0 to 1: final requests of all admitted ones, or pages of max_pages.

        A run that a person ended has got as far as it had then.
        """
        if self.state == RunState.COMPLETED:
            return 1.0
        if self.ended:
            return 1.0 - self.unfetched / self.admitted if self.admitted else 0.0
        share = self.final / self.admitted if self.admitted else 0.0
        if self.max_pages:
            share = max(share, self.pages / self.max_pages)
        return min(0.999, share)

    @property
    def left(self) -> int:
        """Requests that are still to be made, as far as known."""
        open_ = self.queued + self.in_flight
        return min(open_, max(0, self.max_pages - self.pages)) if self.max_pages else open_


ENDED = frozenset(str(state) for state in RunState if state.ended)


class StoreHealth(_Shown, frozen=True):
    state: str = "ok"
    error: str | None = None
    since_s: float = 0.0


class ProcessVitals(_Shown, frozen=True):
    """What the leader's own process takes."""

    rss_bytes: int = 0
    lag_ms: float = 0.0
    cpu_percent: float | None = None


class MishapsView(_Shown, frozen=True):
    """Errors inside a master: `master.crash_guard`."""

    total: int = 0
    in_row: int = 0
    last: str = ""


class ListedNodeView(_Shown, frozen=True):
    """One node of the list that standalone nodes share."""

    id: str
    address: str = ""
    alive: bool = True
    fingerprint: str = ""  # of its list; empty: not heard
    differs: bool = False  # its list is another one than that of the node that says this


class NodeListView(_Shown, frozen=True):
    """The list of nodes as a standalone node has it."""

    node: str  # who says this
    fingerprint: str = ""
    watched: bool = False  # nodes hear each other; otherwise all listed nodes count as living
    nodes: tuple[ListedNodeView, ...] = ()

    @property
    def has_node(self) -> bool:
        """Return whether the node that says this is in its own list."""
        return any(listed.id == self.node for listed in self.nodes)


class ClusterSnapshot(_Shown, frozen=True):
    leader: str
    epoch: int
    at: float = 0.0
    masters: tuple[MasterView, ...] = ()
    process: ProcessVitals = ProcessVitals()
    workers: tuple[WorkerView, ...] = ()
    runs: tuple[LiveRunView, ...] = ()
    statuses: dict[str, dict[str, int]] = {}  # run → status → pages
    failed: dict[str, dict[str, int]] = {}  # run → reason → requests
    store: StoreHealth = StoreHealth()
    mishaps: MishapsView = MishapsView()
    next_retry_s: float | None = None
    counters: dict[str, int] = {}
    standalone: NodeListView | None = None  # of a node without a master


class PublishedSnapshot(ClusterSnapshot, frozen=True):
    """The snapshot that is sent to all, with only the first of very many workers or runs."""

    workers_total: int = 0
    runs_total: int = 0


class OutputTrouble(_Shown, frozen=True):
    run: int
    path: str
    error: str
    detail: str


class OutputTroubles(_Shown, frozen=True):
    troubles: tuple[OutputTrouble, ...] = ()


class EmbeddedSnapshot(ClusterSnapshot, frozen=True):
    """The snapshot with details that only the embedded process has."""

    outputs: OutputTroubles = OutputTroubles()
    restarts: int = 0
