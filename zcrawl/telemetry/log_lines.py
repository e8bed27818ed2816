"""Log lines for consoles: their level, filters, and the latest lines. Pure.

The level of an event is declared with it, in `model.log_event`.

A filter is written as `level:warning node:w3 job:docs timed out`. Every part must match. A level
includes the worse ones; a node and a job must match completely, with `*` for any characters; other
words must occur somewhere in the line. Both the leader, which has the older lines, and the console,
which has the newest, use it, so that they choose alike.

`LogTail` keeps the latest lines of a process for consoles, a limited number per second, so that
many lines do not load the mesh; the others are counted. If there is no room, a warning replaces an
information. Called by `logs`; workers and followers send its lines as LINES, the leader uses its
own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from zcrawl.mesh.messages import LINE_TEXT_MOST, LogRecord, LogRecords
from zcrawl.model.event_text import event_text
from zcrawl.model.log_event import INFO, LEVELS, level_of
from zcrawl.text.wildcards import matches


def rank(level: str) -> int:
    """Return the rank of a level, 0 to 2; an unknown level counts as information."""
    return LEVELS.index(level) if level in LEVELS else 0


class LogFilter(msgspec.Struct, frozen=True):
    level: int = 0
    nodes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def fits(self, line: Mapping[str, Any], job: Collection[str]) -> bool:
        """Return whether a line fits; `job` has the name and the number of the line's job."""
        node = str(line.get("source", ""))
        if rank(str(line.get("level", ""))) < self.level:
            return False
        if not all(matches(node.casefold(), pattern) for pattern in self.nodes):
            return False
        names = [name.casefold() for name in job] if self.jobs else []
        if not all(any(matches(n, pattern) for n in names) for pattern in self.jobs):
            return False
        text = f"{line.get('level')} {node} {line.get('name')} {line.get('text')}".casefold()
        return all(word in text for word in self.words)


def read_filter(typed: str) -> LogFilter:
    level, nodes, jobs, words = 0, [], [], []
    for word in typed.casefold().split():
        name, colon, value = word.partition(":")
        if name == "level" and colon and _levels(value):
            level = max(level, rank(_levels(value)[0]))
        elif name == "node" and value:
            nodes.append(value)
        elif name == "job" and value:
            jobs.append(value)
        else:
            words.append(word)
    return LogFilter(level, tuple(nodes), tuple(jobs), tuple(words))


def _levels(value: str) -> list[str]:
    """Return the levels that begin with a text: `warn` is enough."""
    return [level for level in LEVELS if value and level.startswith(value)]


MOST: Final = 10  # lines between two takes, which come once a second


class LogTail:
    def __init__(self) -> None:
        self._lines: list[tuple[float, LogRecord]] = []  # with the moment
        self._left_out = 0

    def add(self, name: str, text: str, now: float, *, run: int = 0) -> None:
        level = level_of(name)
        if len(self._lines) >= MOST:
            self._left_out += 1
            if level == INFO:
                return
            spare = next((n for n, entry in enumerate(self._lines) if entry[1].level == INFO), None)
            if spare is None:
                return
            del self._lines[spare]
        sentence = _sendable(event_text(name, text), LINE_TEXT_MOST)
        line = LogRecord(0.0, level, _sendable(name, 100), sentence, run)
        self._lines.append((now, line))

    def take(self, now: float) -> LogRecords | None:
        """Return the lines since the last call, or None. They have ages instead of times, because
        the clocks of machines differ."""
        if not self._lines:
            return None
        lines = [
            msgspec.structs.replace(line, ago_s=min(1e5, max(0.0, now - at)))
            for at, line in self._lines
        ]
        taken = LogRecords(lines, self._left_out)
        self._lines, self._left_out = [], 0
        return taken


def _sendable(text: str, most: int) -> str:
    """Return the text cut, and without half characters, which a message cannot contain."""
    whole = text[:most].encode("utf-8", "backslashreplace").decode()
    return whole[:most]
