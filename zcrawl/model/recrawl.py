"""The part of a job spec that says how the job is crawled again, and its checks.

`spec` has it as `recrawl`; `validate` calls `check_recrawl`. Pure. docs/recrawl.md tells the story.
"""

import math
from typing import Final

import msgspec

from zcrawl.errors import JobError

LONGEST_INTERVAL_S: Final = 10 * 366 * 86_400.0


class Recrawl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a new run of the same job makes of the pages that earlier ones have found."""

    incremental: bool = False  # pages are remembered, and only changed ones are kept again
    interval: float = 86_400.0  # seconds until a page is looked at again, at first
    min_interval: float = 3_600.0  # of pages that change
    max_interval: float = 2_592_000.0  # of pages that do not


def check_recrawl(recrawl: Recrawl, crawls: bool) -> None:
    """Raise JobError for values that have the right type and still make no sense. `crawls`: the
    job is a crawl; tasks of other jobs have to be done in every run."""
    if recrawl.incremental and not crawls:
        raise JobError("recrawl.incremental is for crawls; this job's kind has no pages")
    for key in ("interval", "min_interval", "max_interval"):
        value = getattr(recrawl, key)
        if not (math.isfinite(value) and 0 <= value <= LONGEST_INTERVAL_S):
            raise JobError(f"recrawl.{key} is {value}; it must be seconds from 0 to ten years")
    if not recrawl.min_interval <= recrawl.interval <= recrawl.max_interval:
        raise JobError(
            f"recrawl.interval is {recrawl.interval}; it must lie between min_interval "
            f"({recrawl.min_interval}) and max_interval ({recrawl.max_interval})"
        )
