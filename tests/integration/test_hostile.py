"""Code that misbehaves, on a worker that has other pages to do: spiders and plugins."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import (
    FAST,
    OVER,
    alive,
    command,
    crawl,
    items,
    run_of,
    submission,
    until,
)
from tests.integration.spiders import BASE, job
from tests.integration.test_executors import installed
from tests.web.echo_site import EchoSite, echo_site
from zcrawl.model.spec import Fetch, JobSpec, Politeness, SpiderLimits
from zcrawl.roles.embedded import EmbeddedCluster

HOSTILE = """
import ctypes, os, re, sys, time

class Test(Base):
    def start(self):
        for n in range(20):
            yield Request(f"{self.origin}/good/{n}", "good")
        for what in ("raises", "hangs", "spins", "matches", "eats", "exits", "leaves", "crashes",
                     "forks", "endless", "writes", "forges"):
            yield Request(f"{self.origin}/{what}", what, priority=5)

    def good(self, page):
        yield {"good": page.url}

    def raises(self, page):
        yield {"lost": "an item of a page that fails is not kept"}
        raise KeyError("nothing there")

    def hangs(self, page):
        while True:
            time.sleep(0.1)

    def spins(self, page):
        while True:
            pass

    def matches(self, page):
        re.match("(a+)+b", "a" * 60)  # inside C, with the interpreter's lock

    def eats(self, page):
        kept = []
        while True:
            kept.append(bytearray(10_000_000))

    def forks(self, page):
        if os.fork() == 0:  # it holds the pipes, and outlives its parent
            with open(FORKED, "a") as file:
                here = "/proc/self/fd"
                held = [os.path.realpath(f"{here}/{fd}") for fd in os.listdir(here)]
                print(os.getpid(), sum(path.endswith("/lock") for path in held), file=file)
            time.sleep(600)
        time.sleep(0.5)
        os._exit(0)

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
        from zcrawl.worker import spider_protocol as wire
        for fd in range(3, 20):
            try:
                os.write(fd, wire.frame(wire.Yielded([b"no JSON at all"], [])))
            except OSError:
                pass
        time.sleep(60)
"""


async def test_a_hostile_spider_takes_no_other_page_with_it(tmp_path: Path) -> None:
    """It raises, hangs, eats memory, exits, crashes and writes into its pipes; all its good pages
    and those of a plain job on the same worker are done, and the worker itself lives on. What it
    has started ends with it."""
    hostile = HOSTILE.replace("FORKED", repr(str(tmp_path / "forked")))
    with echo_site() as site:
        site.pages = {f"/plain/{n}": f"<a href=/plain/{n + 1}>".encode() for n in range(30)}
        spec = job(
            BASE + hostile, site, spider_limits=SpiderLimits(timeout=1.5, memory=400_000_000)
        )
        plain = JobSpec(name="plain", politeness=FAST, fetch=Fetch(allow_private=True))
        async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
            first = await cluster.ask("submit", submission(spec, [], tmp_path / "out.jsonl"))
            other = await crawl(cluster, plain, [f"{site.origin}/plain/0"])
            pids = {worker.pid for worker in cluster.snapshot().workers}
            await until(lambda: run_of(cluster, first["run"]).get("state") in OVER, 240)
            await cluster.flush_outputs()
            view = await cluster.ask("job", {"ref": str(first["job"])})
            assert {worker.pid for worker in cluster.snapshot().workers} == pids
            assert cluster.snapshot().restarts == 0
        assert (other["pages"], other["failed"]) == (31, 0)
        good = {item["good"] for item in items(tmp_path / "out.jsonl")}
        assert good == {f"{site.origin}/good/{n}" for n in range(20)}
        assert view["items"] == 20, "nothing of a page that failed"
        assert view["failed_reasons"] == {"quarantined": 10, "spider_error": 2}
        for path in ("hangs", "spins", "matches", "eats", "exits", "leaves", "crashes", "forks"):
            assert len(site.of(f"/{path}")) == 3, path
        assert len(site.of("/writes")) == len(site.of("/forges")) == 3
        forked = [line.split() for line in (tmp_path / "forked").read_text().splitlines()]
        assert len(forked) == 3
        assert not any(alive(int(pid)) for pid, _ in forked)
        assert {locks for _, locks in forked} == {"0"}, "the data folder's lock is not theirs"
        assert len(site.of("/raises")) == len(site.of("/endless")) == 1
        failed = command(
            "export", str(first["job"]), "--failed", "--data", tmp_path / "d", cwd=tmp_path
        )
        assert failed.returncode == 0, failed.stderr


async def test_under_default_limits_a_spider_holds_up_its_own_run_only(tmp_path: Path) -> None:
    """It hangs for as long as it may, and takes as much memory; a plain job on the same worker is
    done long before, and its own other pages afterwards."""
    source = HOSTILE.replace('"raises", "hangs", "spins"', '"spins"').replace(
        '"matches", "eats", "exits", "leaves", "crashes"', '"eats", "exits"'
    )
    source = source.replace('"forks", "endless", "writes", "forges"', '"leaves"')
    with echo_site() as site, echo_site() as elsewhere:
        elsewhere.pages = {f"/plain/{n}": f"<a href=/plain/{n + 1}>".encode() for n in range(30)}
        spec = job(BASE + source, site, fetch=Fetch(allow_private=True, retries=0))
        assert spec.spider_limits == SpiderLimits()
        plain = JobSpec(name="plain", politeness=FAST, fetch=Fetch(allow_private=True))
        async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
            first = await cluster.ask("submit", submission(spec, [], tmp_path / "out.jsonl"))
            await until(lambda: bool(site.of("/spins")), 60)
            other = await crawl(cluster, plain, [f"{elsewhere.origin}/plain/0"])
            assert run_of(cluster, first["run"])["state"] == "running", "it hangs meanwhile"
            await until(lambda: run_of(cluster, first["run"]).get("state") in OVER, 180)
            await cluster.flush_outputs()
            view = await cluster.ask("job", {"ref": str(first["job"])})
            assert cluster.snapshot().restarts == 0
        assert (other["pages"], other["failed"]) == (31, 0)
        assert len({item["good"] for item in items(tmp_path / "out.jsonl")}) == 20
        assert view["failed_reasons"] == {"spider_timeout": 1, "spider_memory": 1, "spider_died": 2}


PLUGINS = """
import asyncio, sys, time
from zcrawl.plugins import Middleware, Parsed

class Blocks:
    def execute(self, task):
        time.sleep(600)

class Spins:
    def execute(self, task):
        while True:
            pass

class Exits:
    def execute(self, task):
        sys.exit(3)

class ExitsAsync:
    async def execute(self, task):
        sys.exit(3)

class Stops:
    def execute(self, task):
        return next(iter(()))

class Reader:
    def __init__(self, how):
        self.how = how

    def accepts(self, url, content_type):
        if self.how == "picky":
            sys.exit(4)
        return True

    def parse(self, url, content_type, body):
        if self.how == "exits":
            sys.exit(4)
        time.sleep(600)

class Between(Middleware):
    def __init__(self, how):
        self.how = how

    def before_request(self, request):
        if self.how == "exits":
            sys.exit(5)
        return asyncio.Event().wait()
"""
EXECUTORS = ("Blocks", "Spins", "Exits", "ExitsAsync", "Stops")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with these plugins, which the workers of this test find."""
    groups = {"executors": EXECUTORS, "parsers": ("Reader",), "middlewares": ("Between",)}
    folder = installed(tmp_path / "installed", PLUGINS, groups)
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return folder


async def beside(
    tmp_path: Path, site: EchoSite, spec: JobSpec, seeds: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The views of this job and of a plain one, on one worker that lives through it and leaves
    when it is told to."""
    plain = JobSpec(name="plain", politeness=FAST, fetch=Fetch(allow_private=True))
    site.pages |= {f"/plain/{n}": f"<a href=/plain/{n + 1}>".encode() for n in range(30)}
    async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
        first = await cluster.ask("submit", submission(spec, seeds, None))
        other = await crawl(cluster, plain, [f"{site.origin}/plain/0"])
        await until(lambda: run_of(cluster, first["run"]).get("state") in OVER, 120)
        view = await cluster.ask("job", {"ref": str(first["job"])})
        assert cluster.snapshot().restarts == 0
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 25, "threads that hang hold up no end"
    assert (other["pages"], other["failed"]) == (31, 0)
    return view, other


ONE_BY_ONE = Politeness(rate=0, concurrency=1, robots=False)


@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        ("blocks", {"executor_timeout": 4, "plugin_stuck": 2}),
        ("spins", {"executor_timeout": 4, "plugin_stuck": 2}),
        ("exits", {"executor_error": 6}),
        ("exitsasync", {"executor_error": 6}),
        ("stops", {"executor_error": 6}),
    ],
)
async def test_an_executor_that_hangs_or_exits_takes_no_page_of_others_with_it(
    package: Path, tmp_path: Path, kind: str, reasons: dict[str, int]
) -> None:
    """Its thread cannot be ended, so a run gets no more of them when a few have stayed."""
    with echo_site() as site:
        spec = JobSpec(
            name="hostile",
            kind=kind,
            politeness=ONE_BY_ONE,
            fetch=Fetch(timeout=0.5, retries=0),
        )
        seeds = [f"http://tasks.invalid/{n}" for n in range(6)]
        view, _ = await beside(tmp_path, site, spec, seeds)
    assert view["failed_reasons"] == reasons


@pytest.mark.parametrize(
    ("plugin", "how", "reasons"),
    [
        ("reader", "hangs", {"parser_timeout": 3}),
        ("reader", "exits", {"parser_error": 3}),
        ("reader", "picky", {"parser_error": 3}),
        ("between", "hangs", {"middleware_error": 3}),
        ("between", "exits", {"middleware_error": 3}),
    ],
)
async def test_a_parser_or_middleware_that_hangs_or_exits_costs_its_pages_only(
    package: Path, tmp_path: Path, plugin: str, how: str, reasons: dict[str, int]
) -> None:
    """An exit is an error of its page, and what waits for ever is given up."""
    group = "parsers" if plugin == "reader" else "middlewares"
    with echo_site() as site:
        spec = JobSpec(
            name="hostile",
            politeness=ONE_BY_ONE,
            fetch=Fetch(timeout=1.0, retries=0, allow_private=True),
            plugins={plugin: {"how": how}},
            **{group: (plugin,)},  # type: ignore[arg-type]
        )
        view, _ = await beside(tmp_path, site, spec, [f"{site.origin}/{n}" for n in range(3)])
    assert view["failed_reasons"] == reasons
