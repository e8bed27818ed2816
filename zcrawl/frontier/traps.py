"""Crawler traps: endless spaces of URLs without new content, by pattern and by shape.

**By pattern.** Called by the worker for every new link that belongs to a crawl. Pure but for the
count of variants of a path and the shapes that have ended, which one filter per run and worker
keeps. A trapped link is admitted as skipped, with one of these reasons:

    trap_url_length    longer than max_url_length
    trap_segments      more path segments than max_segments
    trap_repetition    one to four path segments, repeated more than max_repeats times in a row
    trap_parameters    more query parameters than max_params, or one name more than 8 times
    trap_calendar      a date before 1970 or more than two years ahead
    trap_variants      more than max_variants queries of one path, with two or more parameters
    trap_shape         many pages of its shape had no new text, see below

The limits are wide: no page of the PostgreSQL and Python manuals comes near one of them. One
parameter with many values is a catalogue (?id=1 … ?id=100000); many combinations of several are a
trap. Four digits and two more are a number like any other (/item/2500/10) unless they stand for a
month: in a query, or below a folder whose name speaks of dates.

**By shape**, for what no pattern describes: calendars, counters, pages of pages. Called by the
worker's pipeline for each HTML page of a crawl, and for links once a shape has ended.
Pure; the state is that of one run on one worker.

The shape of a URL is its origin, its path and the names of its query parameters, with the variable
parts replaced by `*`: in the path each word (between / - _ . , ; ~ + =) that has a digit or is the
name of a month, in the query every value. So /cal/2031/05 is /cal/*/*, /cal/may-2031?view=list is
/cal/*-*?&view, and /2024/05/13/a-title is /*/*/*/a-title. A URL without digits and query has none.
Months are known by their English, German, French, Spanish, Italian, Portuguese, Dutch and Polish
names.

Endless pages link to each other: a month links to the next one. So only pages count that were found
on a page of their own shape. Pages that are found on lists (a catalogue, an archive) are as finite
as the lists, and are never cut.

The first 200 such pages of a shape are only counted. Of later ones the text is hashed, without
markup, digits and names of months. 200 pages in a row whose text the shape has had before end it:
its links and the requests that wait are skipped as `trap_shape`. Articles that link to the next one
are safe, because each new text starts the row again. While every text is new, fewer and fewer pages
are looked at, at last one in 128, so a normal site costs almost nothing.

Pages that lead from one to the next and differ in nothing but numbers are taken for a trap:
`traps.shapes = false` is for them.
"""

from __future__ import annotations

import re
import string
from hashlib import blake2b
from typing import Final

import msgspec

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
from zcrawl.text.patterns import lazy_pattern

PAGES_BEFORE: Final = 200  # pages of a shape, found on its own pages, before texts are compared
PAGES_IN_ROW: Final = 200  # without a new text: the end of a shape
MOST_COUNTED: Final = 20_000  # shapes; a flood of them starts the count anew
MOST_WATCHED: Final = 100  # shapes whose texts are remembered; the oldest goes
MOST_TEXTS: Final = 500  # of one shape; the one that was not met for longest goes
MOST_ENDED: Final = 10_000
MOST_BYTES: Final = 262_144  # of a page; a longer one counts as new
_LONGEST_PAUSE: Final = 127  # pages between two looks while every text is new

_MONTH_NAMES = """
    january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec
    januar jänner februar märz mai juni juli oktober dezember mär okt dez
    janvier février mars avril juin juillet août septembre octobre novembre décembre
    enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre ene
    gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre gen mag giu lug ago
    janeiro fevereiro março maio junho julho setembro outubro novembro dezembro
    januari februari maart mei augustus
    styczeń luty marzec kwiecień maj czerwiec lipiec sierpień wrzesień październik listopad grudzień
"""
_MONTHS: Final = frozenset(_MONTH_NAMES.split())
_MONTH_BYTES: Final = frozenset(
    name.encode(encoding, "ignore") for name in _MONTHS for encoding in ("utf-8", "latin-1")
)
_VARIABLE = lazy_pattern(r"[0-9?]")
_BETWEEN = r"/\-_.,;~+=&"
_WORD = lazy_pattern(rf"[^{_BETWEEN}]+")
_NUMBERED = lazy_pattern(rf"(?<=[{_BETWEEN}])[^{_BETWEEN}0-9]*+[0-9][^{_BETWEEN}]*+")
_TAG = lazy_pattern(rb"<[^<>]*>")  # in linear time, whatever the page is made of
_UNSPOKEN: Final = (b"script", b"style")
_DIGITS: Final = b"0123456789"
_PUNCTUATION: Final = string.punctuation.encode()
_WORDS_ONLY: Final = bytes.maketrans(_PUNCTUATION, b" " * len(_PUNCTUATION))


def shape_of(url: str) -> str | None:
    """Return the shape of a canonical URL; None if no part of it is variable."""
    path_at = url.find("/", 8)
    if path_at < 0 or _VARIABLE.search(url, path_at) is None:
        return None
    path, _, query = url[path_at:].partition("?")
    if query:
        path = f"{path}?&" + "&".join([pair.partition("=")[0] for pair in query.split("&")])
    shape = _NUMBERED.sub("*", path)
    if not _MONTHS.isdisjoint(_WORD.findall(shape.lower())):
        shape = _WORD.sub(_without_month, shape)
    return url[:path_at] + shape


def _without_month(word: re.Match[str]) -> str:
    return "*" if word[0].lower() in _MONTHS else word[0]


def text_hash(body: bytes) -> bytes:
    """Return a hash of the words of a page, without markup, digits and names of months."""
    text = body.lower()
    for tag in _UNSPOKEN:
        first, *rest = text.split(b"<" + tag)
        ending = b"</" + tag
        text = b" ".join((first, *(part.partition(ending)[2] for part in rest)))
    words = _TAG.sub(b" ", text).translate(_WORDS_ONLY, _DIGITS).split()
    spoken = [word for word in words if word not in _MONTH_BYTES]
    return blake2b(b" ".join(spoken), digest_size=8).digest()


class _Watched(msgspec.Struct):
    """A shape with many pages."""

    texts: dict[bytes, None] = {}  # the one that was met last is last
    in_row: int = 0  # pages without a new text
    gap: int = 0  # pages to leave out after the next new text
    pause: int = 0  # pages that are still left out


class ShapeWatch:
    def __init__(self) -> None:
        self.ended: dict[str, None] = {}  # shapes
        self._counts: dict[str, int] = {}
        self._watched: dict[str, _Watched] = {}

    def has_ended(self, url: str) -> bool:
        return bool(self.ended) and shape_of(url) in self.ended

    def count(self, url: str, parent: str | None) -> str | None:
        """Count a page that was found on `parent`; return its shape if `learn` needs its text."""
        shape = shape_of(url)
        if shape is None or parent is None or shape_of(parent) != shape:
            return None
        watched = self._watched.get(shape)
        if watched is None:
            count = self._counts.get(shape, 0) + 1
            if count <= PAGES_BEFORE:
                if len(self._counts) >= MOST_COUNTED:
                    self._counts.clear()
                self._counts[shape] = count
                return None
            watched = self._watch(shape)
        if watched.pause > 0:
            watched.pause -= 1
            return None
        return shape

    def _watch(self, shape: str) -> _Watched:
        self._counts.pop(shape, None)
        if len(self._watched) >= MOST_WATCHED:
            del self._watched[next(iter(self._watched))]
        watched = self._watched[shape] = _Watched()
        return watched

    def learn(self, shape: str, body: bytes) -> bool:
        """Compare the text of a page with earlier ones; return whether the shape ended now."""
        watched = self._watched.get(shape)
        if watched is None:  # it was dropped for other shapes meanwhile
            return False
        if len(body) > MOST_BYTES:
            watched.in_row = 0
            return False
        text, texts = text_hash(body), watched.texts
        if text not in texts:
            watched.in_row = 0
            watched.gap = watched.pause = min(2 * watched.gap + 1, _LONGEST_PAUSE)
            if len(texts) >= MOST_TEXTS:
                del texts[next(iter(texts))]
            texts[text] = None
            return False
        del texts[text]
        texts[text] = None
        watched.gap = 0
        watched.in_row += 1
        if watched.in_row < PAGES_IN_ROW:
            return False
        del self._watched[shape]
        if len(self.ended) >= MOST_ENDED:
            del self.ended[next(iter(self.ended))]
        self.ended[shape] = None
        return True


MOST_SAME_NAME: Final = 8
MOST_PATHS: Final = 20_000  # whose variants are counted; a flood of paths starts the count anew
FIRST_YEAR: Final = 1970
YEARS_AHEAD: Final = 2

_CENTURIES = r"((?:1[0-9]|2[0-9]|3[0-9])[0-9]{2})"
_MONTH = r"(?:0?[1-9]|1[0-2])"
_DAY = r"(?:0?[1-9]|[12][0-9]|3[01])"
# /2031-05-01, /2031/5/1, ?month=2031-05, ?date=20310501, /calendar/2031/05
_DATE = lazy_pattern(
    rf"[/=_-]{_CENTURIES}[/-]{_MONTH}[/-]{_DAY}(?![0-9])"
    rf"|={_CENTURIES}-?{_MONTH}(?![0-9])"
    rf"|={_CENTURIES}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?![0-9])"
    # Atomic: a segment with the word 300 times is looked through once, not once for each of them.
    rf"|/(?>[^/?]*?(?:calend|kalend|event|agenda|archiv|month|date))[^/?]*+/{_CENTURIES}"
    rf"[/-]{_MONTH}(?![0-9])",
    re.IGNORECASE,
)
_FOUR_DIGITS = lazy_pattern(r"[0-9]{4}")
_YEAR = lazy_pattern(r"[?&](?:y|year|jahr|annee|cal_year)=([0-9]{4})(?![0-9])", re.IGNORECASE)


class TrapFilter:
    """The compiled trap rules of one run."""

    def __init__(self, traps: Traps, shapes: ShapeWatch | None = None) -> None:
        """`shapes`: the state of an earlier filter of the same run."""
        self._traps = traps
        self.shapes = (shapes or ShapeWatch()) if traps.shapes else None
        self._variants: dict[str, int] = {}
        more = max(1, traps.max_repeats)
        self._repeats = re.compile(rf"((?:/[^/?]+){{1,4}}?)\1{{{more:d},}}(?=[/?]|$)")

    def verdict(self, url: str, year: int) -> str | None:
        """Return why the canonical `url` looks like a trap, else None. `year` is the current
        one."""
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
        match = _DATE.search(url, path_at) or _YEAR.search(url, path_at)
        if match is None:
            return False
        url_year = next(group for group in match.groups() if group is not None)
        return not FIRST_YEAR <= int(url_year) <= year + YEARS_AHEAD
