"""Report failed handshakes from the monitor of a socket.

Every end uses it for sockets that others can reach or that are encrypted. The names of peers are
not known here: libzmq gives a monitor only the endpoint, and ZAP gives the rest.
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
        """Whether the key is not in the list."""
        return self.event == zmq.EVENT_HANDSHAKE_FAILED_AUTH

    @property
    def final(self) -> bool:
        """Whether libzmq does not try again by itself."""
        return self.event != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL

    def text(self, encrypted: bool) -> str:
        """Return a text for people; `encrypted`: this side has keys."""
        if self.refused:
            return "the masters do not allow this key; `zcrawl keys allow` on each adds it"
        if self.event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            return "the line broke off during the handshake"
        if self.value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return (
                "the peer does not encrypt, this side does"
                if encrypted
                else "the peer uses encryption, but this side has no keys"
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
        # Unlimited, because libzmq's thread would block at a full queue.
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
