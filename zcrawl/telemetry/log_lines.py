"""Log lines as those who watch see them: their level, which are shown, the last ones.

How much a log event matters: information, a warning, an error. By its name; nobody passes a
level along. Called by logs' tails, the leader's watch and filters. Pure.

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

from zcrawl.mesh.messages import LINE_TEXT_MOST, Line, Lines
from zcrawl.text.wildcards import matches

INFO, WARNING, ERROR = "info", "warning", "error"
ORDER: Final = (INFO, WARNING, ERROR)
# What an operator should see at once, and what is an error. Everything else is information.
LEVELS: Final = {
    **dict.fromkeys(
        (
            "assignment_lost",
            "bad_body",
            "bad_endpoint",
            "bad_frame",
            "bad_result",
            "bad_zap_request",
            "code_refused",
            "crash_counted",
            "drain_timeout",
            "duplicate_worker_id",
            "forward_failed",
            "epoch_check_failed",
            "frame_refused",
            "frame_too_large",
            "handshake_failed",
            "higher_epoch_heard",
            "left_out",
            "masters_not_kept",
            "no_route",
            "name_refused",
            "not_told",
            "old_leader_heard",
            "output_fenced",
            "output_not_closed",
            "peer_refused",
            "plugin_not_closed",
            "refill_failed",
            "request_limited",
            "request_refused",
            "restarted",
            "told_stale",
            "unknown_type",
            "worker_deaf",
            "worker_died",
            "worker_lost",
            "wrong_route",
        ),
        WARNING,
    ),
    **dict.fromkeys(
        (
            "bad_allow_list",
            "internal_error",
            "key_refused",
            "machine_error",
            "message_ignored",
            "plan_error",
            "plugin_missing",
            "takeover_failed",
            "version",
            "worker_not_started",
        ),
        ERROR,
    ),
}


def level_of(name: str) -> str:
    return LEVELS.get(name, WARNING if name.startswith(("store_", "commit_")) else INFO)


def rank(level: str) -> int:
    """0 to 2; what is no level counts as information."""
    return ORDER.index(level) if level in ORDER else 0


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
        if not all(matches(node.casefold(), one) for one in self.nodes):
            return False
        names = [one.casefold() for one in job] if self.jobs else []
        if not all(any(matches(n, one) for n in names) for one in self.jobs):
            return False
        text = f"{line.get('level')} {node} {line.get('name')} {line.get('text')}".casefold()
        return all(word in text for word in self.words)


def read_filter(typed: str) -> LogFilter:
    level, nodes, jobs, words = 0, [], [], []
    for word in typed.casefold().split():
        name, found, value = word.partition(":")
        if name == "level" and found and _levels(value):
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
    return [one for one in ORDER if value and one.startswith(value)]


MOST: Final = 10  # lines between two takes, which come once a second


class LogTail:
    def __init__(self) -> None:
        self._lines: list[tuple[float, Line]] = []  # with the moment
        self._left_out = 0

    def add(self, name: str, text: str, now: float, *, run: int = 0) -> None:
        level = level_of(name)
        if len(self._lines) >= MOST:
            self._left_out += 1
            if level == INFO:
                return
            spare = next((n for n, one in enumerate(self._lines) if one[1].level == INFO), None)
            if spare is None:
                return
            del self._lines[spare]
        line = Line(0.0, level, _sendable(name, 100), _sendable(text, LINE_TEXT_MOST), run)
        self._lines.append((now, line))

    def take(self, now: float) -> Lines | None:
        """All that was added since; None when that is nothing. Ages and not times: two machines'
        clocks may differ."""
        if not self._lines:
            return None
        lines = [
            msgspec.structs.replace(line, ago_s=min(1e5, max(0.0, now - at)))
            for at, line in self._lines
        ]
        taken = Lines(lines, self._left_out)
        self._lines, self._left_out = [], 0
        return taken


def _sendable(text: str, most: int) -> str:
    """What was logged may hold half a character, which has no place in a message."""
    whole = text[:most].encode("utf-8", "backslashreplace").decode()
    return whole[:most]
