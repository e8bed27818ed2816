"""Suggest names for a misspelt one: "did you mean …".

Called only for unknown names, so `difflib` is loaded only after a mistake. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable


def near_names(name: str, names: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return up to `most` of `names` that look like `name`, the nearest first."""
    import difflib

    return difflib.get_close_matches(name, list(names), n=most, cutoff=cutoff)
