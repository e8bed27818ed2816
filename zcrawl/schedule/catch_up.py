"""Decide about the due times since the last one that was handled, after downtime or a failover.

Called by the firing of runs. Pure.

The run of a due time starts at `start_of` it, which has the jitter. Until then the due time is not
ready, and neither is a later one. A start is on time for `GRACE_S` seconds: so long a failover may
take. On-time ones fire whatever `catch_up` says. Of the late ones, `none` fires none, `last` the
newest unless one is on time, `all` all of them. No more than `MOST_CAUGHT_UP` fire; the newest win.
What does not fire is missed for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Final

import msgspec

from zcrawl.schedule.timetable import Timetable, due_times

NONE: Final = "none"
LAST: Final = "last"
ALL: Final = "all"
CATCH_UPS: Final = (NONE, LAST, ALL)
GRACE_S: Final = 60.0
MOST_CAUGHT_UP: Final = 100


class CatchUp(msgspec.Struct, frozen=True):
    """What to fire, in order, and what was missed."""

    late: tuple[float, ...]  # starts were longer ago than the grace: caught up
    on_time: tuple[float, ...]
    missed: int  # due times that never fire; if it is `MOST_CAUGHT_UP`, there may be more
    until: float  # the last due time that is ready; 0: none is
    waiting: float | None  # the first one that is not ready yet

    @property
    def due(self) -> tuple[float, ...]:
        return self.late + self.on_time


def catch_up(
    times: Timetable,
    handled: float,
    now: float,
    rule: str,
    start_of: Callable[[float], float] = float,
) -> CatchUp:
    """Return what to do about the due times after `handled` up to `now`."""
    due = due_times(times, handled, now, MOST_CAUGHT_UP + 1)
    dropped = max(0, len(due) - MOST_CAUGHT_UP)
    due = due[dropped:]
    unready = next((number for number, moment in enumerate(due) if start_of(moment) > now), None)
    waiting = None if unready is None else due[unready]
    due = due[:unready]
    late = list(takewhile(lambda moment: start_of(moment) < now - GRACE_S, due))
    on_time = due[len(late) :]
    if rule == ALL:
        fired = late
    elif rule == LAST and not on_time:
        fired = late[-1:]
    else:
        fired = []
    missed = dropped + len(late) - len(fired)
    return CatchUp(tuple(fired), tuple(on_time), missed, due[-1] if due else 0.0, waiting)
