"""Items of a page: the default one, or by the job's extraction rules, held to the job's schema.

`pipeline.pipeline` and `attempt` call this for pages that zcrawl reads: facts for the plan, its
answer as messages. `extensions.extensions` calls `apply_item_schema` for the items of spiders,
parsers and executors; items by rules are checked where they are extracted, in
`parse.extract.plan`. One that breaks the schema is set aside with the reason, never lost. Pure.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from zcrawl.mesh.messages import Assignment, ExtractionReport, PageRecord
from zcrawl.model.reasons.skip import schema_broken
from zcrawl.parse.extract.item_schema import MOST_EXAMPLES, Check, describe

if TYPE_CHECKING:
    from zcrawl.parse.extract.page_facts import PageContext
    from zcrawl.parse.extract.plan import Extracted
    from zcrawl.worker.results.attempt import Attempt

_encode = msgspec.json.Encoder().encode


class DefaultItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The item of a page when a job has no rules."""

    url: str
    final_url: str
    status: int
    depth: int
    title: str | None
    content_type: str
    bytes: int
    fetched_at: str
    parent: str | None
    screenshot: str | None = None  # blob names, of a browser's pages
    pdf: str | None = None


def default_item(assignment: Assignment, page: PageRecord, status: int) -> bytes:
    item = DefaultItem(
        url=assignment.url,
        final_url=page.final_url,
        status=status,
        depth=assignment.depth,
        title=page.title,
        content_type=page.content_type,
        bytes=page.size,
        fetched_at=iso(page.fetched_at),
        parent=assignment.parent,
        screenshot=page.files.get("screenshot"),
        pdf=page.files.get("pdf"),
    )
    return _encode(item)


def page_facts(
    assignment: Assignment,
    final_url: str,
    status: int,
    content_type: str,
    size: int,
    fetched_at: float,
    main: dict[str, Any] | None,
) -> PageContext:
    from zcrawl.parse.extract.page_facts import PageContext  # of jobs that extract

    values = {
        "url": assignment.url,
        "final_url": final_url,
        "status": status,
        "depth": assignment.depth,
        "parent": assignment.parent,
        "content_type": content_type,
        "bytes": size,
        "fetched_at": iso(fetched_at),
    }
    return PageContext(final_url, assignment.block, values, main)


def iso(at: float) -> str:
    """Return a time in UTC, with milliseconds."""
    second, microseconds = divmod(round(at * 1_000_000), 1_000_000)
    return f"{_second(second)}.{microseconds // 1000:03}Z"


@lru_cache(maxsize=8)
def _second(at: int) -> str:
    """Return a whole second: thousands of pages share it, and the calendar takes 6 us."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")


def as_message(extracted: Extracted | None) -> ExtractionReport | None:
    if extracted is None:
        return None
    return ExtractionReport(
        rejected=extracted.rejected,
        reasons=extracted.reasons,
        problems=extracted.problems,
        fields={name: (n[0], n[1], n[2]) for name, n in extracted.fields.items()},
        examples=extracted.examples,
    )


def apply_item_schema(check: Check | None, attempt: Attempt, maker: str) -> Attempt:
    """Reject the items that break the schema; `maker` is the code that yielded them."""
    if check is None or not attempt.items:
        return attempt
    right: list[bytes] = []
    aside: list[bytes] = []
    reasons: dict[str, int] = {}
    examples: dict[str, str] = {}
    for data in attempt.items:
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
            "url": attempt.assignment.url,
            "block": maker,
            "reason": reason,
            "errors": {where: what},
            "item": msgspec.Raw(data),
        }
        aside.append(_encode(report))
    if aside:
        attempt.items = right
        before = attempt.extracted.rejected if attempt.extracted is not None else []
        attempt.change_extracted(rejected=[*before, *aside], reasons=reasons, examples=examples)
    return attempt
