"""Ways that never lead to a page, through the whole crawler: every run ends, whatever servers do.
Endless sites of pages are tried in test_real_web, endless sitemaps in test_sitemaps."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.integration.crawling import FAST, crawl
from tests.web.server import MisbehavingWeb
from zcrawl.model.spec import Fetch, JobSpec, Scope
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.submit.code import code_of

SPIDER = """
from zcrawl.spider import Request, Spider

class Test(Spider):
    def start(self):
        yield Request("{url}", handler="parse")

    def parse(self, page):
        yield {{"url": page.url}}
"""


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("by", ["seed", "spider"])
async def test_two_servers_that_send_a_crawler_to_each_other_are_left(
    tmp_path: Path, by: str, workers: int
) -> None:
    """To another URL each time, so that no URL comes twice, and each step is a request of its own,
    also of another worker. As many steps as a job allows redirects, then the next one is
    skipped."""
    async with MisbehavingWeb() as web, MisbehavingWeb() as other:
        url = web.url(f"/relay/0?{other.origin}")
        scope = Scope(hosts=("127.0.0.1",), max_pages=3, max_depth=1)
        fetch = Fetch(allow_private=True, max_redirects=4)
        spec, seeds = JobSpec("relay", politeness=FAST, scope=scope, fetch=fetch), [url]
        if by == "spider":
            code = code_of(SPIDER.format(url=url).encode(), "test.py")
            spec = msgspec.structs.replace(spec, spider="test.py:Test", code=code)
            seeds = []
        async with EmbeddedCluster(tmp_path, workers) as cluster:
            view = await crawl(cluster, spec, seeds)
        steps = [hit.path for hit in (*web.log, *other.log) if "relay" in hit.path]
    assert len(steps) == 5
    assert view["skipped_reasons"].pop("too_many_redirects") == 1
    assert view["skipped_reasons"]["redirected"] == 5
    assert (view["pages"], view["failed"]) == (0, 0)


async def test_pages_that_name_ever_another_one_as_canonical_are_left(tmp_path: Path) -> None:
    """Each gives way to the next one: ten times, then the next one is skipped."""
    async with MisbehavingWeb() as web:
        spec = JobSpec("onward", politeness=FAST, scope=Scope(collapse_canonical=True))
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, [web.url("/onward/0")])
        assert web.hits("/onward/10") == 1
        assert web.hits("/onward/11") == 0
    assert view["skipped_reasons"] == {"canonical": 11, "too_many_redirects": 1}


async def test_a_trap_is_no_better_for_being_canonical(tmp_path: Path) -> None:
    """A page that names a URL which the job would not follow as a link is kept itself."""
    async with MisbehavingWeb() as web:
        scope = Scope(collapse_canonical=True)
        spec = JobSpec("trap", politeness=FAST, scope=scope)
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, [web.url("/names?/a/a/a/a/a/a/a")])
        assert (view["pages"], view["skipped"]) == (1, 0)
