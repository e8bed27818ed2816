"""Follows the frames that an HTTP/2 server sends, to see at once what cannot be frames.

Used by `backend` for each connection that speaks HTTP/2. h2 looks at a frame when it is
whole: a server that sends something else (HTTP/1.1, an error page of a proxy) announces frames of
megabytes by it, and all pages of the connection would wait for the rest until they time out. Pure.
"""

from __future__ import annotations

from typing import Final

# Our side never allows longer frames, so every server has to keep to what the standard begins with.
MAX_FRAME_BYTES: Final = 16_384
_HEAD_BYTES: Final = 9  # of each frame: 3 of its length, then type, flags and stream
_SETTINGS: Final = 4


class FrameWatch:
    """One connection, in the direction from the server."""

    def __init__(self) -> None:
        self._head = b""  # of a frame whose first bytes have come
        self._payload_left = 0
        self._began = False

    def feed(self, data: bytes) -> str:
        """Look at what came next; return what is wrong with it, or nothing."""
        at = 0
        while at < len(data):
            if self._payload_left:
                skipped = min(self._payload_left, len(data) - at)
                self._payload_left -= skipped
                at += skipped
                continue
            missing = _HEAD_BYTES - len(self._head)
            self._head += data[at : at + missing]
            at += missing
            if len(self._head) == _HEAD_BYTES:
                length, kind = int.from_bytes(self._head[:3], "big"), self._head[3]
                if length > MAX_FRAME_BYTES:
                    return f"a frame of {length} bytes; {MAX_FRAME_BYTES} are allowed"
                if not self._began and kind != _SETTINGS:
                    return f"the first frame is of type {kind}, not SETTINGS"
                self._began = True
                self._payload_left, self._head = length, b""
        return ""
