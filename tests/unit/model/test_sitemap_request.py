"""Requests say by name whether they are sitemaps, and how deep they are nested."""

from __future__ import annotations

import msgspec

from tests.unit.machine_tools import assignment
from zcrawl.frontier.extra import MOST_PRIORITY
from zcrawl.model.rows import NewLink
from zcrawl.model.sitemap_request import block_nesting, has_sitemap_prio, nesting_block
from zcrawl.result.plan import MOST_PRIO


def test_a_link_becomes_a_sitemap_and_keeps_all_else() -> None:
    """Also its block, which has its nesting."""
    link = NewLink("http://a.test/s.xml", b"k" * 16, "http://a.test", 1, block="2", extra=b"x")
    sitemap = link.as_sitemap()
    assert sitemap.is_sitemap
    assert not link.is_sitemap
    assert msgspec.structs.replace(sitemap, prio=link.prio) == link


def test_an_assignment_tells_its_kind_and_its_nesting() -> None:
    """As its link had them; a block that is no number is no nesting."""
    page = assignment(1, 1)
    link = NewLink(page.url, b"k" * 16, "http://a.test", 1, block=nesting_block(2)).as_sitemap()
    sitemap = msgspec.structs.replace(page, prio=link.prio, block=link.block)
    assert (sitemap.is_sitemap, sitemap.nesting) == (True, 2)
    assert (page.is_sitemap, page.nesting) == (False, 0)
    assert [block_nesting(nesting_block(n)) for n in (0, 1, 3)] == [0, 1, 3]
    assert block_nesting("books") == 0


def test_nothing_that_a_worker_or_a_spider_asks_for_passes_for_a_sitemap() -> None:
    """Their priorities are bounded above it."""
    most = max(MOST_PRIO, MOST_PRIORITY)
    assert not any(has_sitemap_prio(prio) for prio in range(-most, most + 1))
