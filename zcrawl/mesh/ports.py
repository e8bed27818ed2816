"""The interfaces of a mesh: typed messages in and out, without blocking.

A send that cannot be done at once is counted and dropped: every message of the protocol is
repeated, answered or replaced by a newer one. The header is made when a message is sent, so
a repeated message carries the current epoch. Backends: `sockets` (ZeroMQ) and `memory` (a hub that
drops, duplicates, delays and reorders under a seed); one contract suite runs on both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from zcrawl.mesh.messages import (
    KIND_OF,
    PROTOCOL_VERSION,
    BadBody,
    Body,
    Header,
    Message,
)

HIGH_WATER_MARK = 1_000  # messages per peer; the result window (500) stays below it


class Arrived(msgspec.Struct, frozen=True):
    """A message and the way back to its sender (empty where there is none).

    A route is a secret of its sender, because a peer that claims it gets its messages
    (`sockets.end`). It is learned from messages only, never made from a name, and never logged.
    """

    route: bytes
    message: Message | BadBody


BatchHandler: TypeAlias = Callable[[list[Arrived]], None]  # called with one drained batch
MeshLog: TypeAlias = Callable[[str, str], None]  # an event's name, and its detail for people


def no_log(name: str, detail: str) -> None:
    """Log nothing, for an end whose counters are enough."""


class Endpoints(msgspec.Struct, frozen=True):
    """Where one master can be reached."""

    master: str
    control: str
    reports: str
    events: str


class MasterMesh(Protocol):
    """A master's side: control in and out by route, reports in, beats out."""

    counters: Counter[str]

    def listen(self, handler: BatchHandler) -> None:
        """Begin to receive; before that messages wait in the sockets."""
        ...

    def send(
        self, route: bytes, epoch: int, body: Body, sequence: int = 0, subject: int = 0
    ) -> bool: ...

    def publish(self, epoch: int, body: Body) -> bool: ...


class WorkerMesh(Protocol):
    """A worker's side: one line to each master, reports to all."""

    counters: Counter[str]

    def listen(self, handler: BatchHandler) -> None: ...

    def send(
        self, master: str, epoch: int, body: Body, sequence: int = 0, subject: int = 0
    ) -> bool: ...

    def publish(self, epoch: int, body: Body, sequence: int = 0, subject: int = 0) -> bool: ...


class Peers(Protocol):
    """A master's lines to the other masters: requests out, replies, beats and snapshots in."""

    counters: Counter[str]

    def listen(self, handler: BatchHandler) -> None: ...

    def send(self, master: str, body: Body) -> bool: ...


def stamp(
    source: str, incarnation: int, epoch: int, body: Body, sequence: int, subject: int
) -> Header:
    return Header(
        PROTOCOL_VERSION, KIND_OF[type(body)], 0, epoch, source, incarnation, sequence, subject
    )
