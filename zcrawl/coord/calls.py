"""The words between the election machine and Consul: calls out, answers and readings in.

`agents.consul_client` performs the calls on the real thing, `testing.lock_service` on a simulated
one.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from zcrawl.coord.ports import Condition, CoordEvent, MemberRole, Sighting


class Trouble(enum.Enum):
    """Why a call had no effect that we know of."""

    AWAY = "away"  # no connection, no answer in time, no cluster leader: nothing is known
    DENIED = "denied"  # the token lacks a right
    GONE = "gone"  # what the call was about does not exist (any more)
    REFUSED = "refused"  # understood and not done


# ------------------------------------------------------------ calls


class Register(msgspec.Struct, frozen=True):
    """Enter the catalogue, or change our entry. The check starts, or stays, passing."""

    leads: bool
    condition: Condition


class PassCheck(msgspec.Struct, frozen=True):
    note: str


class CreateSession(msgspec.Struct, frozen=True):
    pass


class RenewSession(msgspec.Struct, frozen=True):
    session: str


class AcquireLock(msgspec.Struct, frozen=True):
    """Won again, with the same number, by the session that holds it: also proves that it does."""

    session: str


class ReleaseLock(msgspec.Struct, frozen=True):
    session: str


class DestroySession(msgspec.Struct, frozen=True):
    session: str


class Deregister(msgspec.Struct, frozen=True):
    pass


class DeregisterDead(msgspec.Struct, frozen=True):
    """Another member's entry, whose own agent cannot remove it any more."""

    node: str
    service_id: str


Call: TypeAlias = (
    Register
    | PassCheck
    | CreateSession
    | RenewSession
    | AcquireLock
    | ReleaseLock
    | DestroySession
    | Deregister
    | DeregisterDead
)


class Tell(msgspec.Struct, frozen=True):
    """Something that our own process shall know."""

    event: CoordEvent


ElectionEffect: TypeAlias = Call | Tell
ElectionEffects: TypeAlias = list[ElectionEffect]


# ------------------------------------------------------------ answers


class CallDone(msgspec.Struct, frozen=True):
    call: Call


class SessionMade(msgspec.Struct, frozen=True):
    session: str


class LockWon(msgspec.Struct, frozen=True):
    session: str
    hint: int  # LockIndex, from the same commit


class LockRefused(msgspec.Struct, frozen=True):
    """Somebody else holds it, or held it a moment ago (lock-delay)."""

    session: str


class CallFailed(msgspec.Struct, frozen=True):
    call: Call
    trouble: Trouble
    reason: str


CallAnswer: TypeAlias = CallDone | SessionMade | LockWon | LockRefused | CallFailed


# ------------------------------------------------------------ readings, from the watches


class LockEntry(msgspec.Struct, frozen=True):
    """The lock key as it stands in Consul; whoever can write there wrote the value."""

    session: str  # empty: nobody holds it
    lock_index: int
    value: bytes


class CatalogueRow(msgspec.Struct, frozen=True):
    node: str  # of Consul
    service_id: str
    sighting: Sighting


class LockRead(msgspec.Struct, frozen=True):
    entry: LockEntry | None  # None: there is no such key


class MembersRead(msgspec.Struct, frozen=True):
    role: MemberRole
    rows: tuple[CatalogueRow, ...]


class WatchFailed(msgspec.Struct, frozen=True):
    what: str  # "lock", or the value of a role
    trouble: Trouble
    reason: str


# ------------------------------------------------------------ our own process


class ElectionTicked(msgspec.Struct, frozen=True):
    pass


class LoopLived(msgspec.Struct, frozen=True):
    """The event loop turned at this moment, which may be a while ago."""

    at: float


class ConditionSet(msgspec.Struct, frozen=True):
    condition: Condition


class ResignAsked(msgspec.Struct, frozen=True):
    pass


class CloseAsked(msgspec.Struct, frozen=True):
    pass


ElectionEvent: TypeAlias = (
    CallAnswer
    | LockRead
    | MembersRead
    | WatchFailed
    | ElectionTicked
    | LoopLived
    | ConditionSet
    | ResignAsked
    | CloseAsked
)
