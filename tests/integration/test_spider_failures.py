"""Spiders that misbehave, are missing, cannot be loaded, or are killed: nothing else suffers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

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
from tests.integration.spiders import BASE, crawled, job
from tests.web.echo_site import echo_site
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.submit.spec import Fetch, JobSpec, SpiderLimits

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
