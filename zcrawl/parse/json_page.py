"""Read JSON answers, for jobs that extract from them. Called by `parse.reading`. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from zcrawl.errors import ParseError
from zcrawl.frontier.url import LinkResolver
from zcrawl.model.reasons.failure import BAD_JSON
from zcrawl.model.reasons.skip import UNSUPPORTED_SCHEME
from zcrawl.parse.charset import decode
from zcrawl.parse.cost import INLINE_BYTES, TimeBudget, TooCostly
from zcrawl.parse.extract.page_facts import PageContext, SourcePage
from zcrawl.parse.page import PageOptions, ParsedPage


def parse_json(
    body: bytes,
    content_type: str,
    options: PageOptions,
    resolver: LinkResolver,
    facts: PageContext,
    budget: TimeBudget | None = None,
) -> ParsedPage:
    """Read an answer. Raises ParseError if it is not JSON; with a budget, TooCostly if it takes
    long."""
    if budget is not None and len(body) > INLINE_BYTES:
        raise TooCostly(f"{len(body)} bytes")
    resolver.rejected.clear()
    value = _read(body, content_type)
    if budget is not None:
        budget.begin()
    assert options.plan is not None  # the pipeline calls it only for jobs that extract
    extracted = options.plan.apply(SourcePage(facts, resolver, None, value, budget=budget))
    links = extracted.links if extracted is not None and extracted.links is not None else []
    rejected = {code: n for code, n in resolver.rejected.items() if code != UNSUPPORTED_SCHEME}
    return ParsedPage(None, links, "utf-8", False, rejected, extracted)


def _read(body: bytes, content_type: str) -> Any:
    try:
        return msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as error:  # also for invalid UTF-8
        first = error
    try:  # another encoding, which JSON forbids and some servers send
        return msgspec.json.decode(decode(body, content_type)[0].encode())
    except (ValueError, RecursionError):
        raise ParseError(f"not JSON: {first}", code=BAD_JSON) from None
