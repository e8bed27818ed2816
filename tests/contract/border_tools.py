"""Raw encrypted sockets that send what they like, one of each role, for the tests of the border."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import zmq

from tests.contract.mesh_tools import LOOPBACK, PATIENCE_S, Ear, Keys
from zcrawl.mesh.codec import encode
from zcrawl.mesh.messages import Body
from zcrawl.mesh.ports import Endpoints, stamp
from zcrawl.mesh.roles import KeyRole
from zcrawl.mesh.security import AllowedKey, MeshKeys
from zcrawl.mesh.sockets.master import ZmqMasterMesh

# Who is on the list; `masters` and `nobody` (no longer on it) are made beside them.
LINES = {
    "w1": AllowedKey("w1", frozenset({KeyRole.WORKER}), has_roles=True),
    "pool": AllowedKey("pool", frozenset({KeyRole.WORKER}), ("pool-*",), has_roles=True),
    "ann": AllowedKey("ann", frozenset({KeyRole.VIEWER}), has_roles=True),
    "bob": AllowedKey("bob", frozenset({KeyRole.OPERATOR}), has_roles=True),
    "old": AllowedKey("old"),
}
ROLES: dict[str, set[KeyRole]] = {
    **{name: set(line.roles) for name, line in LINES.items()},
    "masters": {KeyRole.MASTER},
    "nobody": set(),
}


class RawPeer:
    """One key's own sockets to a master: no rule of ours holds what it sends."""

    def __init__(self, name: str, keys: MeshKeys | None, endpoints: Endpoints) -> None:
        self.name, self._keys = name, keys
        self._context = zmq.Context()
        self._ends = endpoints
        self.control = self._open(zmq.DEALER, self._ends.control)
        self.reports: zmq.Socket[bytes] | None = None

    def _open(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 0)
        if self._keys is not None:
            socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(self._keys.own.public))
            socket.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(self._keys.own.secret))
            socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(self._keys.server))
        socket.connect(endpoint)
        return socket

    def open_reports(self) -> zmq.Socket[bytes]:
        """A line to the reports socket; readable when the master hears it."""
        return self._open(zmq.XPUB, self._ends.reports)

    async def report(self) -> None:
        """Open the line to the reports socket, and wait until the master hears it."""
        self.reports = self.open_reports()
        async with asyncio.timeout(PATIENCE_S):
            while not await readable(self.reports):
                pass

    def subscriber(self, *topics: bytes) -> zmq.Socket[bytes]:
        socket = self._open(zmq.SUB, self._ends.events)
        for topic in topics:
            socket.setsockopt(zmq.SUBSCRIBE, topic)
        return socket

    def close(self) -> None:
        self._context.destroy(0)


async def readable(socket: zmq.Socket[bytes], wait_s: float = 0.02) -> bool:
    """Poll in a thread: the master's loop is this one."""
    return bool(await asyncio.to_thread(socket.poll, round(wait_s * 1000)))


def frames(
    body: Body, source: str = "w1", *, epoch: int = 1, incarnation: int = 1, sequence: int = 0
) -> list[bytes]:
    return encode(stamp(source, incarnation, epoch, body, sequence, 1), body)


class Guarded:
    """A master with keys, what reached it, and a raw peer of each role."""

    def __init__(
        self,
        master: ZmqMasterMesh,
        ear: Ear,
        peers: dict[str, RawPeer],
        listed: dict[str, AllowedKey],
    ) -> None:
        self.master, self.ear, self.peers = master, ear, peers
        self._listed = listed

    def remove_nobody(self) -> None:
        """Take the key `nobody` off the list; it stays connected."""
        self.master.allow(self._listed)

    def count(self, *names: str) -> int:
        return sum(self.master.counters[name] for name in names)


@contextlib.contextmanager
def guarded(names: Sequence[str] = tuple(ROLES)) -> Iterator[Guarded]:
    """`nobody` is listed until `remove_nobody`."""
    keys, ear = Keys(), Ear()
    nodes = {name: keys.master if name == "masters" else keys.node() for name in names}
    listed = {nodes[name].own.public: line for name, line in LINES.items() if name in nodes}
    before = dict(listed)
    if "nobody" in nodes:
        before[nodes["nobody"].own.public] = AllowedKey("nobody")
    with ZmqMasterMesh(LOOPBACK, 1, ear.log, keys=keys.master, allowed=before) as master:
        master.listen(ear)
        peers = {name: RawPeer(name, node, master.endpoints) for name, node in nodes.items()}
        try:
            yield Guarded(master, ear, peers, listed)
        finally:
            for peer in peers.values():
                peer.close()
