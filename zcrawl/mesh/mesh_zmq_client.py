"""A client's end of the mesh on ZeroMQ: commands, and consoles when they ask for something."""

from __future__ import annotations

import zmq

from zcrawl.mesh.codec import encode
from zcrawl.mesh.mesh_zmq_sockets import MeshEnd
from zcrawl.mesh.messages import Body
from zcrawl.mesh.ports import Handler


class ZmqClientMesh(MeshEnd):
    """A client's line to one master: a DEALER without an identity of its own."""

    def __init__(self, client: str, incarnation: int, control: str) -> None:
        super().__init__(client, incarnation, None)
        self._control = self._socket(zmq.DEALER)
        self._connect(self._control, control)

    def listen(self, handler: Handler) -> None:
        self._read(self._control, False, handler)

    def send(self, body: Body) -> bool:
        return self._send(self._control, encode(self._header(0, body, 0, 0), body))
