"""Where a page names its encoding: the Content-Type header, a <meta>, an XML declaration.

Called by `parse.charset`, in its order. Pure; never raises, and takes time in proportion to what it
reads. Each function gives the name of an encoding, or None if nothing was said that counts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from zcrawl.parse.encodings import encoding_named

UNCONDITIONAL_BYTES: Final = 1024  # searched in any case; from there on only while the head lasts

# The Content-Type header: MIME types by the MIME Sniffing Standard, joined by commas.
_MIME_TYPE = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))++', re.S)
_ESSENCE = re.compile(r"[\w!#$%&'*+.^`|~-]+/[\w!#$%&'*+.^`|~-]+", re.A)
_PARAMETERS = re.compile(  # groups: name, value behind its opening quote, value without quotes
    r';[\t\n\r ]*+([^;=]*+)(?:=(?:("(?:[^"\\]|\\.)*+)\\?"?[^;]*+|([^;]*+)))?+', re.S
)
_VALID_VALUE = re.compile(r"[\t -~\x80-\xff]*")
_ESCAPED = re.compile(r"\\(.)", re.S)

# How most pages begin; `search_meta` reads it as the same. No quote is open at a `>`.
_USUAL_HEAD = re.compile(
    rb"[\t\n\f\r ]*+(?:<\?xml[^<>]*+>[\t\n\f\r ]*+)?+(?:<!doctype[^<>]*+>[\t\n\f\r ]*+)?+"
    rb"(?:<html(?:[\t\n\f\r ][^<>\"']*+(?:\"[^<>\"]*+\"[^<>\"']*+)*+)?+>[\t\n\f\r ]*+)?+"
    rb"(?:<head>[\t\n\f\r ]*+)?+<meta[\t\n\f\r ]++(?:charset=\"([\w-]++)\"|"
    rb"http-equiv=\"content-type\"[\t\n\f\r ]++content=\"text/html;[\t\n\f\r ]*+"
    rb"charset=([\w-]++)\")[\t\n\f\r ]*+/?>",
    re.I,
)
_XML_ENCODING = re.compile(
    rb"<\?xml(?>[^>]*?encoding)[\x00-\x20]*+=[\x00-\x20]*+"
    rb"(?:\"([^\"\x00-\x20>]*+)\"|'([^'\x00-\x20>]*+)')"
)


@lru_cache(maxsize=512)
def header_encoding(content_type: str) -> str | None:
    """What the Content-Type header says, by its parameter `charset` and nothing that looks like it.

    Of several types the last one counts, as the Fetch Standard has it; one that repeats the type
    before it without a charset does not take it away.
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
    """The first one that has a valid value; an empty one counts if it is in quotes."""
    for name, quoted, plain in _PARAMETERS.findall(mime_type):
        value = _ESCAPED.sub(r"\1", quoted[1:]) if quoted else plain.rstrip("\t\n\r ")
        if name.lower() == "charset" and (quoted or value) and _VALID_VALUE.fullmatch(value):
            return str(value)
    return None


def meta_encoding(body: bytes, to_the_end: bool = False) -> str | None:
    """What a <meta> says: in the first kilobyte, and behind it as long as the head lasts.

    That is where browsers look. `to_the_end` looks at the rest as well.
    """
    usual = _USUAL_HEAD.match(body)
    if usual is not None:
        encoding = readable(encoding_named((usual[1] or usual[2]).decode("latin-1")))
        if encoding is not None:
            return encoding
    from zcrawl.parse.meta_search import search_meta  # loaded when a page begins in another way

    return search_meta(body, to_the_end)


def xml_encoding(body: bytes) -> str | None:
    """What an XML declaration at the very beginning says."""
    declared = _XML_ENCODING.match(body[:UNCONDITIONAL_BYTES])
    if declared is None:
        return None
    return readable(encoding_named((declared[1] or declared[2] or b"").decode("latin-1")))


def readable(name: str | None) -> str | None:
    """The encoding that a declaration means: it was read as ASCII, so UTF-16 cannot be true."""
    if name in ("utf-16le", "utf-16be"):
        return "utf-8"
    return "windows-1252" if name == "x-user-defined" else name
