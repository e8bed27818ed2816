"""Whole crawls of sites with pages that were written to hold a worker, and workers that are held.

Real processes: workers, the children that parse for them, and the watchdog that ends a worker.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.crawling import (
    FAST,
    OVER,
    alive,
    children,
    crawl,
    items,
    run_of,
    submission,
    until,
    wait_until,
)
from tests.integration.test_executors import installed
from tests.web.monsters import MONSTERS
from tests.web.static_site import static_site
from zcrawl.model.spec import Fetch, JobSpec, Scope
from zcrawl.roles import place
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.runtime.watchdog import STUCK

HTML = "text/html; charset=utf-8"
HANGS = b"<title>hangs</title><p " + b" ".join(b"a%d" % n for n in range(150_000)) + b">"
ORDINARY = 40


def site(monsters: dict[str, bytes]) -> dict[str, tuple[str, bytes]]:
    """A first page that links to the monsters, then to ordinary pages."""
    links = [*monsters, *(f"/ordinary/{n}" for n in range(ORDINARY))]
    first = "".join(f"<a href={link}>x</a>" for link in links).encode()
    pages = {"/": (HTML, first)}
    pages |= {f"/ordinary/{n}": (HTML, b"<title>%d" % n) for n in range(ORDINARY)}
    return pages | {path: (HTML, body) for path, body in monsters.items()}


def job(name: str, max_depth: int | None = None) -> JobSpec:
    scope = Scope(max_depth=max_depth)
    return JobSpec(name=name, politeness=FAST, scope=scope, fetch=Fetch(allow_private=True))


async def test_monsters_cost_their_own_pages_only(tmp_path: Path) -> None:
    """One page never ends: it is dead with a name after 10 s. All others are done, or dead with
    such a name, each once, and the worker lives through all of it."""
    chance = random.Random(1)
    monsters = {f"/{kind}": MONSTERS[kind](150_000, chance) for kind in sorted(MONSTERS)}
    del monsters["/null_bytes"]  # binary data, which is skipped
    with static_site(site(monsters | {"/hangs": HANGS})) as origin:
        async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
            request = submission(job("monsters", 1), [f"{origin}/"], tmp_path / "out.jsonl")
            run = (await cluster.ask("submit", request))["run"]
            await until(lambda: run_of(cluster, run).get("state") in OVER, 240)
            await cluster.flush_outputs()
            view = await cluster.ask("job", {"ref": "monsters"})
            assert cluster.snapshot().restarts == 0
    assert set(view["failed_reasons"]) <= {"parse_timeout", "parse_memory"}
    assert view["failed_reasons"]["parse_timeout"] >= 1
    urls = [item["url"] for item in items(tmp_path / "out.jsonl")]
    assert len(urls) == len(set(urls)), "each page once"
    assert {f"{origin}/ordinary/{n}" for n in range(ORDINARY)} <= set(urls)
    assert f"{origin}/hangs" not in urls


async def test_the_loop_turns_while_a_monster_is_parsed(tmp_path: Path) -> None:
    """Pages one after the other come at their usual pace beside one that hangs."""
    chain = {f"/{n}": (HTML, b"<a href=/%d>" % (n + 1)) for n in range(30)}
    chain["/30"] = (HTML, b"the end")
    chain["/0"] = (HTML, b"<a href=/hangs></a><a href=/1>")
    with static_site({**chain, "/hangs": (HTML, HANGS)}) as origin:
        async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
            request = submission(job("chain"), [f"{origin}/0"], None)
            run = (await cluster.ask("submit", request))["run"]
            await until(lambda: run_of(cluster, run).get("pages", 0) == 31)
            assert run_of(cluster, run)["failed"] == 0, "all 31 came while one was parsed"
            await until(lambda: run_of(cluster, run).get("state") in OVER)


async def test_sigterm_ends_a_worker_whatever_it_parses(tmp_path: Path) -> None:
    """It finishes what it began, and a page takes 10 s at most; its child ends with it."""
    with static_site({"/": (HTML, HANGS)}) as origin:
        async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
            before = set(children(os.getpid()))
            await cluster.ask("submit", submission(job("one"), [f"{origin}/"], None))
            workers = [pid for pid in before if children(pid) or _is_worker(pid)]
            await until(lambda: any(children(pid) for pid in workers))
            (worker,) = [pid for pid in workers if children(pid)]
            (parsing,) = children(worker)
            began = time.monotonic()
            os.kill(worker, signal.SIGTERM)
            await until(lambda: not alive(worker), 30)
            assert time.monotonic() - began < 25
            await until(lambda: not alive(parsing), 5)


async def test_a_child_that_parses_ends_with_its_worker(tmp_path: Path) -> None:
    """However the worker dies, nobody goes on parsing."""
    with static_site({"/": (HTML, HANGS)}) as origin:
        async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
            await cluster.ask("submit", submission(job("one"), [f"{origin}/"], None))
            await until(lambda: any(children(pid) for pid in children(os.getpid())))
            (worker,) = [pid for pid in children(os.getpid()) if children(pid)]
            (parsing,) = children(worker)
            os.kill(worker, signal.SIGKILL)
            await until(lambda: not alive(parsing), 5)


def _is_worker(pid: int) -> bool:
    return b"worker_main" in Path(f"/proc/{pid}/cmdline").read_bytes()


# ---------------------------------------------------------------- the watchdog

PLUGIN = """
import re

class Backtracks:
    def __init__(self, **options):
        pass

    def accepts(self, url, content_type):
        return url.endswith("/stuck")

    def parse(self, url, content_type, body):
        re.match(r"(a+)+$", "a" * 60 + "b")  # for years, and no other thread gets the GIL
"""


async def test_a_worker_that_is_stuck_in_c_is_ended_and_the_url_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crash guard finds the URL by trying suspects alone; all other pages are done once."""
    folder = installed(tmp_path / "installed", PLUGIN, {"parsers": ("Backtracks",)})
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    spec = JobSpec(
        name="stuck",
        politeness=FAST,
        fetch=Fetch(allow_private=True, timeout=100.0),
        parsers=("backtracks",),
    )
    with static_site(site({"/stuck": b"<p>"})) as origin:
        async with EmbeddedCluster(tmp_path / "d", 2, stuck_after=2.0) as cluster:
            request = submission(spec, [f"{origin}/"], tmp_path / "out.jsonl")
            run = (await cluster.ask("submit", request))["run"]
            await until(lambda: run_of(cluster, run).get("state") in OVER, 280)
            await cluster.flush_outputs()
            view = await cluster.ask("job", {"ref": "stuck"})
            restarts = cluster.snapshot().restarts
    assert view["failed_reasons"] == {"quarantined": 1}
    assert restarts >= 3
    urls = sorted(item["url"] for item in items(tmp_path / "out.jsonl"))
    expected = [f"{origin}/", *(f"{origin}/ordinary/{n}" for n in range(ORDINARY))]
    assert urls == sorted(expected)
    log = (tmp_path / "d" / place.LOG).read_text()
    assert "its event loop stood still" in log, "the log says what ended the process"


FED = """
import re, signal, sys, time
from zcrawl.runtime.watchdog import Watchdog
dog = Watchdog(cpu_s=1.0, steps=4, step_s=0.5)
dog.start()
print("started", flush=True)
what = sys.argv[1]
if what == "computes":
    re.match(r"(a+)+$", "a" * 60 + "b")
elif what == "waits":
    time.sleep(600)
else:
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        dog.feed()
        for _ in range(100_000):
            pass
    print("lived", flush=True)
"""


def fed(*args: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", FED, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


@pytest.mark.parametrize(("what", "code"), [("computes", -signal.SIGPROF), ("waits", STUCK)])
def test_a_process_that_stands_still_is_ended_and_says_where(what: str, code: int) -> None:
    """In a loop in C that holds the GIL, and in a call that waits."""
    process = fed(what)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert 'File "<string>", line' in errors, "the stack is written down"


def test_a_process_that_is_fed_lives_however_much_it_computes() -> None:
    """Three times the limit, of CPU time and of waiting."""
    process = fed("fed", "4")
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "lived\n")


def test_a_process_that_was_stopped_is_not_ended_for_it() -> None:
    """SIGSTOP for longer than both limits, then SIGCONT: no time has passed for the watchdog."""
    process = fed("fed", "8")
    process.send_signal(signal.SIGSTOP)
    time.sleep(5)
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "lived\n")


async def test_a_worker_that_was_stopped_for_longer_than_its_limit_goes_on(tmp_path: Path) -> None:
    """The same with a whole worker: it is not started again."""
    with static_site(site({})) as origin:
        async with EmbeddedCluster(tmp_path / "d", 1, stuck_after=2.0) as cluster:
            await crawl(cluster, job("first"), [f"{origin}/"])
            (worker,) = [pid for pid in children(os.getpid()) if _is_worker(pid)]
            os.kill(worker, signal.SIGSTOP)
            await asyncio.sleep(4)
            os.kill(worker, signal.SIGCONT)
            view = await crawl(cluster, job("second"), [f"{origin}/"])
            assert cluster.snapshot().restarts == 0
    assert view["pages"] == ORDINARY + 1
    wait_until(lambda: not alive(worker))
