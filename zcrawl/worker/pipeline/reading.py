"""Read a page: links, title, items. Called by the pipeline once per page.

Ordinary pages are read in the event loop, within a budget; large ones are parsed in a thread and
read in the loop; what looks costly (`parse.cost`) or uses up the budget is read in a child process
that can be killed (`children.pages`). The result is the same. A large sitemap goes to a child
too. The main content of a page (slow: tens of milliseconds) has a process of its own. All of
them start when they are first needed.

Scope and traps are applied to a page's links here in the loop, which runs between steps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zcrawl.errors import FetchError, ParseError
from zcrawl.frontier.url import CanonicalRules, LinkResolver
from zcrawl.mesh.messages import Assignment
from zcrawl.parse.cost import THREAD_BYTES, TimeBudget, TooCostly
from zcrawl.parse.page import ForThread, ParsedPage, is_html, parse_markup
from zcrawl.parse.reading import read_page
from zcrawl.worker.results.context import RunContext
from zcrawl.worker.results.link_filter import Link, SortedLinks

if TYPE_CHECKING:
    from zcrawl.parse.children.content import ContentReader
    from zcrawl.parse.children.pages import PageChildren
    from zcrawl.parse.extract.page_facts import PageContext
    from zcrawl.parse.extract.plan import ExtractionPlan
    from zcrawl.parse.sitemap import Sitemap
    from zcrawl.worker.pipeline.capture import Recording
    from zcrawl.worker.pipeline.fetching import BlobWriter

T = TypeVar("T")
A = TypeVar("A")
BUDGET_S: Final = 0.04  # for a page in the event loop; a slower page goes to a child process
KEEPING_THREADS: Final = 8  # they wait for the disk, which writes what waits together
LINKS_A_STEP: Final = 100  # 5 to 10 us each; of 2,000 characters up to 200 us
INLINE_SITEMAP_BYTES: Final = 32_000  # 1,000 entries


class PageReader:
    def __init__(self) -> None:
        self._resolvers: dict[CanonicalRules, LinkResolver] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._content: ContentReader | None = None
        self._children: PageChildren | None = None

    async def main_content(
        self, plan: ExtractionPlan, assignment: Assignment, url: str, content_type: str, body: bytes
    ) -> dict[str, Any] | None:
        """Return the page's main content, if its block may use it."""
        if not plan.wants_main(url, assignment.block) or not is_html(content_type, body):
            return None
        if self._content is None:
            from zcrawl.parse.children.content import ContentReader

            self._content = ContentReader()
        return await self._content.read(body, content_type, url)

    async def parse(
        self,
        context: RunContext,
        body: bytes,
        content_type: str,
        url: str,
        facts: PageContext | None,
    ) -> ParsedPage:
        """Parse a page. Raises ParseError, and FetchError if a child process could not read it."""
        if len(body) <= THREAD_BYTES:
            resolver = self._resolvers.get(context.rules)
            if resolver is None:
                resolver = self._resolvers[context.rules] = LinkResolver(context.rules)
            budget = TimeBudget(time.monotonic, time.thread_time, BUDGET_S)
            page = (body, content_type, url, facts, context.options, resolver, budget)
            try:
                try:
                    return read_page(*page)
                except ForThread as large:
                    return read_page(*page, await self.in_thread(parse_markup, large.markup))
            except TooCostly:
                pass  # it is read again, where it can be killed
        return await self._pages().read(context.setup, body, content_type, url, facts)

    async def sitemap(self, body: bytes, utc: float) -> Sitemap:
        from zcrawl.parse.sitemap import is_packed, read_sitemap  # most runs have none

        if len(body) > INLINE_SITEMAP_BYTES or is_packed(body):
            return await self._pages().read_sitemap(body, utc)
        return read_sitemap(body, utc)

    async def sort_links(
        self,
        context: RunContext,
        links: list[Link],
        depth: int,
        own_url: str,
        utc: float,
        paging: Collection[bytes] = (),
    ) -> SortedLinks:
        """Call `LinkFilter.sort` in steps, so that the event loop runs in between."""
        sort = context.links.sort
        if len(links) <= LINKS_A_STEP:
            return sort(links, depth, own_url, utc, paging)
        sorted_links = SortedLinks()
        for at in range(0, len(links), LINKS_A_STEP):
            await asyncio.sleep(0)
            sorted_links.add(sort(links[at : at + LINKS_A_STEP], depth, own_url, utc, paging))
        return sorted_links

    def _pages(self) -> PageChildren:
        if self._children is None:
            from zcrawl.parse.children.pages import PageChildren

            self._children = PageChildren()
        return self._children

    async def fingerprint(
        self, context: RunContext, body: bytes, content_type: str, url: str
    ) -> bytes:
        """Return the fingerprint of a page that a plugin reads; empty if it is not available."""
        try:
            return (await self.parse(context, body, content_type, url, None)).fingerprint
        except (ParseError, FetchError):
            return b""  # not HTML, or not parsed in time: no fingerprint

    async def in_thread(self, call: Callable[[A], T], argument: A) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(KEEPING_THREADS, thread_name_prefix="zcrawl-parse")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, argument)

    async def keep_all(
        self, put: Callable[[bytes], str], files: Mapping[str, bytes]
    ) -> dict[str, str]:
        """Store the screenshots of a page and return their names by kind."""
        return {kind: await self.in_thread(put, data) for kind, data in files.items()}

    def recording(
        self, assignment: Assignment, context: RunContext, blobs: BlobWriter | None
    ) -> Recording | None:
        """Return a recording of the exchanges, if the run writes archives."""
        if not context.captures or blobs is None:
            return None
        from zcrawl.worker.pipeline.capture import Recording

        put = blobs.put
        return Recording(
            assignment,
            context.spec,
            context.headers_for(assignment.url),
            lambda body: self.in_thread(put, body),
        )

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._content is not None:
            await self._content.close()
        if self._children is not None:
            await self._children.close()
