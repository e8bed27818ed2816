"""Match names with patterns that contain `*`, from filters and the masters' list of keys.

Used by the mesh (which names a worker's key may use) and by filters of logs. Pure.
"""

from __future__ import annotations


def matches(text: str, pattern: str) -> bool:
    """Return whether `pattern` matches the whole text; * matches any characters. Clients write the
    pattern, so it is not compiled, and the time stays linear."""
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
