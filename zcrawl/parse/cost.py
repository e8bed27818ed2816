"""Decides which pages may be parsed inside the event loop, and stops what takes too long there.

Called by `parse.page` when it runs in a worker's loop; the same code in a child process runs
without it. Pure: the clock comes in. A page that is refused here (`TooCostly`) is parsed again,
from its beginning, in the child (`page_children_os`), which can be killed.

Nothing can interrupt lexbor, so the time of its parser is bounded before it starts, by what it is
known to be slow at. Figures are of a 2-core machine; each limit keeps its kind below 35 ms:

    anything in 3,000 bytes                                                   at most 13 ms
    n formatting elements (<b>, <font> ...) that stay open while m blocks     n x m x 0.3 us
    begin: each block gets copies of all of them, with their attributes       + 0.1 us an attribute
    <a> is one of them, of which one at most is open: a long one is looked for
    nested elements: each <li>, <div>, </x> looks through all open ones       tags^2 x 1.7 ns
    attributes of one tag: each is compared with those before it              attributes^2 x 2 ns
    repeated <body> and <html>: their attributes are added to the first one   as if one tag had them
    a fingerprint of words that never repeat                                  0.3 us a byte
    a selector of a job, see `SelectorCost`

Ends of elements are not counted: `</b>` in the wrong place ends nothing, so whoever trusts them is
told that a page is flat. Only <code>text</code> and the like are certainly closed. A `>` in a
quoted value ends no tag: a long tag can look like many short ones, or its attributes like text
behind it. The first is found by looking at places that its author cannot foresee (`chance`): from
among its attributes the next `>` is quoted. Of tags with 5,000 attributes (40 ms) fewer than one in
a million is missed. The second is found by the quote before the last `>`: it begins a value.

What has more of something than is harmless in any order may still be harmless in its own: long
pages of manuals are. `plain_markup` proves that, but the proof takes longer than parsing. So it is
tried for the first such pages only (`Proofs`): a crawl with few of them needs no child (80 ms of
CPU to start), and one with many has them parsed there.

The rest (links, fields, items) is Python, and asks a `Budget` between its steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from selectolax.lexbor import LexborHTMLParser

from zcrawl.parse.plain_markup import MOST_BYTES, is_plain

Chance = Callable[[], float]  # a random number from 0 to 1 that no page's author can know

INLINE_BYTES: Final = 128 * 1024  # more only if the page is plain
MOST_INLINE_BYTES: Final = MOST_BYTES
INLINE_FINGERPRINT_BYTES: Final = 64 * 1024
HARMLESS_BYTES: Final = 3_000
SHORT_BYTES: Final = 16_000  # as one tag, or nested, it takes 27 ms at most
MOST_TAGS: Final = 4_750  # nested: 35 ms
MOST_TAGS_SELECTED: Final = 2_000  # on pages that selectors of a job search
MOST_COPIES_MS: Final = 25.0
MOST_DEPTH: Final = 32  # of pages that are searched by selectors with several steps
MOST_STEPS: Final = 3

_COPY_MS: Final = 0.0003
_COPIED_ATTRIBUTE_MS: Final = 0.0001
_SAME: Final = 3  # equal formatting elements that can be open at once (the "Noah's Ark clause")
_SHORTEST_BLOCK: Final = 4  # bytes: <p>x
_BETWEEN_SAMPLES: Final = 1_024  # bytes, on average
_WINDOW: Final = 512  # a tag of twice that length is seen
_MANY_BLOCKS: Final = 1_000  # on pages with more tags, those of a quarter of it: 300 in 1,000 bytes
_BACK: Final = 1_024  # bytes of white space that may stand between `=` and a quote
_MOST_SQUARES: Final = 6_000_000  # of the attributes of long tags
_MOST_ROOTS: Final = 3  # <html> and <body> tags

# An element with nothing but text in it, and attributes that nobody can misread, is closed for
# sure: its end tag meets it as the current node. All others are listed, also <html> and <body>.
_OPEN: Final = re.compile(
    rb"<(?![/apdl!]|t[^tT])(?:code(?:>| class=\"[^\"<>]*\">)[^<]*</code>"
    rb"|em(?:>| class=\"[^\"<>]*\">)[^<]*</em>"
    rb"|strong(?:>| class=\"[^\"<>]*\">)[^<]*</strong>"
    rb"|b(?:>| class=\"[^\"<>]*\">)[^<]*</b>"
    rb"|((?:[biusBIUS]|[eE][mM]|[tT][tT]"
    rb"|[bB][iI][gG]|[cC][oO][dD][eE]|[fF][oO][nN][tT]|[nN][oO][bB][rR]|[sS][mM][aA][lL][lL]"
    rb"|[sS][tT][rR](?:[iI][kK][eE]|[oO][nN][gG])|[bB][oO][dD][yY]|[hH][tT][mM][lL])"
    rb"(?:[\s/][^>]*|(?=>))))"
)
_ROOTS: Final = (b"body", b"html")
_DEEPER: Final = " > ".join("*" * (MOST_DEPTH + 1))


class TooCostly(Exception):
    """Not here: this page belongs into a child process. The text says what it has too much of."""


class Proofs:
    """How many pages may still be proved plain; one for each worker process."""

    __slots__ = ("left",)

    def __init__(self, left: int = 20) -> None:
        self.left = left


class Budget:
    """The time that one page may take inside the event loop, parser and all."""

    __slots__ = ("_clock", "_seconds", "_until", "chance", "proofs")

    def __init__(
        self, clock: Callable[[], float], seconds: float, chance: Chance, proofs: Proofs
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self.chance = chance
        self.proofs = proofs
        self._until = 0.0

    def begin(self) -> None:
        """From here on, with the parser, whose own time is bounded before it starts."""
        self._until = self._clock() + self._seconds

    def check(self) -> None:
        """Called between two steps, each of them short. Raises TooCostly."""
        if self._clock() > self._until:
            raise TooCostly("time")


class SelectorCost(msgspec.Struct, frozen=True):
    """What the selectors of a job can cost, whatever the page.

    `steps`: the most descendant combinators in one selector. Lexbor goes back and tries again, so
    `x div div` looks at each pair of nested <div>: 2 s for 5,000 bytes. With one step it is the
    square of the tags (7 ns), with more the power of the depth.
    `wide`: how often one selector compares brothers (`~`, `:nth-child`) or looks into an element
    (`:has`): each time it is the square of the tags.
    """

    steps: int = 0
    wide: int = 0


_WIDE: Final = re.compile(r"~(?!=)|:(?:has|nth-)", re.IGNORECASE)
_NOT_A_STEP: Final = re.compile(r"\"[^\"]*\"|'[^']*'|\[[^\]]*\]|\s*[>+~]\s*|\s*,\s*")


def selector_cost(selector: str) -> SelectorCost:
    """Of one selector; counts too much rather than too little."""
    bare = _NOT_A_STEP.sub(lambda match: "," if "," in match[0][:2] else ">", selector.strip())
    parts = [bare] if "(" in bare else bare.split(",")
    return SelectorCost(
        max(max(0, len(part.split()) - 1) for part in parts), len(_WIDE.findall(selector))
    )


def greatest(costs: Iterable[SelectorCost]) -> SelectorCost:
    steps = wide = 0
    for cost in costs:
        steps, wide = max(steps, cost.steps), max(wide, cost.wide)
    return SelectorCost(steps, wide)


def check_markup(
    markup: bytes,
    fingerprint: bool,
    selectors: SelectorCost | None,
    chance: Chance,
    proofs: Proofs,
) -> None:
    """Raises TooCostly for markup that may take lexbor, or a job's selectors, too long."""
    try:
        _check_bounds(markup, fingerprint, selectors, chance)
    except TooCostly:
        if (
            fingerprint
            or selectors is not None
            or len(markup) > MOST_INLINE_BYTES
            or proofs.left <= 0
            or _long_tags(markup, _WINDOW)[0] > _MOST_SQUARES
        ):
            raise
        proofs.left -= 1
        if not is_plain(markup):
            raise


def _check_bounds(
    markup: bytes, fingerprint: bool, selectors: SelectorCost | None, chance: Chance
) -> None:
    size = len(markup)
    if size > (INLINE_FINGERPRINT_BYTES if fingerprint else INLINE_BYTES):
        raise TooCostly(f"{size} bytes")
    if selectors is not None:
        _check_selectors(size, selectors)
    if size <= HARMLESS_BYTES:
        return
    tags = markup.count(b"<")
    most_tags = MOST_TAGS if selectors is None else MOST_TAGS_SELECTED
    if tags > most_tags and (size > SHORT_BYTES or selectors is not None):
        raise TooCostly(f"{tags} tags")
    listed = _OPEN.findall(markup)
    copies_ms = _copies_ms(set(listed))
    if copies_ms * (size // _SHORTEST_BLOCK) > MOST_COPIES_MS:
        # A closed element begins no block, nor does its end.
        blocks = tags - 2 * listed.count(b"")
        if copies_ms * blocks > MOST_COPIES_MS:
            raise TooCostly(f"formatting elements that may be open in {blocks} blocks")
    if size > SHORT_BYTES and sum(1 for tag in listed if tag[:4].lower() in _ROOTS) > _MOST_ROOTS:
        raise TooCostly("repeated <body> tags")
    _check_attributes(markup, tags, chance)


def _check_selectors(size: int, selectors: SelectorCost) -> None:
    steps, wide = selectors.steps, selectors.wide
    if steps > MOST_STEPS or wide > 1 or (wide and (steps or size > HARMLESS_BYTES)):
        raise TooCostly(f"a selector of {steps} steps that compares {wide} times")


def check_depth(tree: LexborHTMLParser, selectors: SelectorCost) -> None:
    """Raises TooCostly for selectors of several steps on a tree that nests deep."""
    if selectors.steps > 1 and tree.css_first(_DEEPER) is not None:
        raise TooCostly(f"a selector of {selectors.steps} steps, nested elements")


def _copies_ms(formatting: set[bytes]) -> float:
    """What one block costs at most, if all these elements are open and copied into it."""
    attributes = 0
    formatting.discard(b"")  # those that are closed
    for tag in formatting:
        if b'"' in tag or b"'" in tag:
            if _ends_in_quotes(tag):
                raise TooCostly("a formatting element with a quoted >")
            attributes += tag.count(b"=") + len(tag.split())
        else:
            attributes += len(tag.split()) + tag.count(b"/")
    return _SAME * (len(formatting) * _COPY_MS + attributes * _COPIED_ATTRIBUTE_MS)


def _ends_in_quotes(tag: bytes) -> bool:
    """Whether its last quote may begin a value: then the `>` behind it did not end the tag."""
    for quote in (b'"', b"'"):
        before, found, _ = tag.rpartition(quote)
        if found and before.rstrip().endswith(b"="):
            return True
    return False


def _check_attributes(markup: bytes, tags: int, chance: Chance) -> None:
    finer = 4 if tags > _MANY_BLOCKS else 1
    squares, longest_link = _long_tags(markup, _WINDOW // finer)
    if squares > _MOST_SQUARES:
        raise TooCostly("a tag with very many attributes")
    if longest_link * tags * _COPIED_ATTRIBUTE_MS > MOST_COPIES_MS:
        raise TooCostly(f"a link with {longest_link} attributes that may be open in {tags} blocks")
    between = _BETWEEN_SAMPLES // finer
    at = int(chance() * between)
    while (end := markup.find(b">", at)) >= 0:
        if _ends_in_quotes(markup[at:end]):
            raise TooCostly("a quoted >")
        # Each step by itself: quoted values at regular distances would hide from regular steps.
        at += 1 + int(chance() * 2 * between)


def _long_tags(markup: bytes, window: int) -> tuple[int, int]:
    """The squares of the attributes of all long tags, added up, and the most attributes of an <a>;
    rather too much than too little. Only stretches without any `>` are looked at: ordinary markup
    has one in nearly every window."""
    total, most, at, end = 0, 0, 0, len(markup)
    while at < end:
        if markup.find(b">", at, at + window) >= 0:
            at += window
            continue
        before = markup.rfind(b">", 0, at)
        stop = markup.find(b">", at)
        stop = end if stop < 0 else stop
        hidden = _is_quoted(markup, before)
        begin = before + 1 if hidden else markup.find(b"<", before + 1)
        if 0 <= begin < stop:
            tag = markup[begin:stop]
            attributes = len(tag.split()) + tag.count(b"/") + tag.count(b"=")
            total += attributes * attributes
            if hidden or b"<a" in tag or b"<A" in tag:
                most = max(most, attributes)
        at = stop + 1
    return total, most


def _is_quoted(markup: bytes, place: int) -> bool:
    """Whether the `>` there may be in a quoted value: then what follows it are attributes."""
    for quote in (b'"', b"'"):
        at = markup.rfind(quote, 0, max(0, place))
        if at > 0 and markup[max(0, at - _BACK) : at].rstrip()[-1:] in (b"=", b""):
            return True
    return False
