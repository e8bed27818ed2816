"""From a body to what it says: links, title, items. Called by the pipeline, once per page.

Small pages are read in the event loop, large ones in a thread, the main content of a page (slow:
tens of milliseconds) in processes of its own. Nothing of that is there before it is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zcrawl.errors import ParseError
from zcrawl.frontier.url import CanonicalRules, LinkResolver
from zcrawl.mesh.messages import Assignment
from zcrawl.parse.page import ParsedPage, is_html, parse_page
from zcrawl.worker.outcome import RunContext

if TYPE_CHECKING:
    from zcrawl.parse.content_os import ContentReader
    from zcrawl.parse.extract import Plan
    from zcrawl.parse.extract_page import PageFacts
    from zcrawl.worker.fetching_loop import Blobs
    from zcrawl.worker.recording_loop import Recording

T = TypeVar("T")
A = TypeVar("A")
INLINE_BYTES: Final = 256 * 1024  # larger pages are parsed in a thread


class PageReader:
    def __init__(self) -> None:
        self._resolvers: dict[CanonicalRules, LinkResolver] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._content: ContentReader | None = None

    async def main_content(
        self, plan: Plan, one: Assignment, url: str, content_type: str, body: bytes
    ) -> dict[str, Any] | None:
        """The page's main content, if its block may ask for it."""
        if not plan.wants_main(url, one.label) or not is_html(content_type, body):
            return None
        if self._content is None:
            from zcrawl.parse.content_os import ContentReader

            self._content = ContentReader()
        return await self._content.read(body, content_type, url)

    async def parse(
        self,
        context: RunContext,
        body: bytes,
        content_type: str,
        url: str,
        facts: PageFacts | None,
    ) -> ParsedPage:
        def read(resolver: LinkResolver) -> ParsedPage:
            if facts is not None and not is_html(content_type, body):
                from zcrawl.parse.json_page import parse_json  # of jobs that extract

                return parse_json(body, content_type, context.options, resolver, facts)
            return parse_page(body, content_type, url, context.options, resolver, facts)

        if len(body) > INLINE_BYTES:
            # A resolver of its own: they are not made for two threads.
            return await self.in_thread(read, LinkResolver(context.rules))
        shared = self._resolvers.get(context.rules)
        if shared is None:
            shared = self._resolvers[context.rules] = LinkResolver(context.rules)
        return read(shared)

    async def fingerprint(
        self, context: RunContext, body: bytes, content_type: str, url: str
    ) -> bytes:
        """Of a page that somebody else reads; empty where that cannot be had."""
        try:
            return (await self.parse(context, body, content_type, url, None)).fingerprint
        except ParseError:
            return b""  # what is no HTML is compared with nothing

    async def in_thread(self, call: Callable[[A], T], argument: A) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(2, thread_name_prefix="zcrawl-parse")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, argument)

    async def keep_all(
        self, put: Callable[[bytes], str], files: Mapping[str, bytes]
    ) -> dict[str, str]:
        """The names of a page's pictures, by kind, after they were kept."""
        return {kind: await self.in_thread(put, data) for kind, data in files.items()}

    def recording(
        self, one: Assignment, context: RunContext, blobs: Blobs | None
    ) -> Recording | None:
        """Keeps the exchanges of a fetch, if its run wants archives."""
        if not context.captures or blobs is None:
            return None
        from zcrawl.worker.recording_loop import Recording

        put = blobs.put
        return Recording(
            one, context.spec, context.headers_for(one.url), lambda body: self.in_thread(put, body)
        )

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._content is not None:
            await self._content.close()
