"""What happens to a master, and what a master wants done: the vocabulary of its machines.

Events are past tense and come from the edge (sockets, the store threads, the lock service, the
clock); effects are imperative and go there.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from zcrawl.coord.ports import Deposed as Deposed
from zcrawl.coord.ports import Elected as Elected
from zcrawl.errors import StoreError
from zcrawl.mesh.messages import BadBody, Body, ClientRequest, LogRecords, Message, Reply
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.note import Note as Note
from zcrawl.store.commands import Command, CommandOutcome
from zcrawl.store.queries import Query, QueryOutcome


class NodeEntry(msgspec.Struct, frozen=True):
    """A node as the catalogue has it."""

    id: str
    healthy: bool
    detail: str = ""  # the health check's last words
    hostname: str = ""
    version: str = ""
    pid: int = 0
    endpoints: Endpoints | None = None  # of a master, as others reach it


# ---------------------------------------------------------------- events


class CatalogueSeen(msgspec.Struct, frozen=True):
    """Who is registered, as whoever coordinates tells it; None: not told this time."""

    masters: tuple[NodeEntry, ...] | None = None
    workers: tuple[NodeEntry, ...] | None = None
    away: str | None = None  # why the catalogue cannot be read; "": it can be read again
    own: Endpoints | None = None  # as others reach us, whether we are registered or not


class MessageCame(msgspec.Struct, frozen=True):
    message: Message | BadBody
    route: bytes = b""  # the way back; empty: it was published, there is none
    by_master: bool = False  # it came over a line to another master


class ClientAsked(msgspec.Struct, frozen=True):
    client: bytes  # the route back
    request: ClientRequest


class ReplyCame(msgspec.Struct, frozen=True):
    """The leader's answer to a request that was forwarded to it."""

    reply: Reply


class CommandDone(msgspec.Struct, frozen=True):
    command: Command
    outcome: CommandOutcome


class CommandFailed(msgspec.Struct, frozen=True):
    command: Command
    error: StoreError


class QueryDone(msgspec.Struct, frozen=True):
    query: Query
    tag: str
    outcome: QueryOutcome


class QueryFailed(msgspec.Struct, frozen=True):
    query: Query
    tag: str
    error: StoreError


class Measured(msgspec.Struct, frozen=True):
    """What this process takes, once a second."""

    rss_bytes: int
    lag_ms: float  # how late its loop was at worst


class LinesLogged(msgspec.Struct, frozen=True):
    """What this process logged besides the notes of its leader."""

    lines: LogRecords


class MasterTicked(msgspec.Struct, frozen=True):
    """Time passed, or a batch of messages was handed over: plan, commit, beat."""


MasterEvent: TypeAlias = (
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
    | MasterTicked
)

# ---------------------------------------------------------------- effects


class SendToWorker(msgspec.Struct, frozen=True):
    worker: str
    incarnation: int  # of the process that is meant; another one of the same id ignores it
    route: bytes  # as its HELLO came
    body: Body
    sequence: int = 0


class Publish(msgspec.Struct, frozen=True):
    body: Body


class Execute(msgspec.Struct, frozen=True):
    """Run a command on the writer thread, in order."""

    command: Command


class Ask(msgspec.Struct, frozen=True):
    """Run a query on the reader thread."""

    query: Query
    tag: str


class Forward(msgspec.Struct, frozen=True):
    """Hand a client's request to the master that leads."""

    master: str
    request: ClientRequest


class ReplyTo(msgspec.Struct, frozen=True):
    client: bytes
    reply: Reply


class StepDown(msgspec.Struct, frozen=True):
    """Give the lock back; this master leads no more."""

    reason: str


# that it is about; 0: about none


class LeadershipBegan(msgspec.Struct, frozen=True):
    """The database is loaded: this master leads. Whoever waits for that goes on."""


class TakeoverFailed(msgspec.Struct, frozen=True):
    """It is tried again; a process that gives up waiting says why."""

    reason: str


MasterEffect: TypeAlias = (
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
MasterEffects: TypeAlias = list[MasterEffect]
