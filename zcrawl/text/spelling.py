"""What somebody may have meant who wrote a name wrongly: "did you mean …".

Called where a name is not known, so `difflib` is loaded after a mistake only. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable


def near_names(name: str, names: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return up to `most` of `names` that look like `name`, the nearest first."""
    import difflib

    return difflib.get_close_matches(name, list(names), n=most, cutoff=cutoff)
