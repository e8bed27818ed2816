"""The browser engine over HTTP/2: encodings that Chromium undoes, connections that break."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.browser_site import HEADERS, TIMEOUT_S, need_chromium
from tests.web.encodings import PACKERS
from tests.web.http2_web import Http2Web
from zcrawl.errors import FetchError, RetryClass
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.ports import HopLimits

need_chromium()

from zcrawl.fetch.browser.engine import BrowserEngine  # noqa: E402
from zcrawl.fetch.general.wire import AiohttpWire  # noqa: E402

LIMITS = HopLimits(total_s=TIMEOUT_S, guard=Guard(allow_private=True), verify_tls=False)
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[BrowserEngine]:
    async with AiohttpWire() as plain:
        made = BrowserEngine(plain, time.monotonic, time.time)
        try:
            yield made
        finally:
            await made.aclose()


@pytest_asyncio.fixture(loop_scope="module")
async def web() -> AsyncIterator[Http2Web]:
    async with Http2Web() as web:
        yield web


async def outcome(engine: BrowserEngine, url: str) -> str:
    """The code of the failure, or the page's text."""
    try:
        response = await engine.get(url, HEADERS, LIMITS)
    except FetchError as error:
        assert error.retry is RetryClass.TRANSIENT, error
        return error.code
    return response.content.decode()


@pytest.mark.parametrize("coding", [*PACKERS, "br+gzip", "gzip+zstd"])
async def test_encodings_are_undone(engine: BrowserEngine, web: Http2Web, coding: str) -> None:
    """By Chromium itself, also where there are two, each on a line of its own."""
    for piece in (7, 1_000_000_000):
        text = await outcome(engine, web.url(f"/encoded/lines/{coding}/{piece}"))
        assert text.count("the same line again") == 8000


@pytest.mark.parametrize(
    "path", ["/reset/INTERNAL_ERROR/before/1000", "/goaway/PROTOCOL_ERROR/none/1000",
             "/fault/data-first/1000", "/fault/bad-hpack/1000"]
)  # fmt: skip
async def test_http2_failures_may_pass(engine: BrowserEngine, web: Http2Web, path: str) -> None:
    """They are named, tried again, and the next page is asked for on another connection."""
    assert await outcome(engine, web.url(path)) == "http2"
    assert "hello" in await outcome(engine, web.url("/page/after"))
