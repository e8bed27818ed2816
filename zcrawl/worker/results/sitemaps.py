"""Report sitemaps that were read, redirected or listed. Pure.

Called by `pipeline.special` and `pipeline.pipeline`.

A sitemap is not a page: it always ends skipped, and page limits do not count it. So its entries are
limited here. The protocol has one level of indexes; some sites have indexes of indexes, and a
hostile site could have endless ones.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.fetch.ports import HopLimits
from zcrawl.frontier.url import LinkResolver, origin_of
from zcrawl.mesh.messages import Assignment, CanonicalLink
from zcrawl.model.reasons.skip import SITEMAP, SITEMAP_TOO_MANY, TRAP_SITEMAP
from zcrawl.model.sitemap_request import nesting_block
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.results.context import RunContext
from zcrawl.worker.results.link_filter import MOST_TRAPPED, SortedLinks, year_of

MOST_NESTED: Final = 3  # indexes above a sitemap


def limits_of(assignment: Assignment, limits: HopLimits) -> HopLimits:
    """Return the limits of a sitemap, which may be longer than a page."""
    if not assignment.is_sitemap:
        return limits
    from zcrawl.parse.sitemap import MAX_BYTES  # most runs have no sitemap

    return msgspec.structs.replace(limits, max_bytes=MAX_BYTES)


class SitemapListing:
    """Build the links of a sitemap in pieces.

    It can list 50,000 URLs, so the caller lets other work run between two pieces. Listed URLs are
    admitted; listed sitemaps are read if they are on its own host or on one of the crawl.
    """

    def __init__(self, attempt: Attempt, url: str, utc: float) -> None:
        self.links: list[CanonicalLink] = []  # resolved, not yet checked against the scope
        self._attempt, self._context, self._url, self._utc = attempt, attempt.run_context, url, utc
        self._resolver = LinkResolver(attempt.run_context.rules)
        self._nesting = attempt.assignment.nesting + 1
        self._prios: dict[str, int] = {}
        self._children: list[CanonicalLink] = []
        self._trapped: list[tuple[str, bytes, str]] = []
        self._too_many = False

    def add_entries(self, entries: list[tuple[str, int]]) -> None:
        for entry, prio in entries:
            link = self._resolver.resolve(self._url, entry)
            if link is not None and link[0] not in self._prios:
                self._prios[link[0]] = prio
                self.links.append(link)

    def add_children(self, children: list[str]) -> None:
        context, year = self._context, year_of(self._utc)
        for each in children:
            link = self._resolver.resolve(self._url, each)
            if link is None or not _may_name(self._url, link[0], context):
                continue
            why = (
                TRAP_SITEMAP
                if self._nesting > MOST_NESTED
                else context.traps.verdict(link[0], year)
            )
            if why is not None:
                self._trapped.append((*link, why))
            elif context.sitemaps_left > 0:
                context.sitemaps_left -= 1
                self._children.append(link)
            else:
                self._too_many = True

    def end(
        self, links: SortedLinks, status: int, error: str, complaints: dict[str, int]
    ) -> Attempt:
        """End the attempt; `links` are the accepted ones of `self.links`, `complaints` the
        faults."""
        attempt = self._attempt.skipped(SITEMAP, status=status, detail=error).add_links(links)
        attempt.prios = [self._prios[link[0]] for link in links.followed]
        attempt.trapped = [*links.trapped, *self._trapped][:MOST_TRAPPED]
        attempt.sitemaps = self._children
        attempt.blocks = _blocks(self._nesting, self._children)
        too_many = {SITEMAP_TOO_MANY: 1} if self._too_many else {}
        attempt.rejected = {**self._resolver.rejected, **complaints, **too_many}
        return attempt


def moved(attempt: Attempt) -> Attempt:
    """End a sitemap that redirects to another host: the target is a sitemap as well.

    Unlike the redirect of a seed, it does not add the host to the crawl.
    """
    if attempt.handover is not None and attempt.assignment.is_sitemap:
        attempt.sitemaps = [attempt.handover]
        attempt.blocks = _blocks(attempt.assignment.nesting, attempt.sitemaps)
        attempt.handover = None
    return attempt


def add_named(attempt: Attempt, context: RunContext, named: tuple[str, ...]) -> None:
    """Add the sitemaps of the host's robots.txt to the first attempt that can report them."""
    url = attempt.assignment.url
    context.reported_sitemaps.add(origin_of(url))
    resolver = LinkResolver(context.rules)
    links = [link for each in named if (link := resolver.resolve(url, each))]
    attempt.sitemaps = [*attempt.sitemaps, *links]


def _may_name(url: str, other: str, context: RunContext) -> bool:
    return origin_of(other) == origin_of(url) or context.scope.has_host(other)


def _blocks(nesting: int, links: list[CanonicalLink]) -> list[tuple[str, list[bytes]]]:
    """Return the blocks of sitemaps that were reached through this many indexes."""
    block = nesting_block(nesting)
    return [(block, [key for _, key in links])] if block and links else []
