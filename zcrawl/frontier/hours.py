"""Hours of the day in which a host may be crawled: `22:00-06:00`, in UTC.

Called by `validate` for job files and by the planner before a dispatch. Pure: the time comes in.
"""

from __future__ import annotations

import re

from zcrawl.errors import JobError

DAY_S = 86_400.0
_SPAN = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])")

Span = tuple[float, float]  # seconds after midnight; the end may lie in the next day
NEVER: tuple[Span, ...] = ((0.0, 0.0),)  # jobs whose hours have nothing in common


def parse_hours(text: str) -> Span:
    """The span that `HH:MM-HH:MM` names; one that ends before it begins goes over midnight."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise JobError(
            f"politeness.hours: {text!r} is not a span of hours; write 22:00-06:00 (UTC)"
        )
    hour, minute, end_hour, end_minute = map(int, match.groups())
    begin = hour * 3600.0 + minute * 60.0
    end = end_hour * 3600.0 + end_minute * 60.0
    if begin > DAY_S or end > DAY_S or begin == end:
        raise JobError(f"politeness.hours: {text!r} is empty, or ends after 24:00")
    return begin, end if end > begin else end + DAY_S


def opens_in_s(spans: tuple[Span, ...], utc: float) -> float:
    """Seconds until one of the spans is open; 0: one is, or there are none."""
    if not spans:
        return 0.0
    moment = utc % DAY_S
    waits = []
    for begin, end in spans:
        for day in (-DAY_S, 0.0, DAY_S):
            if begin + day <= moment < end + day:
                return 0.0
            if begin + day > moment:
                waits.append(begin + day - moment)
    return min(waits)
