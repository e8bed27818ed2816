"""The leader's memory for displays: events, log lines of other nodes, failures, counts for charts.

A part of the leader's memory. No decision depends on it, and all of it has a fixed size. It starts
empty at takeover. Commits, notes of the machines, and log lines of other nodes fill it;
`desk.views` and EVENT messages show it.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, Final

import msgspec

from zcrawl.master.events import MasterEffects, Note, Publish
from zcrawl.master.failure_groups import FailureGroups
from zcrawl.master.run_reasons import RunReasons
from zcrawl.mesh.messages import Event, LogRecord, LogRecords, PageRecord
from zcrawl.model.event_text import event_text
from zcrawl.model.log_event import (
    EVENTS_DROPPED,
    INFO,
    LEVELS,
    LOG_LINES_DROPPED,
    WARNING,
    level_of,
)
from zcrawl.telemetry.history import HistoryRecorder, Trends

EVENTS_KEPT: Final = 2_000
EVENTS_PER_NAME_S: Final = 5  # more of one name in a second are only counted
LINES_KEPT: Final = 2_000  # of all other nodes, apart from the leader's own
LINES_S: Final = 200  # of all other nodes in a second, however many they are
TEXT_MOST: Final = 500


class Watch:
    def __init__(self, source: str) -> None:
        self._source = source
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self.lines: deque[dict[str, Any]] = deque(maxlen=LINES_KEPT)
        self.failures = FailureGroups()
        self.recorder = HistoryRecorder()
        self.trends = Trends()
        self.reasons = RunReasons()
        self.depths: dict[int, Counter[int]] = {}  # run → depth → settled requests
        self._numbers = 0
        self._told: Counter[str] = Counter()  # in this second
        self._heard = 0  # lines, in this second

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
        line = LogRecord(0.0, level_of(name), name, event_text(name, text), run)
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
            text = f"{lines.left_out} log lines dropped"
            self._line(source, LogRecord(0.0, WARNING, LOG_LINES_DROPPED, text), utc, effects)

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

    def page(self, run: int, host: int, page: PageRecord, depth: int) -> None:
        self.recorder.page(run, host, page.size, page.elapsed_ms)
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
        self.recorder.failure(run, host)
        key = (run, host, reason)
        self.failures.add(key, status=status, url=url, utc=utc, detail=detail)

    def forget_run(self, run: int) -> None:
        self.depths.pop(run, None)

    # ------------------------------------------------------------ time

    def second_passed(self, utc: float) -> None:
        """Note what was left out in the last second, once a second."""
        for name, number in list(self._told.items()):
            if number > EVENTS_PER_NAME_S:
                text = f"{number - EVENTS_PER_NAME_S} more events dropped: {name}"
                self.note(EVENTS_DROPPED, text, utc)
        self._told.clear()
        if self._heard > LINES_S:
            self.note(
                EVENTS_DROPPED, f"{self._heard - LINES_S} log lines of other nodes dropped", utc
            )
        self._heard = 0
