"""Single manners of the crawler through the whole of it, one server of tests/web for each: what
robots.txt says in its finer points, limits as servers and proxies see them, identities."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import FAST, crawl
from tests.web.proxies import HttpProxy, SocksProxy
from tests.web.server import MisbehavingWeb
from zcrawl.model.spec import Fetch, JobSpec, Politeness, Scope, Sitemaps
from zcrawl.roles.embedded import EmbeddedCluster

ROBOTS = "/robots.txt"
RULES = b"""
User-agent: otherbot
Disallow: /

User-agent: zcrawl
Disallow: /fan/6/*1$
Disallow: /fan/6/2
Disallow: /fan/6/
Allow: /fan/6/2
Allow: /fan/6/5
"""


async def crawled(
    data: Path, web: MisbehavingWeb, *paths: str, workers: int = 1, **keys: Any
) -> dict[str, Any]:
    spec = JobSpec("j", **{"politeness": FAST, **keys})
    async with EmbeddedCluster(data, workers) as cluster:
        return await crawl(cluster, spec, [web.url(path) for path in paths])


# ---------------------------------------------------------------- robots.txt


async def test_the_longest_rule_of_our_own_group_decides(tmp_path: Path) -> None:
    """Wildcards, an anchor, Allow over Disallow where both are as long; others' groups are not
    ours. What is forbidden is not asked for."""
    async with MisbehavingWeb(robots=RULES) as web:
        view = await crawled(tmp_path, web, "/fan/6")
        paths = {hit.path for hit in web.log}
    assert paths == {ROBOTS, "/fan/6", "/fan/6/2", "/fan/6/5"}
    assert (view["pages"], view["skipped_reasons"]) == (3, {"robots": 4})


@pytest.mark.parametrize("status", [401, 403, 404, 410])
async def test_a_robots_txt_that_is_refused_forbids_nothing(tmp_path: Path, status: int) -> None:
    """Whatever is in the answer's body."""
    rules = b"User-agent: *\nDisallow: /\n"
    async with MisbehavingWeb(robots=rules, robots_status=status) as web:
        assert (await crawled(tmp_path, web, "/fan/3"))["pages"] == 4


async def test_robots_txt_is_kept_in_the_database_until_it_is_old(tmp_path: Path) -> None:
    """A second run in another process asks for no rules; one after their time asks again, and
    obeys what has changed."""
    async with MisbehavingWeb(robots=b"User-agent: *\nDisallow: /fan/3/1\n") as web:
        for _ in range(2):
            assert (await crawled(tmp_path, web, "/fan/3"))["skipped_reasons"] == {"robots": 1}
        assert web.hits(ROBOTS) == 1
        with contextlib.closing(sqlite3.connect(tmp_path / "zcrawl.db")) as database:
            database.execute("UPDATE robots SET fresh_until = 1")
            database.commit()
        web.robots = b"User-agent: *\nDisallow: /fan/3/\n"
        assert (await crawled(tmp_path, web, "/fan/3"))["skipped_reasons"] == {"robots": 3}
        assert web.hits(ROBOTS) == 2


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("spread", [False, True])
async def test_a_host_has_no_more_requests_at_a_time_than_it_may(
    tmp_path: Path, spread: bool
) -> None:
    """By one worker or by two that share it; and as many as it may."""
    politeness = Politeness(rate=0.0, concurrency=4, spread=spread, robots=False)
    async with MisbehavingWeb() as web:
        paths = [f"/slow/{200 + n}" for n in range(24)]
        view = await crawled(tmp_path, web, *paths, workers=2, politeness=politeness)
        assert (view["pages"], web.most_at_once) == (24, 4)


async def test_a_retry_after_may_be_a_date(tmp_path: Path) -> None:
    """The page waits until then, and the host is not asked meanwhile."""
    async with MisbehavingWeb() as web:
        path = "/retry-after/date/3"
        assert (await crawled(tmp_path, web, path))["pages"] == 1
        first, second = [hit.at for hit in web.log if hit.path == path]
        assert second - first > 1.8  # a date has whole seconds


async def test_a_proxy_has_no_more_requests_at_a_time_than_it_may(tmp_path: Path) -> None:
    """Two proxies with one request each, although the host may have sixteen."""
    async with MisbehavingWeb() as web, HttpProxy() as first, SocksProxy() as other:
        proxies = (first.url, other.url)
        fetch = Fetch(proxies=proxies, proxy_rotation="round_robin", proxy_limit=1)
        paths = [f"/slow/{100 + n}" for n in range(12)]
        politeness = Politeness(rate=0.0, concurrency=16, robots=False)
        view = await crawled(tmp_path, web, *paths, fetch=fetch, politeness=politeness)
        assert (view["pages"], web.most_at_once) == (12, 2)


async def test_a_sitemap_that_swells_is_read_up_to_50_mb(tmp_path: Path) -> None:
    """What stands before the limit is crawled, what stands behind it is not, nothing breaks."""
    async with MisbehavingWeb() as web:
        maps = Sitemaps(urls=(web.url("/maps/swelling.txt.gz"),))
        view = await crawled(tmp_path, web, "/status/200", sitemaps=maps)
        assert (view["pages"], view["failed"]) == (2, 0)
        assert (web.hits("/fan/3/0"), web.hits("/fan/3/1")) == (1, 0)


# ---------------------------------------------------------------- who asks, and for what


async def test_each_host_meets_one_identity_out_of_several(tmp_path: Path) -> None:
    """User agent and headers are drawn per host, hold for its robots.txt too, and all are used."""
    agents = ("one-bot/1", "two-bot/2")
    sets = ({"X-Set": "a"}, {"X-Set": "b"})
    async with MisbehavingWeb(hosts=12) as web:
        fetch = Fetch(user_agents=agents, header_sets=sets)
        spec = JobSpec("j", politeness=FAST, fetch=fetch)
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            seeds = [f"http://127.0.0.1:{port}/fan/2" for port in web.ports]
            assert (await crawl(cluster, spec, seeds))["pages"] == 36
        met = {port: _identities(web, port) for port in web.ports}
    assert all(len(agents_met) == len(sets_met) == 1 for agents_met, sets_met in met.values())
    assert set.union(*(agents_met for agents_met, _ in met.values())) == set(agents)
    assert set.union(*(sets_met for _, sets_met in met.values())) == {"a", "b"}


def _identities(web: MisbehavingWeb, port: int) -> tuple[set[str], set[str]]:
    hits = [hit for hit in web.log if hit.port == port]
    pages = [hit for hit in hits if hit.path != ROBOTS]
    return {hit.headers["user-agent"] for hit in hits}, {hit.headers["x-set"] for hit in pages}


BLOCKED = {
    "blocked_address: private (10.1.2.3)": 1,
    "blocked_address: metadata (169.254.169.254)": 1,
}


@pytest.mark.parametrize("kind", [None, HttpProxy, SocksProxy])
async def test_a_sitemap_leads_no_crawl_inside_also_not_by_a_proxy(
    tmp_path: Path, kind: type[HttpProxy] | type[SocksProxy] | None
) -> None:
    """A job that may go to every host: what a sitemap names inside ends with the guard's reason,
    and no proxy is asked for it."""
    async with contextlib.AsyncExitStack() as stack:
        web = await stack.enter_async_context(MisbehavingWeb())
        proxies: Sequence[HttpProxy | SocksProxy] = (
            [] if kind is None else [await stack.enter_async_context(kind())]
        )
        fetch = Fetch(proxies=tuple(proxy.url for proxy in proxies), retries=0)
        maps = Sitemaps(urls=(web.url("/maps/inside.txt"),))
        scope = Scope(hosts=("*",))
        view = await crawled(tmp_path, web, "/status/200", sitemaps=maps, fetch=fetch, scope=scope)
        assert (view["pages"], view["failed_reasons"]) == (1, BLOCKED)
        for proxy in proxies:
            assert set(proxy.targets) == {f"127.0.0.1:{web.port}"}
