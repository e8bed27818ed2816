"""The browser engine on a real Chromium: what pages do, what is done to them, and what they cost.

One Chromium serves all tests of this file but those that end it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tests.integration.browser_site import (
    HEADERS,
    Answer,
    Site,
    limits,
    need_chromium,
    page,
    pixels,
    redirect,
)
from tests.integration.crawling import alive, until
from zcrawl.errors import FetchError, RetryClass
from zcrawl.fetch.guard import Guard

need_chromium()

from zcrawl.fetch.browser.chromium import descendants  # noqa: E402
from zcrawl.fetch.browser.engine import BrowserEngine  # noqa: E402
from zcrawl.fetch.general.wire import AiohttpWire  # noqa: E402

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

MADE = "<script>document.body.innerHTML = '<p id=made>by script</p><a href=/next>on</a>'</script>"
LATE = "<script>setTimeout(() => document.body.insertAdjacentHTML('beforeend', '%s'), 700)</script>"
ENDLESS = """<div id=list></div><script>
  const more = () => { for (let i = 0; i < 5; i++)
    list.insertAdjacentHTML('beforeend', '<p style="height:400px">row</p>') };
  more(); let left = 4;
  addEventListener('scroll', () => {
    if (left && scrollY + innerHeight > document.body.scrollHeight - 50) { left--; more(); } });
</script>"""
CLICKS = """<button id=more onclick="out.textContent = 'clicked'">more</button><p id=out></p>
  <button id=gone style="display:none" onclick="out.textContent = 'wrong'">x</button>"""
COLOURS = """<style>body{margin:0}div{height:50px}</style>
  <div id=a></div><div style="background:rgb(0,0,255)"></div>
  <div style="background:rgb(0,128,0);margin-top:1500px"></div>
  <script>a.style.background = 'rgb(255,0,0)'</script>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[BrowserEngine]:
    async with AiohttpWire() as plain:
        made = BrowserEngine(plain, time.monotonic, time.time)
        try:
            yield made
        finally:
            await made.aclose()


async def failure(engine: BrowserEngine, url: str, *args: Any, **keys: Any) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await engine.get(url, HEADERS, limits(*args, **keys))
    return caught.value


async def test_a_page_is_what_its_scripts_have_made_of_it(engine: BrowserEngine) -> None:
    """The body is the rendered document in UTF-8, whatever its server said of it; the other
    headers are the server's; the job's headers and user agent are sent."""
    headers = {"Content-Type": "text/html; charset=latin-1", "X-Kept": "yes"}
    _, _, body = page(MADE + "\xe9")
    site = Site({"/": (200, headers, body.decode().encode("latin-1"))})
    async with site:
        sent = {**HEADERS, "X-Job": "mine"}
        response = await engine.get(site.url("/"), sent, limits(site))
        assert '<p id="made">by script</p>' in response.content.decode()
        assert "é" in response.content.decode()
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert response.headers["x-kept"] == "yes"
        assert response.extensions["final_url"] == site.url("/")
        assert site.headers["/"]["user-agent"] == "zcrawl-test/1"
        assert site.headers["/"]["x-job"] == "mine"


async def test_pages_of_one_host_are_rendered_side_by_side(engine: BrowserEngine) -> None:
    """More of them than there are tabs, all at once, in one context; each gets its own answer."""
    paths = [f"/{n}" for n in range(10)]
    site = Site({path: page(f"<script>document.write('I am {path}')</script>") for path in paths})
    async with site:
        hop_limits = limits(site, run=9, timeout_s=90.0)
        fetches = [engine.get(site.url(path), HEADERS, hop_limits) for path in paths]
        for path, response in zip(paths, await asyncio.gather(*fetches), strict=True):
            assert f"</script>I am {path}<" in response.content.decode()
        assert sorted(site.log) == sorted(paths)


async def test_redirects_are_told_and_not_followed(engine: BrowserEngine) -> None:
    """By status, by script and by refresh: the pipeline decides, so nothing else is asked for."""
    refresh = page("", '<meta http-equiv="refresh" content="0; url=/target">')
    site = Site(
        {
            "/status": redirect("/target"),
            "/script": page("<script>location.href = '/target'</script>"),
            "/refresh": refresh,
            "/target": page("there"),
        }
    )
    async with site:
        for path in ("/status", "/script", "/refresh"):
            response = await engine.get(site.url(path), HEADERS, limits(site, wait="idle"))
            assert response.status_code == 302, path
            assert response.headers["location"] in ("/target", site.url("/target"))
        assert not site.hits("/target")


async def test_what_is_no_page_comes_as_it_is(engine: BrowserEngine) -> None:
    """JSON, text, downloads and failures are not rendered; a body beyond the limit is cut off."""
    json = b'{"a": [1, 2]}'
    site = Site(
        {
            "/json": (200, {"Content-Type": "application/json"}, json),
            "/file": (
                200,
                {"Content-Type": "text/html", "Content-Disposition": "attachment"},
                bytes(range(256)),
            ),
            "/busy": (503, {"Retry-After": "7"}, b"later"),
            "/large": (200, {"Content-Type": "text/plain"}, b"x" * 300_000),
        }
    )
    async with site:
        response = await engine.get(site.url("/json"), HEADERS, limits(site))
        assert (response.content, response.headers["content-type"]) == (json, "application/json")
        response = await engine.get(site.url("/file"), HEADERS, limits(site))
        assert response.content == bytes(range(256))
        response = await engine.get(site.url("/busy"), HEADERS, limits(site))
        assert (response.status_code, response.headers["retry-after"]) == (503, "7")
        few = msgspec.structs.replace(limits(site), max_bytes=200_000)
        with pytest.raises(FetchError) as caught:
            await engine.get(site.url("/large"), HEADERS, few)
        assert caught.value.code == "too_large"


async def test_waits_clicks_and_scrolls(engine: BrowserEngine) -> None:
    """A selector is waited for, a button is clicked, one that is hidden is passed over, and a
    list that grows is scrolled to its end."""
    site = Site(
        {
            "/late": page(LATE % "<b id=late>now</b>"),
            "/click": page(CLICKS),
            "/endless": page(ENDLESS),
            "/fixed": page(LATE % "<i id=fixed>now</i>"),
        }
    )
    async with site:
        late = await engine.get(site.url("/late"), HEADERS, limits(site, wait_for="#late"))
        assert '<b id="late">' in late.content.decode()
        keys = ("#more", "#gone", "#none")
        clicked = await engine.get(site.url("/click"), HEADERS, limits(site, click=keys))
        assert '<p id="out">clicked</p>' in clicked.content.decode()
        few = await engine.get(site.url("/endless"), HEADERS, limits(site))
        assert few.content.decode().count("row</p>") == 5 + 1  # and one in the script
        all_rows = await engine.get(site.url("/endless"), HEADERS, limits(site, scroll=60))
        assert all_rows.content.decode().count("row</p>") == 25 + 1
        fixed = await engine.get(site.url("/fixed"), HEADERS, limits(site, wait_s=1.5))
        assert '<i id="fixed">' in fixed.content.decode()


async def test_a_click_may_lead_to_another_page_of_the_same_site(engine: BrowserEngine) -> None:
    """The answer is then that page's, with its URL; a click that leads elsewhere leads nowhere."""
    site = Site(
        {
            "/": page("<a id=on href=/second>on</a>"),
            "/second": page("<p>second</p>"),
            "/away": page("<a id=on href='http://site.test:1/'>on</a>"),
        }
    )
    async with site:
        response = await engine.get(site.url("/"), HEADERS, limits(site, click=("#on",)))
        assert "second</p>" in response.content.decode()
        assert response.extensions["final_url"] == site.url("/second")
        stays = await engine.get(site.url("/away"), HEADERS, limits(site, click=("#on",)))
        assert stays.extensions["final_url"] == site.url("/away")


async def test_blocked_kinds_and_too_many_requests_never_arrive(engine: BrowserEngine) -> None:
    """Counted at the server: images and styles that are blocked, and what is above the number."""
    images = "".join(f"<img src=/i{n}>" for n in range(6))
    body = f"<link rel=stylesheet href=/style>{images}<script src=/script></script>"
    site = Site({"/": page(body), "/script": (200, {"Content-Type": "text/javascript"}, b"1")})
    async with site:
        await engine.get(site.url("/"), HEADERS, limits(site, block=("image", "stylesheet")))
        assert site.log == ["/", "/script"]
        site.log.clear()
        await engine.get(site.url("/"), HEADERS, limits(site, block=()))
        assert sorted(site.log) == ["/", *(f"/i{n}" for n in range(6)), "/script", "/style"]
        site.log.clear()
        await engine.get(site.url("/"), HEADERS, limits(site, block=(), max_requests=3))
        assert len(site.log) == 4


async def test_a_screenshot_shows_the_page_and_a_pdf_is_one(engine: BrowserEngine) -> None:
    """Colours where the page has them, those too that only scripts have made."""
    site = Site({"/": page(COLOURS)})
    async with site:
        keys: dict[str, Any] = {"viewport": (200, 150), "screenshot": "view", "pdf": True}
        response = await engine.get(site.url("/"), HEADERS, limits(site, **keys))
        files = response.extensions["files"]
        rows = pixels(files["screenshot"])
        assert (len(rows[0]), len(rows)) == (200, 150)
        assert rows[25][100] == (255, 0, 0)
        assert rows[75][100] == (0, 0, 255)
        assert rows[125][100] == (255, 255, 255)
        assert files["pdf"].startswith(b"%PDF-")
        keys = {"viewport": (200, 150), "screenshot": "page"}
        response = await engine.get(site.url("/"), HEADERS, limits(site, **keys))
        rows = pixels(response.extensions["files"]["screenshot"])
        assert (len(rows[0]), len(rows)) == (200, 1650)
        assert rows[1625][100] == (0, 128, 0)


async def test_runs_share_no_cookies_and_a_run_without_cookies_has_none(
    engine: BrowserEngine,
) -> None:
    """A page's cookies are gone with it, unless the job keeps them; then they come as headers,
    and stay in the run."""
    site = Site(
        {"/": (200, {"Content-Type": "text/html", "Set-Cookie": "who=me; Path=/"}, b"<p>x")}
    )
    async with site:
        for _ in range(2):
            await engine.get(site.url("/"), HEADERS, limits(site))
            assert "cookie" not in site.headers["/"]
        keeps = msgspec.structs.replace(limits(site, run=2), cookies=True)
        response = await engine.get(site.url("/"), HEADERS, keeps)
        assert response.headers.get_list("set-cookie") == ["who=me; Path=/"]
        await engine.get(site.url("/"), HEADERS, keeps)
        assert site.headers["/"]["cookie"] == "who=me"
        await engine.get(site.url("/"), {**HEADERS, "Cookie": "given=1"}, limits(site, run=3))
        assert site.headers["/"]["cookie"] == "given=1"


async def test_a_page_that_hangs_is_cut_off_in_time(engine: BrowserEngine) -> None:
    """A server that never answers, a script that never ends, a selector that never comes: each
    is a failure that may pass, and the browser serves the next page."""
    site = Site(
        {
            "/silent": lambda _: (0, {}, b""),
            "/busy": page("<script>for (;;);</script>"),
            "/never": page("x"),
            "/": page(MADE),
        }
    )
    async with site:
        for path, keys in (("/silent", {}), ("/busy", {}), ("/never", {"wait_for": "#no"})):
            began = time.monotonic()
            error = await failure(engine, site.url(path), site, timeout_s=4.0, **keys)
            assert (error.code, error.retry) == ("total_timeout", RetryClass.TRANSIENT)
            assert time.monotonic() - began < 40
        response = await engine.get(site.url("/"), HEADERS, limits(site))
        assert "by script" in response.content.decode()


async def test_a_page_that_eats_memory_is_ended_alone(engine: BrowserEngine) -> None:
    """Its renderer is killed, which is a failure that may pass; Chromium goes on."""
    eat = "<script>const a = []; for (;;) a.push(new Array(1e5).fill(Math.random()))</script>"
    site = Site({"/eat": page(eat), "/": page(MADE)})
    async with site:
        await engine.get(site.url("/"), HEADERS, limits(site))
        before = engine.chromium
        error = await failure(engine, site.url("/eat"), site, memory_mb=300)
        assert (error.code, error.retry) == ("browser_memory", RetryClass.TRANSIENT)
        response = await engine.get(site.url("/"), HEADERS, limits(site))
        assert "by script" in response.content.decode()
        assert engine.chromium is before


async def test_a_killed_browser_costs_one_attempt_and_is_started_again(
    engine: BrowserEngine,
) -> None:
    """kill -9 in the middle of a page: that page fails at once, as something that may pass, the
    next one is served by another Chromium, and nothing of the old one is left."""
    site = Site({"/silent": lambda _: (0, {}, b""), "/": page(MADE)})
    async with site:
        await engine.get(site.url("/"), HEADERS, limits(site))
        assert engine.chromium is not None
        pid = engine.chromium.pid
        waiting = asyncio.ensure_future(failure(engine, site.url("/silent"), site))
        await until(lambda: site.hits("/silent") == 1)
        os.kill(pid, signal.SIGKILL)
        error = await asyncio.wait_for(waiting, 30)
        assert (error.code, error.retry) == ("browser", RetryClass.TRANSIENT)
        response = await engine.get(site.url("/"), HEADERS, limits(site))
        assert "by script" in response.content.decode()
        assert engine.chromium.pid != pid
        assert not alive(pid)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path that is short enough for Chromium's socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


async def test_robots_txt_needs_no_browser_and_nothing_is_left_after_the_end(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """robots.txt goes over the plain wire and starts nothing; closing the engine ends Chromium,
    its driver and their files; what a killed worker left is removed by the next start."""
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    left = short / "zcrawl-browser-left"
    left.mkdir()
    (left / "lock").touch()
    robots = (200, {"Content-Type": "text/plain"}, b"User-agent: *")
    site = Site({"/robots.txt": robots, "/": page("x")})
    async with site, AiohttpWire() as plain:
        engine = BrowserEngine(plain, time.monotonic, time.time)
        response = await engine.get(site.url("/robots.txt"), HEADERS, limits(site))
        assert response.content == b"User-agent: *"
        assert engine.chromium is None
        await engine.get(site.url("/"), HEADERS, limits(site))
        (folder,) = entries(short)
        assert folder != left
        pids = [int((folder / name).read_text()) for name in ("chromium.pid", "driver.pid")]
        assert all(alive(pid) for pid in pids)
        await engine.aclose()
        await until(lambda: not any(alive(pid) for pid in pids))
        assert not entries(short)


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_pages_run_in_the_sandbox_and_without_the_workers_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the worker is root: then Chromium is somebody else, who has nothing."""
    monkeypatch.setenv("ZCRAWL_SECRET_PASSWORD", "hunter2")
    site, notes = Site({"/": page(MADE)}), []
    async with site, AiohttpWire() as plain:
        made = BrowserEngine(
            plain, time.monotonic, time.time, note=lambda name, detail: notes.append(name)
        )
        try:
            response = await made.get(site.url("/"), HEADERS, limits(site))
            assert "by script" in response.content.decode()
            assert made.chromium is not None
            if made.chromium.unsandboxed:
                assert notes == ["browser_unsandboxed"], "it is told"
                pytest.skip(made.chromium.unsandboxed)
            assert notes == []
            first = made.chromium.pid
            pids = [first, *descendants(first)]
            renderers = [pid for pid in pids if b"--type=renderer" in proc_file(pid, "cmdline")]
            assert renderers
            for pid in renderers:
                assert b"\nSeccomp:\t2\n" in proc_file(pid, "status"), (
                    "its system calls are filtered"
                )
            for pid in pids:
                assert b"--no-sandbox" not in proc_file(pid, "cmdline")
                assert b"hunter2" not in proc_file(pid, "environ")
                assert b"\nUid:\t0\t0\t0\t0\n" not in proc_file(pid, "status")
            assert b"\nUid:\t" in proc_file(first, "status")
        finally:
            await made.aclose()


def proc_file(pid: int, name: str) -> bytes:
    """What the kernel tells of a process; nothing of one that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


LOADS = """<script src="/hop?1"></script><img src="/hop?2"><iframe src="/hop?3"></iframe>
<link rel=stylesheet href="/hop?4"><img src="{other}/direct"><script>
  fetch("/hop?5", {{mode: "no-cors"}}).catch(() => 0);
  fetch("/own").then(() => fetch("/back")).catch(() => 0);
</script>"""


async def test_the_jobs_headers_go_to_no_other_origin_whatever_redirects_there(
    engine: BrowserEngine,
) -> None:
    """Not to what the page loads from elsewhere, nor behind a redirect of its own origin, of one
    hop or two. Its own origin has them with every request, and the browser's cookies beside."""
    async with Site({}) as other:
        there = f"http://127.0.0.1:{other.port}"
        pages: dict[str, Answer | Callable[[dict[str, str]], Answer]] = {
            "/": page(LOADS.format(other=there)),
            "/hop": redirect("/onward"),
            "/onward": redirect(f"{there}/stolen"),
            "/own": (200, {}, b"{}"),
            "/back": redirect("/own?again"),
        }
        async with Site(pages) as site:
            headers = {**HEADERS, "X-Key": "k3y", "Authorization": "Bearer k3y", "Cookie": "c=1"}
            orders = limits(block=(), wait="idle")
            orders = msgspec.structs.replace(orders, guard=Guard(allow_private=True))
            await engine.get(site.url("/"), headers, orders)
            await until(lambda: other.hits("/stolen") >= 5 and "/own?again" in site.log)
            assert "/direct" in other.log, "or it proves nothing"
            for path in ("/", "/hop?1", "/hop?3", "/hop?5", "/onward", "/own", "/own?again"):
                request_headers = site.headers[path]
                assert (request_headers["x-key"], request_headers["authorization"]) == (
                    "k3y",
                    "Bearer k3y",
                ), path
                assert request_headers["cookie"] == "c=1", path
            for path, request_headers in other.headers.items():
                assert not {"x-key", "authorization"} & request_headers.keys(), path
