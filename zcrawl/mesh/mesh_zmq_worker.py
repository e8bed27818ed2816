"""A worker's end of the mesh on ZeroMQ: a line to each master, reports to all of them."""

from __future__ import annotations

import contextlib
from collections import deque

import zmq

from zcrawl.mesh.codec import encode
from zcrawl.mesh.mesh_zmq_sockets import (
    LINGER_MS,
    MeshEnd,
    OnBadFrame,
    Socket,
    SubscriptionReader,
    topic,
)
from zcrawl.mesh.messages import Body, Kind
from zcrawl.mesh.ports import Endpoints, Handler

EARLY_MOST = 1_000  # reports kept until the first master has subscribed


class ZmqWorkerMesh(MeshEnd):
    """Implements `mesh.ports.WorkerMesh`. `connect` may come again as masters come and go."""

    def __init__(
        self, worker: str, incarnation: int, on_bad_frame: OnBadFrame | None = None
    ) -> None:
        super().__init__(worker, incarnation, on_bad_frame)
        self._controls: dict[str, Socket] = {}
        self._endpoints: dict[str, Endpoints] = {}
        self._handler: Handler | None = None
        self._early: deque[list[bytes]] | None = deque(maxlen=EARLY_MOST)
        self._reports = self._socket(zmq.XPUB)
        self._events = self._socket(zmq.SUB)
        # Only beats: snapshots and events are for consoles, and larger.
        self._events.setsockopt(zmq.SUBSCRIBE, topic(Kind.BEAT))

    def connect(self, endpoints: Endpoints) -> None:
        if endpoints.master in self._controls:
            self.disconnect(endpoints.master)
        control = self._socket(zmq.DEALER)
        # Stable: random identities leak entries in the masters' ROUTERs.
        control.setsockopt(zmq.IDENTITY, self._source.encode())
        self._connect(control, endpoints.control)
        self._connect(self._reports, endpoints.reports)
        self._connect(self._events, endpoints.events)
        self._controls[endpoints.master] = control
        self._endpoints[endpoints.master] = endpoints
        if self._handler is not None:
            self._read(control, False, self._handler)

    def disconnect(self, master: str) -> None:
        endpoints = self._endpoints.pop(master)
        control = self._controls.pop(master)
        reader = self._readers.pop(control, None)
        if reader is not None:
            reader.close()
        self._sockets.remove(control)
        control.close(LINGER_MS)
        for socket, endpoint in (
            (self._reports, endpoints.reports),
            (self._events, endpoints.events),
        ):
            with contextlib.suppress(zmq.ZMQError):  # it was never connected
                socket.disconnect(endpoint)

    def listen(self, handler: Handler) -> None:
        self._handler = handler
        for control in self._controls.values():
            self._read(control, False, handler)
        self._read(self._events, False, handler)
        self._readers[self._reports] = SubscriptionReader(self._reports, self._subscribed)

    def send(
        self, master: str, epoch: int, body: Body, sequence: int = 0, subject: int = 0
    ) -> bool:
        control = self._controls.get(master)
        if control is None:
            self.counters["send_no_route"] += 1
            return False
        return self._send(control, encode(self._header(epoch, body, sequence, subject), body))

    def publish(self, epoch: int, body: Body, sequence: int = 0, subject: int = 0) -> bool:
        frames = encode(self._header(epoch, body, sequence, subject), body)
        if self._early is not None:  # nobody listens yet: ZeroMQ would drop it in silence
            self._early.append(frames)
            return False
        return self._send(self._reports, frames)

    def _subscribed(self) -> None:
        early, self._early = self._early, None
        for frames in early or ():
            self._send(self._reports, frames)
