"""The result of a page that was read: by the job's rules, without any, or by a plugin.

Called by `pipeline_loop`. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from zcrawl.mesh.messages import Assignment, Page, Result
from zcrawl.worker.outcome import RunContext, default_item, done, done_with
from zcrawl.worker.pages import as_message

if TYPE_CHECKING:
    from zcrawl.parse.extract import Extracted as Found


def read(
    one: Assignment,
    context: RunContext,
    page: Page,
    status: int,
    links: list[tuple[str, bytes]],
    crawl_delay_s: float,
    rejected: dict[str, int],
    found: Found | None,
    capture: bytes | None,
    trapped: list[tuple[str, bytes, str]],
) -> Result:
    """A page that zcrawl has read, by the job's rules or without any."""
    if context.plan is None and capture is None:
        result = done(one, page, status, links, crawl_delay_s, rejected)
        return msgspec.structs.replace(result, trapped=trapped) if trapped else result
    items, labels = (found.items, found.labels) if found is not None else ([], {})
    if context.plan is None:
        items = [default_item(one, page, status)]
    told = as_message(found, capture)
    result = done_with(one, page, status, items, links, crawl_delay_s, rejected, labels, told)
    return msgspec.structs.replace(result, trapped=trapped) if trapped else result


def with_capture(result: Result, capture: bytes | None) -> Result:
    """The result of a page that a spider or plugin has read, with its exchange for archives."""
    if capture is None or result.page is None:
        return result
    return msgspec.structs.replace(result, extracted=as_message(None, capture))
