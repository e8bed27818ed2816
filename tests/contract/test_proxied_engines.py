"""Requests through real proxies: their content, the checks before them, and the codes of
failures."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.contract.engine_tools import HEADERS
from tests.web import MisbehavingWeb
from tests.web.behaviours import PAGE
from tests.web.proxies import HttpProxy, SocksProxy
from zcrawl.errors import BlockedAddress, FetchError, RetryClass
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.http2.engine import HttpxEngine
from zcrawl.fetch.ports import Engine, HopLimits
from zcrawl.fetch.wire.engine import HttpEngine
from zcrawl.fetch.wire.response import as_httpx

OPEN = HopLimits(guard=Guard(allow_private=True), verify_tls=False, connect_s=5.0)
Proxy = HttpProxy | SocksProxy
Kind = tuple[type[HttpEngine] | type[HttpxEngine], type[Proxy]]
KINDS: list[Kind] = [(HttpEngine, HttpProxy), (HttpEngine, SocksProxy), (HttpxEngine, HttpProxy)]


@pytest.fixture(params=KINDS, ids=["aiohttp-http", "aiohttp-socks5", "httpx-http"])
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
async def engine(kind: Kind) -> AsyncIterator[Engine]:
    async with kind[0]() as engine:
        yield engine


@pytest.fixture
async def proxy(kind: Kind) -> AsyncIterator[Proxy]:
    async with kind[1]() as proxy:
        yield proxy


def through(proxy: Proxy | str) -> HopLimits:
    return msgspec.structs.replace(OPEN, proxy=proxy if isinstance(proxy, str) else proxy.url)


async def failure(engine: Engine, url: str, proxy: Proxy | str) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await engine.get(url, HEADERS, through(proxy))
    return caught.value


async def test_pages_come_through_the_proxy(
    engine: Engine, proxy: Proxy, web: MisbehavingWeb
) -> None:
    """Plain and over TLS, byte for byte."""
    for url in (web.url("/echo/a%2Fb?x=%41"), web.tls_url("/echo/a%2Fb?x=%41")):
        response = await engine.get(url, HEADERS, through(proxy))
        assert as_httpx(response).text.splitlines()[0] == "/echo/a%2Fb?x=%41"
    assert proxy.served == 2
    assert {hit.headers["user-agent"] for hit in web.log} == {"zcrawl-test/1"}
    assert not any("proxy-authorization" in hit.headers for hit in web.log)


async def test_a_proxy_with_a_password(kind: Kind, engine: Engine, web: MisbehavingWeb) -> None:
    """The right one opens it; a wrong one is the proxy's failure and names no password."""
    async with kind[1](user="ann", password="s3cret") as proxy:
        response = await engine.get(web.url("/status/200"), HEADERS, through(proxy))
        assert response.content == PAGE
        response = await engine.get(web.tls_url("/status/200"), HEADERS, through(proxy))
        assert response.status_code == 200
        wrong = proxy.url.replace("s3cret", "wr0ng")
        for url in (web.url("/status/200"), web.tls_url("/status/200")):
            error = await failure(engine, url, wrong)
            assert error.code == "proxy"
            assert "wr0ng" not in str(error)


@pytest.mark.parametrize("fault", ["hang_up", "refuse"])
async def test_what_a_proxy_does_wrong_is_its_own_failure(
    engine: Engine, proxy: Proxy, web: MisbehavingWeb, fault: str
) -> None:
    """The code is `proxy`, which does not count as an attempt."""
    proxy.fault = fault
    if fault == "hang_up" and not isinstance(engine, HttpxEngine):
        assert (await failure(engine, web.url("/status/200"), proxy)).code == "proxy"
    error = await failure(engine, web.tls_url("/status/200"), proxy)
    if isinstance(engine, HttpxEngine) and fault == "hang_up":
        assert error.code in ("proxy", "reset")  # httpx does not tell
    else:
        assert (error.code, error.retry) == ("proxy", RetryClass.POSTPONED)
    assert not web.log


async def test_a_proxy_that_is_not_there(
    engine: Engine,
    kind: Kind,
    web: MisbehavingWeb,
    unused_tcp_port: int,
) -> None:
    """Is the proxy's failure too."""
    error = await failure(engine, web.url("/"), f"{kind[1].scheme}://127.0.0.1:{unused_tcp_port}")
    assert error.code == "proxy"


async def test_a_server_that_is_not_there_is_the_pages_failure(
    engine: Engine, proxy: Proxy, unused_tcp_port: int
) -> None:
    """The proxy did its part: it says that it cannot reach the server."""
    error = await failure(engine, f"https://127.0.0.1:{unused_tcp_port}/", proxy)
    assert error.code == "connect"


async def test_what_is_closed_does_not_leave_for_a_proxy(
    engine: Engine, proxy: Proxy, web: MisbehavingWeb
) -> None:
    """The guard asks before the proxy hears of it: addresses, names, ports."""
    closed = Guard(private_hosts=[f"127.0.0.1:{proxy.port}"])
    limits = msgspec.structs.replace(through(proxy), guard=closed)
    for url in (web.url("/"), web.tls_url("/"), "http://169.254.169.254/", "http://a.example:25/"):
        with pytest.raises(BlockedAddress):
            await engine.get(url, HEADERS, limits)
    assert not proxy.targets
    assert not web.log


async def test_a_proxy_inside_needs_a_voucher(
    engine: Engine, proxy: Proxy, web: MisbehavingWeb
) -> None:
    """A job cannot make workers talk to any inner service by calling it a proxy."""
    limits = msgspec.structs.replace(through(proxy), guard=Guard())
    with pytest.raises(BlockedAddress):
        await engine.get("http://93.184.215.14/", HEADERS, limits)
    assert proxy.met == 0


async def test_connections_of_two_proxies_are_not_mixed(
    engine: Engine, kind: Kind, proxy: Proxy, web: MisbehavingWeb
) -> None:
    """Nor is a direct one used for a request that has a proxy."""
    async with kind[1]() as other:
        for _ in range(2):
            for way in (proxy, other):
                await engine.get(web.tls_url("/status/200"), HEADERS, through(way))
            await engine.get(web.tls_url("/status/200"), HEADERS, OPEN)
        assert (proxy.met, other.met) == (1, 1)
        assert len({hit.connection for hit in web.log}) == 3


async def test_a_socks_proxy_is_told_the_address_that_was_checked(web: MisbehavingWeb) -> None:
    """A proxy with another DNS cannot be led elsewhere by a name."""
    async with HttpEngine() as wire, SocksProxy(names={"localhost": "203.0.113.1"}) as proxy:
        url = web.url("/status/200").replace("127.0.0.1", "localhost")
        assert (await wire.get(url, HEADERS, through(proxy))).content == PAGE
        assert proxy.targets[0].startswith(("127.0.0.1:", "::1:"))
