"""Ends of the mesh for clients: one that sends requests, and one that only listens.

`ZmqClientMesh` sends the requests of commands and consoles.

`ZmqSubscriber` receives the leader's beats, snapshots and events for a console.

Masters connect to each other with `peers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zcrawl.errors import MeshError, VersionMismatch
from zcrawl.mesh.codec import encode
from zcrawl.mesh.messages import Body, MessageKind
from zcrawl.mesh.ports import BatchHandler, MeshLog, no_log
from zcrawl.mesh.roles import Channel
from zcrawl.mesh.security import MeshKeys
from zcrawl.mesh.sockets.end import MeshEnd
from zcrawl.mesh.sockets.readers import Socket
from zcrawl.model.reasons.cluster import BAD_ENDPOINT


class ZmqSubscriber(MeshEnd):
    """Hears the chosen kinds (BEAT, EVENT, SNAPSHOT) from the masters that it is connected to.

    Nothing is sent again: a new subscriber gets the last beat at once, and everything else from
    the next snapshot on.
    """

    what = "subscriber"

    def __init__(
        self,
        name: str,
        kinds: Sequence[MessageKind],
        log: MeshLog = no_log,
        *,
        keys: MeshKeys | None = None,
    ) -> None:
        super().__init__(name, 0, log, keys)
        self._kinds = tuple(kinds)
        self._handler: BatchHandler | None = None
        self._lines: dict[str, tuple[str, Socket]] = {}  # master → its events endpoint, its socket

    @property
    def masters(self) -> dict[str, str]:
        """Map of each master to its events endpoint."""
        return {master: events for master, (events, _) in self._lines.items()}

    def connect(self, master: str, events: str) -> None:
        """Connect to a master, or again if it has moved; a repeat changes nothing."""
        if self.masters.get(master) == events:
            return
        self.disconnect(master)
        socket = self._subscription(self._kinds)
        try:
            self._connect(socket, events)
        except BaseException:
            self._drop(socket)
            raise
        self._lines[master] = (events, socket)
        if self._handler is not None:
            self._read(socket, Channel.WATCHER_EVENTS, self._handler)

    def disconnect(self, master: str) -> None:
        _, socket = self._lines.pop(master, ("", None))
        if socket is not None:
            self._drop(socket)

    def listen(self, handler: BatchHandler) -> None:
        self._handler = handler
        for _, socket in self._lines.values():
            self._read(socket, Channel.WATCHER_EVENTS, handler)


class ZmqClientMesh(MeshEnd):
    """A connection to one master at a time.

    Any master accepts any request, and the id of a request makes a repeat harmless. So a client
    without an answer calls `next_master` and sends the request again. `on_strangers` is called with
    a text when all masters use another version.
    """

    what = "client"

    def __init__(
        self,
        client: str,
        incarnation: int,
        controls: list[str],
        log: MeshLog = no_log,
        *,
        keys: MeshKeys | None = None,
        on_strangers: Callable[[str], None] = lambda text: None,
    ) -> None:
        if not controls:
            raise MeshError("a client needs the address of a master", code=BAD_ENDPOINT)
        super().__init__(client, incarnation, log, keys)
        self._controls = list(controls)
        self._handler: BatchHandler | None = None
        self._on_strangers = on_strangers
        self._strangers: dict[str, str] = {}  # endpoint → both versions, in words
        try:
            self._control = self._open()
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> str:
        """The endpoint of the current master."""
        return self._controls[0]

    def listen(self, handler: BatchHandler) -> None:
        self._handler = handler
        self._read(self._control, Channel.CLIENT_CONTROL, handler)

    def send(self, body: Body) -> bool:
        return self._send(self._control, encode(self._header(0, body, 0, 0), body))

    def next_master(self) -> None:
        """Leave the one that does not answer. With only one there is nowhere to go."""
        if len(self._controls) == 1:
            return
        self._controls.append(self._controls.pop(0))
        self._drop(self._control)
        self._control = self._open()
        if self._handler is not None:
            self._read(self._control, Channel.CLIENT_CONTROL, self._handler)

    def _open(self) -> Socket:
        control = self._dealer(self.master)
        self._connect(control, self.master)
        return control

    def _on_version(self, route: bytes, error: VersionMismatch) -> None:
        super()._on_version(route, error)
        self._strangers[self.master] = self._versions(error)
        if len(self._strangers) == len(self._controls):
            self._on_strangers("; ".join(self._strangers.values()))
