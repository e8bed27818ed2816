"""Every Content-Encoding, in every kind of pieces, on every engine: whole, cut, and as a bomb."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from tests.contract.engine_tools import HEADERS, OPEN
from tests.web import MisbehavingWeb
from tests.web.encodings import CODINGS, PACKERS, PIECES, SMALL, STACKS, VARIED, header_of, packed
from tests.web.http2_web import Http2Web
from zcrawl.errors import FetchError
from zcrawl.fetch.body import ACCEPT_ENCODING, ARCHIVABLE_ENCODING
from zcrawl.fetch.general.wire import AiohttpWire
from zcrawl.fetch.http2.engine import HttpxEngine
from zcrawl.fetch.ports import Engine, HopLimits, Response
from zcrawl.fetch.wire.engine import HttpEngine

AT_ONCE = 6  # requests
WHOLE = 1_000_000_000  # bytes that come at once


@dataclasses.dataclass
class Way:
    """An engine, the web that it meets, and the limits that it has there."""

    engine: Engine
    url: Callable[[str], str]
    limits: HopLimits
    sent: Callable[[], dict[str, str]]  # headers of the last request

    async def get(self, path: str) -> Response:
        return await self.engine.get(self.url(path), HEADERS, self.limits)


@pytest.fixture(params=[False, True], ids=["plain", "archiving"])
def archives(request: pytest.FixtureRequest) -> bool:
    """An archive wants the body as it came too, and has another wire for it."""
    return bool(request.param)


@pytest.fixture(params=["http", "aiohttp", "httpx", "http2"])
async def way(request: pytest.FixtureRequest, archives: bool) -> AsyncIterator[Way]:
    engines = {"http": HttpEngine, "aiohttp": AiohttpWire, "httpx": HttpxEngine}
    limits = HopLimits(max_bytes=500_000, guard=OPEN, archives=archives)
    if request.param in engines:
        async with engines[request.param]() as engine, MisbehavingWeb() as web:
            yield Way(engine, web.url, limits, lambda: web.log[-1].headers)
        return
    limits = HopLimits(
        max_bytes=500_000, guard=OPEN, archives=archives, http2=True, verify_tls=False
    )
    async with HttpxEngine() as httpx, Http2Web() as two:
        yield Way(httpx, two.url, limits, lambda: two.log[-1].headers)


async def pages_of(way: Way, paths: Iterable[str]) -> dict[str, bytes | str]:
    """The body of each path, or the name of its failure."""
    outcomes: dict[str, bytes | str] = {}
    free = asyncio.Semaphore(AT_ONCE)

    async def read(path: str) -> None:
        async with free:
            try:
                outcomes[path] = (await way.get(path)).content
            except FetchError as error:
                outcomes[path] = error.code

    await asyncio.gather(*map(read, paths))
    return outcomes


@pytest.mark.parametrize("piece", PIECES)
async def test_every_encoding_is_read_in_every_kind_of_pieces(way: Way, piece: int) -> None:
    """Alone and upon another one: the page comes out as it went in."""
    pages = {f"/encoded/small/{coding}/{piece}": SMALL for coding in CODINGS}
    if piece >= 1000:
        pages |= {f"/encoded/varied/{coding}/{piece}": VARIED for coding in CODINGS}
    assert await pages_of(way, pages) == pages


async def test_two_lines_mean_the_same_as_one(way: Way) -> None:
    """A Content-Encoding line for each encoding, in the order in which they were applied."""
    pages = {f"/encoded/lines/{coding}/{WHOLE}": SMALL for coding in STACKS}
    assert await pages_of(way, pages) == pages


@pytest.mark.parametrize("piece", [7, WHOLE])
async def test_a_cut_stream_is_truncated(way: Way, piece: int) -> None:
    """The transfer is complete, but the compressed body is not."""
    paths = [f"/encoded/cut-{n}/{coding}/{piece}" for coding in CODINGS for n in (1, 20)]
    assert set((await pages_of(way, paths)).values()) == {"truncated"}


async def test_a_bomb_ends_at_the_limit(way: Way) -> None:
    """Whatever it was packed with."""
    paths = [f"/encoded/bomb/{coding}/{WHOLE}" for coding in CODINGS]
    assert set((await pages_of(way, paths)).values()) == {"too_large"}


async def test_what_is_asked_for(way: Way, archives: bool) -> None:
    """All encodings that can be read; for archives those that their readers know."""
    await way.get(f"/encoded/small/gzip/{WHOLE}")
    expected = ARCHIVABLE_ENCODING if archives else ACCEPT_ENCODING
    assert way.sent()["accept-encoding"] == expected


@pytest.mark.parametrize("coding", [*PACKERS, "br+gzip"])
async def test_headers_and_body_agree(way: Way, archives: bool, coding: str) -> None:
    """A decoded page has no Content-Encoding; the received bytes are available for archives."""
    response = await way.get(f"/encoded/lines/{coding}/{WHOLE}")
    assert "content-encoding" not in response.headers
    wire = [v for k, v in response.extensions["wire_headers"] if k.lower() == b"content-encoding"]
    assert [value.decode() for value in wire] == header_of(coding)
    if archives:
        assert response.extensions["wire_body"] == packed(coding, SMALL)
