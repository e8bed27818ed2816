"""The result of a page that was read: by the job's rules, without any, or by a plugin.

Called by `pipeline.pipeline`. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from zcrawl.errors import ParseError, RetryClass
from zcrawl.fetch.policy import Verdict
from zcrawl.mesh.messages import Assignment, Page, Result, Traits
from zcrawl.model.reasons.failure import SECRET_NOT_RELEASED
from zcrawl.model.reasons.skip import UNCHANGED
from zcrawl.model.reasons.usage import PATH_NOT_ALLOWED
from zcrawl.parse.page import ParsedPage
from zcrawl.worker.results.items import as_message
from zcrawl.worker.results.link_filter import SortedLinks
from zcrawl.worker.results.outcome import (
    MAX_CONTENT_TYPE,
    RunContext,
    clean,
    done,
    done_with,
    failed,
    skipped,
    with_links,
)

if TYPE_CHECKING:
    from zcrawl.parse.extract.plan import Extracted as Found


def of_refused_run(one: Assignment, code: str, detail: str = "") -> Result:
    """Of a run that this worker cannot work on. Another attempt may meet a worker that can; but
    what its operator does not allow stays so."""
    forbidden = code in (SECRET_NOT_RELEASED, PATH_NOT_ALLOWED)
    retry = RetryClass.PERMANENT if forbidden else RetryClass.TRANSIENT
    return failed(one, code, retry, detail=detail)


def read(
    one: Assignment,
    context: RunContext,
    page: Page,
    status: int,
    links: SortedLinks,
    crawl_delay_s: float,
    rejected: dict[str, int],
    found: Found | None,
) -> Result:
    """A page that zcrawl has read, by the job's rules or without any."""
    if context.plan is None:
        result = done(one, page, status, links.followed, crawl_delay_s, rejected)
    else:
        items, labels = (found.items, found.labels) if found is not None else ([], {})
        told = as_message(found)
        result = done_with(
            one, page, status, items, links.followed, crawl_delay_s, rejected, labels, told
        )
    return with_links(result, links, found)


def page_of(
    url: str,
    parsed: ParsedPage,
    content_type: str,
    body: bytes,
    fetched_at: float,
    took_s: float,
    kept: str | None,
    files: dict[str, str],
) -> Page:
    return Page(
        final_url=url,
        title=parsed.title,
        content_type=clean(content_type)[:MAX_CONTENT_TYPE],
        size=len(body),
        fetched_at=fetched_at,
        elapsed_ms=took_s * 1000,
        body=kept,
        canonical=parsed.canonical,
        alternates=list(parsed.alternates),
        files=files,
    )


def bare_page(url: str, size: int, fetched_at: float, took_s: float) -> Page:
    """Of an answer that was not read."""
    return Page(url, None, "", size, fetched_at, took_s * 1000)


def unchanged(
    one: Assignment, page: Page, status: int, traits: Traits, crawl_delay_s: float
) -> Result:
    """A page that is as it was: done, and nothing of it is read or kept again."""
    result = done_with(one, page, status, [], [], crawl_delay_s)
    return msgspec.structs.replace(result, reason=UNCHANGED, traits=traits)


def refused(
    one: Assignment, verdict: Verdict, status: int, wait_s: float | None, crawl_delay_s: float
) -> Result:
    """An answer that is no page."""
    return failed(
        one,
        verdict.reason,
        verdict.retry,
        status=status,
        retry_after_s=wait_s,
        crawl_delay_s=crawl_delay_s,
    )


def unreadable(one: Assignment, error: ParseError, status: int, crawl_delay_s: float) -> Result:
    """A page that says it is HTML and is not."""
    detail = str(error)
    return skipped(one, error.code, status=status, crawl_delay_s=crawl_delay_s, detail=detail)
