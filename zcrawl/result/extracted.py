"""What an extraction tells besides its items, as rows and tallies of a change.

Called by `plan`. Pure. Counts and names come from a worker, so they are bounded here.
"""

from __future__ import annotations

from typing import Final

from zcrawl.mesh.messages import Extracted
from zcrawl.model.states import Kept
from zcrawl.store.rules import MOST_DETAIL

MOST_ROWS: Final = 10_001  # as many items as a page can have, and why there are no more
MOST_FIELDS: Final = 500  # as many as a block can have
MOST_REASONS: Final = 50
MOST_NAME: Final = 200  # characters
MOST_COUNT: Final = 1_000_000
_KINDS: Final = ("filled", "empty", "unread")


def others_of(extracted: Extracted | None) -> tuple[tuple[Kept, bytes], ...]:
    if extracted is None:
        return ()
    rows = [(Kept.REJECTED, data) for data in extracted.rejected[:MOST_ROWS]]
    rows += [(Kept.PROBLEM, data) for data in extracted.problems[:MOST_ROWS]]
    if extracted.capture is not None:
        rows.append((Kept.CAPTURE, extracted.capture))
    return tuple(rows)


def tallies_of(extracted: Extracted | None) -> tuple[tuple[str, str, int], ...]:
    """(kind, name, count): how often each field was filled, empty or unreadable, and why items
    were set aside."""
    if extracted is None:
        return ()
    tallies = [
        (kind, name[:MOST_NAME], min(count, MOST_COUNT))
        for name, counts in list(extracted.fields.items())[:MOST_FIELDS]
        for kind, count in zip(_KINDS, counts, strict=True)
        if count
    ]
    tallies += [
        ("rejected", reason[:MOST_NAME], min(count, MOST_COUNT))
        for reason, count in list(extracted.reasons.items())[:MOST_REASONS]
    ]
    return tuple(tallies)


def examples_of(extracted: Extracted | None) -> tuple[tuple[str, str], ...]:
    """(reason, what is wrong with the first item) for each reason that `tallies_of` counts."""
    if extracted is None or not extracted.reasons:
        return ()
    return tuple(
        (reason[:MOST_NAME], extracted.examples.get(reason, "")[:MOST_DETAIL])
        for reason in list(extracted.reasons)[:MOST_REASONS]
    )
