"""Search a page for a <meta> that names its encoding, tag by tag (1 us each).

Called by `parse.encodings` for pages with an unusual beginning. Pure; never raises, and takes
time in proportion to the bytes that it reads.
"""

from __future__ import annotations

import html
import re
from typing import Final

from zcrawl.parse.encodings import UNCONDITIONAL_BYTES, encoding_named, readable
from zcrawl.text.patterns import lazy_pattern

_MOST_STEPS: Final = 10_000  # a tag is one, of about 1 us
_STEPS_A_META: Final = 20
_MOST_META_BYTES: Final = 4_096  # a longer <meta> declares nothing
_MOST_ATTRIBUTES: Final = 20

# Tags as the HTML Standard's tokenizer reads them. The groups of an attribute: name, value in
# double quotes, the end of the page before they close, the same for single quotes, other value.
_ATTRIBUTE_BYTES: Final = (
    rb"[\t\n\f\r /]*+([^\t\n\f\r />][^\t\n\f\r />=]*+)(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:"
    rb"\"([^\"]*+)(?:\"|(\Z))|'([^']*+)(?:'|(\Z))|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)?+))?+"
)
_ATTRIBUTE = lazy_pattern(_ATTRIBUTE_BYTES)
_REST_OF_TAG = lazy_pattern(rb"(?:" + _ATTRIBUTE_BYTES + rb")*+[\t\n\f\r /]*+>?+")
_MARKUP = lazy_pattern(
    rb"<(?:(/?)([a-zA-Z][^\t\n\f\r />]*+)|!--(?:-?>|.*?(?:--!?>|\Z))|(!\[CDATA\[)|[!/?][^>]*+>?+)",
    re.S,
)
# The content of these elements is text, never tags.
_ENDS_OF_TEXT: Final = {
    b"script": lazy_pattern(rb"</script(?=[\t\n\f\r />])", re.I),
    b"style": lazy_pattern(rb"</style(?=[\t\n\f\r />])", re.I),
    b"title": lazy_pattern(rb"</title(?=[\t\n\f\r />])", re.I),
    b"textarea": lazy_pattern(rb"</textarea(?=[\t\n\f\r />])", re.I),
    b"xmp": lazy_pattern(rb"</xmp(?=[\t\n\f\r />])", re.I),
    b"iframe": lazy_pattern(rb"</iframe(?=[\t\n\f\r />])", re.I),
    b"noembed": lazy_pattern(rb"</noembed(?=[\t\n\f\r />])", re.I),
    b"noframes": lazy_pattern(rb"</noframes(?=[\t\n\f\r />])", re.I),
}
_IN_HEAD: Final = frozenset(
    (b"script", b"noscript", b"style", b"link", b"meta", b"object", b"title", b"base")
)
_FOREIGN: Final = frozenset((b"svg", b"math"))
_CONTENT_CHARSET = lazy_pattern(
    r"charset[\t\n\f\r ]*+=[\t\n\f\r ]*+"
    r"(?:\"([^\"]*)\"|'([^']*)'|([^\t\n\f\r ;\"'][^\t\n\f\r ;]*))",
    re.I,
)


def search_meta(body: bytes, to_the_end: bool) -> str | None:
    """Return the encoding that a <meta> names, as `meta_encoding` does."""
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
                position = _position_after(body, b"]]>" if foreign else b">", position)
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


def _encoding_of_meta(tag: bytes) -> str | None:
    """Return the encoding in the attributes of a <meta>, by the "prescan" of the HTML Standard."""
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
    return None if label is None else readable(encoding_named(label))


def _position_after(body: bytes, mark: bytes, position: int) -> int:
    end = body.find(mark, position)
    return len(body) if end < 0 else end + len(mark)
