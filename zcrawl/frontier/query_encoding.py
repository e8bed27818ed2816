"""Encodes the queries of links on pages that are not UTF-8, as the URL Standard and browsers do.

Called by `frontier.url` for links with characters beyond ASCII on such pages. Pure. The query, and
only the query, is percent-encoded in the page's encoding: on a page in ISO-8859-15 `?price=€` is
`?price=%A4`. A character that the encoding does not have becomes a character reference: `&#8364;`
is `%26%238364%3B`. Pages in UTF-16 and in an encoding that cannot be written count as UTF-8.

Encoders are Python's codecs by the names of webencodings. Those for Japanese and Chinese differ
from the Standard's in what they write for some characters; that is corrected here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from zcrawl.text.patterns import lazy_pattern

# Pages in these encodings have queries in UTF-8 ("get an output encoding").
WRITTEN_AS_UTF8: Final = frozenset(("utf-8", "utf-16le", "utf-16be", "replacement"))
_IGNORED: Final = str.maketrans("", "", "\t\n\r")  # the URL Standard removes them first
_ESCAPED: Final = frozenset(b"\"#<>'") | frozenset(range(0x21)) | frozenset(range(0x7F, 0x100))
_FULL_WIDTH_MINUS: Final = "\uff0d"
_WRITTEN_ALIKE: Final = {"\xa5": b"\\", "\u203e": b"~"}  # by shift_jis and euc-jp
_SHIFTS: Final = str.maketrans(
    dict.fromkeys("\x0e\x0f\x1b", "\ufffd")
)  # iso-2022-jp shifts by them
_KATAKANA = lazy_pattern("[\uff61-\uff9f]")  # of half width
_FULL_WIDTH_MARKS: Final = {"\uff9e": "\u309b", "\uff9f": "\u309c"}
_ASCII, _ROMAN, _JIS = b"\x1b(B", b"\x1b(J", b"\x1b$B"  # what iso-2022-jp shifts to them with


def encode_query(href: str, encoding: str) -> str:
    """Return the link with an ASCII query. `encoding` is a WHATWG name, not UTF-8."""
    if href.isascii():
        return href
    cut = href.find("#")
    end = len(href) if cut < 0 else cut
    mark = href.find("?", 0, end)
    query = href[mark + 1 : end]
    if mark < 0 or query.isascii():
        return href
    query = query.translate(_IGNORED)
    data = _iso_2022_jp(query) if encoding == "iso-2022-jp" else _each(query, encoding)
    text = "".join(f"%{byte:02X}" if byte in _ESCAPED else chr(byte) for byte in data)
    return f"{href[: mark + 1]}{text}{href[end:]}"


def _each(query: str, encoding: str) -> bytes:
    return b"".join(
        char.encode() if char.isascii() else _bytes_of(char, encoding) or _reference(char)
        for char in query
    )


def _reference(char: str) -> bytes:
    return b"%%26%%23%d%%3B" % ord(char)


@lru_cache(maxsize=4096)
def _bytes_of(char: str, encoding: str) -> bytes | None:
    """Return a character in the encoding; None if the encoding does not have it."""
    try:
        return _WRITERS.get(encoding, _plain)(char, encoding)
    except UnicodeEncodeError:
        return None


def _plain(char: str, encoding: str) -> bytes | None:
    """By Python's codec; in windows-125x and 874, C1 controls stand for themselves."""
    import webencodings  # few pages need it

    if "\x80" <= char <= "\x9f" and encoding.startswith("windows-"):
        data = char.encode("latin-1")
        codec = webencodings.lookup(encoding).codec_info
        if codec.decode(data, "ignore")[0] == "":
            return data
    written: bytes = webencodings.encode(char, encoding)
    return written


def _shift_jis(char: str, _: str) -> bytes | None:
    if char in _WRITTEN_ALIKE:
        return _WRITTEN_ALIKE[char]
    if char == "\u2212":
        char = _FULL_WIDTH_MINUS
    return _ibm_extensions().get(char) or char.encode("cp932")


def _euc_jp(char: str, _: str) -> bytes | None:
    if char in _WRITTEN_ALIKE:
        return _WRITTEN_ALIKE[char]
    data = _jis_x_0208(char)
    if data is not None:
        return bytes(byte + 0x80 for byte in data)
    return b"\x8e" + char.encode("cp932") if _KATAKANA.match(char) else None


def _big5(char: str, _: str) -> bytes | None:
    for codec in ("big5hkscs", "cp950"):
        try:
            data = char.encode(codec)
        except UnicodeEncodeError:
            continue
        if data[0] >= 0xA1:  # lower lead bytes (Hong Kong) are decoded, but never encoded
            return data
    return None


def _gbk(char: str, encoding: str) -> bytes | None:
    if char == "\ue5e5":
        return None
    if char == "\u20ac" and encoding == "gbk":
        return b"\x80"
    data = char.encode("gb18030")
    return None if encoding == "gbk" and len(data) > 2 else data


_WRITERS: Final[dict[str, Callable[[str, str], bytes | None]]] = {
    "shift_jis": _shift_jis,
    "euc-jp": _euc_jp,
    "big5": _big5,
    "gbk": _gbk,
    "gb18030": _gbk,
}


@lru_cache(maxsize=1)
def _ibm_extensions() -> dict[str, bytes]:
    """The characters that cp932 has twice; Python writes the other one."""
    pairs = (bytes((lead, trail)) for lead in (0xFA, 0xFB, 0xFC) for trail in range(0x40, 0xFD))
    decoded = ((pair.decode("cp932", "ignore"), pair) for pair in pairs)
    elsewhere = {text: pair for text, pair in decoded if len(text) == 1}
    return {text: pair for text, pair in elsewhere.items() if text.encode("cp932")[0] >= 0xED}


def _jis_x_0208(char: str) -> bytes | None:
    """Row and cell, both from 0x21, with the rows that Windows has as well."""
    try:
        data = (_FULL_WIDTH_MINUS if char == "\u2212" else char).encode("cp932")
    except UnicodeEncodeError:
        return None
    if len(data) != 2:
        return None
    lead, trail = data
    if lead >= 0xF0:
        return None
    row = (lead - (0x81 if lead < 0xA0 else 0xC1)) * 2 + 0x21
    if trail >= 0x9F:
        return bytes((row + 1, trail - 0x7E))
    return bytes((row, trail - (0x1F if trail < 0x7F else 0x20)))


def _iso_2022_jp(query: str) -> bytes:
    """Shifts between three character sets; it ends in ASCII, and goes there for a reference."""
    pieces: list[bytes] = []
    state = _ASCII
    for char in query.translate(_SHIFTS):
        charset, data = _shifted(char)
        if charset == _ASCII and state == _ROMAN and char.isascii() and char not in "\\~":
            charset = _ROMAN  # it is the same in both
        if charset != state:
            pieces.append(charset)
        pieces.append(data)
        state = charset
    if state != _ASCII:
        pieces.append(_ASCII)
    return b"".join(pieces)


def _shifted(char: str) -> tuple[bytes, bytes]:
    """The escape sequence of the set that has a character, and the character in that set."""
    if char.isascii():
        return _ASCII, char.encode()
    if char in _WRITTEN_ALIKE:
        return _ROMAN, _WRITTEN_ALIKE[char]
    if _KATAKANA.match(char):
        char = _FULL_WIDTH_MARKS.get(char) or unicodedata.normalize("NFKC", char)
    data = _jis_x_0208(char)
    return (_ASCII, _reference(char)) if data is None else (_JIS, data)
