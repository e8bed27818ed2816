"""The mesh without sockets: a hub that loses, doubles, delays and reorders messages by chance.

For tests. It has the same ports, frames, codec and table of allowed messages (`roles`) as
`sockets`; without keys every sender has all roles. Time is an argument and randomness comes from a
seeded generator, so the same seed gives the same run.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from zcrawl.errors import DecodeError
from zcrawl.mesh.border import Refusal
from zcrawl.mesh.codec import decode, encode, encode_report
from zcrawl.mesh.messages import Beat, Body
from zcrawl.mesh.ports import Arrived, BatchHandler, stamp
from zcrawl.mesh.roles import ANYBODY, Channel, kinds_on

if TYPE_CHECKING:
    from random import Random


class LinkFaults(msgspec.Struct, frozen=True):
    """Chances per message, and the longest delay; a delay beyond a later message reorders."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay_s: float = 0.0


class _Peer:
    """One end of the hub."""

    def __init__(self, hub: MemoryHub, source: str, incarnation: int) -> None:
        self.counters: Counter[str] = Counter()
        self.handler: BatchHandler | None = None
        self.waiting: list[Arrived] = []  # before `listen`, as in a socket's queue
        self._hub = hub
        self._source = source
        self._incarnation = incarnation

    def listen(self, handler: BatchHandler) -> None:
        self.handler = handler
        waiting, self.waiting = self.waiting, []
        if waiting:
            handler(waiting)

    def take(self, channel: Channel, route: bytes, frames: Sequence[bytes]) -> None:
        try:
            arrived = Arrived(route, decode(frames))
        except DecodeError as error:
            self.counters[error.code] += 1
            return
        if arrived.message.header.kind not in kinds_on(channel, ANYBODY):
            self.counters[Refusal.KIND.value] += 1
            return
        if self.handler is None:
            self.waiting.append(arrived)
        else:
            self.handler([arrived])

    def _frames(self, epoch: int, body: Body, sequence: int, subject: int) -> list[bytes]:
        header = stamp(self._source, self._incarnation, epoch, body, sequence, subject)
        return encode(header, body)


class MemoryMasterMesh(_Peer):
    """Implements `mesh.ports.MasterMesh`."""

    def send(
        self, route: bytes, epoch: int, body: Body, sequence: int = 0, subject: int = 0
    ) -> bool:
        target = self._hub.routes.get(route)
        if target is None:
            self.counters["send_no_route"] += 1
            return False
        channel = Channel.WORKER_CONTROL
        if isinstance(target, MemoryClientMesh):
            channel = Channel.CLIENT_CONTROL
        self._hub.carry(target, channel, b"", self._frames(epoch, body, sequence, subject))
        return True

    def publish(self, epoch: int, body: Body) -> bool:
        if not isinstance(body, Beat):
            return True  # workers do not subscribe to anything else
        frames = self._frames(epoch, body, 0, 0)
        for worker in self._hub.workers.values():
            self._hub.carry(worker, Channel.WORKER_EVENTS, b"", frames)
        return True


class MemoryWorkerMesh(_Peer):
    """Implements `mesh.ports.WorkerMesh`."""

    def __init__(self, hub: MemoryHub, source: str, incarnation: int, route: bytes) -> None:
        super().__init__(hub, source, incarnation)
        self._route = route

    def _frames(self, epoch: int, body: Body, sequence: int, subject: int) -> list[bytes]:
        header = stamp(self._source, self._incarnation, epoch, body, sequence, subject)
        return encode_report(header, body)

    def send(
        self, master: str, epoch: int, body: Body, sequence: int = 0, subject: int = 0
    ) -> bool:
        target = self._hub.masters.get(master)
        if target is None:
            self.counters["send_no_route"] += 1
            return False
        frames = self._frames(epoch, body, sequence, subject)
        self._hub.carry(target, Channel.CONTROL, self._route, frames)
        return True

    def publish(self, epoch: int, body: Body, sequence: int = 0, subject: int = 0) -> bool:
        frames = self._frames(epoch, body, sequence, subject)
        for master in self._hub.masters.values():
            self._hub.carry(master, Channel.REPORTS, b"", frames)
        return True


class MemoryClientMesh(_Peer):
    """A client's line to one master."""

    def __init__(self, hub: MemoryHub, route: bytes, master: str) -> None:
        super().__init__(hub, "client", 0)
        self._route = route
        self._master = master

    def send(self, body: Body) -> bool:
        master, frames = self._hub.masters[self._master], self._frames(0, body, 0, 0)
        self._hub.carry(master, Channel.CONTROL, self._route, frames)
        return True


class MemoryHub:
    def __init__(self, rng: Random | None = None, faults: LinkFaults | None = None) -> None:
        self.masters: dict[str, MemoryMasterMesh] = {}
        self.workers: dict[str, MemoryWorkerMesh] = {}
        self.routes: dict[bytes, _Peer] = {}
        self.now = 0.0
        self._rng = rng
        self._faults = faults or LinkFaults()
        self._on_the_way: list[tuple[float, int, _Peer, Channel, bytes, list[bytes]]] = []
        self._count = 0

    def master(self, id: str, incarnation: int) -> MemoryMasterMesh:
        self.masters[id] = MemoryMasterMesh(self, id, incarnation)
        return self.masters[id]

    def worker(self, id: str, incarnation: int) -> MemoryWorkerMesh:
        route = self._new_route()
        mesh = MemoryWorkerMesh(self, id, incarnation, route)
        self.workers[id] = mesh
        self.routes[route] = mesh
        return mesh

    def client(self, master: str, route: bytes = b"") -> MemoryClientMesh:
        """Open a client end; a claimed route moves to it, as with ROUTER_HANDOVER."""
        route = route or self._new_route()
        client = MemoryClientMesh(self, route, master)
        self.routes[route] = client
        return client

    def _new_route(self) -> bytes:
        """Return a route that does not name its owner (here the same in every run)."""
        return hashlib.blake2b(f"{len(self.routes)}".encode(), digest_size=16).digest()

    def carry(self, target: _Peer, channel: Channel, route: bytes, frames: list[bytes]) -> None:
        for _ in range(self._copies()):
            delay = 0.0
            if self._rng is not None:
                delay = self._rng.random() * self._faults.delay_s
            self._count += 1
            message = (self.now + delay, self._count, target, channel, route, frames)
            heapq.heappush(self._on_the_way, message)

    def advance(self, to: float) -> None:
        """Deliver all messages that arrive until then, and the answers to them."""
        while self._on_the_way and self._on_the_way[0][0] <= to:
            moment, _, target, channel, route, frames = heapq.heappop(self._on_the_way)
            self.now = max(self.now, moment)
            target.take(channel, route, frames)
        self.now = max(self.now, to)

    def _copies(self) -> int:
        if self._rng is None:
            return 1
        if self._rng.random() < self._faults.drop:
            return 0
        return 2 if self._rng.random() < self._faults.duplicate else 1
