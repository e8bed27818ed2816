"""A master's control socket when some keys may only watch: its sender says what a message may be.

libzmq tells of each message under which name its sender was let in. A watcher's requests are marked
as such, for the master's machine to judge; whatever else it sends is noted and dropped. As long
as the list has no watcher nothing is asked, and nothing costs more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from zcrawl.mesh.mesh_zmq_sockets import OnBadFrame, OnNotice, Socket, SocketReader
from zcrawl.mesh.messages import BadBody, Kind, Message, Request
from zcrawl.mesh.ports import Arrived, Handler, Log
from zcrawl.mesh.security import WATCH, is_watcher, watcher

USER = "User-Id"  # as ZAP calls the name under which a peer was let in


class ControlReader(SocketReader):
    def __init__(
        self,
        socket: Socket,
        handler: Handler,
        counters: Counter[str],
        on_bad_frame: OnBadFrame,
        on_notice: OnNotice,
        note: Log,
        has_watchers: Callable[[], bool],
    ) -> None:
        super().__init__(socket, True, handler, counters, on_bad_frame, on_notice)
        self._note, self._has_watchers = note, has_watchers
        self._sender = ""
        self._receive = self._receive_named

    def _receive_named(self, flags: int) -> list[bytes]:
        self._sender = ""
        if not self._has_watchers():
            return self._socket.recv_multipart(flags)
        frames = self._socket.recv_multipart(flags, copy=False)
        self._sender = str(frames[-1].get(USER))
        return [frame.bytes for frame in frames]

    def _take(self, frames: list[bytes]) -> None:
        before = len(self._arrived)
        super()._take(frames)
        if not is_watcher(self._sender) or len(self._arrived) == before:
            return
        arrived = self._arrived.pop()
        message = arrived.message
        if isinstance(message, BadBody) or not isinstance(message.body, Request):
            self._note("watcher_refused", f"{self._sender}: {Kind(message.header.kind).name}")
            return
        name = self._sender.removeprefix(watcher(""))
        body = msgspec.structs.replace(message.body, role=WATCH, key=name, forwarded=False)
        self._arrived.append(Arrived(arrived.route, Message(message.header, body)))
