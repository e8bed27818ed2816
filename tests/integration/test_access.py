"""Whole crawls through proxies, with credentials, cookies and a login."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.crawling import FAST, OVER, crawl, submission, until
from tests.web import MisbehavingWeb
from tests.web.proxies import HttpProxy, SocksProxy
from tests.web.shelf import Document
from zcrawl.fetch.keyring import JobRights
from zcrawl.model.spec import Auth, Fetch, JobSpec, Login, Politeness, Scope
from zcrawl.roles.embedded import EmbeddedCluster


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZCRAWL_SECRET_USER", "ann")
    monkeypatch.setenv("ZCRAWL_SECRET_PW", "s3cret")


def written_in(folder: Path, secret: bytes) -> list[Path]:
    """The files that hold it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if secret in path.read_bytes()]


async def test_a_crawl_goes_through_its_proxies_and_around_the_broken_ones(tmp_path: Path) -> None:
    """Four proxies, two of which fail in their own ways: every page is there, none failed and
    none was tried twice, and nothing came to the server by another way."""
    async with (
        MisbehavingWeb() as web,
        HttpProxy(user="ann", password="s3cret") as http,
        SocksProxy(user="ann", password="s3cret") as socks,
        HttpProxy(fault="hang_up") as broken,
        SocksProxy(fault="refuse") as refusing,
    ):
        proxies = tuple(
            proxy.url.replace("ann:s3cret", "${USER}:${PW}")
            for proxy in (broken, http, refusing, socks)
        )
        fetch = Fetch(proxies=proxies, proxy_rotation="round_robin", retries=0)
        spec = JobSpec("proxied", politeness=FAST, fetch=fetch)
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, [web.url("/good/30/0")])
        assert (view["pages"], view["failed_reasons"], view["skipped"]) == (30, {}, 0)
        assert http.served > 5
        assert socks.served > 0
        assert 1 <= broken.met < 10
        assert {hit.path for hit in web.log} >= {f"/good/30/{n}" for n in range(30)}
        assert "s3cret" not in json.dumps(view)
    assert not written_in(tmp_path, b"s3cret")


@pytest.mark.parametrize("fault", ["half", "garbage"])
@pytest.mark.parametrize("rotation", ["round_robin", "sticky", "least_failures"])
async def test_a_proxy_that_dies_in_the_middle_costs_no_page(
    tmp_path: Path, fault: str, rotation: str
) -> None:
    """Its answers break off, or are none, from the tenth page on. Nobody can tell that from a
    server that does so, until another proxy was asked: no page fails, with no retry to spare, and
    the proxy rests."""
    async with MisbehavingWeb() as web, HttpProxy() as first, HttpProxy() as other:
        fetch = Fetch(proxies=(first.url, other.url), proxy_rotation=rotation, retries=0)
        slow = Politeness(rate=40.0, concurrency=2, robots=False)
        spec = JobSpec("dies", politeness=slow, fetch=fetch)
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            await cluster.ask("submit", submission(spec, [web.url("/good/60/0")], None))
            await until(lambda: first.served + other.served >= 10)
            dies = max((first, other), key=lambda proxy: proxy.served)
            dies.fault, met = fault, dies.met
            await until(lambda: cluster.snapshot().runs[0].state in OVER)
            view = await cluster.ask("job", {"ref": "dies"})
        assert (view["pages"], view["failed_reasons"]) == (60, {})
        assert dies.met - met < 12


async def test_a_proxy_that_falls_silent_costs_time_and_no_page(tmp_path: Path) -> None:
    """Whichever of the two has the host: the next attempt of a page goes through the other one."""
    async with MisbehavingWeb() as web, HttpProxy() as first, HttpProxy() as other:
        fetch = Fetch(
            proxies=(first.url, other.url), proxy_rotation="sticky", retries=1, timeout=1.0
        )
        slow = Politeness(rate=40.0, concurrency=2, robots=False)
        spec = JobSpec("silent", politeness=slow, fetch=fetch)
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            await cluster.ask("submit", submission(spec, [web.url("/good/30/0")], None))
            await until(lambda: first.served + other.served >= 5)
            (first if first.served else other).fault = "hang"
            await until(lambda: cluster.snapshot().runs[0].state in OVER)
            view = await cluster.ask("job", {"ref": "silent"})
        assert (view["pages"], view["failed_reasons"]) == (30, {})


async def test_a_server_that_breaks_off_is_found_out_through_proxies_too(tmp_path: Path) -> None:
    """Two proxies say the same: it is the page's failure, by its name, and no proxy rests."""
    async with MisbehavingWeb() as web, SocksProxy() as first, SocksProxy() as other:
        fetch = Fetch(proxies=(first.url, other.url), proxy_rotation="round_robin", retries=0)
        spec = JobSpec("breaks", politeness=FAST, fetch=fetch)
        seeds = [web.url(f"/lies-long?{n}") for n in range(12)]
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, [*seeds, web.url("/good/20/0")])
        assert (view["pages"], view["failed_reasons"]) == (20, {"truncated": 12})


async def test_a_host_keeps_its_proxy_and_hosts_are_spread(tmp_path: Path) -> None:
    """Sticky, by two workers that do not talk to each other: each of 16 hosts comes by one proxy
    only, robots.txt included, and no proxy is left out."""
    async with MisbehavingWeb(hosts=16) as web, HttpProxy() as first, HttpProxy() as other:
        fetch = Fetch(proxies=(first.url, other.url), proxy_rotation="sticky")
        spec = JobSpec("sticky", politeness=Politeness(rate=0.0, spread=True), fetch=fetch)
        seeds = [f"http://127.0.0.1:{port}/fan/6" for port in web.ports]
        async with EmbeddedCluster(tmp_path, 2) as cluster:
            assert (await crawl(cluster, spec, seeds))["pages"] == 16 * 7
    assert not set(first.targets) & set(other.targets)
    assert first.targets
    assert other.targets
    assert len({*first.targets, *other.targets}) == 16


async def test_credentials_and_cookies_go_to_no_other_host(tmp_path: Path) -> None:
    """Neither by a link nor by a redirect, also where the other host is the same machine."""
    async with MisbehavingWeb() as web, MisbehavingWeb() as other:
        host = f"127.0.0.1:{web.port}"
        auth = (Auth(host, user="${USER}", password="${PW}"),)
        fetch = Fetch(allow_private=True, auth=auth, cookies=True)
        scope = Scope(hosts=("127.0.0.1", "localhost"), max_depth=1)
        there = f"http://localhost:{other.port}/status/200"
        seeds = [
            web.url("/enter/1"),
            web.url(f"/links-to?{there}"),
            web.url(f"/redirect-to?{there}?moved"),
        ]
        own = tuple(seeds)
        spec = JobSpec("own", seeds=own, politeness=FAST, fetch=fetch, scope=scope)
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, seeds)
        assert view["failed"] == 0
        assert {hit.path for hit in other.log} >= {"/status/200", "/status/200?moved"}
        assert not any({"authorization", "cookie"} & hit.headers.keys() for hit in other.log)
        assert all("authorization" in hit.headers for hit in web.log)
        assert any("cookie" in hit.headers for hit in web.log)


async def test_pages_wait_for_proxies_that_are_down_and_are_not_counted_against(
    tmp_path: Path,
) -> None:
    """With no retry to spare the page is still fetched when the proxy is back."""
    async with MisbehavingWeb() as web, HttpProxy(fault="hang_up") as proxy:
        fetch = Fetch(proxies=(proxy.url,), retries=0)
        spec = JobSpec("waits", politeness=FAST, fetch=fetch)
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            await cluster.ask("submit", submission(spec, [web.url("/good/2/0")], None))
            await until(lambda: proxy.met > 0)
            assert not web.log
            proxy.fault = ""
            await until(lambda: cluster.snapshot().runs[0].state in OVER)
            view = await cluster.ask("job", {"ref": "waits"})
    assert (view["pages"], view["failed"]) == (2, 0)


async def test_credentials_and_a_login_open_a_site(tmp_path: Path) -> None:
    """Basic auth for the host, a form before its first page, the cookie with every page; the
    password is in no view, no log and no database."""
    async with MisbehavingWeb() as web:
        spec = JobSpec(
            "members",
            seeds=(web.url("/members/5/0"),),
            politeness=FAST,
            fetch=Fetch(auth=(Auth("127.0.0.1", user="${USER}", password="${PW}"),)),
            login=Login(web.url("/login"), {"user": "${USER}", "password": "${PW}"}, "welcome"),
        )
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, [web.url("/members/5/0")])
        assert (view["pages"], view["failed"]) == (5, 0)
        assert web.hits("/login") == 1
        assert web.hits("/do-login") == 1
        assert all("authorization" in hit.headers for hit in web.log)
        assert "s3cret" not in json.dumps(view)
    assert not written_in(tmp_path, b"s3cret")


async def test_a_storm_of_cookies_does_not_shut_the_crawler_out(tmp_path: Path) -> None:
    """Each page sets ten more: the first ones are sent on, and never more than servers take."""
    async with MisbehavingWeb() as web:
        spec = JobSpec("crumbs", politeness=FAST, fetch=Fetch(cookies=True, retries=0))
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, [web.url("/crumbs/30/0")])
        assert (view["pages"], view["failed_reasons"]) == (30, {})
        assert len(web.log[-1].headers["cookie"]) > 4_000, "and what they take is used"


ODD_COOKIES = (
    *("=x", "alone", ";;;;", "a=\xfc", "b=\x7f", "c=\x01", "\xfc=d", "e=1; Max-Age=nan"),
    *("f=1; Expires=Wed, 99 Foo 2026 99:99:99 GMT", "g=1; Max-Age=99999999999999999999"),
    *("h=1; Domain=com", "i=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "j=1; Path"),
    f"k={'y' * 10_000}",
)


async def test_odd_cookies_spoil_neither_the_others_nor_the_pages_behind_them(
    tmp_path: Path,
) -> None:
    """What cannot be read or sent is left out; the good one is sent with every page, also by
    another process that has it from the store."""
    async with MisbehavingWeb() as web:
        headers = tuple(f"Set-Cookie: {odd}" for odd in (*ODD_COOKIES, "good=1; Path=/"))
        web.shelf = {"top": Document(links=("a", "b"), headers=headers), "c": Document("c")}
        web.shelf |= {"a": Document("a"), "b": Document("b", links=("c",))}
        slow = Politeness(rate=4.0, robots=False)
        spec = JobSpec("odd", politeness=slow, fetch=Fetch(cookies=True, retries=0))
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            await cluster.ask("submit", submission(spec, [web.url("/shelf/top")], None))
            await until(lambda: web.hits("/shelf/a") > 0)
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            await until(lambda: cluster.snapshot().runs[0].state in OVER)
            view = await cluster.ask("job", {"ref": "odd"})
        assert (view["pages"], view["failed_reasons"]) == (4, {})
        for hit in web.log[1:]:
            sent = {cookie.partition("=")[0] for cookie in hit.headers["cookie"].split("; ")}
            assert sent == {"alone", "e", "f", "g", "good", "j"} & sent, hit
            assert "good" in sent, hit


async def test_cookies_survive_a_restart(tmp_path: Path) -> None:
    """The page that sets the cookie was fetched before; those behind it come after."""
    async with MisbehavingWeb() as web:
        slow = Politeness(rate=8.0, robots=False)
        spec = JobSpec("door", politeness=slow, fetch=Fetch(cookies=True, retries=0))
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            await cluster.ask("submit", submission(spec, [web.url("/enter/12")], None))
            await until(lambda: web.hits("/members/12/1") > 0)
        assert web.hits("/members/12/11") == 0
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            await until(lambda: cluster.snapshot().runs[0].state in OVER)
            view = await cluster.ask("job", {"ref": "door"})
        assert (view["pages"], view["failed_reasons"]) == (13, {})
        assert web.hits("/enter/12") == 1


async def test_a_seed_that_redirects_releases_no_secret_to_its_target(tmp_path: Path) -> None:
    """The target's host joins the crawl, as the default scope has it, but not the hosts of the
    secret: the page behind the redirect is fetched without, and those that it links to are refused
    by name. Where the configuration names the host, all of them have it."""
    async with MisbehavingWeb() as web, MisbehavingWeb() as other:
        seed = web.url(f"/redirect-to?{other.url('/good/3/0')}")
        fetch = Fetch(allow_private=True, headers={"X-Key": "${PW}"}, retries=0)
        spec = JobSpec("moved", seeds=(seed,), politeness=FAST, fetch=fetch)
        async with EmbeddedCluster(tmp_path / "a", 1) as cluster:
            view = await crawl(cluster, spec, [seed])
        assert view["pages"] == 1
        assert view["failed_reasons"] == {"secret_not_released": 2}
        pages = [hit for hit in other.log if hit.path != "/robots.txt"]
        assert [hit.path for hit in pages] == ["/good/3/0"]
        assert not any("x-key" in hit.headers for hit in other.log)
        hosts: dict[str, tuple[str, ...]] = {
            "PW": (f"127.0.0.1:{web.port}", f"127.0.0.1:{other.port}")
        }
        rights = JobRights(owner=True, secrets=hosts)
        async with EmbeddedCluster(tmp_path / "b", 1, rights=rights) as cluster:
            view = await crawl(cluster, spec, [seed])
        assert (view["pages"], view["failed_reasons"]) == (3, {})
        sent = {hit.path for hit in other.log if hit.headers.get("x-key") == "s3cret"}
        assert {"/good/3/1", "/good/3/2"} <= sent
