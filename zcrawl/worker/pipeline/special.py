"""Answers that are not simply pages: sitemaps, and pages that are not kept.

A part of the pipeline, which fetches and parses; here it is decided what becomes of them, with
the one question to the host that soft 404s need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from zcrawl.fetch.ports import Response
from zcrawl.frontier.url import origin_of
from zcrawl.mesh.messages import Assignment, Result
from zcrawl.model.reasons.skip import SOFT_404
from zcrawl.parse.page import ParsedPage
from zcrawl.worker.pipeline.reading import LINKS_A_STEP, PageReader
from zcrawl.worker.pipeline.soft404 import Soft404, says_missing
from zcrawl.worker.results import outcome, sitemaps
from zcrawl.worker.results.outcome import RunContext


class SpecialPages:
    def __init__(
        self, clock: Callable[[], float], utc: Callable[[], float], reader: PageReader
    ) -> None:
        self._utc = utc
        self._reader = reader
        self._soft404 = Soft404(clock)

    async def unkept(
        self,
        one: Assignment,
        context: RunContext,
        url: str,
        parsed: ParsedPage,
        asks: set[str],
        crawl_delay_s: float,
        probe: Callable[[str], Awaitable[str | None]],
    ) -> Result | None:
        """Why a page that came is not kept, if so; its links are followed all the same. `asks`
        are the directives of its headers, `probe` gives the title that a URL is answered with."""
        unkept = outcome.unkept(one, context, url, parsed, asks, crawl_delay_s, self._utc())
        if unkept is not None:
            return unkept
        if (
            context.spec.traps.soft_404
            and says_missing(parsed.title)
            and await self._soft404.is_missing(origin_of(url), parsed.title, probe)
        ):
            return outcome.skipped(one, SOFT_404, crawl_delay_s=crawl_delay_s)
        return None

    async def sitemap(
        self, context: RunContext, one: Assignment, url: str, response: Response
    ) -> Result:
        """Its entries become links of the next depth, its children sitemaps of the same one."""
        utc = self._utc()
        sitemap = await self._reader.sitemap(response.content, utc)
        listing = sitemaps.SitemapListing(one, context, url, utc)
        for at in range(0, len(sitemap.entries), LINKS_A_STEP):
            listing.add_entries(sitemap.entries[at : at + LINKS_A_STEP])
            await asyncio.sleep(0)
        for at in range(0, len(sitemap.children), LINKS_A_STEP):
            listing.add_children(sitemap.children[at : at + LINKS_A_STEP])
            await asyncio.sleep(0)
        depth = one.depth + 1
        links = await self._reader.sort_links(context, listing.links, depth, one.url, utc)
        return listing.result(links, response.status_code, sitemap.error, sitemap.complaints())
