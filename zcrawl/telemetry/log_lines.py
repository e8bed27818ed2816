"""Log lines as those who watch see them: their level, which are shown, the last ones.

How much an event matters is declared with it, in `model.log_event`.

Which log lines somebody wants to see: `level:warning node:w3 job:docs timed out`.

Every part has to fit. A level means that one and worse; a node and a job are meant whole, with `*`
for any characters; whatever else is typed has to occur somewhere in the line. Used by the leader,
which has the older lines, and by the console, which has the newest: both must choose alike. Pure.

What a process has logged lately, for those who read the logs of all nodes at once.

A bounded part of each second: a storm of lines costs the mesh no more than a few, and the rest are
counted. When there is no room a warning takes the place of an information. Called by `logs`; a
worker and a follower send what it holds as LINES, the leader takes its own. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from zcrawl.mesh.messages import LINE_TEXT_MOST, LogRecord, LogRecords
from zcrawl.model.log_event import INFO, LEVELS, level_of
from zcrawl.text.wildcards import matches


def rank(level: str) -> int:
    """0 to 2; what is no level counts as information."""
    return LEVELS.index(level) if level in LEVELS else 0


class LogFilter(NamedTuple):
    level: int = 0
    nodes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def fits(self, line: Mapping[str, Any], job: Collection[str]) -> bool:
        """`job` is what the job is called that the line is about: its name, its number."""
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
    """A level by its beginning: `warn` will do."""
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
        line = LogRecord(0.0, level, _sendable(name, 100), _sendable(text, LINE_TEXT_MOST), run)
        self._lines.append((now, line))

    def take(self, now: float) -> LogRecords | None:
        """All that was added since; None when that is nothing. Ages and not times: two machines'
        clocks may differ."""
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
    """What was logged may hold half a character, which has no place in a message."""
    whole = text[:most].encode("utf-8", "backslashreplace").decode()
    return whole[:most]
