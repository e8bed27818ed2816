"""The console in a browser: who gets in."""

from __future__ import annotations

from aiohttp import CookieJar, web
from aiohttp.test_utils import TestClient, TestServer

from console.web import COOKIE, _usable, guard
from zcrawl.cli.commands.console import _without_web

TOKEN = "right-token"


async def guarded() -> TestClient[web.Request, web.Application]:
    """A server behind the guard, on a port that the guard knows."""

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="the console")

    port = _usable(0)
    app = web.Application(middlewares=[guard(TOKEN, port)])
    app.add_routes([web.get("/", hello), web.get("/ws", hello)])
    return TestClient(TestServer(app, port=port), cookie_jar=CookieJar(unsafe=True))


async def test_nobody_gets_in_without_the_token() -> None:
    """Neither to the page nor to the socket behind it."""
    async with await guarded() as browser:
        for path in ("/", "/ws", "/?token=wrong", "/?token="):
            assert (await browser.get(path)).status == 401
        headers = {"Cookie": f"{COOKIE}=wrong"}
        assert (await browser.get("/", headers=headers)).status == 401


async def test_the_token_lets_in_and_leaves_the_address() -> None:
    """It is kept in a cookie that no script can read."""
    async with await guarded() as browser:
        first = await browser.get(f"/?token={TOKEN}", allow_redirects=False)
        assert (first.status, first.headers["Location"]) == (302, "/")
        cookie = first.headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        then = await browser.get("/")
        assert await then.text() == "the console"


async def test_another_name_or_origin_is_refused_even_with_the_token() -> None:
    """A web page that points its own name at this machine gets nothing."""
    async with await guarded() as browser:
        cookie = {"Cookie": f"{COOKIE}={TOKEN}"}
        evil = [{"Host": "evil.test"}, {"Origin": "https://evil.test"}]
        for headers in evil:
            assert (await browser.get("/ws", headers={**cookie, **headers})).status == 403


async def test_the_page_loads_nothing_from_elsewhere_and_stands_in_no_frame() -> None:
    """The template asks a third party for a font: the browser is told not to."""
    async with await guarded() as browser:
        answer = await browser.get("/", headers={"Cookie": f"{COOKIE}={TOKEN}"})
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert (answer.status, answer.headers["Referrer-Policy"]) == (200, "no-referrer")


def test_each_browser_runs_the_same_command_on_a_terminal_of_its_own() -> None:
    """Without the flags that serve it."""
    given = ["console", "--web", "--port", "9", "--readonly", "--port=3", "--data", "x"]
    assert _without_web(given) == ["console", "--readonly", "--data", "x"]
