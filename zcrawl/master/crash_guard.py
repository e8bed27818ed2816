"""Decide what happens to an event at which a machine of the master raised an error.

A master keeps it through all its epochs; `master` and `driver.loop` use it. After an error the
leader's memory may be half changed, so it is dropped and loaded from the database. That alone could
repeat forever, because results and client requests are sent again. So - a result that caused an
error is stored as `bad_result` when it comes again, - other messages of this kind and process are
ignored for a while after two errors, - each error soon after a takeover doubles the wait before the
next takeover. The commands `nodes`, `job` and `doctor` show it; `zcrawl crawl` gives up in the end.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.master.events import MasterEvent, MessageCame
from zcrawl.mesh.messages import BadBody, Header, MessageKind
from zcrawl.model.snapshot import MishapsView

FIRST_WAIT_S: Final = 0.2
LONGEST_WAIT_S: Final = 30.0
CALM_S: Final = 10.0  # after leading for this long, earlier errors do not count
IGNORED_S: Final = 60.0
TELL_FROM: Final = 2  # errors in a row; a single one is repaired by the reload
KEPT: Final = 1_000  # messages that are remembered
TEXT_MOST: Final = 300

Mark = tuple[str, int, int, int]  # source, incarnation, kind, number of a result


class Mishaps:
    """Errors of this master's machines, and the messages that caused them."""

    def __init__(self) -> None:
        self.total = 0
        self._in_row = 0
        self._last = ""
        self._led_at: float | None = None  # None: this master has not led since the last error
        self.marked: dict[Mark, tuple[int, float]] = {}  # how often, and when the last time

    def happened(self, event: MasterEvent, text: str, now: float) -> None:
        """Record an error of a machine at this event."""
        self._in_row = self.in_row(now) + 1
        self.total += 1
        self._last, self._led_at = text[:TEXT_MOST], None
        if isinstance(event, MessageCame) and len(self.marked) < KEPT:
            mark = _mark(event.message.header)
            self.marked[mark] = (self.marked.get(mark, (0, 0.0))[0] + 1, now)

    def led(self, now: float) -> None:
        """Record that the database is loaded and this master leads again."""
        self._led_at = now

    def filter_event(self, event: MasterEvent, now: float) -> MasterEvent | None:
        """Return the event as it may be handled; None: ignore it."""
        if not isinstance(event, MessageCame):
            return event
        header = event.message.header
        times, at = self.marked.get(_mark(header), (0, 0.0))
        if not times:
            return event
        if header.kind == MessageKind.RESULT:
            bad = BadBody(header, f"this message caused an error in the leader: {self._last}")
            return msgspec.structs.replace(event, message=bad)
        return None if times > 1 and now - at < IGNORED_S else event

    def in_row(self, now: float) -> int:
        """Return how many errors happened since the last undisturbed leadership."""
        calm = self._led_at is not None and now - self._led_at > CALM_S
        return 0 if calm else self._in_row

    def wait_s(self, now: float) -> float:
        """Return how long to wait before leading again."""
        doublings = min(max(0, self.in_row(now) - 1), 10)
        return min(FIRST_WAIT_S * (1 << doublings), LONGEST_WAIT_S)

    def why(self, now: float) -> str:
        """Return a text for people who wonder why nothing happens; empty: not for this reason."""
        n = self.in_row(now)
        if n < TELL_FROM:
            return ""
        return f"the leader has failed {n} times in a row by an error of its own: {self._last}"

    def view(self, now: float) -> MishapsView:
        return MishapsView(self.total, self.in_row(now), self._last)


def _mark(header: Header) -> Mark:
    number = header.sequence if header.kind == MessageKind.RESULT else 0
    return header.source, header.incarnation, int(header.kind), number


def in_words(error: BaseException) -> str:
    """Return an error as text: its kind, its message, and where it was raised."""
    where, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f" ({code.co_qualname}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{where}"
