"""Where a page names its encoding: the Content-Type header, a <meta>, an XML declaration.

Called by `parse.charset`, in its order. Pure; never raises, and takes time in proportion to what it
reads. Each function gives the name of an encoding, or None if nothing was said that counts.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import Final

from zcrawl.parse.encodings import encoding_named

UNCONDITIONAL_BYTES: Final = 1024  # searched in any case; from there on only while the head lasts
_MOST_STEPS: Final = 10_000  # a tag is one, of about 1 us
_STEPS_A_META: Final = 20
_MOST_META_BYTES: Final = 4_096  # a longer <meta> declares nothing
_MOST_ATTRIBUTES: Final = 20

# The Content-Type header: MIME types by the MIME Sniffing Standard, joined by commas.
_MIME_TYPE = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))++', re.S)
_ESSENCE = re.compile(r"[\w!#$%&'*+.^`|~-]+/[\w!#$%&'*+.^`|~-]+", re.A)
_PARAMETERS = re.compile(  # groups: name, value behind its opening quote, value without quotes
    r';[\t\n\r ]*+([^;=]*+)(?:=(?:("(?:[^"\\]|\\.)*+)\\?"?[^;]*+|([^;]*+)))?+', re.S
)
_VALID_VALUE = re.compile(r"[\t -~\x80-\xff]*")
_ESCAPED = re.compile(r"\\(.)", re.S)

# Tags as the HTML Standard's tokenizer reads them. The groups of an attribute: name, value in
# double quotes, the end of the page before they close, the same for single quotes, other value.
_ATTRIBUTE_BYTES: Final = (
    rb"[\t\n\f\r /]*+([^\t\n\f\r />][^\t\n\f\r />=]*+)(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:"
    rb"\"([^\"]*+)(?:\"|(\Z))|'([^']*+)(?:'|(\Z))|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)?+))?+"
)
_ATTRIBUTE = re.compile(_ATTRIBUTE_BYTES)
_REST_OF_TAG = re.compile(rb"(?:" + _ATTRIBUTE_BYTES + rb")*+[\t\n\f\r /]*+>?+")
_MARKUP = re.compile(
    rb"<(?:(/?)([a-zA-Z][^\t\n\f\r />]*+)|!--(?:-?>|.*?(?:--!?>|\Z))|(!\[CDATA\[)|[!/?][^>]*+>?+)",
    re.S,
)
# How most pages begin; `search_meta` reads it as the same. No quote is open at a `>`.
_USUAL_HEAD = re.compile(
    rb"[\t\n\f\r ]*+(?:<\?xml[^<>]*+>[\t\n\f\r ]*+)?+(?:<!doctype[^<>]*+>[\t\n\f\r ]*+)?+"
    rb"(?:<html(?:[\t\n\f\r ][^<>\"']*+(?:\"[^<>\"]*+\"[^<>\"']*+)*+)?+>[\t\n\f\r ]*+)?+"
    rb"(?:<head>[\t\n\f\r ]*+)?+<meta[\t\n\f\r ]++(?:charset=\"([\w-]++)\"|"
    rb"http-equiv=\"content-type\"[\t\n\f\r ]++content=\"text/html;[\t\n\f\r ]*+"
    rb"charset=([\w-]++)\")[\t\n\f\r ]*+/?>",
    re.I,
)
# What is within these is text, whatever it looks like.
_ENDS_OF_TEXT: Final = {
    b"script": re.compile(rb"</script(?=[\t\n\f\r />])", re.I),
    b"style": re.compile(rb"</style(?=[\t\n\f\r />])", re.I),
    b"title": re.compile(rb"</title(?=[\t\n\f\r />])", re.I),
    b"textarea": re.compile(rb"</textarea(?=[\t\n\f\r />])", re.I),
    b"xmp": re.compile(rb"</xmp(?=[\t\n\f\r />])", re.I),
    b"iframe": re.compile(rb"</iframe(?=[\t\n\f\r />])", re.I),
    b"noembed": re.compile(rb"</noembed(?=[\t\n\f\r />])", re.I),
    b"noframes": re.compile(rb"</noframes(?=[\t\n\f\r />])", re.I),
}
_IN_HEAD: Final = frozenset(
    (b"script", b"noscript", b"style", b"link", b"meta", b"object", b"title", b"base")
)
_FOREIGN: Final = frozenset((b"svg", b"math"))
_CONTENT_CHARSET = re.compile(
    r"charset[\t\n\f\r ]*+=[\t\n\f\r ]*+"
    r"(?:\"([^\"]*)\"|'([^']*)'|([^\t\n\f\r ;\"'][^\t\n\f\r ;]*))",
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
        encoding = _readable(encoding_named((usual[1] or usual[2]).decode("latin-1")))
        if encoding is not None:
            return encoding
    return search_meta(body, to_the_end)


def search_meta(body: bytes, to_the_end: bool) -> str | None:
    """The same, tag by tag: 1 us each."""
    position, in_head, foreign = 0, True, False
    steps = _MOST_STEPS
    while steps > 0:
        steps -= 1
        markup = _MARKUP.search(body, position)
        if markup is None:
            break
        if not in_head and not to_the_end and markup.start() >= UNCONDITIONAL_BYTES:
            break
        position = markup.end()
        slash, name, cdata = markup.groups()
        if name is None:
            if cdata is not None:
                position = _behind(body, b"]]>" if foreign else b">", position)
            continue
        name = name.lower()
        rest = _REST_OF_TAG.match(body, position)
        assert rest is not None  # it may be empty
        position = rest.end()
        if name == b"meta" and not slash:
            steps -= _STEPS_A_META
            encoding = _encoding_of_meta(rest[0])
            if encoding is not None:
                return encoding
        if name in _FOREIGN:
            foreign = not slash
        if name not in _IN_HEAD and (slash or name not in (b"html", b"head")):
            in_head = False
        if not slash and not foreign and name in _ENDS_OF_TEXT:
            end = _ENDS_OF_TEXT[name].search(body, position)
            if end is None:
                break
            position = end.start()
    return None


def xml_encoding(body: bytes) -> str | None:
    """What an XML declaration at the very beginning says."""
    declared = _XML_ENCODING.match(body[:UNCONDITIONAL_BYTES])
    if declared is None:
        return None
    return _readable(encoding_named((declared[1] or declared[2] or b"").decode("latin-1")))


def _encoding_of_meta(tag: bytes) -> str | None:
    """Of the attributes of a <meta>, up to its `>`: the Standard's prescan, step "meta"."""
    if len(tag) > _MOST_META_BYTES or b"charset" not in tag.lower() or not tag.endswith(b">"):
        return None
    attributes: dict[bytes, str] = {}
    for name, double, _, single, _, plain in _ATTRIBUTE.findall(tag)[:_MOST_ATTRIBUTES]:
        text = (double or single or plain).decode("latin-1")
        attributes.setdefault(name.lower(), html.unescape(text) if "&" in text else text)
    label = attributes.get(b"charset")
    if label is None and attributes.get(b"http-equiv", "").lower() == "content-type":
        declared = _CONTENT_CHARSET.search(attributes.get(b"content", ""))
        label = declared and (declared[1] or declared[2] or declared[3])
    return None if label is None else _readable(encoding_named(label))


def _readable(name: str | None) -> str | None:
    """The encoding that a declaration means: it was read as ASCII, so UTF-16 cannot be true."""
    if name in ("utf-16le", "utf-16be"):
        return "utf-8"
    return "windows-1252" if name == "x-user-defined" else name


def _behind(body: bytes, mark: bytes, position: int) -> int:
    end = body.find(mark, position)
    return len(body) if end < 0 else end + len(mark)
