"""Answers that are not simply pages: sitemaps, and pages that are not kept.

A part of the pipeline, which fetches and parses; this module handles the
result, with the one extra request that soft 404s need.

Soft 404s are pages that say "not found" with status 200.

Called by `pipeline` for a page whose title says that there is nothing. A page that cannot exist is
requested from the host, at its pace, once an hour. If the answer is 200 with the same title, such
pages are soft 404s. If it is 404, the page is a real one (a manual about status codes, for
example).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Final

from zcrawl.errors import FetchError
from zcrawl.fetch.ports import Response
from zcrawl.frontier.url import origin_of
from zcrawl.model.reasons.skip import SOFT_404
from zcrawl.parse.page import ParsedPage
from zcrawl.text.patterns import lazy_pattern
from zcrawl.worker.pipeline.reading import LINKS_A_STEP, PageReader
from zcrawl.worker.results import sitemaps
from zcrawl.worker.results.attempt import Attempt

KEPT_S: Final = 3_600.0
MOST_ORIGINS: Final = 10_000
_SAYS_MISSING = lazy_pattern(
    r"\b(404|not found|no longer exists?|does(?:n.t| not) exist|nicht gefunden|introuvable|"
    r"no encontrada|non trovata)\b",
    re.IGNORECASE,
)

# One of these is in every title that the expression finds; to look for them costs a tenth of it.
_MISSING_PARTS: Final = (
    "404", "not found", "exist", "nicht gefunden", "introuvable", "no encontrada", "non trovata",
)  # fmt: skip

Ask = Callable[[str], Awaitable[str | None]]  # the title that a URL is answered with, if with 200


def says_missing(title: str | None) -> bool:
    if title is None:
        return False
    folded = title.casefold()
    if not any(part in folded for part in _MISSING_PARTS):
        return False
    return _SAYS_MISSING.search(title) is not None


def impossible_url(origin: str) -> str:
    """Return a URL that no site has; the same for each origin, so that caches can answer."""
    word = hashlib.blake2b(origin.encode(), digest_size=10).hexdigest()
    return f"{origin}/{word}"


class Soft404:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._titles: dict[str, tuple[float, asyncio.Future[str | None]]] = {}

    async def is_missing(self, origin: str, title: str | None, ask: Ask) -> bool:
        """Return whether a page with that title means 404 on this host."""
        until, answer = self._titles.get(origin, (0.0, None))
        if answer is None or (answer.done() and until <= self._now()):
            if len(self._titles) >= MOST_ORIGINS:
                self._titles.clear()
            answer = asyncio.get_running_loop().create_future()
            self._titles[origin] = (self._now() + KEPT_S, answer)
            try:
                answer.set_result(await ask(impossible_url(origin)))
            except FetchError:  # no answer: keep the page
                answer.set_result(None)
            except BaseException:  # cancelled: waiting pages are kept
                answer.set_result(None)
                del self._titles[origin]
                raise
        return title is not None and await asyncio.shield(answer) == title


class SpecialPages:
    def __init__(
        self, clock: Callable[[], float], utc: Callable[[], float], reader: PageReader
    ) -> None:
        self._utc = utc
        self._reader = reader
        self._soft404 = Soft404(clock)

    async def skip_unkept(
        self,
        attempt: Attempt,
        url: str,
        parsed: ParsedPage,
        directives: set[str],
        status: int,
        probe: Ask,
    ) -> bool:
        """Skip a page that must not be kept; return whether it was. Its links are followed.

        `directives` are those of its headers, `probe` returns the title of the page at a URL.
        """
        if attempt.gives_way(url, parsed, directives, status, self._utc()):
            return True
        if (
            attempt.run_context.spec.traps.soft_404
            and says_missing(parsed.title)
            and await self._soft404.is_missing(origin_of(url), parsed.title, probe)
        ):
            attempt.skipped(SOFT_404, status=status)
            return True
        return False

    async def sitemap(self, attempt: Attempt, url: str, response: Response) -> Attempt:
        """Turn entries into links of the next depth, and listed sitemaps into sitemap requests."""
        utc = self._utc()
        sitemap = await self._reader.sitemap(response.content, utc)
        listing = sitemaps.SitemapListing(attempt, url, utc)
        for at in range(0, len(sitemap.entries), LINKS_A_STEP):
            listing.add_entries(sitemap.entries[at : at + LINKS_A_STEP])
            await asyncio.sleep(0)
        for at in range(0, len(sitemap.children), LINKS_A_STEP):
            listing.add_children(sitemap.children[at : at + LINKS_A_STEP])
            await asyncio.sleep(0)
        own_url, depth = attempt.assignment.url, attempt.assignment.depth + 1
        links = await self._reader.sort_links(
            attempt.run_context, listing.links, depth, own_url, utc
        )
        return listing.end(links, response.status_code, sitemap.error, sitemap.complaints())
