"""Whatever a page in the browser does, nothing is connected to that the guard refuses.

Each lure is tried twice: where it is forbidden nothing may arrive, and where it is allowed all of
them must, or the test would prove nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import pytest_asyncio

from tests.integration.browser_site import HEADERS, TIMEOUT_S, Site, limits, need_chromium, page
from tests.web.proxies import HttpProxy, SocksProxy
from zcrawl.errors import FetchError
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.ports import HopLimits
from zcrawl.model.spec import Browser

need_chromium()

from zcrawl.fetch.browser.engine import BrowserEngine  # noqa: E402
from zcrawl.fetch.general.wire import AiohttpWire  # noqa: E402

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

LURES = """
<img src="{inside}/img"><img src="/hop"><iframe src="{inside}/iframe"></iframe>
<link rel=stylesheet href="{inside}/style"><script src="{inside}/script"></script>
<object data="{inside}/object"></object><link rel=prefetch href="{inside}/prefetch">
<iframe src="file:///etc/passwd"></iframe>
<link rel=preconnect href="{inside}"><link rel=dns-prefetch href="{inside}">
<link rel=modulepreload href="{inside}/module"><link rel=manifest href="{inside}/manifest">
<link rel=icon href="{inside}/icon"><video src="{inside}/video" preload=auto></video>
<iframe srcdoc='<meta http-equiv=refresh content="0;{inside}/refresh">'></iframe>
<form action="{inside}/form" method=post target=frame id=form></form><iframe name=frame></iframe>
<a href="/other" ping="{inside}/ping" id=link target=frame>x</a>
<style>@import "{inside}/import"; @font-face {{ font-family: f; src: url("{inside}/font"); }}
  p {{ font-family: f; background: url("{inside}/background"); }}</style><p>text</p>
<script type=speculationrules>{{"prefetch": [{{"urls": ["{inside}/rule"]}}],
  "prerender": [{{"urls": ["{inside}/prerender"]}}]}}</script>
<script>
  const spellings = "localhost [::1] [::ffff:127.0.0.1] 0.0.0.0 2130706433 0177.1";
  for (const host of spellings.split(" "))
    fetch("{inside}/spelling".replace("127.0.0.1", host), {{mode: "no-cors"}}).catch(() => 0);
  document.getElementById("form").submit(); document.getElementById("link").click();
  navigator.serviceWorker?.register("{inside}/service").catch(() => 0);
  import("{inside}/import.js").catch(() => 0);
  try {{ new WebTransport("{inside}/transport".replace("http:", "https:")).ready.catch(() => 0); }}
  catch {{}}
  addEventListener("pagehide", () => fetch("{inside}/late", {{mode: "no-cors", keepalive: true}}));
  const relays = [{{urls: "turn:127.0.0.1:{port}?transport=tcp", username: "u", credential: "p"}},
    {{urls: "turn:127.0.0.1:{udp}", username: "u", credential: "p"}},
    {{urls: "turns:127.0.0.1:{port}?transport=tcp", username: "u", credential: "p"}},
    {{urls: "stun:localhost:{udp}"}}];
  const relay = new RTCPeerConnection({{iceServers: relays, iceTransportPolicy: "all"}});
  const candidate = "candidate:1 1 tcp 1 127.0.0.1 {port} typ host tcptype passive";
  relay.createDataChannel("y"); relay.createOffer().then(o => relay.setLocalDescription(o)).then(
    () => relay.addIceCandidate({{candidate, sdpMid: "0"}})).catch(() => 0);
  fetch("{inside}/fetch", {{mode: "no-cors"}}).catch(() => 0);
  navigator.sendBeacon("{inside}/beacon", "x");
  new EventSource("{inside}/events");
  new WebSocket("{inside}/socket".replace("http", "ws"));
  const text = 'fetch("{inside}/worker", {{mode: "no-cors"}}).catch(() => 0)';
  const script = URL.createObjectURL(new Blob([text], {{type: "text/javascript"}}));
  new Worker(script);
  new SharedWorker(script.replace("worker", "shared"));
  open("{inside}/popup");
  const peer = new RTCPeerConnection({{iceServers: [{{urls: "stun:127.0.0.1:{udp}"}}]}});
  peer.createDataChannel("x"); peer.createOffer().then(o => peer.setLocalDescription(o));
</script>"""
ARRIVE = {"/img", "/hopped", "/iframe", "/style", "/script", "/fetch", "/socket", "/worker"}
ARRIVE |= {"/background", "/import", "/import.js", "/module", "/refresh", "/spelling", "/video"}


class Names:
    """DNS as the test plays it: what is said once, and then ever after."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}

    async def __call__(self, name: str, port: int) -> list[str]:
        answers = self.answers.get(name)
        if answers is None:
            return [name]
        return answers.pop(0) if len(answers) > 1 else answers[0]


NAMES = Names()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[BrowserEngine]:
    async with AiohttpWire() as plain:
        made = BrowserEngine(plain, time.monotonic, time.time, look_up=NAMES)
        try:
            yield made
        finally:
            await made.aclose()


@contextlib.contextmanager
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        yield receiver


def heard(receiver: socket.socket) -> bool:
    try:
        receiver.recv(2048)
    except BlockingIOError:
        return False
    return True


async def test_no_request_of_a_page_gets_inside(engine: BrowserEngine) -> None:
    """Images, frames, scripts, styles, fetches, beacons, WebSockets, workers, popups, an image that
    redirects, modules, forms, pings, speculation rules, other spellings of an address, WebTransport
    and relays of WebRTC over TCP: none of them reaches a server on this machine, and WebRTC sends
    nothing. Where the guard allows it, they do."""
    inside = Site({"/script": (200, {"Content-Type": "text/javascript"}, b"1")})
    site = Site({})
    async with site, inside:
        with udp() as stun:
            origin = inside.url("")
            text = LURES.format(inside=origin, udp=stun.getsockname()[1], port=inside.port)
            site.pages = {"/": page(text), "/hop": (302, {"Location": origin + "/hopped"}, b"")}
            keys: dict[str, Any] = {"block": (), "wait": "idle", "wait_s": 1.0}
            closed = limits(site, **keys)
            response = await engine.get(site.url("/"), HEADERS, closed)
            assert "root:" not in response.content.decode()
            assert inside.log == []
            assert inside.connections == 0
            assert site.hits("/hop") == 1
            assert not heard(stun)
            both = (f"127.0.0.1:{site.port}", f"127.0.0.1:{inside.port}")
            opened = msgspec.structs.replace(closed, guard=Guard(False, both), run=2)
            await engine.get(site.url("/"), HEADERS, opened)
            assert set(inside.log) >= ARRIVE
            assert "/popup" not in inside.log
            assert not heard(stun)


async def no_connection(*where: object) -> None:
    raise OSError(f"a connection to {where}")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "loopback (127.0.0.1)"),
        ("10.1.2.3", "private (10.1.2.3)"),
        ("169.254.169.254", "metadata (169.254.169.254)"),
        ("::ffff:10.1.2.3", "private (::ffff:10.1.2.3)"),
    ],
)
async def test_a_name_that_leads_inside_fails_by_its_reason(
    engine: BrowserEngine, address: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same reason as with every engine, though Chromium itself knows none."""
    # Should the guard be broken one day, this test still sends nothing to anybody.
    monkeypatch.setattr(asyncio, "open_connection", no_connection)
    NAMES.answers["public.example"] = [[address]]
    with pytest.raises(FetchError) as caught:
        await engine.get("http://public.example/", HEADERS, limits())
    assert caught.value.reason == f"blocked_address: {reason}"


class OnlyFirst(Guard):
    """Takes 127.0.0.1 for a public address, so that a test can have two servers."""

    def refuse_address(self, name: str, port: int, address: str) -> str | None:
        return None if address == "127.0.0.1" else f"private ({address})"


def listening(site: Site, port: int) -> Site:
    site.port = port
    return site


async def test_a_name_that_changes_its_address_is_checked_again(engine: BrowserEngine) -> None:
    """DNS rebinding: the page comes from a public address, and its script asks for its own name
    again, which is a private address by then. That connection is not made."""
    script = "<script>fetch('/second').then(() => document.title = 'got it')</script>"
    close = {"Content-Type": "text/html", "Connection": "close"}
    site = Site({"/": (200, close, script.encode()), "/second": page("public")})
    inside = Site({"/second": page("inside")}, "127.0.0.2")
    async with site, listening(inside, site.port):
        NAMES.answers["rebind.example"] = [["127.0.0.1"], ["127.0.0.2"]]
        rebound = HopLimits(
            total_s=TIMEOUT_S, guard=OnlyFirst(), browser=Browser(wait="idle", wait_s=0.5), run=3
        )
        url = f"http://rebind.example:{site.port}/"
        response = await engine.get(url, HEADERS, rebound)
        assert "<title>" not in response.content.decode()
        assert site.log == ["/"]
        assert inside.connections == 0
        NAMES.answers["rebind.example"] = [["127.0.0.1"]]
        steady = HopLimits(
            total_s=TIMEOUT_S, guard=OnlyFirst(), browser=Browser(wait_for="title"), run=4
        )
        response = await engine.get(url, HEADERS, steady)
        assert "<title>got it</title>" in response.content.decode()


async def test_failures_of_the_network_have_their_names(engine: BrowserEngine) -> None:
    """A port where nobody listens, a name that does not exist, a page on a port that browsers
    refuse: told as the other engines tell them."""

    async def code(url: str, guard: Guard) -> str:
        with pytest.raises(FetchError) as caught:
            limits = HopLimits(total_s=TIMEOUT_S, guard=guard, browser=Browser(), run=5)
            await engine.get(url, HEADERS, limits)
        return caught.value.code

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert await code(f"http://127.0.0.1:{port}/", OnlyFirst()) == "connect"
    NAMES.answers["nowhere.example"] = [[]]
    assert await code("http://nowhere.example/", Guard()) == "dns"
    assert await code("http://public.example:6379/", Guard()) == "blocked_address"


async def test_pages_cannot_use_the_gates(engine: BrowserEngine) -> None:
    """Not even where private addresses are allowed: what one run may reach, another may not."""
    site = Site({"/": page("x")})
    limits = HopLimits(total_s=TIMEOUT_S, guard=Guard(True), browser=Browser(), run=8)
    async with site:
        before = set(engine.gates)
        await engine.get(site.url("/"), HEADERS, limits)
        (port,) = engine.gates - before
        with pytest.raises(FetchError) as caught:
            await engine.get(f"http://127.0.0.1:{port}/", HEADERS, limits)
        assert caught.value.reason == "blocked_address: the crawler's own proxy"


@pytest.mark.parametrize("kind", [HttpProxy, SocksProxy])
async def test_a_page_comes_through_the_jobs_proxy(
    engine: BrowserEngine, kind: type[HttpProxy] | type[SocksProxy]
) -> None:
    """The proxy is told the checked address; what the guard refuses does not even get to it, and
    a proxy that is not there is the proxy's failure. The proxy's own address is guarded too."""
    site = Site({"/": page("<script>document.body.textContent = 'through'</script>")})
    async with site, kind(user="me", password="secret") as proxy:
        hosts = (f"127.0.0.1:{site.port}", urlsplit(proxy.url).netloc.rpartition("@")[2])
        closed = msgspec.structs.replace(limits(site, run=6), proxy=proxy.url)
        with pytest.raises(FetchError):
            await engine.get(site.url("/"), HEADERS, closed)
        assert proxy.targets == [], "nobody has vouched for the proxy's own address"
        gone_too = "127.0.0.1:1"
        through = msgspec.structs.replace(closed, guard=Guard(False, (*hosts, gone_too)), run=7)
        response = await engine.get(site.url("/"), HEADERS, through)
        assert "through" in response.content.decode()
        assert site.log == ["/"]
        seen = list(proxy.targets)
        assert seen
        assert set(seen) == {f"127.0.0.1:{site.port}"}
        with pytest.raises(FetchError):
            await engine.get("http://127.0.0.1:8/", HEADERS, through)
        assert proxy.targets == seen
        gone = msgspec.structs.replace(through, proxy=f"{proxy.scheme}://127.0.0.1:1")
        with pytest.raises(FetchError) as caught:
            await engine.get(site.url("/"), HEADERS, gone)
        assert caught.value.code == "proxy"
