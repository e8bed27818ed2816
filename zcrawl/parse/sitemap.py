"""Reads sitemaps: XML, sitemap indexes, RSS, Atom and plain text, each of them gzipped or not.

Called by the worker's pipeline for requests that were named as sitemaps. Pure. The body is read
in pieces, so that neither a decompressed whole nor a tree is ever in memory, and reading stops at
50 MB and at 50,000 entries, as the sitemap protocol says. What is no sitemap has no entries.
"""

from __future__ import annotations

import datetime
import email.utils
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Final
from xml.parsers import expat

import msgspec

MAX_BYTES: Final = 50_000_000
MAX_ENTRIES: Final = 50_000
MAX_LINE: Final = 8_192
_GZIP: Final = b"\x1f\x8b"
_PIECE: Final = 65_536
_MOST_MEMBERS: Final = 10_000  # gzip files in one body; an empty one has 20 bytes
_NEWEST_PRIO: Final = -100  # of a page that was changed today; lower goes first
_DAYS_A_STEP: Final = 7
_LINE = re.compile(rb"[^\n]{8,}")  # no URL is shorter; 50 MB of empty lines took a minute
_W3C_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")


class Sitemap(msgspec.Struct):
    """`entries` are (URL as written, priority); `children` further sitemaps."""

    entries: list[tuple[str, int]] = msgspec.field(default_factory=list)
    children: list[str] = msgspec.field(default_factory=list)
    error: str = ""  # why reading ended early: sitemap_too_large, sitemap_too_many, sitemap_broken


class _Full(Exception):
    """Enough was read."""


def read_sitemap(body: bytes, utc: float) -> Sitemap:
    """What a sitemap lists. `utc` is the time that `lastmod` is compared with."""
    sitemap = Sitemap()
    pieces = _pieces(body)
    try:
        first = next(pieces, b"")
        start = first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        reader = _Xml(sitemap, utc) if start == b"<" else _Lines(sitemap)
        reader.feed(first)
        for piece in pieces:
            reader.feed(piece)
        reader.close()
    except _Full as full:
        sitemap.error = str(full)
    except (expat.ExpatError, zlib.error, ValueError):
        sitemap.error = "sitemap_broken"  # what was read until there counts
    return sitemap


def is_packed(body: bytes) -> bool:
    """Whether its length tells nothing about the time that it takes to read."""
    return body.startswith(_GZIP)


def _pieces(body: bytes) -> Iterator[bytes]:
    """The decompressed body, piece by piece."""
    if not is_packed(body):
        if len(body) > MAX_BYTES:
            raise _Full("sitemap_too_large")
        for start in range(0, len(body), _PIECE):
            yield body[start : start + _PIECE]
        return
    given = 0
    for piece in _inflated(body):
        given += len(piece)
        if given > MAX_BYTES:
            raise _Full("sitemap_too_large")
        yield piece


def _inflated(body: bytes) -> Iterator[bytes]:
    """Files that were joined are one file, as gunzip reads them; what lies behind the last one and
    is no gzip is padding. It is fed in pieces, for zlib copies what it leaves."""
    inflate, members, begun = zlib.decompressobj(31), 0, False
    for start in range(0, len(body), _PIECE):
        rest = body[start : start + _PIECE]
        while rest:
            try:
                piece = inflate.decompress(rest, _PIECE)
            except zlib.error:
                if members and not begun:
                    return
                raise
            begun = begun or bool(piece)
            if piece:
                yield piece
            rest = inflate.unconsumed_tail
            if inflate.eof:
                rest, members = inflate.unused_data, members + 1
                if members >= _MOST_MEMBERS:
                    raise _Full("sitemap_too_large")
                inflate, begun = zlib.decompressobj(31), False


class _Lines:
    """A text sitemap: one URL a line."""

    def __init__(self, sitemap: Sitemap) -> None:
        self._sitemap = sitemap
        self._rest = b""

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        for line in _LINE.findall(data, 0, end):
            self._take(line)
        if len(self._rest) > MAX_LINE:
            raise ValueError("no list of URLs")

    def close(self) -> None:
        self._take(self._rest)

    def _take(self, line: bytes) -> None:
        text = line.decode("utf-8-sig", "replace").strip()
        if text.startswith(("http://", "https://")):
            _add(self._sitemap, text, 0)


class _Xml:
    """urlset, sitemapindex, rss and feed, by their local names: namespaces vary in the wild."""

    def __init__(self, sitemap: Sitemap, utc: float) -> None:
        self._sitemap, self._utc = sitemap, utc
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        # No sitemap needs entities of its own, and they can grow without end.
        self._parser.EntityDeclHandler = self._refuse
        self._stack: list[str] = []
        self._words: list[str] = []
        self._location = self._changed = ""
        self.feed: Callable[[bytes], object] = lambda data: self._parser.Parse(data, False)

    def close(self) -> None:
        self._parser.Parse(b"", True)

    def _refuse(self, *_: object) -> None:
        raise ValueError("entities are not read")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2].lower()
        parent = self._stack[-1] if self._stack else ""
        self._stack.append(name)
        if len(self._stack) > 50:
            raise ValueError("nested too deeply")
        self._words.clear()
        if name in ("url", "sitemap", "item", "entry"):
            self._location = self._changed = ""
        elif (name, parent, attributes.get("rel", "alternate")) == ("link", "entry", "alternate"):
            self._location = attributes.get("href", self._location)

    def _text(self, text: str) -> None:
        if sum(map(len, self._words)) < MAX_LINE:
            self._words.append(text)

    def _end(self, name: str) -> None:
        name = self._stack.pop()
        parent = self._stack[-1] if self._stack else ""
        text = "".join(self._words).strip()
        self._words.clear()
        if (name == "loc" and parent in ("url", "sitemap")) or (name, parent) == ("link", "item"):
            self._location = text
        elif name in ("lastmod", "pubdate", "updated"):
            self._changed = text
        elif name in ("url", "item", "entry") and self._location:
            _add(self._sitemap, self._location, _prio(self._changed, self._utc))
        elif name == "sitemap" and self._location:
            self._sitemap.children.append(self._location)
            if len(self._sitemap.children) >= MAX_ENTRIES:
                raise _Full("sitemap_too_many")


def _add(sitemap: Sitemap, url: str, prio: int) -> None:
    if len(sitemap.entries) >= MAX_ENTRIES:
        raise _Full("sitemap_too_many")
    sitemap.entries.append((url, prio))


def _prio(changed: str, utc: float) -> int:
    """What changed lately goes first: -100 for today, one less urgent for each week."""
    moment = _moment(changed)
    if moment is None:
        return 0
    weeks = max(0.0, utc - moment) / (86_400 * _DAYS_A_STEP)
    return min(0, _NEWEST_PRIO + int(weeks))


def _moment(text: str) -> float | None:
    found = _W3C_DATE.match(text)
    try:
        if found is not None:
            year, month, day = (int(part or 1) for part in found.groups())
            return datetime.datetime(year, month, day, tzinfo=datetime.UTC).timestamp()
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
