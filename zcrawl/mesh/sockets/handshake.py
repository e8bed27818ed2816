"""Handshakes that fail, told by a socket's monitor: who does not get in, or why we do not.

Called by every end for sockets that others can reach or that are encrypted. The names of peers are
not here: libzmq tells a monitor the endpoint that was bound or connected, and ZAP the rest.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import msgspec
import zmq

from zcrawl.mesh.sockets.readers import FrameReader, Socket

_WATCHED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class HandshakeFailure(msgspec.Struct, frozen=True):
    endpoint: str
    event: int
    value: int

    @property
    def refused(self) -> bool:
        """The key is not on the list."""
        return self.event == zmq.EVENT_HANDSHAKE_FAILED_AUTH

    @property
    def final(self) -> bool:
        """libzmq tries no more by itself."""
        return self.event != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL

    def text(self, encrypted: bool) -> str:
        """`encrypted`: this side has keys."""
        if self.refused:
            return "the masters do not allow this key; `zcrawl keys allow` on each adds it"
        if self.event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            return "the line broke off during the handshake"
        if self.value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return (
                "the peer does not encrypt, this side does"
                if encrypted
                else "the peer encrypts, this side has no keys"
            )
        if self.value == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
            return "the peer has another public key of the masters"
        return f"the peer does not speak ZeroMQ's protocol (0x{self.value:x})"


OnFailure: TypeAlias = Callable[[HandshakeFailure], None]


class HandshakeWatch:
    """Reads the monitor of one socket."""

    def __init__(
        self,
        context: zmq.Context[Socket],
        socket: Socket,
        counters: Counter[str],
        on_failure: OnFailure,
    ) -> None:
        self._watched = socket
        self._on_failure = on_failure
        name = f"inproc://handshakes-{id(socket)}"
        socket.monitor(name, _WATCHED)
        self._monitor = context.socket(zmq.PAIR)
        # Unlimited: libzmq's thread would wait at a full queue, and serve nobody meanwhile.
        self._monitor.setsockopt(zmq.RCVHWM, 0)
        self._monitor.connect(name)
        self._reader = FrameReader(self._monitor, self._take, counters)

    def close(self) -> None:
        self._reader.close()
        self._watched.disable_monitor()
        self._monitor.close(0)

    def _take(self, frames: list[bytes]) -> None:
        # A number of 16 bits and one of 32, then the endpoint. pyzmq's own reader of that brings
        # its asyncio along.
        event, value = struct.unpack("=Hi", frames[0])
        if event & _WATCHED:
            endpoint = frames[1].decode("utf-8", "replace")
            self._on_failure(HandshakeFailure(endpoint, event, value))
