"""What the leader remembers for those who watch: events, failures in groups, a history.

A part of the leader's memory; nothing decides by it, and all of it has a fixed size. It starts
empty at takeover. Filled by commits (one call for each settled request) and by the notes that the
machines make anyway; read by `desk_views` and by EVENT messages.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Any, Final

import msgspec

from zcrawl.master.events import Effects, Note, Publish
from zcrawl.mesh.messages import Event, Page
from zcrawl.telemetry.history import History, Second

EVENTS_KEPT: Final = 2_000
GROUPS_KEPT: Final = 5_000
EVENTS_PER_NAME_S: Final = 5  # more of one kind within a second are counted, not told
TEXT_MOST: Final = 500
# What an operator should see at once, and what is an error. Everything else is information.
LEVELS: Final = {
    "worker_lost": "warning",
    "duplicate_worker_id": "warning",
    "assignment_lost": "warning",
    "crash_counted": "warning",
    "bad_body": "warning",
    "bad_result": "warning",
    "request_refused": "warning",
    "old_leader_heard": "warning",
    "takeover_failed": "error",
    "machine_error": "error",
}


class FailureGroup(msgspec.Struct):
    """Requests that failed for good, of one run and host, for one reason."""

    count: int = 0
    status: int = 0
    url: str = ""  # the newest
    at: float = 0.0


class Watch:
    def __init__(self, source: str) -> None:
        self._source = source
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self.groups: OrderedDict[tuple[int, int, str], FailureGroup] = OrderedDict()
        self.history = History()
        self.second = Second()
        self.depths: dict[int, Counter[int]] = {}  # run → depth → settled requests
        self._numbers = 0
        self._told: Counter[str] = Counter()  # in this second
        self._sampled_at: float | None = None

    # ------------------------------------------------------------ events

    def tell(self, effects: Effects, utc: float) -> None:
        """Notes become EVENTs, a few of a kind in a second."""
        events: Effects = []
        for effect in effects:
            if isinstance(effect, Note):
                event = self.note(effect.name, effect.detail, utc)
                if event is not None:
                    events.append(Publish(event))
        effects.extend(events)

    def note(self, name: str, text: str, utc: float) -> Event | None:
        self._told[name] += 1
        if self._told[name] > EVENTS_PER_NAME_S:
            return None
        self._numbers += 1
        level = LEVELS.get(name, "warning" if name.startswith(("store_", "commit_")) else "info")
        fields = {
            "n": self._numbers,
            "at": utc,
            "name": name,
            "text": text[:TEXT_MOST],
            "source": self._source,
            "level": level,
        }
        self.events.append(fields)
        return Event(name, fields)

    # ------------------------------------------------------------ results

    def page(self, run: int, page: Page, depth: int) -> None:
        self.second.page(page.size, page.elapsed_ms)
        depths = self.depths.get(run)
        if depths is None:
            depths = self.depths[run] = Counter()
        depths[depth] += 1

    def failure(
        self, run: int, host: int, reason: str, *, status: int, url: str, utc: float
    ) -> None:
        self.second.failed += 1
        key = (run, host, reason)
        group = self.groups.pop(key, None) or FailureGroup()
        group.count += 1
        group.status, group.at = status, utc
        group.url = url or group.url
        self.groups[key] = group  # the newest at the end
        if len(self.groups) > GROUPS_KEPT:
            self.groups.popitem(last=False)

    def forget_run(self, run: int) -> None:
        self.depths.pop(run, None)

    # ------------------------------------------------------------ time

    def sample(self, now: float, utc: float, queued: int, in_flight: int) -> None:
        """Once a second: what was counted becomes a point of the history."""
        for name, number in list(self._told.items()):
            if number > EVENTS_PER_NAME_S:
                text = f"{number - EVENTS_PER_NAME_S} more {name}"
                self.note("not_told", text, utc)
        self._told.clear()
        second, self.second = self.second, Second()
        second.seconds = 1.0 if self._sampled_at is None else now - self._sampled_at
        second.queued, second.in_flight = queued, in_flight
        self.history.add(utc, second)
        self._sampled_at = now
