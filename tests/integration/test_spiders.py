"""Python spiders end to end: a file, the leader, the mesh, a child process of the worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import (
    FAST,
    alive,
    children,
    command,
    crawl,
    items,
    run_of,
    start,
    submission,
    until,
    wait_until,
)
from tests.web.echo_site import EchoSite, echo_site
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.submit.code import code_of
from zcrawl.submit.spec import Fetch, JobSpec, Politeness, Scope, SpiderLimits


def job(source: str, site: EchoSite, **changes: Any) -> JobSpec:
    """A job with the spider `Test` in `source`; its argument is the site's origin."""
    fields: dict[str, Any] = {
        "name": "spider",
        "spider": "test.py:Test",
        "spider_args": {"origin": site.origin},
        "code": code_of(textwrap.dedent(source).encode(), "test.py"),
        "politeness": FAST,
        "fetch": Fetch(allow_private=True),
    }
    return JobSpec(**{**fields, **changes})


BASE = """
from zcrawl.spider import Page, Request, Spider, on

class Base(Spider):
    def __init__(self, origin):
        self.origin = origin
"""


async def crawled(
    tmp_path: Path, spec: JobSpec, workers: int = 1, seeds: list[str] | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    out = tmp_path / "out.jsonl"
    async with EmbeddedCluster(tmp_path / "d", workers) as cluster:
        view = await crawl(cluster, spec, seeds or [], out)
    return view, items(out)


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
        view, found = await crawled(tmp_path, job(BASE + WAYS, site))
        by_place = {one["where"]: one for one in found if "where" in one}
        assert by_place[f"{site.origin}/book/1"]["handler"] == "book"
        assert by_place["/api/x"]["handler"] == "data"
        other = by_place[f"{site.origin}/other"]
        assert (other["handler"], other["title"]) == ("parse", "Other page")
        assert other["links"] == [f"{site.origin}/book/1"] and other["type"] == "text/html"
        sent = sorted(
            (one["method"], one["body"], one["meta"].get("q")) for one in found if "body" in one
        )
        assert sent == [("POST", "q=one", 1), ("POST", "q=two", 2), ("PUT", '{"a":[1]}', None)]
        (put,) = [one for one in found if one.get("method") == "PUT"]
        assert (put["key"], put["type"]) == ("k", "application/json")
        assert view["skipped_reasons"] == {"start": 1}
        assert (view["pages"], view["failed"], view["state"]) == (7, 0, "completed")


HOSTILE = """
import ctypes, os, sys, time

class Test(Base):
    def start(self):
        for n in range(20):
            yield Request(f"{self.origin}/good/{n}", "good")
        for what in ("raises", "hangs", "eats", "exits", "leaves", "crashes", "endless", "writes",
                     "forges"):
            yield Request(f"{self.origin}/{what}", what, priority=5)

    def good(self, page):
        yield {"good": page.url}

    def raises(self, page):
        yield {"lost": "an item of a page that fails is not kept"}
        raise KeyError("nothing there")

    def hangs(self, page):
        while True:
            time.sleep(0.1)

    def eats(self, page):
        kept = []
        while True:
            kept.append(bytearray(10_000_000))

    def exits(self, page):
        sys.exit(0)

    def leaves(self, page):
        os._exit(3)

    def crashes(self, page):
        ctypes.string_at(0)

    def endless(self, page):
        while True:
            yield {"more": "x" * 1000}

    def writes(self, page):
        print("on stdout")
        for fd in range(3, 20):
            try:
                os.write(fd, b"nonsense" * 10)
            except OSError:
                pass
        os._exit(0)

    def forges(self, page):
        from zcrawl.worker import spider_wire as wire
        for fd in range(3, 20):
            try:
                os.write(fd, wire.frame(wire.Yielded([b"no JSON at all"], [])))
            except OSError:
                pass
        time.sleep(60)
"""


async def test_a_hostile_spider_takes_no_other_page_with_it(tmp_path: Path) -> None:
    """It raises, hangs, eats memory, exits, crashes and writes into its pipes; all its good pages
    and those of a plain job on the same worker are done, and the worker itself lives on."""
    with echo_site() as site:
        site.pages = {f"/plain/{n}": f"<a href=/plain/{n + 1}>".encode() for n in range(30)}
        spec = job(
            BASE + HOSTILE, site, spider_limits=SpiderLimits(timeout=1.5, memory=400_000_000)
        )
        plain = JobSpec(name="plain", politeness=FAST, fetch=Fetch(allow_private=True))
        async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
            first = await cluster.ask("submit", submission(spec, [], tmp_path / "out.jsonl"))
            other = await crawl(cluster, plain, [f"{site.origin}/plain/0"])
            pids = {one["pid"] for one in cluster.snapshot()["workers"]}
            await until(lambda: run_of(cluster, first["run"]).get("state") == "completed", 120)
            await cluster.flush_outputs()
            view = await cluster.ask("job", {"ref": str(first["job"])})
            assert {one["pid"] for one in cluster.snapshot()["workers"]} == pids
            assert cluster.snapshot()["restarts"] == 0
        assert (other["pages"], other["failed"]) == (31, 0)
        good = {one["good"] for one in items(tmp_path / "out.jsonl")}
        assert good == {f"{site.origin}/good/{n}" for n in range(20)}
        assert view["items"] == 20, "nothing of a page that failed"
        assert view["failed_reasons"] == {"quarantined": 7, "spider_error": 2}
        for path in ("/hangs", "/eats", "/exits", "/leaves", "/crashes", "/writes", "/forges"):
            assert len(site.of(path)) == 3, path
        assert len(site.of("/raises")) == len(site.of("/endless")) == 1
        failed = command(
            "export", str(first["job"]), "--failed", "--data", tmp_path / "d", cwd=tmp_path
        )
        assert failed.returncode == 0, failed.stderr


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
        view, found = await crawled(tmp_path, job(BASE + PRICED, site, schema=schema))
    assert [one["title"] for one in found] == ["good"]
    assert view["items"] == 1
    assert view["rejected_items"] == {"schema: price": 1, "schema: item": 1}
    done = command("export", "spider", "--rejected", "--data", "d", cwd=tmp_path)
    aside = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["item"] for one in aside] == [{"title": "free", "price": 0}, {"price": 1.0}]
    assert all(one["url"] == site.origin + "/" and one["errors"] for one in aside)


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
        view, found = await crawled(tmp_path, spec)
        paths = [one["path"] for one in site.asked if one["path"] != "/robots.txt"]
        assert paths == ["/two", "/one", "/three"]
        assert {one["url"].rpartition("/")[2] for one in found} == {"one", "two", "three"}
        assert view["skipped_reasons"] == {"robots": 1, "start": 1}
        (blocked,) = view["failed_reasons"]
        assert blocked.startswith("blocked_address")
        assert view["rejected_links"] == {
            "bad_header": 3,
            "bad_method": 3,
            "excluded": 3,
            "out_of_scope_host": 3,
            "unsupported_scheme": 3,
        }


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
        _, found = await crawled(tmp_path, job(BASE + REDIRECTS, site))
        assert sorted(found, key=lambda one: one["m"]) == [
            {"m": 1, "method": "GET", "body": "", "auth": None, "kept": None},
            {"m": 2, "method": "POST", "body": "b", "auth": None, "kept": "yes"},
        ]


async def test_a_job_waits_for_a_worker_that_has_its_spider_and_says_so(tmp_path: Path) -> None:
    """A package that no worker has: nothing fails, and the job tells what it waits for."""
    with echo_site() as site:
        spec = JobSpec(
            name="absent",
            spider="no_such_package.books:Books",
            politeness=FAST,
            fetch=Fetch(allow_private=True),
        )
        async with EmbeddedCluster(tmp_path / "d", 2) as cluster:
            reply = await cluster.ask("submit", submission(spec, [site.origin + "/"], None))
            says = "waiting: no worker has spider 'no_such_package.books:Books'"
            await until(lambda: run_of(cluster, reply["run"]).get("reason") == says)
            view = await cluster.ask("job", {"ref": "absent"})
            assert (view["reason"], view["state"], view["failed"]) == (says, "running", 0)
            other = await crawl(
                cluster, JobSpec(name="plain", politeness=FAST), [site.origin + "/"]
            )
            assert other["pages"] == 1, "other jobs go on"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('at import')", "spider_load"),
        ("class Other: pass", "spider_load"),
        ("class Test: pass", "spider_load"),
    ],
)
async def test_a_spider_that_cannot_be_loaded_fails_its_pages_by_name(
    tmp_path: Path, source: str, reason: str
) -> None:
    """An exception at import, a missing name, a class that is no Spider."""
    with echo_site() as site:
        view, _ = await crawled(tmp_path, job(source, site))
        assert view["failed_reasons"] == {reason: 1}


FUNCTION = """
from zcrawl.spider import Request

def crawl(page):
    yield {"page": page.url}
    yield Request("/next", handler=last)

async def last(page):
    yield {"last": page.url}
"""


def test_a_spider_may_be_one_function_and_survives_a_kill(tmp_path: Path) -> None:
    """By the command, with seeds of the job; kill -9 and --resume lose neither code nor extras,
    and the child of a killed worker ends with it."""
    with echo_site() as site:
        (tmp_path / "spider.py").write_text(FUNCTION)
        args = ("--spider", "spider.py:crawl", "--allow-private", "--data", "d", "--workers", 1)
        seeds = [f"{site.origin}/s{n}" for n in range(40)]
        first = start("crawl", *seeds, *args, "--rate", 10, "--out", "o.jsonl", cwd=tmp_path)
        out = tmp_path / "o.jsonl"
        wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") > 3)
        (worker,) = [pid for pid in children(first.pid) if children(pid)]
        (child,) = children(worker)
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        wait_until(lambda: not alive(worker) and not alive(child), 10)
        done = command("crawl", "--resume", "--data", "d", "--workers", 1, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = items(out)
        assert sorted(one["page"] for one in found if "page" in one) == sorted(seeds)
        assert [one["last"] for one in found if "last" in one] == [f"{site.origin}/next"]
        assert json.loads(done.stdout.splitlines()[-1])["failed"] == 0


async def test_a_plain_crawl_starts_no_child(tmp_path: Path) -> None:
    """Pages that use no spider pay for none: the worker has no child process."""
    with echo_site() as site:
        async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
            await crawl(cluster, JobSpec(name="plain", politeness=FAST), [site.origin + "/"])
            (pid,) = [one["pid"] for one in cluster.snapshot()["workers"]]
            assert await asyncio.to_thread(children, pid) == []
