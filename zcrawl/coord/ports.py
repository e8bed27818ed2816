"""What a master or a worker needs of whoever says who leads and who is there.

Backends: `agents.consul` (Consul) and `testing.coordinator` (the election machine on a simulated
Consul); one contract suite runs on both. Everything that a coordinator learns comes as an event,
on the event loop's thread, in the order in which it became true.

The lock is advice, not a fence: who holds it may lead, and the epoch in the database decides (G4).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from zcrawl.mesh.ports import Endpoints


class MemberRole(enum.StrEnum):
    MASTER = "master"  # stands for election
    WORKER = "worker"  # is registered and watches, nothing more


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
    incarnation: int  # random per process start: tells two processes with one id apart
    slots: int = 0  # workers: fetches at a time
    endpoints: Endpoints | None = None  # masters: as others reach them
    curve_key: str = ""  # public, empty without encryption


class Condition(msgspec.Struct, frozen=True):
    """How a member is; `Coordinator.update` publishes it. Cheap to repeat."""

    note: str = ""  # one line for people: "leader, epoch 12, 4 workers"
    tags: tuple[str, ...] = ()  # beside those that the coordinator sets itself (leader, cluster)
    meta: dict[str, str] = msgspec.field(default_factory=dict)  # e.g. load, draining


class Sighting(msgspec.Struct, frozen=True):
    """A member as the catalogue shows it."""

    member: Member
    health: Health
    leads: bool  # its tag says so; the lock key has the last word (LeaderSeen)
    condition: Condition


class Leadership(msgspec.Struct, frozen=True):
    """The lock is held: what `FileLock.acquire` returns to the embedded form."""

    hint: int  # the lock's own fencing number; 0 where it has none
    alone: bool  # no process of an earlier leader can be alive


# ------------------------------------------------------------ events


class Elected(msgspec.Struct, frozen=True):
    """The lock is ours. `hint` may go back after Consul lost its data: only a hint."""

    hint: int
    alone: bool


class Deposed(msgspec.Struct, frozen=True):
    """The lock is certainly lost, or was given back."""

    reason: str


class LeaderSeen(msgspec.Struct, frozen=True):
    """Who holds the lock now. None: nobody, or somebody whose entry cannot be read (`detail`)."""

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


class IdTaken(msgspec.Struct, frozen=True):
    """Another living process is registered under our id, and has been for a while."""

    other: Member


class CoordAway(msgspec.Struct, frozen=True):
    """The backend does not answer, or refuses us. Told once; a leader stays leader."""

    reason: str


class CoordBack(msgspec.Struct, frozen=True):
    """All is answered again."""


CoordEvent: TypeAlias = (
    Elected
    | Deposed
    | LeaderSeen
    | MastersChanged
    | WorkersChanged
    | IdTaken
    | CoordAway
    | CoordBack
)
OnEvent: TypeAlias = Callable[[CoordEvent], None]


class Coordinator(Protocol):
    """Called on the event loop's thread; nothing here blocks it."""

    def start(self, me: Member, on_event: OnEvent) -> None:
        """Register, watch, stand for election if `me` is a master; keeps trying for ever.

        Needs a running event loop. Call it once.
        """
        ...

    def loop_alive(self) -> None:
        """The event loop turns; to be called twice a second. After 2 s without it we are dead."""
        ...

    def update(self, condition: Condition) -> None:
        """Show this condition in the catalogue."""
        ...

    def resign(self) -> None:
        """Give the lock back; Deposed follows at once. Stands again after a pause."""
        ...

    async def close(self) -> None:
        """Give back lock, session and registration; at most about a second. No events after it."""
        ...
