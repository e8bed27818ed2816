"""Speed as a ratio, so that a change which makes crawls several times slower is noticed at once.

No figure: those are `make bench`'s. The yardstick is a loop that only fetches and parses the same
pages on the same machine in the same minute; a crawl has been at about six tenths of its speed.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import aiohttp
from selectolax.lexbor import LexborHTMLParser

from tests.integration.crawling import command
from tests.servers.nginx_site import nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL

AT_ONCE = 32
LEAST_RATIO = 0.15
ROUNDS = 2  # the best of each: a neighbour's burst of work hits one of them


async def bare_rate(urls: list[str]) -> float:
    """Pages per second of a loop that fetches and parses, and does nothing else."""
    waiting = iter(urls)

    async def worker(session: aiohttp.ClientSession) -> None:
        for url in waiting:
            async with session.get(url) as response:
                LexborHTMLParser(await response.read()).css("a[href]")

    began = time.monotonic()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker(session))
    return len(urls) / (time.monotonic() - began)


def crawl_rate(url: str, data: Path) -> float:
    flags = ("--rate", 0, "--concurrency", AT_ONCE, "--workers", 1, "--json")
    done = command("crawl", url, *flags, "--data", data, "--out", data / "o.jsonl", cwd=data.parent)
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout.splitlines()[-1])["pages_per_second"])


def test_a_crawl_is_not_many_times_slower_than_fetching_and_parsing(tmp_path: Path) -> None:
    """One worker without a pace, start and stop not counted."""
    with nginx_site(POSTGRES_MANUAL) as site:
        urls = [site.url + file.name for file in POSTGRES_MANUAL.glob("*.html")]
        bare = max(asyncio.run(bare_rate(urls)) for _ in range(ROUNDS))
        crawled = max(crawl_rate(site.url + "index.html", tmp_path / str(n)) for n in range(ROUNDS))
    assert crawled > LEAST_RATIO * bare, f"{crawled:.0f} pages/s, bare {bare:.0f}"
