"""Decide which links of a page belong to the crawl, and count the others by reason.

Called by the pipeline for the links of every page that is read, once per run and worker. Pure.
Pages repeat their navigation, so most verdicts are remembered.

A link that is left out is counted under the reason of `frontier.scope`, each URL once per page. A
link that is only too deep counts as `too_deep`, unless this worker has followed it from another
page.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

import msgspec

from zcrawl.frontier.scope import SCOPE_REASONS, ScopeFilter
from zcrawl.frontier.traps import TrapFilter
from zcrawl.model.reasons.skip import TOO_DEEP

MOST_TRAPPED: Final = 1_000  # reported for one page
_MOST_REMEMBERED: Final = 50_000  # links whose verdict a run remembers
_YEAR_S: Final = 365.2425 * 86_400

Link = tuple[str, bytes]  # canonical URL, key
Trapped = tuple[str, bytes, str]  # with the reason
Verdict = Literal[True] | str  # True: followed. Else the reason: of the scope, or of a trap


class SortedLinks(msgspec.Struct):
    """The links of a page after the checks."""

    followed: list[Link] = []
    trapped: list[Trapped] = []
    dropped: dict[str, int] = {}  # reason → count

    def add(self, more: SortedLinks) -> None:
        """Take in the next step of the same page."""
        self.followed += more.followed
        self.trapped = (self.trapped + more.trapped)[:MOST_TRAPPED]
        for reason, count in more.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count


class LinkFilter:
    def __init__(self, scope: ScopeFilter, traps: TrapFilter, max_depth: int | None) -> None:
        self._scope, self._traps, self._max_depth = scope, traps, max_depth
        # TOO_DEEP: met on the deepest pages only, so far.
        self._verdicts: dict[str, Verdict] = {}

    def sort(
        self,
        links: list[Link],
        depth: int,
        own_url: str,
        utc: float,
        paging: Collection[bytes] = (),
    ) -> SortedLinks:
        """Check `links` of the page `own_url` for `depth`.

        `paging` has the keys of links that lead no deeper than the page itself.
        """
        verdicts = self._verdicts
        if len(verdicts) > _MOST_REMEMBERED:
            verdicts.clear()
        dropped: dict[str, int] = {}
        if self._max_depth is not None and depth > self._max_depth:
            links = self._within_depth(links, own_url, paging, dropped)
        followed: list[Link] = []
        trapped: list[Trapped] = []
        for link in links:
            url = link[0]
            verdict = verdicts.get(url)
            if verdict is not True:
                if verdict is None or verdict == TOO_DEEP:
                    verdict = verdicts[url] = self._judge(url, utc)
                if verdict is not True:
                    if verdict in SCOPE_REASONS:
                        dropped[verdict] = dropped.get(verdict, 0) + 1
                    elif len(trapped) < MOST_TRAPPED:
                        trapped.append((*link, verdict))
                    continue
            if url != own_url:
                followed.append(link)
        return SortedLinks(followed, trapped, dropped)

    def learn(self, url: str, parent: str | None, body: bytes) -> str | None:
        """Count a page, and look at its text if its shape has many. The shape, if that ends it."""
        shapes = self._traps.shapes
        shape = None if shapes is None else shapes.count(url, parent)
        if shape is None or shapes is None or not shapes.learn(shape, body):
            return None
        self._verdicts.clear()
        return shape

    def _judge(self, url: str, utc: float) -> Verdict:
        reason = self._scope.verdict(url, 0) or self._traps.verdict(url, year_of(utc))
        return True if reason is None else reason

    def _within_depth(
        self, links: list[Link], own_url: str, paging: Collection[bytes], dropped: dict[str, int]
    ) -> list[Link]:
        """Return the paging links; count the others as too deep.

        Links that are followed from another page, or are out of scope at any depth, are not
        counted.
        """
        verdicts = self._verdicts
        allowed: list[Link] = []
        for link in links:
            url, key = link
            if key in paging:
                allowed.append(link)
                continue
            verdict = verdicts.get(url)
            if verdict is None:
                verdict = verdicts[url] = self._scope.verdict(url, 0) or TOO_DEEP
            if verdict is not True and verdict in SCOPE_REASONS and url != own_url:
                dropped[verdict] = dropped.get(verdict, 0) + 1
        return allowed


def year_of(utc: float) -> int:
    return 1970 + int(utc / _YEAR_S)
