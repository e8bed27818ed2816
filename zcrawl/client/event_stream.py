"""Server-sent events as they arrive in bytes, and JSON lines. Pure; both clients use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


class StreamEvent(msgspec.Struct, frozen=True):
    """An event. `id` is what a reconnect names."""

    id: str
    kind: str  # run, node, leader, log, gap
    data: dict[str, Any]


class EventParser:
    """Feed it with bytes; it gives events. `retry_s`: the pause before a reconnect."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_s = 1.0
        self._lines = Lines()
        self._id, self._kind, self._data = "", "message", b""

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        for line in self._lines.feed(data):
            event = self._take(line)
            if event is not None:
                self.last_id = event.id or self.last_id
                yield event

    def reconnect(self) -> None:
        """Forget what a broken connection had begun."""
        self._lines = Lines()
        self._id, self._kind, self._data = "", "message", b""

    def _take(self, line: bytes) -> StreamEvent | None:
        if not line:
            event = None
            if self._data:
                event = StreamEvent(self._id, self._kind, msgspec.json.decode(self._data))
            self._id, self._kind, self._data = "", "message", b""
            return event
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"id":
                self._id = value.decode()
            case b"event":
                self._kind = value.decode()
            case b"data":
                self._data += value
            case b"retry" if value.isdigit():
                self.retry_s = int(value) / 1_000
            case _:
                pass  # a comment: a heartbeat
        return None


class Lines:
    """Bytes to whole lines; what is not ended yet is kept."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            yield line.removesuffix(b"\r")
