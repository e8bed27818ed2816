"""Beats between standalone nodes: each publishes its own, and subscribes to those of all others.

A beat names its node and the fingerprint of its list; nobody answers. With keys, all nodes share
one key pair, as masters do: a node that has another key is refused. Without keys only loopback
addresses are allowed, unless the configuration says `insecure`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import zmq

from zcrawl.errors import ConfigError, MeshError
from zcrawl.mesh.address import TcpAddress, parse_endpoint
from zcrawl.mesh.ports import Endpoints, MeshLog, no_log
from zcrawl.mesh.security import MeshKeys, check_bind, judge
from zcrawl.mesh.sockets.end import MeshEnd
from zcrawl.mesh.sockets.master import ZAP_ENDPOINT
from zcrawl.mesh.sockets.readers import Socket
from zcrawl.model.log_event import BAD_ZAP_REQUEST, PEER_REFUSED
from zcrawl.model.reasons.cluster import BAD_ENDPOINT

TOPIC: Final = b"standalone-beat-1"
MOST_BYTES: Final = 1_000
BAD_BEAT: Final = "bad_beat"

OnBeat = Callable[[str, str], None]


class NodeBeat(msgspec.Struct, frozen=True):
    """What a node publishes each second."""

    node: str
    fingerprint: str


class ZmqBeats(MeshEnd):
    """Binds at construction; receives after `listen`."""

    what = "node"

    def __init__(
        self,
        node: str,
        incarnation: int,
        address: str,
        log: MeshLog = no_log,
        *,
        keys: MeshKeys | None = None,
        insecure: bool = False,
    ) -> None:
        check_bind(Endpoints(node, address, address, address), keys, insecure)
        super().__init__(node, incarnation, log, keys)
        self._peers: dict[str, tuple[str, Socket]] = {}
        self._on_beat: OnBeat | None = None
        try:
            if keys is not None:
                keys.check_master()
                self._zap = self._socket(zmq.ROUTER)
                self._zap.bind(ZAP_ENDPOINT)
                self._read_frames(self._zap, lambda frames: self._answer_zap(keys, frames))
            self._out = self._socket(zmq.PUB)
            self.address = self._bind(self._out, _to_bind(address))
        except BaseException:
            self.close()
            raise

    def listen(self, on_beat: OnBeat) -> None:
        self._on_beat = on_beat

    def publish(self, fingerprint: str) -> None:
        beat = NodeBeat(self._source, fingerprint)
        self._send(self._out, [TOPIC, msgspec.msgpack.encode(beat)])

    def follow(self, addresses: Mapping[str, str]) -> None:
        """Subscribe to these nodes, and to no others."""
        for node, (address, socket) in list(self._peers.items()):
            if addresses.get(node) != address:
                del self._peers[node]
                self._drop(socket)
        for node, address in addresses.items():
            if node != self._source and node not in self._peers:
                self._join(node, address)

    def _join(self, node: str, address: str) -> None:
        socket = self._socket(zmq.SUB)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        socket.setsockopt(zmq.SUBSCRIBE, TOPIC)
        try:
            self._connect(socket, address)
        except (MeshError, ConfigError) as error:  # only this node is left out: it counts as silent
            self._note(BAD_ENDPOINT, f"{node}: {error}")
            self._drop(socket)
            return
        self._peers[node] = (address, socket)
        self._read_frames(socket, lambda frames: self._received(node, frames))

    def _received(self, node: str, frames: list[bytes]) -> None:
        """Hand over a beat, if it is the node's at this address."""
        try:
            beat = msgspec.msgpack.decode(frames[1], type=NodeBeat)
        except (IndexError, msgspec.DecodeError):
            self._note(BAD_BEAT, f"{node} sent what is not a beat")
            return
        if beat.node != node:
            self._note(BAD_BEAT, f"{beat.node[:80]!r} answers at the address of {node}")
        elif self._on_beat is not None:
            self._on_beat(beat.node, beat.fingerprint[:80])

    def _answer_zap(self, keys: MeshKeys, frames: list[bytes]) -> None:
        head = frames.index(b"") + 1
        verdict = judge(frames[head:], keys.server, {})
        if verdict is None:
            self._note(BAD_ZAP_REQUEST, f"{len(frames)} frames")
            return
        if not verdict.admitted:
            self._note(PEER_REFUSED, f"{verdict.address} with the key {verdict.key}")
        self._send(self._zap, [*frames[:head], *verdict.reply])


def _to_bind(address: str) -> str:
    """Return the address to bind: a name becomes all interfaces, because it may be a service's."""
    parsed = parse_endpoint(address)
    if parsed is None or parsed.is_loopback or parsed.is_ipv6:
        return address
    numeric = parsed.host.replace(".", "").isdigit()
    return address if numeric else str(TcpAddress("*", parsed.port))
