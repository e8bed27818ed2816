"""What becomes of an event at which the machines of a master fail: a bug, met by bad luck.

Kept by a master through all its epochs, asked by `master` and `driver.loop`. A machine that failed
may be half changed, so the leader's memory is dropped and loaded anew. Alone, that would go on
without end where the event comes again: a result is resent until it is acked, a client repeats its
request. So
- a result at which a machine has failed is consumed as `bad_result` when it comes again,
- other messages of that kind and process are ignored for a while after they failed twice,
- each failure soon after the last takeover doubles the wait before the next one.
Whoever asks is told (`nodes`, `job`, `doctor`); a crawl by command gives up in the end.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.master.events import MasterEvent, MessageCame
from zcrawl.mesh.messages import BadBody, Header, MessageKind
from zcrawl.model.snapshot import MishapsView

FIRST_WAIT_S: Final = 0.2
LONGEST_WAIT_S: Final = 30.0
CALM_S: Final = 10.0  # whoever has led for this long has put the last failure behind
IGNORED_S: Final = 60.0
TELL_FROM: Final = 2  # in a row: one alone is cured by the reload
KEPT: Final = 1_000  # messages that failed; far more than one bug can bring about
TEXT_MOST: Final = 300

Mark = tuple[str, int, int, int]  # source, incarnation, kind, number of a result


class Mishaps:
    def __init__(self) -> None:
        self.total = 0
        self._in_row = 0
        self._last = ""
        self._led_at: float | None = None  # None: nobody has led since the last one
        self.marked: dict[Mark, tuple[int, float]] = {}  # how often, and when the last time

    def happened(self, event: MasterEvent, text: str, now: float) -> None:
        """A machine failed at this event, with an error of this text."""
        self._in_row = self.in_row(now) + 1
        self.total += 1
        self._last, self._led_at = text[:TEXT_MOST], None
        if isinstance(event, MessageCame) and len(self.marked) < KEPT:
            mark = _mark(event.message.header)
            self.marked[mark] = (self.marked.get(mark, (0, 0.0))[0] + 1, now)

    def led(self, now: float) -> None:
        """The database is loaded: this master leads again."""
        self._led_at = now

    def filtered(self, event: MasterEvent, now: float) -> MasterEvent | None:
        """The event as it may be handled; None: not at all."""
        if not isinstance(event, MessageCame):
            return event
        header = event.message.header
        times, at = self.marked.get(_mark(header), (0, 0.0))
        if not times:
            return event
        if header.kind == MessageKind.RESULT:
            bad = BadBody(header, f"the leader failed at it: {self._last}")
            return msgspec.structs.replace(event, message=bad)
        return None if times > 1 and now - at < IGNORED_S else event

    def in_row(self, now: float) -> int:
        """How many there were since somebody led undisturbed."""
        calm = self._led_at is not None and now - self._led_at > CALM_S
        return 0 if calm else self._in_row

    def wait_s(self, now: float) -> float:
        """Before leading again."""
        doublings = min(max(0, self.in_row(now) - 1), 10)
        return min(FIRST_WAIT_S * (1 << doublings), LONGEST_WAIT_S)

    def why(self, now: float) -> str:
        """For those who wonder why nothing happens; empty: not for this reason."""
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
    """An error for people: its kind and text, and where it was raised."""
    where, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f" ({code.co_qualname}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{where}"
