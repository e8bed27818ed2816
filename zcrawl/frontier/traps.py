"""Decides whether a link leads into a crawler trap: an endless space of URLs without new content.

Called by the worker for every new link that belongs to a crawl. Pure but for the count of variants
of a path and the shapes that have ended, which one filter per run and worker keeps. A trapped link
is admitted as skipped, with one of these reasons:

    trap_url_length    longer than max_url_length
    trap_segments      more path segments than max_segments
    trap_repetition    one to four path segments, repeated more than max_repeats times in a row
    trap_parameters    more query parameters than max_params, or one name more than 8 times
    trap_calendar      a date before 1970 or more than two years ahead
    trap_variants      more than max_variants queries of one path, with two or more parameters
    trap_shape         many pages of its shape had nothing new to say (`frontier.shapes`)

The limits are wide: no page of the PostgreSQL and Python manuals comes near one of them. One
parameter with many values is a catalogue (?id=1 … ?id=100000); many combinations of several are a
trap. Four digits and two more are a number like any other (/item/2500/10) unless they stand for a
month: in a query, or below a folder whose name speaks of dates.
"""

from __future__ import annotations

import re
from typing import Final

from zcrawl.frontier.shapes import ShapeWatch
from zcrawl.model.reasons.skip import (
    TRAP_CALENDAR,
    TRAP_PARAMETERS,
    TRAP_REPETITION,
    TRAP_SEGMENTS,
    TRAP_SHAPE,
    TRAP_URL_LENGTH,
    TRAP_VARIANTS,
)
from zcrawl.model.spec import Traps

MOST_SAME_NAME: Final = 8
MOST_PATHS: Final = 20_000  # whose variants are counted; a flood of paths starts the count anew
FIRST_YEAR: Final = 1970
YEARS_AHEAD: Final = 2

_CENTURIES = r"((?:1[0-9]|2[0-9]|3[0-9])[0-9]{2})"
_MONTH = r"(?:0?[1-9]|1[0-2])"
_DAY = r"(?:0?[1-9]|[12][0-9]|3[01])"
# /2031-05-01, /2031/5/1, ?month=2031-05, ?date=20310501, /calendar/2031/05
_DATE = re.compile(
    rf"[/=_-]{_CENTURIES}[/-]{_MONTH}[/-]{_DAY}(?![0-9])"
    rf"|={_CENTURIES}-?{_MONTH}(?![0-9])"
    rf"|={_CENTURIES}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?![0-9])"
    # Atomic: a segment with the word 300 times is looked through once, not once for each of them.
    rf"|/(?>[^/?]*?(?:calend|kalend|event|agenda|archiv|month|date))[^/?]*+/{_CENTURIES}"
    rf"[/-]{_MONTH}(?![0-9])",
    re.IGNORECASE,
)
_FOUR_DIGITS = re.compile(r"[0-9]{4}")
_YEAR = re.compile(r"[?&](?:y|year|jahr|annee|cal_year)=([0-9]{4})(?![0-9])", re.IGNORECASE)


class TrapFilter:
    """One run's traps, compiled."""

    def __init__(self, traps: Traps, shapes: ShapeWatch | None = None) -> None:
        """`shapes`: what an earlier filter of the same run has learnt."""
        self._traps = traps
        self.shapes = (shapes or ShapeWatch()) if traps.shapes else None
        self._variants: dict[str, int] = {}
        more = max(1, traps.max_repeats)
        self._repeats = re.compile(rf"((?:/[^/?]+){{1,4}}?)\1{{{more:d},}}(?=[/?]|$)")

    def verdict(self, url: str, year: int) -> str | None:
        """None, or why the canonical `url` is not to be crawled. `year` is the present one."""
        traps = self._traps
        if traps.max_url_length and len(url) > traps.max_url_length:
            return TRAP_URL_LENGTH
        path_at = url.find("/", 8)
        query_at = url.find("?", path_at)
        path = url[path_at:query_at] if query_at >= 0 else url[path_at:]
        segments = path.split("/")
        if traps.max_segments and len(segments) > traps.max_segments + 1:
            return TRAP_SEGMENTS
        # The expression costs ten times the question whether anything can be repeated at all.
        repeated = len(segments) - len(set(segments)) >= traps.max_repeats > 0
        if repeated and self._repeats.search(path):
            return TRAP_REPETITION
        far = traps.calendars and _FOUR_DIGITS.search(url, path_at)
        if far and self._is_far_date(url, path_at, year):
            return TRAP_CALENDAR
        if self.shapes is not None and self.shapes.has_ended(url):
            return TRAP_SHAPE
        if query_at >= 0:
            return self._judge_query(url[:query_at], url[query_at + 1 :])
        return None

    def _judge_query(self, page: str, query: str) -> str | None:
        traps = self._traps
        if traps.max_params:
            names = [pair.partition("=")[0] for pair in query.split("&")]
            if len(names) > traps.max_params:
                return TRAP_PARAMETERS
            if len(names) > MOST_SAME_NAME and max(map(names.count, names)) > MOST_SAME_NAME:
                return TRAP_PARAMETERS
        if traps.max_variants and "&" in query:
            if len(self._variants) >= MOST_PATHS:
                self._variants.clear()
            self._variants[page] = seen = self._variants.get(page, 0) + 1
            if seen > traps.max_variants:
                return TRAP_VARIANTS
        return None

    def _is_far_date(self, url: str, path_at: int, year: int) -> bool:
        found = _DATE.search(url, path_at) or _YEAR.search(url, path_at)
        if found is None:
            return False
        told = next(group for group in found.groups() if group is not None)
        return not FIRST_YEAR <= int(told) <= year + YEARS_AHEAD
