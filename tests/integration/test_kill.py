"""Plugs are pulled at random moments of a crawl by command: the result is as if nothing happened.

The crawl is one of the PostgreSQL manual at 300 pages a second, shared by two workers. The
expected set is the folder's files: `test_manuals` shows that all of them can be reached.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.crawling import alive, children, command, items, start, wait_until
from tests.servers.nginx_site import NginxSite, nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL

JOB = """
name = "manual"
[politeness]
rate = {rate}
burst = 20
concurrency = 16
spread = true
"""


@pytest.fixture(scope="module")
def site() -> Iterator[NginxSite]:
    with nginx_site(POSTGRES_MANUAL) as site:
        yield site


class Crawl:
    """A crawl that is started, disturbed, and started again until it is done."""

    def __init__(self, site: NginxSite, folder: Path, rate: int = 300) -> None:
        self.site, self.folder = site, folder
        self.out, self.data = folder / "o.jsonl", folder / "d"
        (folder / "job.toml").write_text(JOB.format(rate=rate))

    def start(self) -> subprocess.Popen[str]:
        """From the seed if no submission was committed yet, else by --resume."""
        args: tuple[object, ...] = ("--resume",)
        if not self._submitted():
            args = (self.site.url + "index.html", "--job", "job.toml", "--out", self.out)
        return start("crawl", *args, "--workers", 2, "--data", self.data, cwd=self.folder)

    def _submitted(self) -> bool:
        if not (self.data / "zcrawl.db").exists():
            return False
        listed = command("jobs", "--data", self.data, "--json", cwd=self.folder)
        return listed.returncode == 0 and bool(json.loads(listed.stdout))

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """The crawl, begun or gone on with; ended by force whatever the test comes to."""
        process = self.start()
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def pages(self) -> int:
        return self.out.read_bytes().count(b"\n") if self.out.exists() else 0

    def finish(self, process: subprocess.Popen[str]) -> None:
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, stderr

    def check(self) -> None:
        """Same set in file and database, nothing twice, nothing failed, nothing left over."""
        root = self.site.url
        expected = {root + file.name for file in POSTGRES_MANUAL.glob("*.html")}
        urls = [item["url"] for item in items(self.out)]
        assert [url for url, n in Counter(urls).items() if n > 1] == []
        assert set(urls) == expected
        with contextlib.closing(sqlite3.connect(self.data / "zcrawl.db")) as database:
            stored = [
                json.loads(row[0])["url"] for row in database.execute("SELECT data FROM items")
            ]
            (run,) = database.execute(
                "SELECT state, pending, admitted, done, failed, items FROM runs"
            )
            (pages,) = database.execute("SELECT COUNT(*) FROM pages").fetchone()
        assert sorted(stored) == sorted(urls)
        assert run == ("completed", 0, *[len(expected)] * 2, 0, len(expected))
        assert pages == len(expected)


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_killed_at_random_moments_lose_nothing(
    site: NginxSite, tmp_path: Path, seed: int
) -> None:
    """Five times kill -9 of one of two workers: the crawl completes by itself, none failed."""
    rng = random.Random(seed)
    crawl = Crawl(site, tmp_path)
    with crawl.running() as process:
        killed = 0
        wait_until(lambda: bool(children(process.pid)), 30)  # a busy machine starts late
        for _ in range(5):
            time.sleep(rng.uniform(0.2, 1.0))
            workers = [pid for pid in children(process.pid) if alive(pid)]
            if workers:
                os.kill(rng.choice(workers), signal.SIGKILL)
                killed += 1
        assert killed >= 3
        crawl.finish(process)
    crawl.check()


@pytest.mark.parametrize("seed", [3, 4])
def test_a_master_killed_at_random_moments_loses_nothing(
    site: NginxSite, tmp_path: Path, seed: int
) -> None:
    """Three times kill -9 of the whole command, also while it starts, then --resume."""
    rng = random.Random(seed)
    crawl = Crawl(site, tmp_path)
    for most in (1.0, 2.5, 2.5):
        with crawl.running():
            time.sleep(rng.uniform(0.3, most))
    with crawl.running() as process:
        crawl.finish(process)
    crawl.check()


@pytest.mark.parametrize("seed", [5, 6])
def test_a_master_and_workers_killed_together_lose_nothing(
    site: NginxSite, tmp_path: Path, seed: int
) -> None:
    """All processes at once, in any order, in mid-crawl, twice; then --resume."""
    rng = random.Random(seed)
    crawl = Crawl(site, tmp_path)
    for _ in range(2):
        with crawl.running() as process:
            before, more = crawl.pages(), rng.randrange(30, 300)
            wait_until(lambda: crawl.pages() >= before + more, 30)  # noqa: B023 - called at once
            victims = [process.pid, *children(process.pid)]
            rng.shuffle(victims)
            for pid in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    with crawl.running() as process:
        crawl.finish(process)
    crawl.check()


def test_a_worker_that_is_killed_before_the_master_is_killed_loses_nothing(
    site: NginxSite, tmp_path: Path
) -> None:
    """A worker dies, its URLs go elsewhere, and the master dies in the midst of that."""
    rng = random.Random(7)
    crawl = Crawl(site, tmp_path)
    with crawl.running() as process:
        wait_until(lambda: crawl.pages() >= 100, 30)
        os.kill(rng.choice(children(process.pid)), signal.SIGKILL)
        time.sleep(rng.uniform(0.0, 0.4))
    with crawl.running() as process:
        crawl.finish(process)
    crawl.check()


def test_a_worker_that_sleeps_for_15_seconds_changes_nothing(
    site: NginxSite, tmp_path: Path
) -> None:
    """SIGSTOP in mid-crawl: the other worker does its work once it is lost. SIGCONT: what it had in
    hand is no second item. (That late results do arrive is shown in test_processes.)"""
    crawl = Crawl(site, tmp_path, rate=60)
    with crawl.running() as process:
        wait_until(lambda: crawl.pages() >= 100, 30)
        sleeper = min(children(process.pid))
        os.kill(sleeper, signal.SIGSTOP)
        try:
            time.sleep(15)
            assert process.poll() is None, "the crawl is too short for this test"
        finally:
            os.kill(sleeper, signal.SIGCONT)
        crawl.finish(process)
    crawl.check()
