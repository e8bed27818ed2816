"""Names with `*` in them, as people type them into filters and into the masters' list of keys.

Used by the mesh (which names a worker's key may use) and by filters of logs. Pure.
"""

from __future__ import annotations


def matches(text: str, pattern: str) -> bool:
    """Whether `pattern` is the whole text, with * for any characters. A client may write the
    pattern, so nothing is compiled, and no part of the text is looked at twice."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    *middle, last = rest
    if not text.startswith(first):
        return False
    position = len(first)
    for part in middle:
        place = text.find(part, position)
        if place < 0:
            return False
        position = place + len(part)
    return len(text) - position >= len(last) and text.endswith(last)
