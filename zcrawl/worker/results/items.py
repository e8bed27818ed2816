"""Items of a page: made by the job's extraction rules, held to the job's schema.

What a fetched page comes to, for jobs that extract: facts for the plan, its answer as messages.

Called by `pipeline.pipeline` and `outcome`. Pure.

Holds items that spiders, parsers and executors made to the schema that their job states.

Called by `extensions.extensions`. Pure. Items by rules are checked where they are extracted, in
`parse.extract.plan`. One that breaks the schema is set aside with the reason, never lost.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from zcrawl.mesh.messages import Assignment, Extracted, Result
from zcrawl.model.reasons.skip import schema_broken
from zcrawl.parse.extract.item_schema import MOST_EXAMPLES, Check, describe

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


_encode = msgspec.json.Encoder().encode


def held_to(check: Check | None, result: Result, url: str, maker: str) -> Result:
    """The result with the items that are right; `maker` is who yielded them."""
    if check is None or not result.items:
        return result
    right: list[bytes] = []
    aside: list[bytes] = []
    reasons: dict[str, int] = {}
    examples: dict[str, str] = {}
    for data in result.items:
        item = msgspec.json.decode(data)
        broken = check(item)
        if broken is None:
            right.append(data)
            continue
        where, what = broken
        reason = schema_broken(where)
        reasons[reason] = reasons.get(reason, 0) + 1
        if reason not in examples and len(examples) < MOST_EXAMPLES:
            examples[reason] = describe(item, where, what)
        report: dict[str, Any] = {
            "url": url,
            "block": maker,
            "reason": reason,
            "errors": {where: what},
            "item": msgspec.Raw(data),
        }
        aside.append(_encode(report))
    if not aside:
        return result
    told = result.extracted or Extracted()
    told = msgspec.structs.replace(
        told, rejected=[*told.rejected, *aside], reasons=reasons, examples=examples
    )
    return msgspec.structs.replace(result, items=right, extracted=told)
