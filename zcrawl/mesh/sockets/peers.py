"""Connections of a master to the other masters.

It forwards requests to the leader, and receives replies, beats, snapshots, log lines, vitals, and
the requests and reports of reloads.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.errors import ConfigError, MeshError
from zcrawl.mesh.codec import encode
from zcrawl.mesh.messages import Body, MessageKind
from zcrawl.mesh.ports import BatchHandler, Endpoints, MeshLog, no_log
from zcrawl.mesh.roles import Channel
from zcrawl.mesh.security import MeshKeys
from zcrawl.mesh.sockets.end import MeshEnd
from zcrawl.mesh.sockets.readers import Socket
from zcrawl.model.reasons.cluster import BAD_ENDPOINT

EVENT_KINDS: Final = (
    MessageKind.BEAT,
    MessageKind.SNAPSHOT,
    MessageKind.LINES,
    MessageKind.VITALS,
    MessageKind.RELOAD,
    MessageKind.RELOADED,
)


class PeerLine(msgspec.Struct, frozen=True):
    """The sockets to another master."""

    endpoints: Endpoints
    control: Socket
    events: Socket


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
        self._lines: dict[str, PeerLine] = {}
        self._handler: BatchHandler | None = None

    def listen(self, handler: BatchHandler) -> None:
        self._handler = handler
        for line in self._lines.values():
            self._read_line(line, handler)

    def follow(self, masters: list[Endpoints]) -> None:
        """Connect to these masters and to no others."""
        peers = {peer.master: peer for peer in masters if peer.master != self._source}
        for master, line in list(self._lines.items()):
            if peers.get(master) != line.endpoints:
                self._close_line(self._lines.pop(master))
        for master, endpoints in peers.items():
            if master not in self._lines:
                self._join(endpoints)

    def send(self, master: str, body: Body) -> bool:
        line = self._lines.get(master)
        if line is None:
            self.counters["send_no_route"] += 1
            return False
        return self._send(line.control, encode(self._header(0, body, 0, 0), body))

    def _join(self, endpoints: Endpoints) -> None:
        line = PeerLine(endpoints, self._dealer(endpoints.master), self._subscription(EVENT_KINDS))
        try:
            self._connect(line.control, endpoints.control)
            self._connect(line.events, endpoints.events)
        except (MeshError, ConfigError) as error:  # only this master is left out
            self._note(BAD_ENDPOINT, f"{endpoints.master}: {error}")
            self._close_line(line)
            return
        self._lines[endpoints.master] = line
        if self._handler is not None:
            self._read_line(line, self._handler)

    def _read_line(self, line: PeerLine, handler: BatchHandler) -> None:
        self._read(line.control, Channel.PEER_CONTROL, handler)
        self._read(line.events, Channel.PEER_EVENTS, handler)

    def _close_line(self, line: PeerLine) -> None:
        self._drop(line.control)
        self._drop(line.events)
