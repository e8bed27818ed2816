"""Answers that are not simply pages: sitemaps, and pages that are not kept.

A part of the pipeline, which fetches and parses; here it is decided what becomes of them, with
the one question to the host that soft 404s need.

Pages that say "not found" with status 200: one question per host tells whether it lies.

Called by `pipeline` for a page whose title says that there is nothing. The host is asked for
a page that cannot exist, at its pace, once an hour: if that is answered with 200 and the same
title, such pages are soft 404s; if it is answered with 404, the page means what it says (a manual
about status codes, say).
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

Ask = Callable[[str], Awaitable[str | None]]  # the title that a URL is answered with, if with 200


def says_missing(title: str | None) -> bool:
    return title is not None and _SAYS_MISSING.search(title) is not None


def impossible_url(origin: str) -> str:
    """A page that no site has. The same for each origin, so that a cache can answer it."""
    word = hashlib.blake2b(origin.encode(), digest_size=10).hexdigest()
    return f"{origin}/{word}"


class Soft404:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._titles: dict[str, tuple[float, asyncio.Future[str | None]]] = {}

    async def is_missing(self, origin: str, title: str | None, ask: Ask) -> bool:
        """Whether a page with that title is this host's way to say 404."""
        until, answer = self._titles.get(origin, (0.0, None))
        if answer is None or (answer.done() and until <= self._now()):
            if len(self._titles) >= MOST_ORIGINS:
                self._titles.clear()
            answer = asyncio.get_running_loop().create_future()
            self._titles[origin] = (self._now() + KEPT_S, answer)
            try:
                answer.set_result(await ask(impossible_url(origin)))
            except FetchError:  # nothing was learned: the page counts as what it says it is
                answer.set_result(None)
            except BaseException:  # cut off: those who wait count their pages as they are
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

    async def skips(
        self,
        attempt: Attempt,
        url: str,
        parsed: ParsedPage,
        directives: set[str],
        status: int,
        probe: Ask,
    ) -> bool:
        """Skip a page that came and is not to be kept; its links are followed all the same.
        `directives` are those of its headers, `probe` gives the title that a URL is answered with.
        Whether it was skipped."""
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
        """Its entries become links of the next depth, its children sitemaps of the same one."""
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
