"""What a fetched page comes to, for jobs that extract: facts for the plan, its answer as messages.

Called by `pipeline.pipeline` and `outcome`. Pure.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from zcrawl.mesh.messages import Assignment, Extracted

if TYPE_CHECKING:
    from zcrawl.parse.extract.page_facts import PageFacts
    from zcrawl.parse.extract.plan import Extracted as Found


def page_facts(
    one: Assignment,
    final_url: str,
    status: int,
    content_type: str,
    size: int,
    fetched_at: float,
    main: dict[str, Any] | None,
) -> PageFacts:
    from zcrawl.parse.extract.page_facts import PageFacts  # of jobs that extract

    values = {
        "url": one.url,
        "final_url": final_url,
        "status": status,
        "depth": one.depth,
        "parent": one.parent,
        "content_type": content_type,
        "bytes": size,
        "fetched_at": iso(fetched_at),
    }
    return PageFacts(final_url, one.label, values, main)


def iso(at: float) -> str:
    """Return a time in UTC, with milliseconds."""
    second, microseconds = divmod(round(at * 1_000_000), 1_000_000)
    return f"{_second(second)}.{microseconds // 1000:03}Z"


@lru_cache(maxsize=8)
def _second(at: int) -> str:
    """Return a whole second: thousands of pages share it, and the calendar takes 6 us."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")


def as_message(found: Found | None) -> Extracted | None:
    if found is None:
        return None
    return Extracted(
        rejected=found.rejected,
        reasons=found.reasons,
        problems=found.problems,
        fields={name: (n[0], n[1], n[2]) for name, n in found.fields.items()},
        examples=found.examples,
    )
