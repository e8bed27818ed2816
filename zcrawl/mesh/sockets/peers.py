"""Connections of a master to the other masters.

It forwards requests to the leader, and receives replies, beats, snapshots, log lines and vitals.
"""

from __future__ import annotations

import zmq

from zcrawl.errors import ConfigError, MeshError
from zcrawl.mesh.codec import VERSION_TOPIC, encode
from zcrawl.mesh.messages import Body, MessageKind
from zcrawl.mesh.ports import BatchHandler, Endpoints, MeshLog, no_log
from zcrawl.mesh.roles import Channel
from zcrawl.mesh.security import MeshKeys
from zcrawl.mesh.sockets.end import MeshEnd
from zcrawl.mesh.sockets.readers import Socket, topic
from zcrawl.model.reasons.cluster import BAD_ENDPOINT


class ZmqPeers(MeshEnd):
    """Implements `mesh.ports.Peers`. `follow` gets the whole list whenever it changes."""

    what = "master"

    def __init__(
        self,
        master: str,
        incarnation: int,
        log: MeshLog = no_log,
        *,
        keys: MeshKeys | None = None,
    ) -> None:
        super().__init__(master, incarnation, log, keys)
        self._lines: dict[str, tuple[Endpoints, Socket]] = {}
        self._handler: BatchHandler | None = None
        self._events = self._socket(zmq.SUB)
        for kind in (MessageKind.BEAT, MessageKind.SNAPSHOT, MessageKind.LINES, MessageKind.VITALS):
            self._events.setsockopt(zmq.SUBSCRIBE, topic(kind))
        self._events.setsockopt(zmq.SUBSCRIBE, VERSION_TOPIC)

    def listen(self, handler: BatchHandler) -> None:
        self._handler = handler
        self._read(self._events, Channel.PEER_EVENTS, handler)
        for _, line in self._lines.values():
            self._read(line, Channel.PEER_CONTROL, handler)

    def follow(self, masters: list[Endpoints]) -> None:
        """Connect to these masters and to no others."""
        peers = {peer.master: peer for peer in masters if peer.master != self._source}
        for master, (endpoints, _) in list(self._lines.items()):
            if peers.get(master) != endpoints:
                self._leave(master)
        for master, endpoints in peers.items():
            if master not in self._lines:
                self._join(endpoints)

    def send(self, master: str, body: Body) -> bool:
        line = self._lines.get(master)
        if line is None:
            self.counters["send_no_route"] += 1
            return False
        return self._send(line[1], encode(self._header(0, body, 0, 0), body))

    def _join(self, endpoints: Endpoints) -> None:
        line = self._dealer(endpoints.master)
        try:
            self._connect(line, endpoints.control)
            self._connect(self._events, endpoints.events)
        except (MeshError, ConfigError) as error:  # only this master is left out
            self._note(BAD_ENDPOINT, f"{endpoints.master}: {error}")
            self._drop(line)
            self._disconnect(self._events, endpoints.events)
            return
        self._lines[endpoints.master] = (endpoints, line)
        if self._handler is not None:
            self._read(line, Channel.PEER_CONTROL, self._handler)

    def _leave(self, master: str) -> None:
        endpoints, line = self._lines.pop(master)
        self._drop(line)
        self._disconnect(self._events, endpoints.events)
