"""The interface of a coordinator, which names the leader and lists the members.

Backends: `agents.consul` (Consul) and `testing.coordinator` (the election machine on a simulated
Consul); one contract suite runs on both. A coordinator reports everything as events,
on the event loop's thread, in the order in which it happened.

The holder of the lock may try to lead; the epoch in the database decides (G4).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from zcrawl.mesh.ports import Endpoints


class MemberRole(enum.StrEnum):
    MASTER = "master"  # stands for election
    WORKER = "worker"  # is only registered
    STANDALONE = "standalone"  # is only registered, and sees its like: a cluster without masters


class Health(enum.StrEnum):
    PASSING = "passing"
    CRITICAL = "critical"  # its process is silent, or its host is gone


class Member(msgspec.Struct, frozen=True):
    """One process of the cluster, as it presents itself."""

    role: MemberRole
    id: str
    cluster: str
    version: str
    hostname: str
    pid: int
    incarnation: int  # random per process start: distinguishes two processes with one id
    slots: int = 0  # workers: fetches at a time
    endpoints: Endpoints | None = None  # masters: as others reach them
    curve_key: str = ""  # public, empty without encryption


class Condition(msgspec.Struct, frozen=True):
    """The state of a member that `Coordinator.update` publishes. Cheap to repeat."""

    note: str = ""  # one line for people: "leader, epoch 12, 4 workers"
    tags: tuple[str, ...] = ()  # beside those that the coordinator sets itself (leader, cluster)
    meta: dict[str, str] = msgspec.field(default_factory=dict)  # e.g. load, draining


class Sighting(msgspec.Struct, frozen=True):
    """A member as the catalogue shows it."""

    member: Member
    health: Health
    leads: bool  # by its tag; the lock key decides (LeaderSeen)
    condition: Condition


class Leadership(msgspec.Struct, frozen=True):
    """The lock is held: what `FileLock.acquire` returns to the embedded form."""

    hint: int  # the lock's own fencing number; 0 where it has none
    alone: bool  # no process of an earlier leader can be alive


# ------------------------------------------------------------ events


class Elected(msgspec.Struct, frozen=True):
    """This member has the lock. `hint` may decrease after Consul lost its data."""

    hint: int
    alone: bool


class Deposed(msgspec.Struct, frozen=True):
    """The lock is certainly lost, or was given back."""

    reason: str


class LeaderSeen(msgspec.Struct, frozen=True):
    """The current holder of the lock; None: free, or its entry cannot be read (`detail`)."""

    master_id: str | None
    epoch_hint: int
    endpoints: Endpoints | None = None
    detail: str = ""  # for people, when there is something odd about the holder


class MastersChanged(msgspec.Struct, frozen=True):
    """All registered masters, this one too, sorted by id."""

    masters: tuple[Sighting, ...]


class WorkersChanged(msgspec.Struct, frozen=True):
    """All registered workers, sorted by id. Only masters are told."""

    workers: tuple[Sighting, ...]


class NodesChanged(msgspec.Struct, frozen=True):
    """All registered standalone nodes, this one too, sorted by id. Only they are told."""

    nodes: tuple[Sighting, ...]


class IdTaken(msgspec.Struct, frozen=True):
    """Another living process is registered under our id, and has been for a while."""

    other: Member


class CoordAway(msgspec.Struct, frozen=True):
    """The coordinator does not answer or refuses us; sent once. A leader stays leader."""

    reason: str


class CoordBack(msgspec.Struct, frozen=True):
    """The coordinator answers again."""


CoordEvent: TypeAlias = (
    Elected
    | Deposed
    | LeaderSeen
    | MastersChanged
    | WorkersChanged
    | NodesChanged
    | IdTaken
    | CoordAway
    | CoordBack
)
OnEvent: TypeAlias = Callable[[CoordEvent], None]


class Coordinator(Protocol):
    """Called on the event loop's thread; nothing here blocks it."""

    def start(self, me: Member, on_event: OnEvent) -> None:
        """Register, watch, and try to become leader if `me` is a master; never gives up.

        Needs a running event loop. Call it once.
        """
        ...

    def loop_alive(self) -> None:
        """Report that the event loop runs. Call it twice a second; after 2 s we count as dead."""
        ...

    def update(self, condition: Condition) -> None:
        """Show this condition in the catalogue."""
        ...

    def resign(self) -> None:
        """Give the lock back; Deposed follows at once. Tries again after a pause."""
        ...

    async def close(self) -> None:
        """Give back lock, session and registration within about a second; no events follow."""
        ...
