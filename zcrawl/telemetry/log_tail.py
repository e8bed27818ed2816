"""What a process has logged lately, for those who read the logs of all nodes at once.

A bounded part of each second: a storm of lines costs the mesh no more than a few, and the rest are
counted. When there is no room a warning takes the place of an information. Called by `logs`; a
worker and a follower send what it holds as LINES, the leader takes its own. Pure.
"""

from __future__ import annotations

from typing import Final

from zcrawl.mesh.lines import LINE_TEXT_MOST, Line, Lines
from zcrawl.telemetry.levels import INFO, level_of

MOST: Final = 10  # lines between two takes, which come once a second


class LogTail:
    def __init__(self) -> None:
        self._lines: list[tuple[float, str, str, str]] = []  # moment, level, name, text
        self._left_out = 0

    def add(self, name: str, text: str, now: float) -> None:
        level = level_of(name)
        if len(self._lines) >= MOST:
            self._left_out += 1
            if level == INFO:
                return
            spare = next((n for n, one in enumerate(self._lines) if one[1] == INFO), None)
            if spare is None:
                return
            del self._lines[spare]
        self._lines.append((now, level, _sendable(name, 100), _sendable(text, LINE_TEXT_MOST)))

    def take(self, now: float) -> Lines | None:
        """All that was added since; None when that is nothing. Ages and not times: two machines'
        clocks may differ."""
        if not self._lines:
            return None
        lines = [Line(min(1e5, max(0.0, now - at)), *rest) for at, *rest in self._lines]
        taken = Lines(lines, self._left_out)
        self._lines, self._left_out = [], 0
        return taken


def _sendable(text: str, most: int) -> str:
    """What was logged may hold half a character, which has no place in a message."""
    whole = text[:most].encode("utf-8", "backslashreplace").decode()
    return whole[:most]
