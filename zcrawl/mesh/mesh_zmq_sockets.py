"""What all ends of the mesh on ZeroMQ share: plain sockets in an asyncio loop, without zmq.asyncio.

A socket's descriptor is edge-triggered: it tells once that something happened, and any send or
receive may use that up. So a socket is read until it says "again", and looked at once more after
each send. zmq.asyncio costs three times as much (FACTS: 11 k against 32 k round trips a second).

Heartbeat options stand only on sockets that bind: a connecting SUB or DEALER with them and a full
queue aborts the process (libzmq#3937).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import zmq

from zcrawl.errors import DecodeError, MeshError
from zcrawl.mesh.codec import MAX_FRAME_BYTES, decode
from zcrawl.mesh.messages import PROTOCOL_VERSION, Body, Header, Kind
from zcrawl.mesh.ports import HIGH_WATER_MARK, Arrived, Handler, stamp

DRAIN_MOST = 200  # messages of one socket before others get their turn
LINGER_MS = 100
RECONNECT_MS = 20  # doubles up to the next
RECONNECT_MOST_MS = 1_000
HEARTBEAT_MS = 3_000
HEARTBEAT_TIMEOUT_MS = 12_000

Socket = zmq.Socket[bytes]
OnBadFrame = Callable[[DecodeError], None]


def topic(kind: Kind) -> bytes:
    """How every message of a kind begins: an array of so many fields, the version, the kind."""
    return bytes([0x90 | len(Header.__struct_fields__), PROTOCOL_VERSION, kind])


class SocketReader:
    """Reads one socket in an event loop and hands over what a drain gave, decoded."""

    def __init__(
        self,
        socket: Socket,
        routed: bool,
        handler: Handler,
        counters: Counter[str],
        on_bad_frame: OnBadFrame | None = None,
    ) -> None:
        self._socket = socket
        self._routed = routed
        self._handler = handler
        self._counters = counters
        self._on_bad_frame = on_bad_frame
        self._loop = asyncio.get_running_loop()
        self._fd: int = socket.FD
        self._scheduled = False
        self._loop.add_reader(self._fd, self._drain)
        self.look_again()

    def look_again(self) -> None:
        """After a send: it may have used up the descriptor's signal."""
        if not self._scheduled and self._fd >= 0:
            self._scheduled = True
            self._loop.call_soon(self._drain)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1

    def _drain(self) -> None:
        self._scheduled = False
        if self._fd < 0:
            return
        arrived: list[Arrived] = []
        receive = self._socket.recv_multipart
        for _ in range(DRAIN_MOST):
            try:
                frames = receive(zmq.NOBLOCK)
            except zmq.Again:
                break
            except zmq.ZMQError as error:  # e.g. EINTR: the descriptor may be used up
                self._counters[f"receive_error_{error.errno}"] += 1
                self.look_again()
                break
            one = self._decoded(frames)
            if one is not None:
                arrived.append(one)
        else:
            self.look_again()
        if arrived:
            self._handler(arrived)

    def _decoded(self, frames: Sequence[bytes]) -> Arrived | None:
        route, rest = (frames[0], frames[1:]) if self._routed else (b"", frames)
        try:
            return Arrived(route, decode(rest))
        except DecodeError as error:
            self._counters[error.code] += 1
            if self._on_bad_frame is not None:
                self._on_bad_frame(error)
            return None


class SubscriptionReader(SocketReader):
    """Reads an XPUB, which receives nothing but subscriptions (1) and their ends (0)."""

    def __init__(self, socket: Socket, on_subscribed: Callable[[], None]) -> None:
        self._on_subscribed = on_subscribed
        super().__init__(socket, False, lambda arrived: None, Counter())

    def _decoded(self, frames: Sequence[bytes]) -> Arrived | None:
        if frames[0][:1] == b"\x01":
            self._on_subscribed()
        return None


class MeshEnd:
    """What both sides share: a context, sockets, counted sends."""

    def __init__(self, source: str, incarnation: int, on_bad_frame: OnBadFrame | None) -> None:
        self.counters: Counter[str] = Counter()
        self._source = source
        self._incarnation = incarnation
        self._on_bad_frame = on_bad_frame
        self._context = zmq.Context()
        self._sockets: list[Socket] = []
        self._readers: dict[Socket, SocketReader] = {}

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
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        for socket in self._sockets:
            socket.close(LINGER_MS)
        self._sockets.clear()
        self._context.term()

    def _socket(self, kind: int) -> Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        self._sockets.append(socket)
        return socket

    def _bind(self, socket: Socket, endpoint: str) -> None:
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            code = "address_in_use" if error.errno == zmq.EADDRINUSE else "cannot_bind"
            raise MeshError(f"cannot listen at {endpoint}: {error.strerror}", code=code) from error

    def _connect(self, socket: Socket, endpoint: str) -> None:
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MOST_MS)
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise MeshError(
                f"cannot connect to {endpoint}: {error.strerror}", code="bad_endpoint"
            ) from error

    def _read(self, socket: Socket, routed: bool, handler: Handler) -> None:
        self._readers[socket] = SocketReader(
            socket, routed, handler, self.counters, self._on_bad_frame
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
