"""The encodings of the web, and the declarations of a page about its own.

Called by `parse.charset` and `parse.sitemap`. Pure; never raises.

**Labels and decoding.** Labels and codecs are those of webencodings, which maps the WHATWG Encoding
Standard to Python's codecs. Python's codecs do not know all characters of the Standard, so some
sequences of bytes are decoded a second time before they become U+FFFD:

- windows-125x and 874: undefined bytes from 0x80 to 0x9F are C1 controls
- gbk is read as gb18030, which contains it; a lone 0x80 is the euro sign
- euc-jp and iso-2022-jp: the rows that NEC and IBM added (`①`, `㈱`), which cp932 knows
- big5: characters that only Microsoft's code page 950 has

docs/conformance.md lists the remaining differences.

**Declarations of a page**: the Content-Type header, a <meta>, an XML declaration. `parse.charset`
decides their order. The time is proportional to the bytes that are read. Each function returns the
name of an encoding, or None if there is no valid declaration.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import Final

from zcrawl.text.patterns import lazy_pattern

# The Standard reads GBK with the decoder of gb18030; Python's gbk knows fewer characters.
_BETTER_CODEC: Final = {"gbk": "gb18030"}
_MULTI_BYTE: Final = frozenset(
    (
        "gbk",
        "gb18030",
        "big5",
        "euc-jp",
        "iso-2022-jp",
        "shift_jis",
        "euc-kr",
        "utf-16le",
        "utf-16be",
    )
)
# Bytes of single-byte encodings that the Standard reads and Python does not, or differently.
_BETTER_BYTES: Final = {
    "windows-1255": {0xCA: "\u05ba"},
    "koi8-u": {0xAE: "\u045e", 0xBE: "\u040e"},
}
# Characters that Python's codec and the Standard read differently. `replace` takes 10 us for each
# of them on a page of 100,000 characters, `translate` 3 ms for all.
_JIS_AS_WINDOWS: Final = (
    ("\u2016", "\u2225"), ("\u2212", "\uff0d"), ("\u301c", "\uff5e"),
    ("\xa2", "\uffe0"), ("\xa3", "\uffe1"), ("\xac", "\uffe2"),
)  # fmt: skip
_BETTER_CHARACTERS: Final = {
    "euc-jp": _JIS_AS_WINDOWS,
    "iso-2022-jp": _JIS_AS_WINDOWS,
    "big5": (("\u2022", "\u2027"), ("\u203e", "\xaf"), ("\u2641", "\u2295"), ("\u2609", "\u2299")),
}
_MOST_CHANCES: Final = 2_000  # sequences that are decoded a second time, 1.5 us each
_SECOND_CHANCE: Final = "zcrawl.second-chance"
_MOST_PAGES: Final = ("utf-8", "UTF-8")  # the labels on most pages
REPLACEMENT: Final = "replacement"  # of labels whose encodings the Standard forbids


@lru_cache(maxsize=1024)  # labels come from headers and pages; valid ones are few
def encoding_named(label: str) -> str | None:
    """Return the lower-case name of the encoding of a label; None if the label is unknown."""
    if label in _MOST_PAGES:
        return "utf-8"
    import webencodings  # 2 ms of a start

    encoding = webencodings.lookup(label[:64].encode("ascii", "replace").decode())
    return None if encoding is None else str(encoding.name)


def decode_as(body: bytes, name: str) -> str:
    """Decode `body`, with U+FFFD for invalid bytes."""
    if name == "utf-8":
        return body.decode("utf-8", "replace")
    if name == REPLACEMENT:
        return "\ufffd" if body else ""
    if name not in _MULTI_BYTE:
        return codecs.charmap_decode(body, "strict", _table_of(name))[0]
    decode = codec_of(name).decode
    text = decode(body, "replace")[0]
    if 0 < text.count("\ufffd") <= _MOST_CHANCES:
        text = decode(body, _SECOND_CHANCE)[0]
    for character, better in _BETTER_CHARACTERS.get(name, ()):
        text = text.replace(character, better)
    return text


@lru_cache(maxsize=64)
def _table_of(name: str) -> str:
    """Return the 256 characters of a single-byte encoding."""
    characters = list(codec_of(name).decode(bytes(range(256)), _SECOND_CHANCE)[0])
    for byte, character in _BETTER_BYTES.get(name, {}).items():
        characters[byte] = character
    return "".join(characters)


def codec_of(name: str) -> codecs.CodecInfo:
    """Return Python's codec for an encoding by its name."""
    if name in _BETTER_CODEC:
        return codecs.lookup(_BETTER_CODEC[name])
    import webencodings

    codec: codecs.CodecInfo = webencodings.lookup(name).codec_info
    return codec


def _second_chance(error: UnicodeError) -> tuple[str | bytes, int]:
    """Handle an error of a codec: return the characters of the Standard that Python does not
    know."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    failed, start, codec = error.object, error.start, error.encoding
    first = failed[start]
    if codec == "charmap":  # the name of all single-byte codecs; called for a table only
        return (chr(first) if 0x80 <= first <= 0x9F else "\ufffd"), start + 1
    if codec == "gb18030" and first == 0x80:
        return "\u20ac", start + 1
    pair = failed[start : start + 2]
    try:
        if codec == "big5hkscs":
            return pair.decode("cp950"), start + 2
        if codec == "euc_jp" and len(pair) == 2 and min(pair) > 0xA0 and max(pair) < 0xFF:
            return shift_jis_of(pair[0] - 0x80, pair[1] - 0x80).decode("cp932"), start + 2
        if codec == "iso2022_jp" and len(pair) == 2 and min(pair) > 0x20 and max(pair) < 0x7F:
            return shift_jis_of(pair[0], pair[1]).decode("cp932"), start + 2
    except UnicodeDecodeError:
        pass  # undefined there too
    return "\ufffd", max(error.end, start + 1)


def shift_jis_of(row: int, cell: int) -> bytes:
    """Return the two bytes of Shift_JIS for a row and a cell (both from 0x21) of JIS X 0208."""
    lead = (row - 0x21 >> 1) + 0x81
    odd = cell + (0x1F if cell < 0x60 else 0x20)
    trail = odd if row % 2 else cell + 0x7E
    return bytes((lead if lead < 0xA0 else lead + 0x40, trail))


codecs.register_error(_SECOND_CHANCE, _second_chance)

UNCONDITIONAL_BYTES: Final = 1024  # always searched; after that only the rest of the head

# The Content-Type header: MIME types by the MIME Sniffing Standard, joined by commas.
_MIME_TYPE = lazy_pattern(r'(?:[^",]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))++', re.S)
_ESSENCE = lazy_pattern(r"[\w!#$%&'*+.^`|~-]+/[\w!#$%&'*+.^`|~-]+", re.A)
_PARAMETERS = lazy_pattern(  # groups: name, value behind its opening quote, value without quotes
    r';[\t\n\r ]*+([^;=]*+)(?:=(?:("(?:[^"\\]|\\.)*+)\\?"?[^;]*+|([^;]*+)))?+', re.S
)
_VALID_VALUE = lazy_pattern(r"[\t -~\x80-\xff]*")
_ESCAPED = lazy_pattern(r"\\(.)", re.S)

# The beginning of most pages; `search_meta` gives the same result. No quote is open at a `>`.
_USUAL_HEAD = lazy_pattern(
    rb"[\t\n\f\r ]*+(?:<\?xml[^<>]*+>[\t\n\f\r ]*+)?+(?:<!doctype[^<>]*+>[\t\n\f\r ]*+)?+"
    rb"(?:<html(?:[\t\n\f\r ][^<>\"']*+(?:\"[^<>\"]*+\"[^<>\"']*+)*+)?+>[\t\n\f\r ]*+)?+"
    rb"(?:<head>[\t\n\f\r ]*+)?+<meta[\t\n\f\r ]++(?:charset=\"([\w-]++)\"|"
    rb"http-equiv=\"content-type\"[\t\n\f\r ]++content=\"text/html;[\t\n\f\r ]*+"
    rb"charset=([\w-]++)\")[\t\n\f\r ]*+/?>",
    re.I,
)
_XML_ENCODING = lazy_pattern(
    rb"<\?xml(?>[^>]*?encoding)[\x00-\x20]*+=[\x00-\x20]*+"
    rb"(?:\"([^\"\x00-\x20>]*+)\"|'([^'\x00-\x20>]*+)')"
)


@lru_cache(maxsize=512)
def header_encoding(content_type: str) -> str | None:
    """Return the encoding of the parameter `charset` in the Content-Type header.

    Of several types the last one counts, by the Fetch Standard; if it repeats the previous type
    without a charset, the previous charset stays.
    """
    essence = label = None
    for value in _MIME_TYPE.findall(content_type):
        kind = value.partition(";")[0].strip("\t\n\r ").lower()
        if not _ESSENCE.fullmatch(kind) or kind == "*/*":
            continue
        charset = _charset_parameter(value)
        if kind != essence or charset:
            essence, label = kind, charset
    return None if label is None else encoding_named(label)


def _charset_parameter(mime_type: str) -> str | None:
    """Return the first valid charset; an empty one counts if it is in quotes."""
    for name, quoted, plain in _PARAMETERS.findall(mime_type):
        value = _ESCAPED.sub(r"\1", quoted[1:]) if quoted else plain.rstrip("\t\n\r ")
        if name.lower() == "charset" and (quoted or value) and _VALID_VALUE.fullmatch(value):
            return str(value)
    return None


def meta_encoding(body: bytes, to_the_end: bool = False) -> str | None:
    """Return the encoding in a <meta> of the first kilobyte or the rest of the head.

    Browsers search the same part. `to_the_end` searches the whole page.
    """
    usual = _USUAL_HEAD.match(body)
    if usual is not None:
        encoding = readable(encoding_named((usual[1] or usual[2]).decode("latin-1")))
        if encoding is not None:
            return encoding
    from zcrawl.parse.meta_search import search_meta  # loaded for pages with an unusual beginning

    return search_meta(body, to_the_end)


def xml_encoding(body: bytes) -> str | None:
    """Return the encoding of an XML declaration at the beginning."""
    declared = _XML_ENCODING.match(body[:UNCONDITIONAL_BYTES])
    if declared is None:
        return None
    return readable(encoding_named((declared[1] or declared[2] or b"").decode("latin-1")))


def readable(name: str | None) -> str | None:
    """Return the real encoding of a declaration: it was readable as ASCII, so it cannot be
    UTF-16."""
    if name in ("utf-16le", "utf-16be"):
        return "utf-8"
    return "windows-1252" if name == "x-user-defined" else name
