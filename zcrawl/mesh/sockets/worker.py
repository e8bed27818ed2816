"""A worker's end of the mesh on ZeroMQ: a line to each master, reports to all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import zmq

from zcrawl.errors import ConfigError, MeshError, VersionMismatch
from zcrawl.mesh.codec import VERSION_TOPIC, encode_report, version_notice
from zcrawl.mesh.messages import Body, MessageKind
from zcrawl.mesh.ports import BatchHandler, Endpoints, MeshLog, no_log
from zcrawl.mesh.roles import Channel
from zcrawl.mesh.security import MeshKeys
from zcrawl.mesh.sockets.end import MeshEnd
from zcrawl.mesh.sockets.readers import Socket, topic
from zcrawl.model.reasons.cluster import BAD_ENDPOINT

EARLY_MOST = 1_000  # reports kept until the first master has subscribed


class ZmqWorkerMesh(MeshEnd):
    """Implements `mesh.ports.WorkerMesh`. `connect` may come again as masters come and go.

    `on_strangers` is called with a text when no connected master uses this worker's version. A
    single master of another version is only logged, because masters are upgraded one by one.
    """

    what = "worker"

    def __init__(
        self,
        worker: str,
        incarnation: int,
        log: MeshLog = no_log,
        *,
        keys: MeshKeys | None = None,
        on_strangers: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(worker, incarnation, log, keys)
        self._controls: dict[str, Socket] = {}
        self._endpoints: dict[str, Endpoints] = {}
        self._handler: BatchHandler | None = None
        self._on_strangers = on_strangers
        self._strangers: dict[str, str] = {}  # master → both versions, in words
        self._early: deque[list[bytes]] | None = deque(maxlen=EARLY_MOST)
        self._reports = self._socket(zmq.XPUB)
        self._events = self._socket(zmq.SUB)
        # Only beats: snapshots and events are for consoles, and larger.
        self._events.setsockopt(zmq.SUBSCRIBE, topic(MessageKind.BEAT))
        self._events.setsockopt(zmq.SUBSCRIBE, VERSION_TOPIC)

    def connect(self, endpoints: Endpoints) -> None:
        if endpoints.master in self._controls:
            self._leave(endpoints.master)
        control = self._dealer(endpoints.master)
        try:
            self._connect(control, endpoints.control)
            self._connect(self._reports, endpoints.reports)
            self._connect(self._events, endpoints.events)
        except (MeshError, ConfigError) as error:  # only this master is left out
            self._note(BAD_ENDPOINT, f"{endpoints.master}: {error}")
            self._drop(control)
            self._disconnect(self._reports, endpoints.reports)
            self._disconnect(self._events, endpoints.events)
            return
        self._controls[endpoints.master] = control
        self._endpoints[endpoints.master] = endpoints
        if self._handler is not None:
            self._read(control, Channel.WORKER_CONTROL, self._handler)

    def disconnect(self, master: str) -> None:
        self._leave(master)
        self._tell_strangers()

    def _leave(self, master: str) -> None:
        endpoints = self._endpoints.pop(master, None)
        if endpoints is None:
            return  # its address was wrong
        self._strangers.pop(master, None)
        self._drop(self._controls.pop(master))
        self._disconnect(self._reports, endpoints.reports)
        self._disconnect(self._events, endpoints.events)

    def listen(self, handler: BatchHandler) -> None:
        self._handler = handler
        for control in self._controls.values():
            self._read(control, Channel.WORKER_CONTROL, handler)
        self._read(self._events, Channel.WORKER_EVENTS, handler)
        self._read_frames(self._reports, self._on_subscription)

    def send(
        self, master: str, epoch: int, body: Body, sequence: int = 0, subject: int = 0
    ) -> bool:
        control = self._controls.get(master)
        if control is None:
            self.counters["send_no_route"] += 1
            return False
        return self._send(
            control, encode_report(self._header(epoch, body, sequence, subject), body)
        )

    def publish(self, epoch: int, body: Body, sequence: int = 0, subject: int = 0) -> bool:
        frames = encode_report(self._header(epoch, body, sequence, subject), body)
        if self._early is not None:  # not connected yet: ZeroMQ would drop it silently
            self._early.append(frames)
            return False
        return self._send(self._reports, frames)

    def _on_subscription(self, frames: list[bytes]) -> None:
        if frames[0][:1] == b"\x01":
            early, self._early = self._early, None
            for report in early or ():
                self._send(self._reports, report)

    # ------------------------------------------------------------ versions

    def _on_version(self, route: bytes, error: VersionMismatch) -> None:
        text = self._versions(error)
        if error.source in self._controls and self._strangers.get(error.source) != text:
            self._strangers[error.source] = text
            self._log(error.code, text)
            # The master may not have our messages yet, and its log should show the problem as well.
            self._send(self._controls[error.source], version_notice(self._source))
            self._tell_strangers()

    def _on_notice(self, speaker: str) -> None:
        self._strangers.pop(speaker, None)  # it was upgraded

    def _tell_strangers(self) -> None:
        if self._controls and len(self._strangers) == len(self._controls):
            self._on_strangers("; ".join(self._strangers.values()))
