"""Sitemaps of hostile and careless sites, through the whole crawler. Ordinary ones are tried in
test_real_web, the limits of size and number there and in test_manners."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import FAST, crawl
from tests.web.server import MisbehavingWeb
from zcrawl.model.spec import Fetch, JobSpec, Scope, Sitemaps
from zcrawl.roles.embedded import EmbeddedCluster


async def crawled(folder: Path, web: MisbehavingWeb, url: str, **keys: Any) -> dict[str, Any]:
    """One page and this sitemap."""
    spec = JobSpec("j", politeness=FAST, sitemaps=Sitemaps(urls=(url,)), **keys)
    async with EmbeddedCluster(folder, 1) as cluster:
        return await crawl(cluster, spec, [web.url("/status/200")])


async def test_indexes_of_indexes_have_an_end(tmp_path: Path) -> None:
    """Four sitemaps in a row, then the next one is skipped with its reason; as no page is counted,
    no limit of pages would have ended this."""
    async with MisbehavingWeb() as web:
        view = await crawled(tmp_path, web, web.url("/maps/deep/0"), scope=Scope(max_pages=5))
        paths = {hit.path for hit in web.log}
    assert view["skipped_reasons"] == {"sitemap": 4, "trap_sitemap": 1}
    assert paths == {"/robots.txt", "/status/200", *(f"/maps/deep/{n}" for n in range(4))}


async def test_an_index_names_sitemaps_of_its_own_host_and_of_the_crawls(tmp_path: Path) -> None:
    """A sitemap cannot send the crawler to servers outside of the job."""
    async with MisbehavingWeb() as web, MisbehavingWeb() as ours, MisbehavingWeb() as foreign:
        others = f"{ours.url('/maps/list.txt')},{foreign.url('/maps/list.txt')}"
        view = await crawled(
            tmp_path,
            web,
            web.url(f"/maps/elsewhere.xml?{others}"),
            scope=Scope(hosts=(f"127.0.0.1:{web.port}", f"127.0.0.1:{ours.port}")),
            fetch=Fetch(allow_private=True),
        )
        assert (view["pages"], view["skipped_reasons"]) == (3, {"sitemap": 3})
        assert web.hits("/fan/3/2") == ours.hits("/fan/3/2") == 1
        assert foreign.connections == 0


@pytest.mark.parametrize("listed", ["/maps/list.txt", "/maps/joined.txt.gz"])
async def test_a_sitemap_that_has_moved_to_another_host_is_one_there(
    tmp_path: Path, listed: str
) -> None:
    """As from http to https. What it lists is crawled, whatever its own name ends with, and the
    sitemap is kept as no page."""
    async with MisbehavingWeb() as web, MisbehavingWeb() as there:
        url = web.url(f"/redirect-to?{there.url(listed)}")
        scope = Scope(hosts=(f"127.0.0.1:{web.port}", f"127.0.0.1:{there.port}"))
        view = await crawled(tmp_path, web, url, scope=scope, fetch=Fetch(allow_private=True))
        pages = Counter(hit.path for hit in there.log)
        del pages["/robots.txt"], pages[listed]
    assert pages == dict.fromkeys(pages, 1)
    assert len(pages) == (1 if listed.endswith("txt") else 2)
    assert view["pages"] == 1 + len(pages)
    assert view["skipped_reasons"] == {"redirected": 1, "sitemap": 1}


async def test_a_sitemap_that_was_joined_of_several_files_is_read_whole(tmp_path: Path) -> None:
    """gzip files behind each other are one, and the padding behind them is nothing."""
    async with MisbehavingWeb() as web:
        view = await crawled(tmp_path, web, web.url("/maps/joined.txt.gz"))
        assert (view["pages"], web.hits("/fan/3/0"), web.hits("/fan/3/1")) == (3, 1, 1)


async def test_entities_of_a_sitemap_are_not_read(tmp_path: Path) -> None:
    """A billion laughs in 800 bytes cost nothing: the entry that uses them is lost and counted, the
    other is crawled."""
    async with MisbehavingWeb() as web:
        view = await crawled(tmp_path, web, web.url("/maps/laughs.xml"))
    assert (view["pages"], view["failed"], view["skipped_reasons"]) == (2, 0, {"sitemap": 1})
    assert view["rejected_links"]["sitemap_entry_lost"] == 1


async def test_a_moved_sitemap_may_be_as_long_as_any(tmp_path: Path) -> None:
    """Behind a redirect it has the limit of a sitemap, and not that of a page."""
    async with MisbehavingWeb() as web:
        url = web.url("/redirect-to?/maps/many.txt")
        scope, fetch = Scope(max_pages=2), Fetch(max_bytes=100_000)
        view = await crawled(tmp_path, web, url, scope=scope, fetch=fetch)
    assert (view["pages"], view["failed_reasons"]) == (2, {})
    assert view["skipped_reasons"]["sitemap"] == 1
