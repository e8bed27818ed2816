"""Survey the tags of a page before lexbor parses it, to find pages that would take very long.

Called by `parse.cost` if the same in C (`_tags.c`) could not be compiled, and by tests. Pure.

**Copies.** HTML copies each formatting element (<b>, <code>, <a> ...) that is still open into every
block that begins, so a short page can create millions of elements. So the survey lists the
formatting elements that may be open when a block begins. All others are closed for certain: their
content is text, void tags and whole inline elements, and their end tag follows. The end tag then
meets its element as the current node (HTML Standard, "adoption agency algorithm").

    state of the walk     a stack of inline elements that are open, since the last other tag
    start of an inline    push it
    end of an inline      the top has that name: pop it, it is closed; else flush
    a void tag            nothing: it is never open
    any other tag         flush: it may begin a block, raw text or a comment
    flush                 list what is on the stack, and empty it

**The end of a tag.** A tag ends at its first `>`, unless that `>` is in a quoted value: then the
survey stops, and reports it. A tag with a `<` in it counts as open. Scripts and comments may
contain text that looks like tags; reading them as tags can only make a page look more costly: raw
text and comments end at a `>`, or with a tag that is not inline.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from zcrawl.parse.tags import count_attributes
from zcrawl.text.patterns import lazy_pattern


class _Kind(Enum):
    FORMATTING = "copied into blocks while it is open"
    LINK = "like FORMATTING, but at most one is open"
    INLINE = "does not begin a block"
    VOID = "never open"
    ROOT = "its attributes are added to the first one"
    REFERENCE = "is or changes a link, like <a>; otherwise an ordinary element"


_KINDS: Final = {
    **dict.fromkeys(
        b"b big code em font i nobr s small strike strong tt u".split(), _Kind.FORMATTING
    ),
    **dict.fromkeys(
        b"abbr acronym bdi bdo cite data dfn kbd label mark q samp span sub sup time var".split(),
        _Kind.INLINE,
    ),
    b"a": _Kind.LINK,
    **dict.fromkeys((b"br", b"img", b"wbr"), _Kind.VOID),
    **dict.fromkeys((b"html", b"body"), _Kind.ROOT),
    **dict.fromkeys((b"area", b"base", b"frame", b"iframe"), _Kind.REFERENCE),
}
_MOST_OPEN: Final = 32  # of the stack
_LONG_TAG: Final = 256  # bytes; shorter ones do not have very many attributes

# A `<` that does not begin a tag is text. Groups: slash, name, the rest up to the first `>`.
_TAG: Final = lazy_pattern(rb"<(/?)(?:([a-zA-Z]+)(?=[\t\n\f\r />])|(?=[a-zA-Z/!?]))([^>]*)>")
# A quoted value begins directly after `=` and white space.
_OPEN_QUOTE: Final = lazy_pattern(rb"=[\t\n\f\r ]*(?:\"[^\"]*|'[^']*)\Z")


class _Walk:
    """The state of the pass over one page."""

    def __init__(self) -> None:
        self.squares = self.longest_link = self.closed = 0
        self.open_tags: list[bytes] = []
        self.references = False
        self._stack: list[tuple[bytes, _Kind, bytes]] = []  # name, kind, tag

    def take(self, tag: bytes, name: bytes, is_end: bool) -> None:
        """Read one tag, without its brackets."""
        if len(tag) > _LONG_TAG:
            self.squares += count_attributes(tag) ** 2
        kind = _KINDS.get(name)
        if kind is _Kind.REFERENCE:
            self.references, kind = True, None
        if kind is None or kind is _Kind.ROOT or b"<" in tag:
            self._flush()
            if kind is not None and not is_end:
                self._list(kind, tag)
        elif kind is _Kind.VOID:
            pass
        elif not is_end:
            if len(self._stack) == _MOST_OPEN:
                self._flush()
            self._stack.append((name, kind, tag))
        elif self._stack and self._stack[-1][0] == name:
            self._stack.pop()
            self.closed += 1
        else:
            self._flush()

    def figures(self) -> tuple[int, int, int, list[bytes], bool]:
        return self.squares, self.longest_link, self.closed, self.open_tags, self.references

    def _flush(self) -> None:
        for _, kind, tag in self._stack:
            self._list(kind, tag)
        self._stack.clear()

    def _list(self, kind: _Kind, tag: bytes) -> None:
        if kind is _Kind.FORMATTING or kind is _Kind.ROOT:
            self.open_tags.append(tag)
        elif kind is _Kind.LINK:
            self.longest_link = max(self.longest_link, count_attributes(tag))


def survey(markup: bytes) -> tuple[int, bool, int, int, int, list[bytes], bool]:
    """Read all tags of a page; return the fields of a Survey."""
    walk = _Walk()
    end = markup.rfind(b">") + 1  # a tag that does not end is dropped
    for match in _TAG.finditer(markup, 0, end):
        slash, name, rest = match.groups()
        if b"=" in rest and _OPEN_QUOTE.search(rest) is not None:
            return (markup.count(b"<", 0, match.start() + 1), True, *walk.figures())
        walk.take(match[0][1:-1], (name or b"").lower(), slash != b"")
    return (markup.count(b"<"), False, *walk.figures())
