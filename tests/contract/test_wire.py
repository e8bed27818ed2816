"""The wire's httpx face: an httpx client works on it, and sees what it knows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.contract.engine_tools import HEADERS, PATIENT
from tests.web import MisbehavingWeb
from tests.web.behaviours import PAGE
from zcrawl.errors import FetchError, RetryClass
from zcrawl.fetch.general.wire import AiohttpWire


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    wire = AiohttpWire(limits=PATIENT)
    async with httpx.AsyncClient(transport=wire, timeout=httpx.Timeout(5.0, read=1.0)) as client:
        yield client


async def test_an_httpx_client_works_on_the_wire(
    client: httpx.AsyncClient, web: MisbehavingWeb
) -> None:
    """Redirects, bodies, compression, HEAD-less methods and streams work as with httpx's own."""
    response = await client.get(web.url("/hops/3"), follow_redirects=True)
    assert (response.status_code, response.content, len(response.history)) == (200, PAGE, 3)
    assert (await client.get(web.url("/compressed/gzip"))).content == PAGE
    assert (await client.post(web.url("/echo"), json={"a": 1})).status_code == 200
    assert web.log[-1].headers["content-length"] == "7"
    async with client.stream("GET", web.url("/chunked")) as streamed:
        assert b"".join([piece async for piece in streamed.aiter_bytes()]) == PAGE
    assert {hit.connection for hit in web.log} == {1}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/hang", httpx.ReadTimeout),
        ("/stall", httpx.ReadTimeout),
        ("/close-at-once", httpx.ReadError),
        ("/lies-long", httpx.RemoteProtocolError),
        ("/garbage", httpx.RemoteProtocolError),
        ("/broken-gzip", httpx.DecodingError),
        ("/compressed/zstd", httpx.DecodingError),
        ("/gzip-bomb", httpx.TransportError),
        ("/endless", httpx.TransportError),
    ],
)
async def test_an_httpx_client_sees_httpx_errors(
    client: httpx.AsyncClient, web: MisbehavingWeb, path: str, kind: type[httpx.RequestError]
) -> None:
    """Code written for httpx catches what it knows, and bombs are bounded there too."""
    with pytest.raises(kind):
        await client.get(web.url(path))


async def test_a_guard_in_the_resolver_is_heard() -> None:
    """What the resolver refuses is not connected to, and its own FetchError reaches the caller."""

    class Guard(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: object = None
        ) -> list[ResolveResult]:
            raise FetchError(f"{host} is private", code="blocked", retry=RetryClass.PERMANENT)

        async def close(self) -> None:
            pass

    async with AiohttpWire(resolver=Guard()) as wire:
        with pytest.raises(FetchError) as caught:
            await wire.get("http://intranet.example/", HEADERS, PATIENT)
    assert caught.value.code == "blocked"
