"""Read XML with faults, in pieces, for feeds and sitemaps.

Used by `parse.sitemap`. Pure. A strict parser loses everything after the first fault; here a fault
affects only its place, and is counted in `faults`:

- `&` without a reference is text; `<` without a tag is U+FFFD, because a tag may be lost
- an end tag without its start is ignored; one of an outer element closes the inner ones too
- attributes are parsed only on demand, with `attributes_of`

Comments, processing instructions and the DOCTYPE are left out. Entities that a document defines are
never read, because they can grow without limit: a reference to one stays as it is written, and
`plain_text` reports it.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from zcrawl.text.patterns import lazy_pattern

MOST_DEPTH: Final = 50
MOST_FAULTS: Final = 200_000  # a document with more, 0.6 us each, is not XML
_MOST_TAG_CHARS: Final = 65_536  # of a tag that never ends
_LONGEST_MARK: Final = 9  # <![CDATA[

# Text up to a `<`, and what begins there: a tag (slash, name, attributes) or a mark.
_STEP = lazy_pattern(
    r"([^<]*+)<(?:(/?)([^\W\d][\w:.-]*+)((?:[^<>\"']|\"[^<\"]*\"|'[^<']*')*+)>"
    r"|(!--|!\[CDATA\[|\?|!DOCTYPE))",
    re.IGNORECASE,
)
_ENDS: Final = {"!--": "-->", "![CDATA[": "]]>", "?": "?>"}
_DOCTYPE_CONTENT = lazy_pattern(r"[\[>]")
_ATTRIBUTE = lazy_pattern(r"([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_REFERENCE = lazy_pattern(r"&(?:#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6})|(amp|lt|gt|quot|apos));")
_UNKNOWN_REFERENCE = lazy_pattern(r"&[^\W\d][\w.-]*;")
_CHARACTERS: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


class XmlHandler(Protocol):
    """Receives the parts of a document; elements have their local names in lower case."""

    def start(self, name: str, parent: str, attributes: str) -> None: ...

    def text(self, text: str, plain: bool) -> None: ...  # plain: & does not begin a reference

    def end(self, name: str, parent: str) -> None: ...


class LooseXml:
    """Parses text and calls the handler. Raises ValueError for elements nested deeper than 50, and
    for text that is not XML at all."""

    def __init__(self, handler: XmlHandler) -> None:
        self.faults = 0
        self._handler = handler
        self._rest = ""
        self._until = ""  # the end of the comment, section or instruction that is being read
        self._stack: list[str] = []

    def feed(self, text: str) -> None:
        text = self._rest + text
        position = 0
        while position < len(text):
            before = position
            position = self._skip(text, position) if self._until else self._step(text, position)
            if position == before:
                break  # wait for the next piece
        self._rest = text[position:]

    def close(self) -> bool:
        """Return whether the document is complete: every element is closed."""
        whole = not self._until and not self._stack and "<" not in self._rest
        self._rest = ""
        return whole

    def _step(self, text: str, position: int) -> int:
        """Read up to the end of the next tag or mark; return the new position."""
        step = _STEP.match(text, position)
        if step is None:
            return self._read_fragment(text, position)
        before, slash, name, attributes, mark = step.groups()
        mark = mark and mark.upper()
        until = _ENDS.get(mark, "")
        if mark == "!DOCTYPE":
            more = _DOCTYPE_CONTENT.search(text, step.end())
            if more is None and len(text) - step.end() < _MOST_TAG_CHARS:
                return position  # the next piece shows whether it has definitions
            until = "]>" if more is not None and more[0] == "[" else ">"
        if before:
            self._handler.text(before, False)
        self._until = until
        if name is not None and slash:
            self._end(_local(name))
        elif name is not None:
            self._start(_local(name), attributes)
        return step.end()

    def _read_fragment(self, text: str, position: int) -> int:
        """Read text without a complete tag: no `<`, an invalid `<`, or an unfinished tag."""
        start = text.find("<", position)
        if start < 0:
            cut = text.rfind("&", max(position, len(text) - 12))  # a reference may be cut
            start = len(text) if cut < 0 else cut
            if start > position:
                self._handler.text(text[position:start], False)
            return start
        if start > position:
            self._handler.text(text[position:start], False)
            return start
        rest = len(text) - start
        other = text.find("<", start + 1)
        if other < 0 and (
            rest < _LONGEST_MARK or (rest < _MOST_TAG_CHARS and _may_begin(text[start + 1]))
        ):
            return position
        self._count_fault()
        self._handler.text("\ufffd", True)
        return start + 1

    def _skip(self, text: str, position: int) -> int:
        """Search the end of a comment, a section or an instruction."""
        end = text.find(self._until, position)
        section = self._until == "]]>"
        stop = end if end >= 0 else max(position, len(text) - len(self._until) + 1)
        if section and stop > position:
            self._handler.text(text[position:stop], True)
        if end < 0:
            return stop
        end += len(self._until)
        self._until = ""
        return end

    def _start(self, name: str, attributes: str) -> None:
        parent = self._stack[-1] if self._stack else ""
        self._handler.start(name, parent, attributes)
        if attributes.endswith("/"):
            self._handler.end(name, parent)
            return
        if len(self._stack) >= MOST_DEPTH:
            raise ValueError("nested too deeply")
        self._stack.append(name)

    def _end(self, name: str) -> None:
        if name not in self._stack:
            self._count_fault()
            return
        while True:
            open_name = self._stack.pop()
            self._handler.end(open_name, self._stack[-1] if self._stack else "")
            if open_name == name:
                return
            self._count_fault()

    def _count_fault(self) -> None:
        self.faults += 1
        if self.faults > MOST_FAULTS:
            raise ValueError("not XML: too many faults")


def attributes_of(written: str) -> dict[str, str]:
    """Return the attributes of a tag, by their names as written."""
    return {
        name: plain_text(double or single)[0]
        for name, double, single in _ATTRIBUTE.findall(written)
    }


def plain_text(text: str) -> tuple[str, bool]:
    """Return the text with resolved references, and whether all of them are known."""
    if "&" not in text:
        return text, True
    all_known = _UNKNOWN_REFERENCE.search(_REFERENCE.sub("", text)) is None
    return _REFERENCE.sub(_character, text), all_known


def _character(match: re.Match[str]) -> str:
    if match[3]:
        return _CHARACTERS[match[3]]
    number = int(match[1]) if match[1] else int(match[2], 16)
    if number == 0 or number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        return "\ufffd"
    return chr(number)


def _may_begin(char: str) -> bool:
    return char.isalpha() or char in "/!?_"


def _local(name: str) -> str:
    return name.rpartition(":")[2].lower()
