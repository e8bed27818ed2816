"""Read sitemaps: XML, sitemap indexes, RSS, Atom and plain text, gzipped or not.

Called by the worker's pipeline for requests of sitemaps. Pure. The body is read in pieces, so that
neither the whole decompressed body nor a tree is in memory. Reading stops at 50 MB and at 50,000
entries, the limits of the sitemap protocol.

Many sitemaps have faults. They are decoded first, by their XML declaration, and parsed by
`loose_xml`, so that a fault affects one entry and not the rest of the file. Lost entries and
repaired faults are counted. A file that is not a sitemap gives no entries, and an error.
"""

from __future__ import annotations

import datetime
import email.utils
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from zcrawl.model.reasons.skip import (
    SITEMAP_BROKEN,
    SITEMAP_ENTRY_LOST,
    SITEMAP_REPAIRED,
    SITEMAP_TOO_LARGE,
    SITEMAP_TOO_MANY,
)
from zcrawl.parse.encodings import REPLACEMENT, codec_of, xml_encoding
from zcrawl.parse.loose_xml import LooseXml, attributes_of, plain_text
from zcrawl.text.patterns import lazy_pattern

MAX_BYTES: Final = 50_000_000
MAX_ENTRIES: Final = 50_000
MAX_LINE: Final = 8_192
_GZIP: Final = b"\x1f\x8b"
_PIECE: Final = 65_536
_HEAD: Final = 1_024  # bytes that show the encoding and the kind of a file
_MOST_MEMBERS: Final = 10_000  # gzip files in one body; an empty one has 20 bytes
_NEWEST_PRIO: Final = -100  # of a page that changed today; lower is first
_DAYS_A_STEP: Final = 7
_LINE = lazy_pattern(r"[^\r\n]{8,}")  # URLs are longer; 50 MB of empty lines took a minute
_UTF16: Final = {  # marks, and the first character without a mark: `<` or `h`
    b"\xff\xfe": "utf-16le", b"\xfe\xff": "utf-16be",
    b"<\0": "utf-16le", b"\0<": "utf-16be", b"h\0": "utf-16le", b"\0h": "utf-16be",
}  # fmt: skip
# XML begins with `<`, or with the warning of a program before it.
_XML_BEGINS = lazy_pattern(
    r"<|.{0,1000}?<(?:\?xml\b|(?:\w+:)?(?:urlset|sitemapindex|rss|feed)\b)",
    re.DOTALL | re.IGNORECASE,
)
_RAW_AMPERSAND = lazy_pattern(r"&(?!#?\w+;)")
_ROOTS: Final = frozenset(("urlset", "sitemapindex", "rss", "feed", "rdf"))
_ENTRIES: Final = frozenset(("url", "sitemap", "item", "entry"))
_LOCATIONS: Final = frozenset((("loc", "url"), ("loc", "sitemap"), ("link", "item")))
_CHANGES: Final = frozenset(("lastmod", "pubdate", "updated"))
_FIELDS: Final = _CHANGES | {"loc", "link"}
_W3C_DATE = lazy_pattern(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")


class Sitemap(msgspec.Struct):
    """The content of a sitemap: `entries` (URL as written, priority), and `children`, more
    sitemaps."""

    entries: list[tuple[str, int]] = msgspec.field(default_factory=list)
    children: list[str] = msgspec.field(default_factory=list)
    error: str = ""  # why reading ended early: sitemap_too_large, sitemap_too_many, sitemap_broken
    lost: int = 0  # entries without a URL that can be read
    repaired: int = 0  # faults that were skipped: a raw &, an invalid byte, a wrong tag

    def complaints(self) -> dict[str, int]:
        """Return the counts of faults, by code."""
        counts = {SITEMAP_ENTRY_LOST: self.lost, SITEMAP_REPAIRED: self.repaired}
        if self.error:
            counts[self.error] = 1
        return {code: number for code, number in counts.items() if number}


class _Full(Exception):
    """A limit is reached."""


def read_sitemap(body: bytes, utc: float) -> Sitemap:
    """Read a sitemap. `utc` is the time that `lastmod` is compared with."""
    sitemap = Sitemap()
    reader: _Lines | _Xml | None = None
    try:
        for text in _texts(_pieces(body)):
            sitemap.repaired += text.count("\ufffd")
            if reader is None:
                text = text.lstrip()
                if not text:
                    continue
                reader = _Xml(sitemap, utc) if _XML_BEGINS.match(text) else _Lines(sitemap)
            reader.feed(text)
        if reader is not None:
            reader.close()
    except _Full as full:
        sitemap.error = str(full)
    except (zlib.error, ValueError):
        sitemap.error = SITEMAP_BROKEN  # the entries before the fault count
    sitemap.repaired += 0 if reader is None else reader.faults
    return sitemap


def _texts(pieces: Iterator[bytes]) -> Iterator[str]:
    """Decode the pieces, by the declared encoding, or as UTF-8."""
    first = b""
    for piece in pieces:
        first += piece
        if len(first) >= _HEAD:
            break
    decoder = codec_of(_encoding(first)).incrementaldecoder("replace")
    yield decoder.decode(first).removeprefix("\ufeff")
    for piece in pieces:
        yield decoder.decode(piece)
    yield decoder.decode(b"", True)


def _encoding(first: bytes) -> str:
    for mark, name in _UTF16.items():
        if first.startswith(mark):
            return name
    name = xml_encoding(first.removeprefix(b"\xef\xbb\xbf").lstrip()) or "utf-8"
    return "utf-8" if name == REPLACEMENT else name


def is_packed(body: bytes) -> bool:
    """Return whether it is compressed, so that its length does not limit the time to read it."""
    return body.startswith(_GZIP)


def _pieces(body: bytes) -> Iterator[bytes]:
    """Yield the decompressed body, piece by piece."""
    if not is_packed(body):
        if len(body) > MAX_BYTES:
            raise _Full(SITEMAP_TOO_LARGE)
        for start in range(0, len(body), _PIECE):
            yield body[start : start + _PIECE]
        return
    given = 0
    for piece in _inflated(body):
        given += len(piece)
        if given > MAX_BYTES:
            raise _Full(SITEMAP_TOO_LARGE)
        yield piece


def _inflated(body: bytes) -> Iterator[bytes]:
    """Yield the content of joined gzip files as one file, as gunzip does; other data after the last
    one is ignored as padding. zlib gets small pieces, because it copies the unread rest each
    time."""
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
                    raise _Full(SITEMAP_TOO_LARGE)
                inflate, begun = zlib.decompressobj(31), False


class _Lines:
    """A text sitemap: one URL per line."""

    faults: Final = 0

    def __init__(self, sitemap: Sitemap) -> None:
        self._sitemap = sitemap
        self._rest = ""

    def feed(self, text: str) -> None:
        text = self._rest + text
        end = max(text.rfind("\n"), text.rfind("\r")) + 1
        self._rest = text[end:]
        for line in _LINE.findall(text, 0, end):
            self._take(line)
        if len(self._rest) > MAX_LINE:
            raise ValueError("not a list of URLs")

    def close(self) -> None:
        if self._rest:
            self._take(self._rest)
        if not self._sitemap.entries:
            raise ValueError("not a list of URLs")

    def _take(self, line: str) -> None:
        line = line.strip()
        if line.startswith(("http://", "https://")):
            _add(self._sitemap, line, 0)
        elif line and not line.startswith("#"):
            self._sitemap.lost += 1


class _Xml:
    """urlset, sitemapindex, rss and feed, by their local names, because namespaces vary."""

    def __init__(self, sitemap: Sitemap, utc: float) -> None:
        self._sitemap, self._utc = sitemap, utc
        self._document = LooseXml(self)
        self._has_root = False
        self._entry = ""  # the element that is being read
        self._reads_text = False  # whether the text of the current element is needed
        self._words: list[str] = []
        self._length = 0
        self._readable = True  # whether all references of the text are known
        self._location = self._changed = ""
        self.feed: Callable[[str], object] = self._document.feed

    @property
    def faults(self) -> int:
        return self._document.faults

    def close(self) -> None:
        whole = self._document.close()
        if self._entry:
            self._sitemap.lost += 1
        nothing = not self._sitemap.entries and not self._sitemap.children
        if not whole or (nothing and not self._has_root):
            raise ValueError("incomplete, or not a sitemap")

    def start(self, name: str, parent: str, attributes: str) -> None:
        self._words, self._length, self._readable = [], 0, True
        self._reads_text = name in _FIELDS
        if name in _ENTRIES and parent != "image":  # the image of an RSS channel has a <url>
            if self._entry:  # the previous entry was never closed
                self._sitemap.repaired += 1
                self._finish(self._entry)
            self._entry, self._location, self._changed = name, "", ""
        elif name in _ROOTS:
            self._has_root = True
        elif name == "link" and parent == "entry":
            link_attributes = attributes_of(attributes)
            if link_attributes.get("rel", "alternate") == "alternate":
                self._location = link_attributes.get("href", self._location)

    def text(self, text: str, plain: bool) -> None:
        if not self._reads_text or self._length >= MAX_LINE:
            return
        if not plain:
            self._sitemap.repaired += len(_RAW_AMPERSAND.findall(text)) if "&" in text else 0
            text, all_known = plain_text(text)
            self._readable = self._readable and all_known
        self._words.append(text)
        self._length += len(text)

    def end(self, name: str, parent: str) -> None:
        if self._reads_text and name in _FIELDS:
            text = "".join(self._words).strip()
            if name in _CHANGES:
                self._changed = text
            elif (name, parent) in _LOCATIONS:
                self._location = text if self._readable else "\ufffd"
        self._reads_text = False
        if name == self._entry:
            self._finish(name)
            self._entry = ""

    def _finish(self, kind: str) -> None:
        if not self._location:
            self._sitemap.lost += 1
        elif kind == "sitemap":
            _add_child(self._sitemap, self._location)
        else:
            _add(self._sitemap, self._location, _prio(self._changed, self._utc))


def _add_child(sitemap: Sitemap, url: str) -> None:
    if "\ufffd" in url:
        sitemap.lost += 1
        return
    sitemap.children.append(url)
    if len(sitemap.children) >= MAX_ENTRIES:
        raise _Full(SITEMAP_TOO_MANY)


def _add(sitemap: Sitemap, url: str, prio: int) -> None:
    if "\ufffd" in url:  # the original characters are lost
        sitemap.lost += 1
        return
    if len(sitemap.entries) >= MAX_ENTRIES:
        raise _Full(SITEMAP_TOO_MANY)
    sitemap.entries.append((url, prio))


def _prio(changed: str, utc: float) -> int:
    """Return the priority: -100 if it changed today (first), one more for each week."""
    moment = _moment(changed)
    if moment is None:
        return 0
    weeks = max(0.0, utc - moment) / (86_400 * _DAYS_A_STEP)
    return min(0, _NEWEST_PRIO + int(weeks))


def _moment(text: str) -> float | None:
    match = _W3C_DATE.match(text)
    try:
        if match is not None:
            year, month, day = (int(part or 1) for part in match.groups())
            return datetime.datetime(year, month, day, tzinfo=datetime.UTC).timestamp()
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
