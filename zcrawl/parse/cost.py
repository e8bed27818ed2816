"""Decide where a page is parsed: in the event loop, in a thread, or in a child process.

Called by `parse.page` in a worker; in a child process `parse.page` runs without it.
Pure: the clock comes in.

    place    which pages                                      why there
    loop     ordinary ones                                    the cheapest; lexbor takes < 35 ms
    thread   up to 512 KB and 30,000 tags, if no element      lexbor runs without the interpreter's
             can be copied many times                         lock, 1.5 s at most; the loop turns
    child    all others (`TooCostly`)                         it can be killed, memory is bounded

lexbor cannot be interrupted, so its time is estimated before it starts, from its known slow cases.
Figures are of a 2-core machine; each limit keeps its kind below 35 ms:

    anything in 3,000 bytes                                                   at most 13 ms
    n formatting elements (<b>, <font> ...) that stay open while m blocks     n x m x 0.3 us
    begin: each block gets copies of all of them, with their attributes       + 0.1 us an attribute
    <a> is one of them, of which one at most is open: the longest one counts
    nested elements: each <li>, <div>, </x> looks through all open ones       tags^2 x 1.7 ns
    attributes of one tag: each is compared with those before it              attributes^2 x 2 ns
    repeated <body> and <html>: their attributes are added to the first one   as if one tag had them
    a fingerprint of words that never repeat                                  0.3 us a byte
    a selector of a job, see `SelectorCost`

Copies take memory too: a page of 100 KB can create 100 million elements. So the limit on copies
also holds in a thread.

`parse.tags` collects the statistics of the tags in one pass.

The rest (links, fields, items) is Python, and checks a `TimeBudget` between its steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple

import msgspec
from selectolax.lexbor import LexborHTMLParser

from zcrawl.parse.tags import Survey, count_attributes
from zcrawl.text.patterns import lazy_pattern

try:
    from zcrawl.parse._tags import survey
except ImportError:  # there was no compiler where zcrawl was installed
    from zcrawl.parse.tags_in_python import survey

INLINE_BYTES: Final = 128 * 1024
THREAD_BYTES: Final = 512 * 1024
INLINE_FINGERPRINT_BYTES: Final = 64 * 1024
HARMLESS_BYTES: Final = 3_000
SHORT_BYTES: Final = 16_000  # as one tag, or nested, it takes 27 ms at most
MOST_TAGS: Final = 4_750  # nested: 35 ms
THREAD_TAGS: Final = 30_000  # nested: 1.5 s
MOST_TAGS_SELECTED: Final = 2_000  # on pages that selectors of a job search
MOST_COPIES_MS: Final = 25.0
THREAD_COPIES_MS: Final = 100.0  # 300,000 elements: 60 MB
MOST_DEPTH: Final = 32  # of pages that are searched by selectors with several steps
MOST_STEPS: Final = 3

_COPY_MS: Final = 0.0003
_COPIED_ATTRIBUTE_MS: Final = 0.0001
_SAME: Final = 3  # equal formatting elements that can be open at once (the "Noah's Ark clause")
_MOST_SQUARES: Final = 6_000_000  # of the attributes of long tags
_MOST_ROOTS: Final = 3  # <html> and <body> tags
_ROOTS: Final = (b"body", b"html")

_DEEPER: Final = " > ".join("*" * (MOST_DEPTH + 1))


class TooCostly(Exception):
    """The page must be parsed in a child process. The text says what is too large."""


class ParsePlace(Enum):
    """The place in the worker's own process where a page is parsed."""

    LOOP = "loop"
    THREAD = "thread"


class Judgement(NamedTuple):
    """The decision about a page before it is parsed."""

    place: ParsePlace
    only_a: bool = False  # only <a> elements have links, and no element changes their base
    tags: int | None = None  # how many there are at most; None: not counted


class TimeBudget:
    """The CPU time that one page may take in the event loop, including the parser.

    The system call for CPU time costs 30 times as much as the clock. So the first half of the
    budget is measured by the clock, which never shows less than the CPU time. Only a page that
    takes longer reads the CPU time: it gets the rest of its budget, and at least a quarter of it,
    because the machine may have given the time to others.
    """

    __slots__ = ("_clock", "_cpu_clock", "_cpu_until", "_seconds", "_until")

    def __init__(
        self, clock: Callable[[], float], cpu_clock: Callable[[], float], seconds: float
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._seconds = seconds
        self._until = 0.0  # the end of the first half
        self._cpu_until: float | None = None  # the end of the rest, once that began

    def begin(self) -> None:
        """Start the budget before the parser runs, whose own time is bounded by the estimate."""
        self._until = self._clock() + self._seconds / 2
        self._cpu_until = None

    def check(self) -> None:
        """Raise TooCostly if the budget is used up. Called between two short steps."""
        late_s = self._clock() - self._until
        if late_s <= 0:
            return
        if self._cpu_until is None:
            rest_s = max(self._seconds / 2 - late_s, self._seconds / 4)
            self._cpu_until = self._cpu_clock() + rest_s
        elif self._cpu_clock() > self._cpu_until:
            raise TooCostly("time")


class SelectorCost(msgspec.Struct, frozen=True):
    """The cost of a job's selectors for the worst page.

    `steps`: the most descendant combinators in one selector. Lexbor goes back and tries again, so
    `x div div` looks at each pair of nested <div>: 2 s for 5,000 bytes. With one step it is the
    square of the tags (7 ns), with more the power of the depth.
    `wide`: how often one selector compares siblings (`~`, `:nth-child`) or searches inside an
    element (`:has`): each time it takes the square of the tags.
    """

    steps: int = 0
    wide: int = 0


_WIDE: Final = lazy_pattern(r"~(?!=)|:(?:has|nth-)", re.IGNORECASE)
_NOT_A_STEP: Final = lazy_pattern(r"\"[^\"]*\"|'[^']*'|\[[^\]]*\]|\s*[>+~]\s*|\s*,\s*")


def selector_cost(selector: str) -> SelectorCost:
    """Return the cost of one selector, at most."""
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


def judge(markup: bytes, fingerprint: bool, selectors: SelectorCost | None) -> Judgement:
    """Decide where to parse this markup. Raise TooCostly if lexbor or a job's selectors may take
    too long for it, or may need too much memory."""
    size = len(markup)
    if size > (INLINE_FINGERPRINT_BYTES if fingerprint else THREAD_BYTES):
        raise TooCostly(f"{size} bytes")
    if selectors is not None:
        _check_selectors(size, selectors)
    if size <= HARMLESS_BYTES:
        return Judgement(ParsePlace.LOOP)
    seen = Survey._make(survey(markup))
    if seen.quoted_bracket:
        raise TooCostly("a quoted >")
    if seen.tags > (THREAD_TAGS if selectors is None else MOST_TAGS_SELECTED):
        raise TooCostly(f"{seen.tags} tags")
    if seen.squares > _MOST_SQUARES:
        raise TooCostly("a tag with very many attributes")
    copies_ms = _copies_ms(size, seen)
    if (
        size <= INLINE_BYTES
        and (seen.tags <= MOST_TAGS or size <= SHORT_BYTES)
        and copies_ms <= MOST_COPIES_MS
    ):
        return Judgement(ParsePlace.LOOP, not seen.references, seen.tags)
    if copies_ms > THREAD_COPIES_MS or selectors is not None or fingerprint:
        raise TooCostly(f"{size} bytes, {seen.tags} tags, {copies_ms:.0f} ms for copied elements")
    return Judgement(ParsePlace.THREAD)


def _check_selectors(size: int, selectors: SelectorCost) -> None:
    steps, wide = selectors.steps, selectors.wide
    if steps > MOST_STEPS or wide > 1 or (wide and (steps or size > HARMLESS_BYTES)):
        raise TooCostly(f"a selector of {steps} steps that compares {wide} times")


def check_depth(tree: LexborHTMLParser, selectors: SelectorCost) -> None:
    """Raise TooCostly for selectors of several steps on a deeply nested tree."""
    if selectors.steps > 1 and tree.css_first(_DEEPER) is not None:
        raise TooCostly(f"a selector of {selectors.steps} steps, nested elements")


def _copies_ms(size: int, seen: Survey) -> float:
    """Return the longest time for copying formatting elements: all that may be open are open, and
    every tag begins a block, except those of closed elements."""
    distinct = {tag for tag in seen.open_tags if tag[:4].lower() not in _ROOTS}
    if size > SHORT_BYTES:
        roots = sum(1 for tag in seen.open_tags if tag not in distinct)
        if roots > _MOST_ROOTS:
            raise TooCostly("repeated <body> tags")
    attributes = _SAME * sum(map(count_attributes, distinct)) + seen.longest_link
    block_ms = _SAME * len(distinct) * _COPY_MS + attributes * _COPIED_ATTRIBUTE_MS
    return block_ms * (seen.tags - 2 * seen.closed)
