"""A worker's end of the mesh on ZeroMQ: a line to each master, reports to all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec
import zmq

from zcrawl.errors import ConfigError, MeshError, VersionMismatch
from zcrawl.mesh.codec import encode_report, version_notice
from zcrawl.mesh.messages import Body, MessageKind
from zcrawl.mesh.ports import BatchHandler, Endpoints, MeshLog, no_log
from zcrawl.mesh.roles import Channel
from zcrawl.mesh.security import MeshKeys
from zcrawl.mesh.sockets.end import MeshEnd
from zcrawl.mesh.sockets.readers import Socket
from zcrawl.model.reasons.cluster import BAD_ENDPOINT

EARLY_MOST = 1_000  # reports kept until the first master has subscribed


class MasterLine(msgspec.Struct, frozen=True):
    """The sockets to one master."""

    control: Socket
    reports: Socket
    events: Socket


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
        self._lines: dict[str, MasterLine] = {}
        self._handler: BatchHandler | None = None
        self._on_strangers = on_strangers
        self._strangers: dict[str, str] = {}  # master → both versions, in words
        self._early: deque[list[bytes]] | None = deque(maxlen=EARLY_MOST)

    def connect(self, endpoints: Endpoints) -> None:
        self._leave(endpoints.master)
        # Only beats: snapshots and events are for consoles, and larger.
        line = MasterLine(
            self._dealer(endpoints.master),
            self._socket(zmq.XPUB),
            self._subscription([MessageKind.BEAT]),
        )
        try:
            self._connect(line.control, endpoints.control)
            self._connect(line.reports, endpoints.reports)
            self._connect(line.events, endpoints.events)
        except (MeshError, ConfigError) as error:  # only this master is left out
            self._note(BAD_ENDPOINT, f"{endpoints.master}: {error}")
            self._close_line(line)
            return
        self._lines[endpoints.master] = line
        if self._handler is not None:
            self._read_line(line, self._handler)

    def disconnect(self, master: str) -> None:
        self._leave(master)
        self._tell_strangers()

    def _leave(self, master: str) -> None:
        line = self._lines.pop(master, None)
        if line is not None:  # else it is new, or its address was wrong
            self._strangers.pop(master, None)
            self._close_line(line)

    def _close_line(self, line: MasterLine) -> None:
        for socket in (line.control, line.reports, line.events):
            self._drop(socket)

    def listen(self, handler: BatchHandler) -> None:
        self._handler = handler
        for line in self._lines.values():
            self._read_line(line, handler)

    def _read_line(self, line: MasterLine, handler: BatchHandler) -> None:
        self._read(line.control, Channel.WORKER_CONTROL, handler)
        self._read(line.events, Channel.WORKER_EVENTS, handler)
        self._read_frames(line.reports, lambda frames: self._on_subscription(line, frames))

    def send(
        self, master: str, epoch: int, body: Body, sequence: int = 0, subject: int = 0
    ) -> bool:
        line = self._lines.get(master)
        if line is None:
            self.counters["send_no_route"] += 1
            return False
        return self._send(
            line.control, encode_report(self._header(epoch, body, sequence, subject), body)
        )

    def publish(self, epoch: int, body: Body, sequence: int = 0, subject: int = 0) -> bool:
        frames = encode_report(self._header(epoch, body, sequence, subject), body)
        if self._early is not None:  # not connected yet: ZeroMQ would drop it silently
            self._early.append(frames)
            return False
        accepted = [self._send(line.reports, frames) for line in self._lines.values()]
        return any(accepted)

    def _on_subscription(self, line: MasterLine, frames: list[bytes]) -> None:
        if frames[0][:1] == b"\x01":
            early, self._early = self._early, None
            for report in early or ():
                self._send(line.reports, report)

    # ------------------------------------------------------------ versions

    def _on_version(self, route: bytes, error: VersionMismatch) -> None:
        text = self._versions(error)
        if error.source in self._lines and self._strangers.get(error.source) != text:
            self._strangers[error.source] = text
            self._log(error.code, text)
            # The master may not have our messages yet, and its log should show the problem as well.
            self._send(self._lines[error.source].control, version_notice(self._source))
            self._tell_strangers()

    def _on_notice(self, speaker: str) -> None:
        self._strangers.pop(speaker, None)  # it was upgraded

    def _tell_strangers(self) -> None:
        if self._lines and len(self._strangers) == len(self._lines):
            self._on_strangers("; ".join(self._strangers.values()))
