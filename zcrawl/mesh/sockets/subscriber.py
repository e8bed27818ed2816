"""Who only listens: a console hears the leader's beats, snapshots and events.

Followers have lines in both directions, `peers`.
"""

from __future__ import annotations

from collections.abc import Sequence

import zmq

from zcrawl.mesh.codec import VERSION_TOPIC
from zcrawl.mesh.kinds import Kind
from zcrawl.mesh.ports import Handler, Log, no_log
from zcrawl.mesh.roles import Channel
from zcrawl.mesh.security import MeshKeys
from zcrawl.mesh.sockets.end import MeshEnd
from zcrawl.mesh.sockets.readers import topic


class ZmqSubscriber(MeshEnd):
    """Hears the chosen kinds (BEAT, EVENT, SNAPSHOT) from the masters that it is connected to.

    Nothing is sent again: who comes late gets the last beat at once, and everything else from the
    next snapshot on.
    """

    what = "subscriber"

    def __init__(
        self,
        name: str,
        kinds: Sequence[Kind],
        log: Log = no_log,
        *,
        keys: MeshKeys | None = None,
    ) -> None:
        super().__init__(name, 0, log, keys)
        self._masters: dict[str, str] = {}
        self._events = self._socket(zmq.SUB)
        for kind in kinds:
            self._events.setsockopt(zmq.SUBSCRIBE, topic(kind))
        self._events.setsockopt(zmq.SUBSCRIBE, VERSION_TOPIC)

    @property
    def masters(self) -> dict[str, str]:
        """Master → its events endpoint."""
        return dict(self._masters)

    def connect(self, master: str, events: str) -> None:
        """Also for a master that has moved; the same again changes nothing."""
        if self._masters.get(master) == events:
            return
        self.disconnect(master)
        self._connect(self._events, events)
        self._masters[master] = events

    def disconnect(self, master: str) -> None:
        events = self._masters.pop(master, None)
        if events is not None:
            self._disconnect(self._events, events)

    def listen(self, handler: Handler) -> None:
        self._read(self._events, Channel.WATCHER_EVENTS, handler)
