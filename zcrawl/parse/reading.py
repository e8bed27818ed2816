"""Read one answer with the options of a run: HTML, or, for jobs that extract from it, JSON.

Called in a worker's event loop with a budget, and in a child process (`children.page_child`)
without one. Pure. The result is the same in both places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selectolax.lexbor import LexborHTMLParser

from zcrawl.frontier.url import LinkResolver
from zcrawl.parse.cost import TimeBudget
from zcrawl.parse.page import PageOptions, ParsedPage, is_html, parse_page

if TYPE_CHECKING:  # of jobs that extract
    from zcrawl.parse.extract.page_facts import PageContext


def read_page(
    body: bytes,
    content_type: str,
    url: str,
    facts: PageContext | None,
    options: PageOptions,
    resolver: LinkResolver,
    budget: TimeBudget | None = None,
    tree: LexborHTMLParser | None = None,
) -> ParsedPage:
    """Read an answer. Raises ParseError if it cannot be read; with a budget also TooCostly
    (`parse.cost`) or ForThread (`parse.page`)."""
    if facts is not None and not is_html(content_type, body):
        from zcrawl.parse.json_page import parse_json  # of jobs that extract

        return parse_json(body, content_type, options, resolver, facts, budget)
    return parse_page(body, content_type, url, options, resolver, facts, budget, tree)
