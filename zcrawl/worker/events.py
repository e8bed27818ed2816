"""Events and effects of a worker: the input and output of its machine.

Events are in past tense and come from outside (sockets, pipeline, clock). Effects are imperative
and are carried out by `driver.loop`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from zcrawl.mesh.messages import Body, Code, Header, RunConfig
from zcrawl.model.host import RobotsFile
from zcrawl.model.log_event import Note as Note
from zcrawl.model.reload_report import ReloadReport
from zcrawl.worker.held_requests import Held
from zcrawl.worker.results.attempt import Attempt

# ---------------------------------------------------------------- events


class MasterMessageCame(msgspec.Struct, frozen=True):
    header: Header
    body: Body


class FetchEnded(msgspec.Struct, frozen=True):
    """The pipeline is done with a request; its attempt lacks only the lease."""

    seq: int
    attempt: Attempt


class ResultRefused(msgspec.Struct, frozen=True):
    """This result cannot be sent: it cannot be encoded, or is too large for a frame."""

    number: int
    detail: str


class HopWanted(msgspec.Struct, frozen=True):
    """A running fetch waits for one more request, maybe with a new crawl delay."""

    seq: int
    crawl_delay_s: float = 0.0


class StartedLate(msgspec.Struct, frozen=True):
    """A request starts only now, long after its permit: the pace counts from here."""

    seq: int


class RunLacks(msgspec.Struct, frozen=True):
    """This worker does not have what a run needs."""

    run: int
    what: str


class DrainAsked(msgspec.Struct, frozen=True):
    """A person or the supervisor asks this worker to end."""


class SettingsChanged(msgspec.Struct, frozen=True):
    """The configuration of this machine has other values now."""

    slots: int
    labels: tuple[str, ...]


class NodeReloaded(msgspec.Struct, frozen=True):
    """The node has read its configuration again, as the leader asked."""

    request: str
    node: str
    report: ReloadReport


class WorkerTicked(msgspec.Struct, frozen=True):
    rss_bytes: int = 0
    lag_ms: float = 0.0
    cpu_percent: float | None = None


WorkerEvent: TypeAlias = (
    MasterMessageCame
    | FetchEnded
    | ResultRefused
    | HopWanted
    | StartedLate
    | RunLacks
    | DrainAsked
    | SettingsChanged
    | NodeReloaded
    | WorkerTicked
)

# ---------------------------------------------------------------- effects


class SendToMaster(msgspec.Struct, frozen=True):
    master: str
    body: Body
    sequence: int = 0
    subject: int = 0


class PublishToAll(msgspec.Struct, frozen=True):
    body: Body
    sequence: int = 0
    subject: int = 0


class StartFetch(msgspec.Struct, frozen=True):
    held: Held


class PermitHop(msgspec.Struct, frozen=True):
    seq: int


class CancelFetch(msgspec.Struct, frozen=True):
    seq: int


class AdoptRun(msgspec.Struct, frozen=True):
    config: RunConfig


class AdoptRobots(msgspec.Struct, frozen=True):
    """Another worker has fetched this host's robots.txt."""

    origin: str
    file: RobotsFile


class AdoptCode(msgspec.Struct, frozen=True):
    """The file of a spider, whose hash was verified."""

    code: Code


class ForgetRun(msgspec.Struct, frozen=True):
    """Forget a run that has ended."""

    run: int


class AskForReload(msgspec.Struct, frozen=True):
    """Let the node read its configuration again; the answer is NodeReloaded."""

    request: str


class Exit(msgspec.Struct, frozen=True):
    reason: str
    refused: bool = False  # a new process would be refused as well


# that it is about; 0: about none


WorkerEffect: TypeAlias = (
    SendToMaster
    | PublishToAll
    | StartFetch
    | PermitHop
    | CancelFetch
    | AdoptRun
    | AdoptRobots
    | AdoptCode
    | ForgetRun
    | AskForReload
    | Exit
    | Note
)
WorkerEffects: TypeAlias = list[WorkerEffect]
