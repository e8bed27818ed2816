"""What happens to a master, and what a master wants done: the vocabulary of its machines.

Events are past tense and come from the edge (sockets, the store threads, the lock service, the
clock); effects are imperative and go there.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from zcrawl.errors import StoreError
from zcrawl.mesh.messages import BadBody, Body, Lines, Message, Reply, Request
from zcrawl.mesh.ports import Endpoints
from zcrawl.store.commands import Command, CommandOutcome
from zcrawl.store.queries import Query, QueryOutcome


class _Data(msgspec.Struct, frozen=True):
    pass


class NodeEntry(_Data, frozen=True):
    """A node as the catalogue has it."""

    id: str
    healthy: bool
    detail: str = ""  # the health check's last words
    hostname: str = ""
    version: str = ""
    pid: int = 0
    endpoints: Endpoints | None = None  # of a master, as others reach it


# ---------------------------------------------------------------- events


class Elected(_Data, frozen=True):
    """The lock is ours. `alone`: no process of an earlier leader can be alive."""

    hint: int  # the lock's own fencing number
    alone: bool


class Deposed(_Data, frozen=True):
    """The lock is gone, or must be taken as gone."""

    reason: str


class CatalogueSeen(_Data, frozen=True):
    """Who is registered, as whoever coordinates tells it; None: not told this time."""

    masters: tuple[NodeEntry, ...] | None = None
    workers: tuple[NodeEntry, ...] | None = None
    away: str | None = None  # why the catalogue cannot be read; "": it can be read again
    own: Endpoints | None = None  # as others reach us, whether we are registered or not


class MessageCame(_Data, frozen=True):
    message: Message | BadBody
    route: bytes = b""  # the way back; empty: it was published, there is none
    by_master: bool = False  # it came over a line to another master


class ClientAsked(_Data, frozen=True):
    client: bytes  # the route back
    request: Request


class ReplyCame(_Data, frozen=True):
    """The leader's answer to a request that was forwarded to it."""

    reply: Reply


class CommandDone(_Data, frozen=True):
    command: Command
    outcome: CommandOutcome


class CommandFailed(_Data, frozen=True):
    command: Command
    error: StoreError


class QueryDone(_Data, frozen=True):
    query: Query
    tag: str
    outcome: QueryOutcome


class QueryFailed(_Data, frozen=True):
    query: Query
    tag: str
    error: StoreError


class Measured(_Data, frozen=True):
    """What this process takes, once a second."""

    rss_bytes: int
    lag_ms: float  # how late its loop was at worst


class LinesLogged(_Data, frozen=True):
    """What this process logged besides the notes of its leader."""

    lines: Lines


class Ticked(_Data, frozen=True):
    """Time passed, or a batch of messages was handed over: plan, commit, beat."""


Event: TypeAlias = (
    Elected
    | Deposed
    | CatalogueSeen
    | MessageCame
    | ClientAsked
    | ReplyCame
    | CommandDone
    | CommandFailed
    | QueryDone
    | QueryFailed
    | Measured
    | LinesLogged
    | Ticked
)

# ---------------------------------------------------------------- effects


class SendToWorker(_Data, frozen=True):
    worker: str
    incarnation: int  # of the process that is meant; another one of the same id ignores it
    route: bytes  # as its HELLO came
    body: Body
    sequence: int = 0


class Publish(_Data, frozen=True):
    body: Body


class Execute(_Data, frozen=True):
    """Run a command on the writer thread, in order."""

    command: Command


class Ask(_Data, frozen=True):
    """Run a query on the reader thread."""

    query: Query
    tag: str


class Forward(_Data, frozen=True):
    """Hand a client's request to the master that leads."""

    master: str
    request: Request


class ReplyTo(_Data, frozen=True):
    client: bytes
    reply: Reply


class StepDown(_Data, frozen=True):
    """Give the lock back; this master leads no more."""

    reason: str


class Note(_Data, frozen=True):
    """A counter and a log event (G7)."""

    name: str
    detail: str = ""
    run: int = 0  # that it is about; 0: about none


class LeadershipBegan(_Data, frozen=True):
    """The database is loaded: this master leads. Whoever waits for that goes on."""


class TakeoverFailed(_Data, frozen=True):
    """It is tried again; a process that gives up waiting says why."""

    reason: str


Effect: TypeAlias = (
    SendToWorker
    | Publish
    | Execute
    | Ask
    | Forward
    | ReplyTo
    | StepDown
    | LeadershipBegan
    | TakeoverFailed
    | Note
)
Effects: TypeAlias = list[Effect]
