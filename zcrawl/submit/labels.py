"""Labels of workers, by which jobs are placed. Called by `validate` and `config`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zcrawl.text.patterns import lazy_pattern

MOST_LABELS: Final = 16  # of one worker, and of each list of a job
MOST_CHARACTERS: Final = 32
_LABEL = lazy_pattern(r"[a-z0-9][a-z0-9._-]*")


def label_error(labels: Sequence[str]) -> str:
    """Return what is wrong with these labels; empty if nothing is."""
    if len(labels) > MOST_LABELS:
        return f"has {len(labels)} entries; at most {MOST_LABELS} are allowed"
    for number, label in enumerate(labels, 1):
        if len(label) > MOST_CHARACTERS:
            return f"entry {number} has {len(label)} characters; at most {MOST_CHARACTERS}"
        if not _LABEL.fullmatch(label):
            return (
                f"entry {number}: {label!r} is not a label; use lower-case letters, digits and "
                ". _ -, and begin with a letter or a digit"
            )
        if label in labels[: number - 1]:
            return f"has {label!r} twice; remove one"
    return ""
