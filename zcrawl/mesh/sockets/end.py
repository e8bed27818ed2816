"""Base of all ends of the mesh on ZeroMQ: context, sockets with options, counted sends.

Only sockets that bind have heartbeat options: a connecting SUB or DEALER with them and a full
queue aborts the process (libzmq#3937). Connecting ones have TCP's own keepalive, and a limit for
unanswered data (TCP_MAXRT): without it a cut line looks alive for a quarter of an hour.

Every DEALER has a secret route of 128 random bits as its identity. A master's ROUTER gives
a route to the last peer that claims it (ROUTER_HANDOVER, so that a broken connection does not block
its replacement). So a peer that knows or guesses a route could disconnect its owner and read its
messages. libzmq's own choice for a DEALER without an identity can be guessed: a zero byte
and a counter, which in 4.3.5 begins at the same number in every process; and contrary to its
documentation any peer may claim an identity that begins with a zero byte.

A connecting socket has one endpoint. After a refused handshake libzmq 4.3.5 frees the session but
keeps a pointer to it under the endpoint, and `disconnect` ends whatever the socket has at that
pointer by then. With several endpoints on a socket that can be the new session of another one,
which then stays silent for ever: a worker was allowed, and its heartbeats never arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import zmq

from zcrawl.errors import DecodeError, MeshError, VersionMismatch
from zcrawl.mesh.address import parse_endpoint
from zcrawl.mesh.codec import MAX_FRAME_BYTES, VERSION_TOPIC
from zcrawl.mesh.messages import Body, Header, MessageKind
from zcrawl.mesh.ports import HIGH_WATER_MARK, BatchHandler, MeshLog, no_log, stamp
from zcrawl.mesh.roles import Channel
from zcrawl.mesh.security import REPORTS_DOMAIN, MeshKeys
from zcrawl.mesh.sockets.handshake import HandshakeFailure, HandshakeWatch, OnFailure
from zcrawl.mesh.sockets.readers import FrameReader, OnFrames, Socket, SocketReader, topic
from zcrawl.model.log_event import HANDSHAKE_FAILED, KEY_REFUSED
from zcrawl.model.reasons.cluster import ADDRESS_IN_USE, BAD_ENDPOINT, CANNOT_BIND

LINGER_MS = 100
RECONNECT_MS = 20  # doubles up to the next
RECONNECT_MOST_MS = 1_000
REFUSED_AGAIN_S = 1.0  # libzmq gives up after a refused handshake; keys and lists change
HEARTBEAT_MS = 3_000
HEARTBEAT_TIMEOUT_MS = 12_000
KEEPALIVE_IDLE_S = 10
KEEPALIVE_INTERVAL_S = 3
KEEPALIVE_PROBES = 3
UNANSWERED_MOST_MS = 12_000
ZAP_DOMAIN = b"zcrawl"
ROUTE_BYTES = 16


class MeshEnd:
    """Base of the ends; not of use by itself."""

    what = "node"  # in messages for people

    def __init__(
        self, source: str, incarnation: int, log: MeshLog = no_log, keys: MeshKeys | None = None
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.complaint = ""  # why the last failed handshake with a master failed
        self._source = source
        self._incarnation = incarnation
        self._log = log
        self._keys = keys
        self._route_secret = secrets.token_bytes(32)
        self._context = zmq.Context()
        self._sockets: list[Socket] = []
        self._readers: dict[Socket, FrameReader] = {}
        self._watches: dict[Socket, HandshakeWatch] = {}
        self._connected: dict[Socket, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for socket in list(self._sockets):
            self._drop(socket)
        self._context.term()

    # ------------------------------------------------------------ sockets

    def _socket(self, kind: int) -> Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        socket.setsockopt(zmq.TCP_MAXRT, UNANSWERED_MOST_MS)
        self._sockets.append(socket)
        return socket

    def _dealer(self, master: str) -> Socket:
        """Open a connection to a master, with the route that this end has there.

        The route stays the same when the connection is opened again, because the master knows this
        end by it. It differs for each master, so that a bad master learns nothing about the others.
        """
        dealer = self._socket(zmq.DEALER)
        name = hashlib.blake2b(
            master.encode(), key=self._route_secret, digest_size=ROUTE_BYTES
        ).digest()
        # The letter: an identity must not begin with a zero byte.
        dealer.setsockopt(zmq.IDENTITY, b"z" + name)
        return dealer

    def _drop(self, socket: Socket) -> None:
        reader = self._readers.pop(socket, None)
        if reader is not None:
            reader.close()
        watch = self._watches.pop(socket, None)
        if watch is not None:
            watch.close()
        self._connected.pop(socket, None)
        self._sockets.remove(socket)
        socket.close(LINGER_MS)

    def _bind(self, socket: Socket, endpoint: str) -> str:
        """Bind; return the endpoint with the real port."""
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        if self._keys is not None:
            socket.setsockopt(zmq.CURVE_SERVER, 1)
            socket.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(self._keys.own.secret))
            reports = socket.type == zmq.SUB
            socket.setsockopt(zmq.ZAP_DOMAIN, REPORTS_DOMAIN if reports else ZAP_DOMAIN)
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # no ZAP handler: refuse all
        self._prepare(socket, endpoint, self._stranger_failed)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            code = ADDRESS_IN_USE if error.errno == zmq.EADDRINUSE else CANNOT_BIND
            raise MeshError(f"cannot listen at {endpoint}: {error.strerror}", code=code) from error
        return socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")

    def _subscription(self, kinds: Iterable[MessageKind]) -> Socket:
        """Open a socket for these kinds of a master's events, and for its version."""
        events = self._socket(zmq.SUB)
        for kind in kinds:
            events.setsockopt(zmq.SUBSCRIBE, topic(kind))
        events.setsockopt(zmq.SUBSCRIBE, VERSION_TOPIC)
        return events

    def _connect(self, socket: Socket, endpoint: str) -> None:
        """Connect a socket that has no endpoint yet."""
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MOST_MS)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S)
        socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_S)
        socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, KEEPALIVE_PROBES)
        if self._keys is not None:
            socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(self._keys.own.public))
            socket.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(self._keys.own.secret))
            socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(self._keys.server))
        self._prepare(socket, endpoint, lambda failure: self._master_failed(socket, failure))
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise MeshError(
                f"cannot connect to {endpoint}: {error.strerror}", code=BAD_ENDPOINT
            ) from error
        self._connected[socket] = endpoint

    def _prepare(self, socket: Socket, endpoint: str, on_failure: OnFailure) -> None:
        address = parse_endpoint(endpoint)
        # Only where the address needs it: with it, a name resolves to IPv6 first.
        socket.setsockopt(zmq.IPV6, int(address is not None and address.is_ipv6))
        if socket not in self._watches and (address is not None or self._keys is not None):
            self._watches[socket] = HandshakeWatch(self._context, socket, self.counters, on_failure)

    # ------------------------------------------------------------ handshakes

    def _stranger_failed(self, failure: HandshakeFailure) -> None:
        """Log a peer that could not connect; unknown keys are logged where ZAP asks."""
        if not failure.refused:
            self._note(HANDSHAKE_FAILED, failure.text(self._keys is not None))

    def _master_failed(self, socket: Socket, failure: HandshakeFailure) -> None:
        """Log that we could not connect to a master."""
        text = f"{failure.endpoint}: {failure.text(self._keys is not None)}"
        if self._keys is not None:  # libzmq does not always say which key is wrong
            own, server = self._keys.own.public, self._keys.server
            text += f" (this {self.what}'s key: {own}, the masters' key: {server})"
        self.complaint = text
        self._note(KEY_REFUSED if failure.refused else HANDSHAKE_FAILED, text)
        if failure.final:
            loop = asyncio.get_running_loop()
            loop.call_later(REFUSED_AGAIN_S, self._connect_again, socket)

    def _connect_again(self, socket: Socket) -> None:
        endpoint = self._connected.pop(socket, None)
        if endpoint is not None:  # else the socket was dropped meanwhile
            with contextlib.suppress(zmq.ZMQError):  # libzmq has forgotten it already
                socket.disconnect(endpoint)
            self._connect(socket, endpoint)

    def _note(self, name: str, detail: str) -> None:
        self.counters[name] += 1
        self._log(name, detail)

    # ------------------------------------------------------------ messages

    def _read(self, socket: Socket, channel: Channel, handler: BatchHandler) -> None:
        """Read a line that this end opened to a master."""
        self._readers[socket] = SocketReader(
            socket,
            channel,
            handler,
            self.counters,
            self._on_bad_frame,
            self._on_notice,
            self._note,
        )

    def _read_frames(self, socket: Socket, on_frames: OnFrames) -> None:
        self._readers[socket] = FrameReader(socket, on_frames, self.counters)

    def _on_bad_frame(self, route: bytes, error: DecodeError) -> None:
        if isinstance(error, VersionMismatch):
            self._on_version(route, error)
        else:
            self._log(error.code, str(error))

    def _on_version(self, route: bytes, error: VersionMismatch) -> None:
        self._log(error.code, self._versions(error))

    def _on_notice(self, speaker: str) -> None:
        """Note that a peer uses our version."""

    def _versions(self, error: VersionMismatch) -> str:
        """Return both versions as text."""
        return (
            f"this {self.what} {self._source} speaks protocol {error.ours}, "
            f"{error.source} speaks {error.theirs}"
        )

    def _header(self, epoch: int, body: Body, sequence: int, subject: int) -> Header:
        return stamp(self._source, self._incarnation, epoch, body, sequence, subject)

    def _send(self, socket: Socket, frames: list[bytes]) -> bool:
        try:
            socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            # Full (EAGAIN) or gone (EHOSTUNREACH): the protocol repeats what matters.
            name = "send_full" if error.errno == zmq.EAGAIN else "send_no_route"
            self.counters[name] += 1
            return False
        finally:
            reader = self._readers.get(socket)
            if reader is not None:
                reader.look_again()
        return True
