"""Events and effects of a master: the input and output of its machines.

Events are in past tense and come from outside (sockets, store threads, lock service, clock).
Effects are imperative and are carried out by `driver.loop`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from zcrawl.coord.ports import Deposed as Deposed
from zcrawl.coord.ports import Elected as Elected
from zcrawl.dispatch.secret_book import Vault
from zcrawl.errors import StoreError
from zcrawl.mesh.messages import BadBody, Body, ClientRequest, LogRecords, Message, Reply
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.log_event import Note as Note
from zcrawl.model.reload_report import ReloadReport
from zcrawl.model.spec import Retention, ScheduleDefaults
from zcrawl.store.commands import Command, CommandOutcome
from zcrawl.store.queries import Query, QueryOutcome
from zcrawl.submit.shell_rights import ShellRights


class NodeEntry(msgspec.Struct, frozen=True):
    """A node as the catalogue lists it."""

    id: str
    healthy: bool
    detail: str = ""  # the last output of the health check
    hostname: str = ""
    version: str = ""
    pid: int = 0
    endpoints: Endpoints | None = None  # of a master, as others reach it


# ---------------------------------------------------------------- events


class CatalogueSeen(msgspec.Struct, frozen=True):
    """The registered nodes as the coordinator lists them; None: not part of this event."""

    masters: tuple[NodeEntry, ...] | None = None
    workers: tuple[NodeEntry, ...] | None = None
    away: str | None = None  # why the catalogue cannot be read; "": it can be read again
    own: Endpoints | None = None  # how others reach this master


class MessageCame(msgspec.Struct, frozen=True):
    message: Message | BadBody
    route: bytes = b""  # route for an answer; empty: published, no answer possible
    by_master: bool = False  # it came from another master


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
    """Resource use of this process, once a second."""

    rss_bytes: int
    lag_ms: float  # the longest delay of its event loop
    cpu_percent: float | None = None  # of one core


class LinesLogged(msgspec.Struct, frozen=True):
    """Log lines of this process, without the notes of its leader."""

    lines: LogRecords


class RightsChanged(msgspec.Struct, frozen=True):
    """The configuration gives jobs other rights now."""

    private: bool  # jobs may reach private addresses
    code: bool  # jobs may bring a spider's file
    shell: ShellRights  # commands that jobs may run


class VaultChanged(msgspec.Struct, frozen=True):
    """The configuration has other keys for stored secrets now."""

    vault: Vault


class RetentionChanged(msgspec.Struct, frozen=True):
    """The configuration keeps other runs now, of jobs that do not say it."""

    retention: Retention


class LabelLimitsChanged(msgspec.Struct, frozen=True):
    """The configuration allows other numbers of tasks for labels now."""

    limits: dict[str, int]  # label → tasks at a time that need it


class ScheduleDefaultsChanged(msgspec.Struct, frozen=True):
    """The configuration has other defaults now, of jobs whose [schedule] does not say it."""

    defaults: ScheduleDefaults


class ConfigReloaded(msgspec.Struct, frozen=True):
    """This process has read its configuration again, as the leader asked."""

    request: str
    report: ReloadReport


class MasterTicked(msgspec.Struct, frozen=True):
    """Time passed or a batch of messages was delivered: plan, commit and send beats."""


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
    | RightsChanged
    | VaultChanged
    | RetentionChanged
    | LabelLimitsChanged
    | ScheduleDefaultsChanged
    | ConfigReloaded
    | MasterTicked
)

# ---------------------------------------------------------------- effects


class SendToWorker(msgspec.Struct, frozen=True):
    worker: str
    incarnation: int  # of the addressed process; others with the same id ignore it
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
    """Send a client's request to the master that leads."""

    master: str
    request: ClientRequest


class ReplyTo(msgspec.Struct, frozen=True):
    client: bytes
    reply: Reply


class StepDown(msgspec.Struct, frozen=True):
    """Give the lock back, and stop leading."""

    reason: str


class ReloadConfig(msgspec.Struct, frozen=True):
    """Read this process's configuration again; the answer is ConfigReloaded."""

    request: str


class LeadershipBegan(msgspec.Struct, frozen=True):
    """The database is loaded and this master leads now."""


class RemoveOldRuns(msgspec.Struct, frozen=True):
    """Look for runs to remove now, not only at the next regular time (`driver.retention`)."""

    job: int | None = None  # only runs of it


class TakeoverFailed(msgspec.Struct, frozen=True):
    """The takeover failed and is repeated; a process that gives up shows this reason."""

    reason: str


MasterEffect: TypeAlias = (
    SendToWorker
    | Publish
    | Execute
    | Ask
    | Forward
    | ReplyTo
    | StepDown
    | ReloadConfig
    | LeadershipBegan
    | TakeoverFailed
    | RemoveOldRuns
    | Note
)
MasterEffects: TypeAlias = list[MasterEffect]
