"""Whole crawls by the browser engine: through the mesh, by worker processes, with a real Chromium.

What the engine itself does is tested in test_browser.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.browser_site import Answer, Site, need_chromium, page, pixels
from tests.integration.crawling import (
    FAST,
    alive,
    children,
    command,
    crawl,
    items,
    run_of,
    submission,
    until,
)
from zcrawl.blobs.folder import FileBlobs
from zcrawl.model.spec import Browser, Fetch, JobSpec, OutputSpec
from zcrawl.roles.embedded import EmbeddedCluster

need_chromium()

pytestmark = pytest.mark.timeout(180)
PICTURED = ("/", "/a", "/hop")


def scripted(title: str, *links: str, extra: str = "") -> Answer:
    """A page that has nothing but a script: title, colour and links are of its making."""
    made = "".join(f"<a href={link}>on</a>" for link in links)
    return page(
        f"<script>document.title = '{title}'; document.body.innerHTML = '{made}';"
        f"document.body.style.background = 'rgb(0,128,255)'</script>{extra}"
    )


def driver_pids(worker: int) -> list[int]:
    """The processes below a worker: the driver, Chromium, and so on."""
    pids = []
    for child in children(worker):
        pids += [child, *driver_pids(child)]
    return pids


def worker_pids() -> list[int]:
    """Not the servers that other tests of this process may have started."""
    pids = children(os.getpid())
    return [pid for pid in pids if b"worker_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def test_a_site_of_scripts_is_crawled_and_pictured(tmp_path: Path) -> None:
    """Links that only scripts make are followed, robots.txt holds, a redirect is followed, titles
    are the rendered ones, and each page's screenshot and PDF are blobs named in its item."""
    browser = Browser(screenshot="view", pdf=True, viewport=(64, 48))
    fetch = Fetch(engine="browser", timeout=60.0, retries=1)
    output = OutputSpec(keep_html=True)
    spec = JobSpec("scripts", politeness=FAST, fetch=fetch, browser=browser, output=output)
    site = Site(
        {
            "/robots.txt": (200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /no"),
            "/": scripted("first", "/a", "/hop", "/no"),
            "/a": scripted("second", "/data.json"),
            "/hop": (302, {"Location": "/b"}, b""),
            "/b": scripted("third"),
            "/data.json": (200, {"Content-Type": "application/json"}, b"{}"),
            "/no": scripted("forbidden"),
        }
    )
    out = tmp_path / "items.jsonl"
    async with site, EmbeddedCluster(tmp_path / "data", 1, slots=3) as cluster:
        view = await crawl(cluster, spec, [site.url("/")], out)
        items_by_path = {row["url"].removeprefix(site.url("")): row for row in items(out)}
        titles = {path: row["title"] for path, row in items_by_path.items()}
        assert titles == {"/": "first", "/a": "second", "/hop": "third", "/data.json": None}
        assert items_by_path["/hop"]["final_url"] == site.url("/b")
        assert view["skipped_reasons"] == {"robots": 1, "redirect_target": 1}
        assert site.hits("/no") == 0
        assert site.hits("/a") == 1
    blobs = FileBlobs(tmp_path / "data" / "blobs")
    for path in PICTURED:
        rows = pixels(blobs.get(items_by_path[path]["screenshot"]))
        assert (len(rows[0]), len(rows)) == (64, 48)
        assert rows[45][60] == (0, 128, 255)
        assert blobs.get(items_by_path[path]["pdf"]).startswith(b"%PDF-")
    assert "screenshot" not in items_by_path["/data.json"]
    with contextlib.closing(sqlite3.connect(next((tmp_path / "data").glob("*.db")))) as database:
        files = [row for (row,) in database.execute("SELECT files FROM pages")]
    named = [json.loads(row) for row in files if row is not None]
    assert len(files) == 4
    expected = [
        {kind: items_by_path[path][kind] for kind in ("screenshot", "pdf")} for path in PICTURED
    ]
    assert sorted(named, key=str) == sorted(expected, key=str)


async def test_a_killed_browser_and_a_killed_worker_lose_no_page(tmp_path: Path) -> None:
    """kill -9 of Chromium in the middle: its page is tried again and the crawl goes on. kill -9
    of the worker: driver, Chromium and renderers end with it, and another worker finishes."""
    slow = "<script>const t = Date.now(); while (Date.now() - t < 400);</script>"
    paths = [f"/p{n}" for n in range(8)]
    site = Site(
        {"/": scripted("all", *paths), **{path: scripted(path, extra=slow) for path in paths}}
    )
    fetch = Fetch(engine="browser", timeout=60.0, retries=3)
    spec = JobSpec("killed", politeness=FAST, fetch=fetch)
    out = tmp_path / "items.jsonl"
    async with site, EmbeddedCluster(tmp_path / "data", 1, slots=2) as cluster:
        work = asyncio.ensure_future(crawl(cluster, spec, [site.url("/")], out))
        await until(lambda: sum(site.hits(path) for path in paths) >= 2)
        (worker,) = worker_pids()
        (driver,) = children(worker)
        (chromium,) = children(driver)
        os.kill(chromium, signal.SIGKILL)
        await until(lambda: not alive(chromium))
        seen = len(site.log)
        await until(lambda: len(site.log) > seen)  # another Chromium is at work
        below = driver_pids(worker)
        assert len(below) > 3
        os.kill(children(worker)[0], signal.SIGSTOP)  # a driver that cannot tidy up
        os.kill(worker, signal.SIGKILL)
        await until(lambda: not any(alive(pid) for pid in below))
        view = await work
        assert (view["pages"], view["failed"]) == (9, 0)
        assert {row["title"] for row in items(out)} == {"all", *paths}


async def test_redirects_into_private_ranges_end_by_name(tmp_path: Path) -> None:
    """The pipeline follows a page's redirects, by status or by script, and the guard holds."""
    inside = Site({"/": page("secret")})
    site = Site({})
    fetch = Fetch(engine="browser", timeout=60.0, retries=0)
    spec = JobSpec("lured", politeness=FAST, fetch=fetch)
    async with site, inside, EmbeddedCluster(tmp_path, 1) as cluster:
        target = inside.url("/")
        site.pages["/status"] = 302, {"Location": target}, b""
        site.pages["/script"] = page(f"<script>location = '{target}'</script>")
        view = await crawl(cluster, spec, [site.url("/status"), site.url("/script")])
        assert view["pages"] == 0
        assert view["skipped_reasons"] == {"redirected": 2}
        assert view["failed_reasons"] == {"blocked_address: loopback (127.0.0.1)": 1}
        assert inside.connections == 0


async def test_a_worker_without_chromium_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages wait for a worker that has it; the worker and its other jobs go on."""
    monkeypatch.setenv("PATH", str(tmp_path))
    fetch = Fetch(engine="browser", retries=0)
    site = Site({"/": page("<p>plain")})
    async with site, EmbeddedCluster(tmp_path / "data", 1) as cluster:
        spec = JobSpec("none", politeness=FAST, fetch=fetch)
        reply = await cluster.ask("submit", submission(spec, [site.url("/")], None))
        says = "waiting: no live worker has Chromium (Debian's package is chromium) yet"
        await until(lambda: run_of(cluster, reply["run"]).get("reason") == says)
        view = await crawl(cluster, JobSpec("plain", politeness=FAST), [site.url("/")])
        assert view["pages"] == 1


def test_nothing_of_the_browser_is_loaded_unless_it_is_used() -> None:
    """A worker that has loaded all it needs for other engines knows no playwright."""
    code = (
        "import sys; from zcrawl.roles import worker_main; worker_main.load();"
        "import zcrawl.worker.results.attempt, zcrawl.submit.validate;"
        "print([m for m in sys.modules if 'playwright' in m or m.endswith('_browser')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout.replace("'", '"')) == []


def test_the_test_command_renders_too(tmp_path: Path) -> None:
    """`zcrawl test` shows what the browser makes of a page, with its own engine."""
    job = tmp_path / "job.toml"
    job.write_text('name = "j"\n[fetch]\nengine = "browser"\ntimeout = 60\n')

    async def tried() -> str:
        site = Site({"/": scripted("made by script")})
        async with site:
            args = ("test", job, site.url("/"), "--json")
            done = await asyncio.to_thread(command, *args, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            return done.stdout

    (item,) = json.loads(asyncio.run(tried()))["items"]
    assert item["title"] == "made by script"
