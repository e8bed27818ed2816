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
from tests.integration.spiders import crawled, job
from tests.web.echo_site import echo_site
from zcrawl.model.spec import Fetch, JobSpec
from zcrawl.roles.embedded import EmbeddedCluster


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
            says = "waiting: no live worker has spider 'no_such_package.books:Books' yet"
            await until(lambda: run_of(cluster, reply["run"]).get("reason") == says)
            view = await cluster.ask("job", {"ref": "absent"})
            # A worker may take the start before it knows that it lacks the spider.
            assert (view["reason"], view["failed"]) == (says, 0)
            assert view["state"] in ("pending", "running")
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
    """An exception at import, a missing name, a class that is not a Spider."""
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
        crawled_items = items(out)
        assert sorted(item["page"] for item in crawled_items if "page" in item) == sorted(seeds)
        assert [item["last"] for item in crawled_items if "last" in item] == [f"{site.origin}/next"]
        assert json.loads(done.stdout.splitlines()[-1])["failed"] == 0
