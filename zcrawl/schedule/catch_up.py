"""Decide about the due times since the last one that was handled, after downtime or a failover.

Called by the firing of runs. Pure.

A due time is on time for `GRACE_S` seconds: so long a failover may take. On-time ones fire whatever
`catch_up` says. Of the older ones, `none` fires none, `last` the newest, `all` all of them. No more
than `MOST_CAUGHT_UP` fire at once; the newest win. What does not fire is missed for ever.
"""

from __future__ import annotations

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

    late: tuple[float, ...]  # due longer ago than the grace: caught up
    on_time: tuple[float, ...]
    missed: int  # due times that never fire; at most `MOST_CAUGHT_UP`, there may be more

    @property
    def due(self) -> tuple[float, ...]:
        return self.late + self.on_time


def catch_up(times: Timetable, handled: float, now: float, rule: str) -> CatchUp:
    """Return what to do about the due times after `handled` up to `now`."""
    due = due_times(times, handled, now, MOST_CAUGHT_UP + 1)
    dropped = max(0, len(due) - MOST_CAUGHT_UP)
    due = due[dropped:]
    late = [moment for moment in due if moment < now - GRACE_S]
    on_time = due[len(late) :]
    if rule == ALL:
        fired = late
    elif rule == LAST and not on_time:
        fired = late[-1:]
    else:
        fired = []
    return CatchUp(tuple(fired), tuple(on_time), dropped + len(late) - len(fired))
