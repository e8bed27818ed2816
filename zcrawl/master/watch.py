"""The leader's memory for displays: events, log lines of other nodes, failures, history.

A part of the leader's memory. No decision depends on it, and all of it has a fixed size. It starts
empty at takeover. Commits, notes of the machines, and log lines of other nodes fill it;
`desk.views` and EVENT messages show it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Any, Final

import msgspec

from zcrawl.master.events import MasterEffects, Note, Publish
from zcrawl.mesh.messages import Event, LogRecord, LogRecords, PageRecord
from zcrawl.model.log_event import INFO, LEFT_OUT, LEVELS, NOT_TOLD, WARNING, level_of
from zcrawl.telemetry.history import History, Second, Trends

EVENTS_KEPT: Final = 2_000
GROUPS_KEPT: Final = 5_000
EVENTS_PER_NAME_S: Final = 5  # more of one name in a second are only counted
LINES_KEPT: Final = 2_000  # of all other nodes, apart from the leader's own
LINES_S: Final = 200  # of all other nodes in a second, however many they are
TEXT_MOST: Final = 500


class FailureGroup(msgspec.Struct):
    """Failed requests of one run and host with the same reason."""

    count: int = 0
    status: int = 0
    url: str = ""  # the newest
    at: float = 0.0
    detail: str = ""  # what happened to it


class Watch:
    def __init__(self, source: str) -> None:
        self._source = source
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self.lines: deque[dict[str, Any]] = deque(maxlen=LINES_KEPT)
        self.groups: OrderedDict[tuple[int, int, str], FailureGroup] = OrderedDict()
        self.history = History()
        self.trends = Trends()
        self.second = Second()
        self.depths: dict[int, Counter[int]] = {}  # run → depth → settled requests
        self._numbers = 0
        self._told: Counter[str] = Counter()  # in this second
        self._heard = 0  # lines, in this second
        self._sampled_at: float | None = None

    # ------------------------------------------------------------ events

    def publish_notes(self, effects: MasterEffects, utc: float) -> None:
        """Turn notes into EVENT messages, a few of each name per second."""
        events: MasterEffects = []
        for effect in effects:
            if isinstance(effect, Note):
                event = self.note(effect.name, effect.detail, utc, effect.run)
                if event is not None:
                    events.append(Publish(event))
        effects.extend(events)

    def note(self, name: str, text: str, utc: float, run: int = 0) -> Event | None:
        self._told[name] += 1
        if self._told[name] > EVENTS_PER_NAME_S:
            return None
        line = LogRecord(0.0, level_of(name), name, text, run)
        fields = self._fields(self._source, line, utc)
        self.events.append(fields)
        return Event(name, fields)

    def add_lines(self, source: str, lines: LogRecords, utc: float, effects: MasterEffects) -> None:
        """Keep log lines of another node, or of this process."""
        for line in lines.lines:
            self._heard += 1
            if self._heard > LINES_S:
                continue
            level = line.level if line.level in LEVELS else INFO
            self._line(source, msgspec.structs.replace(line, level=level), utc, effects)
        if lines.left_out and self._heard <= LINES_S:
            text = f"{lines.left_out} more that second"
            self._line(source, LogRecord(0.0, WARNING, LEFT_OUT, text), utc, effects)

    def _line(self, source: str, line: LogRecord, utc: float, effects: MasterEffects) -> None:
        fields = self._fields(source, line, utc)
        self.lines.append(fields)
        effects.append(Publish(Event(line.name, fields)))

    def _fields(self, source: str, line: LogRecord, utc: float) -> dict[str, Any]:
        self._numbers += 1
        return {
            "n": self._numbers,
            "at": utc - line.ago_s,
            "name": line.name,
            "text": line.text[:TEXT_MOST],
            "source": source,
            "level": line.level,
            "run": line.run,
        }

    # ------------------------------------------------------------ results

    def page(self, run: int, page: PageRecord, depth: int) -> None:
        self.second.page(page.size, page.elapsed_ms)
        depths = self.depths.get(run)
        if depths is None:
            depths = self.depths[run] = Counter()
        depths[depth] += 1

    def failure(
        self,
        run: int,
        host: int,
        reason: str,
        *,
        status: int,
        url: str,
        utc: float,
        detail: str = "",
    ) -> None:
        self.second.failed += 1
        key = (run, host, reason)
        group = self.groups.pop(key, None) or FailureGroup()
        group.count += 1
        group.status, group.at, group.detail = status, utc, detail
        group.url = url or group.url
        self.groups[key] = group  # the newest at the end
        if len(self.groups) > GROUPS_KEPT:
            self.groups.popitem(last=False)

    def forget_run(self, run: int) -> None:
        self.depths.pop(run, None)

    # ------------------------------------------------------------ time

    def sample(self, now: float, utc: float, queued: int, in_flight: int) -> None:
        """Add a point to the history, once a second."""
        for name, number in list(self._told.items()):
            if number > EVENTS_PER_NAME_S:
                text = f"{number - EVENTS_PER_NAME_S} more {name}"
                self.note(NOT_TOLD, text, utc)
        self._told.clear()
        if self._heard > LINES_S:
            self.note(NOT_TOLD, f"{self._heard - LINES_S} more lines of other nodes", utc)
        self._heard = 0
        second, self.second = self.second, Second()
        second.seconds = 1.0 if self._sampled_at is None else now - self._sampled_at
        second.queued, second.in_flight = queued, in_flight
        self.history.add(utc, second)
        self._sampled_at = now
