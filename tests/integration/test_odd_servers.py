"""What servers write where a crawler expects a number, a date or rules: whole crawls of hosts that
each have their own oddity. None of it stops the crawl of its own host or of another one."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

from tests.integration.crawling import FAST, crawl
from tests.web.server import Hit, MisbehavingWeb
from zcrawl.model.spec import Fetch, JobSpec, Politeness
from zcrawl.roles.embedded import EmbeddedCluster

RULES = b"User-agent: *\nDisallow: /fan/3/1\n"
FORBIDS = 3  # pages of /fan/3 without the one that the rules forbid
ALLOWS = 4
# name: body, status, headers, pages
ROBOTS: dict[str, tuple[bytes, int, tuple[str, ...], int]] = {
    "a byte order mark": (b"\xef\xbb\xbf" + RULES, 200, (), FORBIDS),
    "CRLF": (RULES.replace(b"\n", b"\r\n"), 200, (), FORBIDS),
    "CR only": (RULES.replace(b"\n", b"\r"), 200, (), FORBIDS),
    "no new line at the end": (RULES.rstrip(), 200, (), FORBIDS),
    "only new lines": (b"\r\n" * 50_000, 200, (), ALLOWS),
    "binary": (bytes(range(256)) * 1_000, 200, (), ALLOWS),
    "a page": (b"<html><body>User-agent: * Disallow: /</body></html>", 200, (), ALLOWS),
    "nothing": (b"", 200, (), ALLOWS),
    "a part": (RULES, 206, (), FORBIDS),
    "compressed": (gzip.compress(RULES), 200, ("Content-Encoding: gzip",), FORBIDS),
    "a delay with a unit": (RULES + b"Crawl-delay: 5 s\n", 200, (), FORBIDS),
    "a delay that is no number": (RULES + b"Crawl-delay: nan\n", 200, (), FORBIDS),
    "an endless delay": (RULES + b"Crawl-delay: inf\n", 200, (), FORBIDS),
    "a delay back in time": (RULES + b"Crawl-delay: -3\n", 200, (), FORBIDS),
    "a rate of nothing": (RULES + b"Request-rate: 0/10\n", 200, (), FORBIDS),
    "a rate in no time": (RULES + b"Request-rate: 10/0\n", 200, (), FORBIDS),
    "a loop": (b"", 302, ("Location: /robots.txt",), ALLOWS),
    "a longer loop": (b"", 302, ("Location: /hops/50",), ALLOWS),
    "to a file": (b"", 302, ("Location: file:///etc/passwd",), ALLOWS),
    "to no URL": (b"", 302, ("Location: http://[::1",), ALLOWS),
    "to nowhere": (b"", 302, (), ALLOWS),
    "inside": (b"", 302, ("Location: http://169.254.169.254/robots.txt",), ALLOWS),
    "not modified": (b"", 304, (), ALLOWS),
}
WAITS = ["soon", "-5", "1.5", "1,%202", "0x10", "1e3", "date/-86400", "date/0", "0"]


async def test_odd_robots_txts_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    """What can be read is obeyed, what cannot forbids nothing, and no delay is made up."""
    async with contextlib.AsyncExitStack() as stack:
        webs: dict[str, MisbehavingWeb] = {}
        for name, (body, status, headers, _) in ROBOTS.items():
            web = MisbehavingWeb(robots=body, robots_status=status)
            web.robots_headers = headers
            webs[name] = await stack.enter_async_context(web)
        cluster = await stack.enter_async_context(EmbeddedCluster(tmp_path, 1))
        seeds = [web.url("/fan/3") for web in webs.values()]
        spec = JobSpec("odd", politeness=FAST, fetch=Fetch(retries=0))
        view = await crawl(cluster, spec, seeds)
        page_counts = {name: len({hit.path for hit in _pages(web)}) for name, web in webs.items()}
    assert page_counts == {name: pages for name, (*_, pages) in ROBOTS.items()}
    assert view["pages"] == sum(page_counts.values())
    assert view["failed"] == 0


def _pages(web: MisbehavingWeb) -> list[Hit]:
    return [hit for hit in web.log if hit.path.startswith("/fan")]


async def test_a_retry_after_that_says_nothing_is_none(tmp_path: Path) -> None:
    """The page is tried again after the usual pause, once, and the host goes on."""
    async with MisbehavingWeb(hosts=len(WAITS)) as web:
        pages = [f"http://127.0.0.1:{port}" for port in web.ports]
        busy = [f"{page}/retry-after/{wait}" for page, wait in zip(pages, WAITS, strict=True)]
        spec = JobSpec("waits", politeness=Politeness(rate=0.0, robots=False))
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, [*busy, *(f"{page}/fan/3" for page in pages)])
        for port in web.ports:
            paths = [hit.path for hit in web.log if hit.port == port]
            assert sum("retry-after" in path for path in paths) == 2, paths
    assert (view["pages"], view["failed"]) == (len(WAITS) * 5, 0)
