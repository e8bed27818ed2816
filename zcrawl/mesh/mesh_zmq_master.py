"""A master's end of the mesh on ZeroMQ: it binds, everybody else connects."""

from __future__ import annotations

import zmq

from zcrawl.mesh.codec import encode
from zcrawl.mesh.mesh_zmq_sockets import MeshEnd, OnBadFrame, SubscriptionReader
from zcrawl.mesh.messages import Beat, Body
from zcrawl.mesh.ports import Endpoints, Handler


class ZmqMasterMesh(MeshEnd):
    """Implements `mesh.ports.MasterMesh`. Binds at construction, receives after `listen`."""

    def __init__(
        self,
        endpoints: Endpoints,
        incarnation: int,
        on_bad_frame: OnBadFrame | None = None,
    ) -> None:
        super().__init__(endpoints.master, incarnation, on_bad_frame)
        self._last_beat: list[bytes] | None = None
        try:
            self._control = self._socket(zmq.ROUTER)
            self._control.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self._control.setsockopt(zmq.ROUTER_HANDOVER, 1)
            self._reports = self._socket(zmq.SUB)
            self._reports.setsockopt(zmq.SUBSCRIBE, b"")
            # XPUB, not PUB: it tells of a new subscriber, who then gets the last beat at once
            # instead of in a second.
            self._events = self._socket(zmq.XPUB)
            self._events.setsockopt(zmq.XPUB_VERBOSE, 1)
            for socket, endpoint in (
                (self._control, endpoints.control),
                (self._reports, endpoints.reports),
                (self._events, endpoints.events),
            ):
                self._bind(socket, endpoint)
        except BaseException:
            self.close()
            raise

    def listen(self, handler: Handler) -> None:
        self._read(self._control, True, handler)
        self._read(self._reports, False, handler)
        self._readers[self._events] = SubscriptionReader(self._events, self._subscribed)

    def send(
        self, route: bytes, epoch: int, body: Body, sequence: int = 0, subject: int = 0
    ) -> bool:
        frames = encode(self._header(epoch, body, sequence, subject), body)
        return self._send(self._control, [route, *frames])

    def publish(self, epoch: int, body: Body) -> bool:
        frames = encode(self._header(epoch, body, 0, 0), body)
        if isinstance(body, Beat):
            self._last_beat = frames
        return self._send(self._events, frames)

    def _subscribed(self) -> None:
        if self._last_beat is not None:
            self._send(self._events, self._last_beat)
