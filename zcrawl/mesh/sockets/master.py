"""A master's end of the mesh on ZeroMQ: it binds, everybody else connects.

With keys it decides which peers may connect. libzmq asks about each handshake over ZAP, a socket of
fixed name in the same context, which is read in the same loop as all others: pyzmq's authenticator
would be a thread more, and without any handler CURVE accepts every key. `border` checks every
message of a connected peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import zmq

from zcrawl.errors import VersionMismatch
from zcrawl.mesh.border import AnswerPace, Border
from zcrawl.mesh.codec import VERSION_TOPIC, encode, version_notice
from zcrawl.mesh.messages import Beat, Body, Header, MessageKind, Reply
from zcrawl.mesh.ports import BatchHandler, Endpoints, MeshLog, no_log
from zcrawl.mesh.roles import Channel
from zcrawl.mesh.security import AllowedKey, MeshKeys, judge
from zcrawl.mesh.sockets.border import BorderReader
from zcrawl.mesh.sockets.end import MeshEnd
from zcrawl.mesh.sockets.readers import Socket, topic
from zcrawl.model.log_event import BAD_ZAP_REQUEST, EVENTS_NOT_BOUND, PEER_REFUSED

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
SUBSCRIPTION_MOST = 4_096  # bytes of a frame to the events socket: topics, and CURVE's handshake
REBIND_S = 0.05  # libzmq closes a socket in a thread of its own
FOREIGNERS_MOST = 1_000  # peers of another version that were logged already


class ZmqMasterMesh(MeshEnd):
    """Implements `mesh.ports.MasterMesh`. Binds at construction, receives after `listen`.

    `endpoints` have the real ports, also where any free port was requested.
    """

    what = "master"

    def __init__(
        self,
        endpoints: Endpoints,
        incarnation: int,
        log: MeshLog = no_log,
        *,
        keys: MeshKeys | None = None,
        allowed: Mapping[str, AllowedKey] | None = None,
    ) -> None:
        super().__init__(endpoints.master, incarnation, log, keys)
        self._last_beat: list[bytes] | None = None
        self._border = Border(keys.server if keys is not None else "")
        self._beats = _SpacedAnswer(self._repeat_beat)
        self._notices = _SpacedAnswer(self._send_notice)
        self._foreigners: set[tuple[str, int]] = set()
        self._unbound: asyncio.TimerHandle | None = None  # until the events socket is bound again
        self._allowed: Mapping[str, AllowedKey] = {}
        self.allow(allowed or {})
        try:
            if keys is not None:
                keys.check_master()
                self._zap = self._open_zap(keys)
            self._control = self._socket(zmq.ROUTER)
            self._control.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self._control.setsockopt(zmq.ROUTER_HANDOVER, 1)
            self._reports = self._socket(zmq.SUB)
            self._reports.setsockopt(zmq.SUBSCRIBE, b"")
            # XPUB, not PUB: it reports new subscribers, which then get the last beat at once
            # instead of in a second.
            self._events = self._socket(zmq.XPUB)
            self._events.setsockopt(zmq.XPUB_VERBOSE, 1)
            self._events.setsockopt(zmq.MAXMSGSIZE, SUBSCRIPTION_MOST)
            self.endpoints = Endpoints(
                endpoints.master,
                self._bind(self._control, endpoints.control),
                self._bind(self._reports, endpoints.reports),
                self._bind(self._events, endpoints.events),
            )
        except BaseException:
            self.close()
            raise

    def listen(self, handler: BatchHandler) -> None:
        for socket, channel in (
            (self._control, Channel.CONTROL),
            (self._reports, Channel.REPORTS),
        ):
            self._readers[socket] = BorderReader(
                socket,
                channel,
                handler,
                self.counters,
                self._on_bad_frame,
                self._on_notice,
                self._note,
                log=self._log,
                border=self._border,
                keyed=self._keys is not None,
                answer=self._answer,
            )
        self._read_frames(self._events, self._on_subscription)

    def close(self) -> None:
        self._beats.cancel()
        self._notices.cancel()
        if self._unbound is not None:
            self._unbound.cancel()
        super().close()

    def allow(self, allowed: Mapping[str, AllowedKey]) -> None:
        """Use this list from the next handshake and message on.

        A removed key may send nothing more, and receives nothing more but refusals. The events
        socket does not know its subscribers by their keys: it ends all connections, and those that
        are still allowed connect again. They lose a BEAT at most.
        """
        removed = self._allowed.keys() - allowed.keys()
        self._allowed = allowed
        self._border.allow(allowed)
        if removed and self._unbound is None:
            endpoint = self.endpoints.events
            self._events.unbind(endpoint)
            self._unbound = asyncio.get_running_loop().call_later(REBIND_S, self._rebind, endpoint)

    def _rebind(self, endpoint: str) -> None:
        self._unbound = None
        try:
            self._events.bind(endpoint)
        except zmq.ZMQError as error:  # libzmq has not closed it yet
            if error.errno != zmq.EADDRINUSE:
                self._note(EVENTS_NOT_BOUND, f"{endpoint}: {error.strerror}")
            loop = asyncio.get_running_loop()
            self._unbound = loop.call_later(REBIND_S, self._rebind, endpoint)

    def send(
        self, route: bytes, epoch: int, body: Body, sequence: int = 0, subject: int = 0
    ) -> bool:
        if self._keys is not None and self._border.is_cut_off(route):
            self.counters["send_cut_off"] += 1
            return False
        return self._send_to(route, epoch, body, sequence, subject)

    def _send_to(self, route: bytes, epoch: int, body: Body, sequence: int, subject: int) -> bool:
        frames = encode(self._header(epoch, body, sequence, subject), body)
        if isinstance(body, Reply):
            self._border.answered(route, len(frames[1]))
        return self._send(self._control, [route, *frames])

    def publish(self, epoch: int, body: Body) -> bool:
        frames = encode(self._header(epoch, body, 0, 0), body)
        if isinstance(body, Beat):
            self._last_beat = frames
        return self._send(self._events, frames)

    def _answer(self, route: bytes, header: Header, body: Body) -> None:
        """Answer a refused message, with the epoch of that message."""
        self._send_to(route, header.epoch, body, 0, header.incarnation)

    def _on_subscription(self, frames: list[bytes]) -> None:
        """Handle a subscription (1) or its end (0); an XPUB receives nothing else.

        The answer goes to all subscribers, so many subscriptions together get few answers.
        """
        prefix = frames[0][1:]
        if frames[0][:1] != b"\x01":
            return
        if prefix == VERSION_TOPIC:
            self._notices.want()
        elif self._last_beat is not None and topic(MessageKind.BEAT).startswith(prefix):
            self._beats.want()

    def _repeat_beat(self) -> None:
        if self._last_beat is not None:
            self._send(self._events, self._last_beat)

    def _send_notice(self) -> None:
        self._send(self._events, version_notice(self._source))

    def _on_version(self, route: bytes, error: VersionMismatch) -> None:
        if route:
            self._send(self._control, [route, *version_notice(self._source)])
        # Told once: a worker of another leader reports several times a second.
        if (error.source, error.theirs) not in self._foreigners:
            if len(self._foreigners) >= FOREIGNERS_MOST:
                self._foreigners.clear()
            self._foreigners.add((error.source, error.theirs))
            super()._on_version(route, error)

    # ------------------------------------------------------------ who gets in

    def _open_zap(self, keys: MeshKeys) -> Socket:
        """Open the ZAP handler before any bind: handshakes without a handler fail."""
        zap = self._socket(zmq.ROUTER)
        zap.bind(ZAP_ENDPOINT)
        self._read_frames(zap, lambda frames: self._answer_zap(keys, frames))
        return zap

    def _answer_zap(self, keys: MeshKeys, frames: list[bytes]) -> None:
        head = frames.index(b"") + 1  # routes, then an empty frame, then the question
        verdict = judge(frames[head:], keys.server, self._allowed)
        if verdict is None:
            self._note(BAD_ZAP_REQUEST, f"{len(frames)} frames")
            return
        if not verdict.admitted:
            self._note(PEER_REFUSED, f"{verdict.address} with the key {verdict.key}")
        self._send(self._zap, [*frames[:head], *verdict.reply])


class _SpacedAnswer:
    """Sends an answer to subscriptions at the pace of `AnswerPace`."""

    def __init__(self, send: Callable[[], None]) -> None:
        self._send_now = send
        self._pace = AnswerPace()
        self._timer: asyncio.TimerHandle | None = None

    def want(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = self._pace.want(loop.time())
        if wait_s == 0.0:
            self._send()
        elif wait_s is not None:
            self._timer = loop.call_later(wait_s, self._send)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _send(self) -> None:
        self._pace.sent(asyncio.get_running_loop().time())
        self._send_now()
