"""What happens to a worker, and what a worker wants done: the vocabulary of its machine.

Events are past tense and come from the edge (sockets, the pipeline, the clock); effects are
imperative and go there.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from zcrawl.mesh.messages import Body, Code, Header, RunConfig
from zcrawl.model.host import RobotsFile
from zcrawl.worker.held_requests import Held
from zcrawl.worker.results.attempt import Attempt


class _Data(msgspec.Struct, frozen=True):
    pass


# ---------------------------------------------------------------- events


class MessageCame(_Data, frozen=True):
    header: Header
    body: Body


class FetchEnded(_Data, frozen=True):
    """The pipeline is done with a request; its attempt lacks only the lease."""

    seq: int
    attempt: Attempt


class ResultRefused(_Data, frozen=True):
    """The edge cannot send this result: it cannot be encoded, or is too large for a frame."""

    number: int
    detail: str


class HopWanted(_Data, frozen=True):
    """A running fetch wants one more request; by now it may know what robots.txt asks for."""

    seq: int
    crawl_delay_s: float = 0.0


class StartedLate(_Data, frozen=True):
    """A request goes out only now, long after its permit: the next one counts from here."""

    seq: int


class RunLacks(_Data, frozen=True):
    """This worker does not have what a run needs."""

    run: int
    what: str


class DrainAsked(_Data, frozen=True):
    """A person or the supervisor asks this worker to end."""


class Ticked(_Data, frozen=True):
    rss_bytes: int = 0
    lag_ms: float = 0.0


Event: TypeAlias = (
    MessageCame
    | FetchEnded
    | ResultRefused
    | HopWanted
    | StartedLate
    | RunLacks
    | DrainAsked
    | Ticked
)

# ---------------------------------------------------------------- effects


class SendToMaster(_Data, frozen=True):
    master: str
    body: Body
    sequence: int = 0
    subject: int = 0


class PublishToAll(_Data, frozen=True):
    body: Body
    sequence: int = 0
    subject: int = 0


class StartFetch(_Data, frozen=True):
    held: Held


class PermitHop(_Data, frozen=True):
    seq: int


class CancelFetch(_Data, frozen=True):
    seq: int


class AdoptRun(_Data, frozen=True):
    config: RunConfig


class AdoptRobots(_Data, frozen=True):
    """Another worker has fetched this host's robots.txt."""

    origin: str
    file: RobotsFile


class AdoptCode(_Data, frozen=True):
    """The file of a spider, whose hash was verified."""

    code: Code


class ForgetRun(_Data, frozen=True):
    """The run has ended: nothing of it comes any more."""

    run: int


class Exit(_Data, frozen=True):
    reason: str
    refused: bool = False  # a new process would be refused as well


class Note(_Data, frozen=True):
    """A counter and a log event."""

    name: str
    detail: str = ""
    run: int = 0  # that it is about; 0: about none


Effect: TypeAlias = (
    SendToMaster
    | PublishToAll
    | StartFetch
    | PermitHop
    | CancelFetch
    | AdoptRun
    | AdoptRobots
    | AdoptCode
    | ForgetRun
    | Exit
    | Note
)
Effects: TypeAlias = list[Effect]
