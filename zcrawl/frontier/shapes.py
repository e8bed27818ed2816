"""Ends endless spaces of URLs that no pattern describes: calendars, counters, pages of pages.

Called by the worker's pipeline for each HTML page of a crawl, and for links once a shape has ended.
Pure; the state is that of one run on one worker.

The shape of a URL is its origin, its path and the names of its query parameters, with the variable
parts replaced by `*`: in the path each word (between / - _ . , ; ~ + =) that has a digit or is the
name of a month, in the query every value. So /cal/2031/05 is /cal/*/*, /cal/may-2031?view=list is
/cal/*-*?&view, and /2024/05/13/a-title is /*/*/*/a-title. A URL without digits and query has none.
Months are known by their English, German, French, Spanish, Italian, Portuguese, Dutch and Polish
names.

An endless space feeds itself: a month links to the next one. So only pages count that were found on
a page of their own shape. What lists name (a catalogue, an archive, a table of stations) is as
finite as the lists are, and is never cut, whatever its pages say.

The first 200 such pages of a shape are only counted. Of later ones the text is hashed, without
markup, digits and names of months. 200 pages in a row whose text the shape has had before end it:
its links and the requests that wait are skipped as `trap_shape`. Articles that link to the next one
never come there: each new text begins the row anew. While every text is new, fewer and fewer pages
are looked at, at last one in 128, so an honest site pays next to nothing.

Pages that lead from one to the next and differ in nothing but numbers are taken for a trap:
`traps.shapes = false` is for them.
"""

from __future__ import annotations

import re
import string
from hashlib import blake2b
from typing import Final

import msgspec

PAGES_BEFORE: Final = 200  # of a shape, found on its own pages: nobody looks at their texts
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
_VARIABLE = re.compile(r"[0-9?]")
_BETWEEN = r"/\-_.,;~+=&"
_WORD = re.compile(rf"[^{_BETWEEN}]+")
_NUMBERED = re.compile(rf"(?<=[{_BETWEEN}])[^{_BETWEEN}0-9]*+[0-9][^{_BETWEEN}]*+")
_TAG = re.compile(rb"<[^<>]*>")  # in linear time, whatever the page is made of
_UNSPOKEN: Final = (b"script", b"style")
_DIGITS: Final = b"0123456789"
_PUNCTUATION: Final = string.punctuation.encode()
_WORDS_ONLY: Final = bytes.maketrans(_PUNCTUATION, b" " * len(_PUNCTUATION))


def shape_of(url: str) -> str | None:
    """The shape of a canonical URL; None if no part of it is variable."""
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
    """A hash of the words of a page, without markup, digits and names of months."""
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
        """Count a page that was found on `parent`. Its shape, if its text has to be looked at."""
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
        """Take in the text of a page that `count` has asked for. Whether that ends the shape."""
        watched = self._watched.get(shape)
        if watched is None:  # it gave way to others meanwhile
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
