"""Python spiders end to end: a file, the leader, the mesh, a child process of the worker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.integration.crawling import FAST, children, command, crawl
from tests.integration.spiders import BASE, crawled, job
from tests.web.echo_site import echo_site
from zcrawl.model.spec import JobSpec, Politeness, Scope
from zcrawl.roles.embedded import EmbeddedCluster

WAYS = """
import dataclasses

@dataclasses.dataclass
class Found:
    where: str
    handler: str

class Test(Base):
    def start(self):
        yield Request(self.origin + "/list", handler=self.list_page, meta={"depth": 1})

    def list_page(self, page):
        assert page.meta == {"depth": 1} and page.status == 200
        for link in page.css("a"):
            yield Request(link.attributes["href"])
        yield Request("/search", "found", form={"q": "one"}, meta={"q": 1})
        yield Request("/search", "found", form={"q": "two"}, meta={"q": 2})
        yield Request("/search", "found", form={"q": "two"}, meta={"q": 3})
        yield Request("/put", "found", method="PUT", json={"a": [1]}, headers={"X-Key": "k"})

    @on(r"/book/")
    async def book(self, page):
        return [Found(page.url, "book")]

    @on(type="application/json")
    def data(self, page):
        return {"where": page.json()["path"], "handler": "data"}

    def parse(self, page):
        yield {"where": page.url, "handler": "parse", "title": page.text_of("h1"),
               "links": page.links, "type": page.response.headers["content-type"]}

    async def found(self, page):
        told = page.json()
        yield {"body": told["body"], "method": told["method"], "meta": page.meta,
               "key": told["headers"].get("x-key"), "type": told["headers"].get("content-type")}
"""


async def test_handlers_yield_items_and_requests_of_every_kind(tmp_path: Path) -> None:
    """Handlers by name, by method and by kind, plain, async and generators; forms, JSON, headers
    and metadata arrive; equal POSTs are one request, different ones are two."""
    with echo_site() as site:
        site.pages = {
            "/list": b"<a href=/book/1>1</a><a href='other'>2</a><a href=/api/x>3</a>",
            "/book/1": b"<h1>Book</h1>",
            "/other": b"<h1> Other  page </h1><a href=/book/1>b</a>",
        }
        view, crawled_items = await crawled(tmp_path, job(BASE + WAYS, site))
        by_place = {item["where"]: item for item in crawled_items if "where" in item}
        assert by_place[f"{site.origin}/book/1"]["handler"] == "book"
        assert by_place["/api/x"]["handler"] == "data"
        other = by_place[f"{site.origin}/other"]
        assert (other["handler"], other["title"]) == ("parse", "Other page")
        assert other["links"] == [f"{site.origin}/book/1"]
        assert other["type"] == "text/html"
        sent = sorted(
            (item["method"], item["body"], item["meta"].get("q"))
            for item in crawled_items
            if "body" in item
        )
        assert sent == [("POST", "q=one", 1), ("POST", "q=two", 2), ("PUT", '{"a":[1]}', None)]
        (put,) = [item for item in crawled_items if item.get("method") == "PUT"]
        assert (put["key"], put["type"]) == ("k", "application/json")
        assert view["skipped_reasons"] == {"start": 1}
        assert (view["pages"], view["failed"], view["state"]) == (7, 0, "completed")


PRICED = """
class Test(Base):
    def start(self):
        yield Request(self.origin + "/")

    def parse(self, page):
        yield {"title": "good", "price": 2.5}
        yield {"title": "free", "price": 0}
        yield {"price": 1.0}
"""


async def test_items_of_a_spider_are_held_to_the_jobs_schema(tmp_path: Path) -> None:
    """Those that break it are set aside with the reason, counted, and listed; not lost."""
    schema = {
        "required": ["title"],
        "properties": {"price": {"type": "number", "exclusiveMinimum": 0}},
    }
    with echo_site() as site:
        view, crawled_items = await crawled(tmp_path, job(BASE + PRICED, site, schema=schema))
    assert [row["title"] for row in crawled_items] == ["good"]
    assert view["items"] == 1
    assert view["rejected_items"] == {"schema: price": 1, "schema: item": 1}
    done = command("export", "spider", "--rejected", "--data", "d", cwd=tmp_path)
    aside = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["item"] for row in aside] == [{"title": "free", "price": 0}, {"price": 1.0}]
    assert all(row["url"] == site.origin + "/" and row["errors"] for row in aside)


POLITE = """
class Test(Base):
    def start(self):
        yield Request(self.origin + "/forbidden")
        yield Request(self.origin + "/one", priority=1)
        yield Request(self.origin + "/two", priority=9)
        yield Request("http://169.254.169.254/latest")

    def parse(self, page):
        yield {"url": page.url}
        yield Request("/three")
        yield Request("/private/x")
        yield Request("http://elsewhere.test/")
        yield Request("mailto:x@y.z")
        yield Request("/bad", method="CONNECT")
        yield Request("/bad", headers={"X": "a\\r\\nHost: b"})
"""


async def test_a_spider_is_held_to_robots_scope_guard_and_order(tmp_path: Path) -> None:
    """What robots.txt forbids, the scope excludes or the guard blocks is not fetched; a higher
    priority goes first; requests that cannot be are counted by their reason."""
    with echo_site("User-agent: *\nDisallow: /forbidden\n") as site:
        spec = job(
            BASE + POLITE,
            site,
            scope=Scope(exclude=("/private/",)),
            politeness=Politeness(rate=20, concurrency=1),
        )
        view, crawled_items = await crawled(tmp_path, spec)
        paths = [request["path"] for request in site.requests if request["path"] != "/robots.txt"]
        assert paths == ["/two", "/one", "/three"]
        assert {item["url"].rpartition("/")[2] for item in crawled_items} == {"one", "two", "three"}
        assert view["skipped_reasons"] == {"robots": 1, "start": 1}
        (blocked,) = view["failed_reasons"]
        assert blocked.startswith("blocked_address")
        assert view["rejected_links"] == {
            "bad_header": 3,
            "bad_method": 3,
            "unsupported_scheme": 3,
        }
        assert view["dropped"] == {"excluded": 3, "out_of_scope_host": 3}


REDIRECTS = """
class Test(Base):
    def start(self):
        yield Request(self.origin + "/here", "arrived", form={"a": "1"}, meta={"m": 1})
        yield Request(self.origin + "/away", "arrived", method="POST", body="b", meta={"m": 2},
                      headers={"Authorization": "secret", "X-Kept": "yes"})

    def arrived(self, page):
        told = page.json()
        yield {"m": page.meta["m"], "method": told["method"], "body": told["body"],
               "auth": told["headers"].get("authorization"), "kept": told["headers"].get("x-kept")}
"""


async def test_a_redirected_request_keeps_its_handler_and_metadata(tmp_path: Path) -> None:
    """Within a host and to another one; a 303 becomes a GET, a 307 stays; credentials stay home."""
    with echo_site() as site, echo_site() as far:
        site.redirects = {"/here": (303, "/there"), "/away": (307, f"{far.origin}/target")}
        _, crawled_items = await crawled(tmp_path, job(BASE + REDIRECTS, site))
        assert sorted(crawled_items, key=lambda item: item["m"]) == [
            {"m": 1, "method": "GET", "body": "", "auth": None, "kept": None},
            {"m": 2, "method": "POST", "body": "b", "auth": None, "kept": "yes"},
        ]


async def test_a_plain_crawl_starts_no_child(tmp_path: Path) -> None:
    """Pages that use no spider pay for none: the worker has no child process."""
    with echo_site() as site:
        async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
            await crawl(cluster, JobSpec(name="plain", politeness=FAST), [site.origin + "/"])
            (pid,) = [worker.pid for worker in cluster.snapshot().workers]
            assert await asyncio.to_thread(children, pid) == []


ENVIRON = """
import os

class Test(Base):
    def start(self):
        yield Request(self.origin + "/x")

    def parse(self, page):
        yield {"names": sorted(os.environ)}
"""


async def test_a_spider_gets_no_credentials_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process has a small environment: no secrets, keys and passwords, and nothing unknown."""
    for name in ("ZCRAWL_SECRET_PW", "ZCRAWL_CONSUL__TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("MARKER", "there")
    with echo_site() as site:
        _, (item,) = await crawled(tmp_path, job(BASE + ENVIRON, site))
    assert "PATH" in item["names"], "or it proves nothing"
    assert "MARKER" not in item["names"]
    assert not [name for name in item["names"] if name.startswith(("ZCRAWL_", "AWS_"))]
