"""Proves of a large page that it is plain: no element stays open that its author did not mean to.

Called by `parse.cost` for pages that have more tags or bytes than are harmless in any order, so
that long pages of manuals need no child process. Pure. It takes 0.3 us a tag, and only one page in
a hundred needs it.

A page is plain if every `<` begins a tag, a comment or a doctype that nobody can read in two ways:
values are in double quotes, directly behind a name and `=`, without `<` and `>`; there are no other
quotes and no other `=`, so no `>` is part of a value. Then starts and ends are followed with a
stack on which an end tag takes away only its own start, and only from the top. HTML closes more
than that (an end tag closes what is open within, a <p> closes a <p>), so the stack here is at least
as deep as lexbor's, but for a few elements that HTML adds by itself (<tbody>); and every formatting
element that lexbor still has to copy is still on it.
"""

from __future__ import annotations

import re
from typing import Final

MOST_BYTES: Final = 512 * 1024
MOST_TAGS: Final = 15_000
MOST_MS: Final = 20.0

_TAG: Final = re.compile(
    rb"<(?:(/?)([a-z][a-z0-9]*)(?=[\s/>])([^<>\"'=]*(?:(?<=[\w:-])=\"[^\"<>]*\"[^<>\"'=]*)*)"
    rb"|!--[^<>]*--|!DOCTYPE[^<>'\"]*(?:\"[^<>\"]*\"[^<>'\"]*)*|\?xml [^<>]*\?)>"
)
_VOID: Final = frozenset(
    (b"area", b"base", b"br", b"col", b"embed", b"hr", b"img", b"input", b"link", b"meta")
)
_FORMATTING: Final = frozenset(
    (
        b"a",
        b"b",
        b"big",
        b"code",
        b"em",
        b"font",
        b"i",
        b"nobr",
        b"s",
        b"small",
        b"strike",
        b"strong",
        b"tt",
        b"u",
    )
)
_ROOTS: Final = frozenset((b"html", b"body"))
_ADDED: Final = 10  # elements that HTML adds by itself
_LOOKED_AT_MS: Final = 0.0000034  # an open element that a tag looks at
_COPIED_ATTRIBUTE_MS: Final = 0.0001  # an element itself counts as three
_COMPARED_MS: Final = 0.000002  # an attribute with each of the others of its tag, on average
_SHORT: Final = 150  # bytes of attributes that are not worth counting


def is_plain(markup: bytes) -> bool:
    """Whether lexbor parses it in time, for certain. False: it cannot be told."""
    tags = markup.count(b"<")
    if len(markup) > MOST_BYTES or tags > MOST_TAGS:
        return False
    found = _TAG.findall(markup)
    if len(found) != tags:
        return False
    deepest = most_copied = roots = squares = 0
    copied = 0  # weight of the formatting elements that are open
    names: list[bytes] = []
    weights: list[int] = []  # of those among them that are formatting elements
    for slash, name, attributes in found:
        if slash:
            if names and names[-1] == name:
                del names[-1]
                if name in _FORMATTING:
                    copied -= weights.pop()
            continue
        if not name or name in _VOID:
            continue
        names.append(name)
        if len(names) > deepest:
            deepest = len(names)
        if len(attributes) > _SHORT:
            squares += len(attributes.split()) ** 2
        if name in _FORMATTING:
            weight = 3 + len(attributes.split())
            weights.append(weight)
            copied += weight
            if copied > most_copied:
                most_copied = copied
        elif name in _ROOTS:
            roots += 1
    looks_ms = tags * 2 * (deepest + _ADDED) * _LOOKED_AT_MS
    copies_ms = tags * most_copied * _COPIED_ATTRIBUTE_MS
    return roots <= 2 and looks_ms + copies_ms + squares * _COMPARED_MS <= MOST_MS
