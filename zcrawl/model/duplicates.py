"""The part of a job spec that says what becomes of pages whose text is almost another's.

`spec` has it as `duplicates`; `validate` calls `check_duplicates`. Pure. docs/recrawl.md explains.
"""

from typing import Final

import msgspec

from zcrawl.errors import JobError

OFF: Final = "off"
MARK: Final = "mark"
SKIP: Final = "skip"
CHOICES: Final = (OFF, MARK, SKIP)
MOST_DISTANCE: Final = 6  # beyond that pages that are not alike would be taken for copies


class Duplicates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    near: str = OFF  # off | mark: items name the first page | skip: the page is not kept
    distance: int = 5  # in how many of 64 bits the fingerprints of two texts may differ


def check_duplicates(duplicates: Duplicates) -> None:
    """Raise JobError for values that have the right type and still make no sense."""
    if duplicates.near not in CHOICES:
        raise JobError(f"duplicates.near is {duplicates.near!r}; use one of {', '.join(CHOICES)}")
    if not 0 <= duplicates.distance <= MOST_DISTANCE:
        raise JobError(
            f"duplicates.distance is {duplicates.distance}; it must be 0 to {MOST_DISTANCE} "
            "(of 64 bits)"
        )
