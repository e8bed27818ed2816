"""From a sitemap that was read, moved or named to the Result that is reported. Pure; called by
`pipeline.special` and `pipeline.pipeline`.

A sitemap is no page: whatever it is, it ends skipped, and no limit of pages counts it. So what it
names is limited here. The protocol knows one index above the sitemaps; some sites have indexes of
indexes, and a hostile one has a next one for ever. The label of a sitemap's request, which nothing
else uses, tells how many indexes led to it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.fetch.ports import HopLimits
from zcrawl.frontier.url import LinkResolver, origin_of
from zcrawl.mesh.messages import Assignment, Link, Result
from zcrawl.model.reasons.skip import SITEMAP, SITEMAP_TOO_MANY, TRAP_SITEMAP
from zcrawl.model.states import SITEMAP_PRIO
from zcrawl.worker.results.link_filter import MOST_TRAPPED, SortedLinks, year_of
from zcrawl.worker.results.outcome import RunContext, skipped

MOST_NESTED: Final = 3  # indexes above a sitemap


def is_sitemap(one: Assignment) -> bool:
    return one.prio == SITEMAP_PRIO


def limits_of(one: Assignment, limits: HopLimits) -> HopLimits:
    """A sitemap may be longer than a page."""
    if not is_sitemap(one):
        return limits
    from zcrawl.parse.sitemap import MAX_BYTES  # most runs have no sitemap

    return msgspec.structs.replace(limits, max_bytes=MAX_BYTES)


class SitemapListing:
    """What a sitemap comes to, put together piece by piece: it can list 50,000 URLs, and whoever
    calls this lets others work between two pieces. What it lists is admitted; the sitemaps that it
    names are read, if they are on its own host or on one of the crawl."""

    def __init__(self, one: Assignment, context: RunContext, url: str, utc: float) -> None:
        self.links: list[Link] = []  # as resolved; the scope has not been asked
        self._one, self._context, self._url, self._utc = one, context, url, utc
        self._resolver = LinkResolver(context.rules)
        self._level = _level(one) + 1
        self._prios: dict[str, int] = {}
        self._children: list[Link] = []
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
                TRAP_SITEMAP if self._level > MOST_NESTED else context.traps.verdict(link[0], year)
            )
            if why is not None:
                self._trapped.append((*link, why))
            elif context.sitemaps_left > 0:
                context.sitemaps_left -= 1
                self._children.append(link)
            else:
                self._too_many = True

    def result(
        self, links: SortedLinks, status: int, error: str, complaints: dict[str, int]
    ) -> Result:
        """`links`: what the run's scope and traps make of `self.links`; `complaints`: what was
        wrong with the file."""
        rejected = {**self._resolver.rejected, **complaints}
        if self._too_many:
            rejected[SITEMAP_TOO_MANY] = 1
        return msgspec.structs.replace(
            skipped(self._one, SITEMAP, status=status, detail=error),
            links=links.followed,
            prios=[self._prios[link[0]] for link in links.followed],
            trapped=[*links.trapped, *self._trapped][:MOST_TRAPPED],
            dropped=links.dropped,
            sitemaps=self._children,
            labels=_labels(self._level, self._children),
            rejected=rejected,
        )


def moved(one: Assignment, result: Result) -> Result:
    """What a redirect to another host came to: there it is a sitemap as well. It vouches for no
    host, as a page that was typed would."""
    if result.handover is None or not is_sitemap(one):
        return result
    there = [result.handover]
    labels = _labels(_level(one), there)
    return msgspec.structs.replace(result, handover=None, sitemaps=there, labels=labels)


def with_sitemaps(result: Result, context: RunContext, named: tuple[str, ...], url: str) -> Result:
    """The sitemaps that the host's robots.txt names, with the first result that can tell."""
    context.told_sitemaps.add(origin_of(url))
    resolver = LinkResolver(context.rules)
    links = [link for each in named if (link := resolver.resolve(url, each))]
    return msgspec.structs.replace(result, sitemaps=[*result.sitemaps, *links])


def _may_name(url: str, other: str, context: RunContext) -> bool:
    return origin_of(other) == origin_of(url) or context.scope.has_host(other)


def _level(one: Assignment) -> int:
    """How many indexes led to it."""
    return int(one.label) if one.label.isdecimal() else 0


def _labels(level: int, links: list[Link]) -> list[tuple[str, list[bytes]]]:
    return [(str(level), [key for _, key in links])] if level and links else []
