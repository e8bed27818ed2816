"""Suggest names for a misspelt one: "did you mean …".

Called only for unknown names, so `difflib` is loaded only after a mistake. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

MAX_LENGTH: Final = 100  # characters; nobody misspells a longer name, and difflib takes seconds
MAX_NAMES: Final = 1_000  # that are compared


def near_names(name: str, names: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return up to `most` of `names` that look like `name`, the nearest first."""
    import difflib

    if len(name) > MAX_LENGTH:
        return []
    candidates = [text for text in islice(names, MAX_NAMES) if len(text) <= MAX_LENGTH]
    return difflib.get_close_matches(name, candidates, n=most, cutoff=cutoff)
