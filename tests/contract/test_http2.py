"""Broken HTTP/2 servers: which page fails, which is requested again, and on which connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.contract.engine_tools import HEADERS, OPEN, failure
from tests.web.behaviours import PAGE
from tests.web.http2_web import FAULTS, Http2Web
from zcrawl.errors import FetchError, RetryClass
from zcrawl.fetch.http2.engine import HttpxEngine
from zcrawl.fetch.ports import HopLimits

TWO = HopLimits(max_bytes=500_000, guard=OPEN, verify_tls=False, http2=True)
CONNECTION_ENDS = [
    "/goaway/NO_ERROR/all",
    "/goaway/NO_ERROR/none",
    "/goaway/ENHANCE_YOUR_CALM/none",
    "/hangs-up",
    *(f"/fault/{kind}" for kind in FAULTS if kind != "no-status"),
]
ALWAYS = 1000  # times


@pytest.fixture
async def web() -> AsyncIterator[Http2Web]:
    async with Http2Web() as web:
        yield web


@pytest.fixture
async def engine() -> AsyncIterator[HttpxEngine]:
    async with HttpxEngine() as engine:
        yield engine


async def get(engine: HttpxEngine, web: Http2Web, path: str) -> bytes | FetchError:
    try:
        return (await engine.get(web.url(path), HEADERS, TWO)).content
    except FetchError as error:
        return error


async def begin(
    engine: HttpxEngine, web: Http2Web, *paths: str
) -> list[asyncio.Task[bytes | FetchError]]:
    """Ask for these paths on one connection, and wait until all have arrived."""
    assert await get(engine, web, "/page/first") == PAGE
    tasks = [asyncio.create_task(get(engine, web, path)) for path in paths]
    await web.arrived(1 + len(paths))
    return tasks


@pytest.mark.parametrize("kind", ["ping", "settings", "unknown"])
async def test_a_flood_of_frames_ends_at_once(
    engine: HttpxEngine, web: Http2Web, kind: str
) -> None:
    """It took the whole time of the page, and all of the event loop meanwhile."""
    flood, page = await asyncio.wait_for(
        asyncio.gather(get(engine, web, f"/flood/{kind}"), get(engine, web, "/page/other")), 10
    )
    assert isinstance(flood, FetchError)
    assert flood.code == "http2"
    assert "without content" in str(flood)
    assert page == PAGE


# ---------------------------------------------------------------- streams


@pytest.mark.parametrize("when", ["before", "within"])
@pytest.mark.parametrize("code", ["REFUSED_STREAM", "CANCEL", "INTERNAL_ERROR", "NO_ERROR"])
async def test_a_reset_stream_is_the_failure_of_its_page_and_may_pass(
    engine: HttpxEngine, web: Http2Web, code: str, when: str
) -> None:
    """It is told as `http2` with the server's reason, is not asked for again behind the frontier's
    back, and costs neither the connection nor the pages beside it."""
    neighbour, *_ = await begin(engine, web, "/waits/1")
    error = await failure(engine, web.url(f"/reset/{code}/{when}/{ALWAYS}"), TWO)
    assert (error.code, error.retry) == ("http2", RetryClass.TRANSIENT)
    assert code in str(error)
    assert await get(engine, web, "/page/after") == PAGE
    assert not neighbour.done()
    neighbour.cancel()
    assert web.connections == 1
    assert web.request_counts[f"/reset/{code}/{when}/{ALWAYS}"] == 1


async def test_all_streams_reset_at_once(engine: HttpxEngine, web: Http2Web) -> None:
    """Each page fails with that code, and succeeds the next time."""
    paths = [f"/reset/CANCEL/before/1?{n}" for n in range(10)]
    first = await asyncio.gather(*(get(engine, web, path) for path in paths))
    assert [getattr(error, "code", error) for error in first] == ["http2"] * 10
    assert await asyncio.gather(*(get(engine, web, path) for path in paths)) == [PAGE] * 10


async def test_a_status_that_is_no_number_is_the_servers_fault(
    engine: HttpxEngine, web: Http2Web
) -> None:
    """`protocol`, as on HTTP/1.1, and not `bad_url`; the connection is as good as before."""
    error = await failure(engine, web.url("/bad-status/abc"), TWO)
    assert error.code == "protocol"
    assert await get(engine, web, "/page/after") == PAGE
    assert web.connections == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_server_that_wants_http1_gets_it(
    engine: HttpxEngine, web: Http2Web, method: str
) -> None:
    """HTTP_1_1_REQUIRED means that nothing was done: the page is requested again with HTTP/1.1."""
    url = web.url("/reset/HTTP_1_1_REQUIRED/before/1000")
    answer = await engine.send(method, url, HEADERS, b"", TWO)
    assert answer.content == PAGE
    assert [hit.stream for hit in web.log] == [1, 0]  # HTTP/1.1 has no streams


# ---------------------------------------------------------------- connections


@pytest.mark.parametrize("path", CONNECTION_ENDS)
async def test_the_end_of_a_connection_may_pass(
    engine: HttpxEngine, web: Http2Web, path: str
) -> None:
    """A page alone on its connection fails by a name that is tried again; it is asked for once,
    because a second request would be one that nobody has paced."""
    error = await failure(engine, web.url(f"{path}/{ALWAYS}"), TWO)
    assert error.code == ("reset" if path == "/hangs-up" else "http2")
    assert error.retry is RetryClass.TRANSIENT
    assert web.url(path) in str(error)
    assert len(web.log) == 1


@pytest.mark.parametrize("path", CONNECTION_ENDS)
async def test_pages_that_shared_a_connection_are_asked_for_again_each_on_its_own(
    engine: HttpxEngine, web: Http2Web, path: str
) -> None:
    """Whether they waited for their headers or for the rest of their body: none fails for what
    another page, or the server, did to the connection. At once, and not after a timeout."""
    paths = ["/waits/1", "/half/2", "/waits/3"]
    neighbours = await begin(engine, web, *paths)
    async with asyncio.timeout(10):  # less than the silence that is allowed
        assert await get(engine, web, f"{path}/1") == PAGE
        assert await asyncio.gather(*neighbours) == [PAGE] * 3
    again = [web.connections_of(page_path) for page_path in [*paths, f"{path}/1"]]
    assert [first for first, *_ in again] == [1] * 4
    assert len({second for _, second in again}) == 4


@pytest.mark.parametrize("path", ["/goaway/NO_ERROR/none", "/hangs-up", "/fault/garbage"])
async def test_only_the_page_that_breaks_its_own_connection_fails(
    engine: HttpxEngine, web: Http2Web, path: str
) -> None:
    """A page that always breaks the connection does not take the others with it again and again."""
    neighbours = await begin(engine, web, "/waits/1", "/half/2", "/waits/3")
    culprit = await get(engine, web, f"{path}/{ALWAYS}")
    assert isinstance(culprit, FetchError)
    assert culprit.retry is RetryClass.TRANSIENT
    assert await asyncio.gather(*neighbours) == [PAGE] * 3
    assert web.request_counts[f"{path}/{ALWAYS}"] == 2


async def test_what_is_no_get_is_not_sent_twice(engine: HttpxEngine, web: Http2Web) -> None:
    """A server that closes the connection may have carried out the request."""
    assert await get(engine, web, "/page/first") == PAGE
    with pytest.raises(FetchError) as caught:
        await engine.send("POST", web.url("/hangs-up/1"), HEADERS, b"a=1", TWO)
    assert caught.value.retry is RetryClass.TRANSIENT
    assert web.request_counts["/hangs-up/1"] == 1


async def test_a_server_that_ends_its_connections_politely_costs_nothing(
    engine: HttpxEngine, web: Http2Web
) -> None:
    """Servers limit the requests of a connection with GOAWAY after an answer."""
    for n in range(5):
        assert await get(engine, web, f"/answers-and-leaves/{n}") == PAGE
    assert len(web.log) == 5 == web.connections


async def test_pages_that_the_server_has_not_begun_with_are_asked_for_again(
    engine: HttpxEngine, web: Http2Web
) -> None:
    """GOAWAY names the last stream that counts; later ones use another connection."""
    neighbours = await begin(engine, web, "/waits/1", "/waits/2", "/waits/3")
    assert await get(engine, web, "/goaway/NO_ERROR/3/1") == PAGE
    assert await asyncio.gather(*neighbours) == [PAGE] * 3
    assert web.connections_of("/waits/1")[0] == 1 != web.connections_of("/waits/1")[1]


async def test_many_pages_survive_goaways_among_them(engine: HttpxEngine) -> None:
    """With more pages than streams are allowed, each connection ended after a few of them. Only a
    page that was alone on the connection that it ended has to be tried again."""
    async with Http2Web(streams=5) as web:
        paths = [f"/goaway/NO_ERROR/all/1?{n}" if n % 8 == 3 else f"/page/{n}" for n in range(40)]
        answers = await asyncio.gather(*(get(engine, web, path) for path in paths))
        failed = {
            path: answer for path, answer in zip(paths, answers, strict=True) if answer != PAGE
        }
        assert all(path.startswith("/goaway") for path in failed)
        assert all(getattr(error, "code", error) == "http2" for error in failed.values())
        again = await asyncio.gather(*(get(engine, web, path) for path in failed))
        assert again == [PAGE] * len(failed)


# ---------------------------------------------------------------- streams that nobody reads


async def test_a_page_that_is_too_large_takes_no_room_from_the_others(
    engine: HttpxEngine, web: Http2Web
) -> None:
    """The server is told to stop. Else what it has sent would stay unacknowledged, and after a few
    such pages nothing would come on the connection any more."""
    for n in range(8):
        for path in (f"/large/4000000?{n}", f"/large/4000000/quietly?{n}"):
            assert (await failure(engine, web.url(path), TWO)).code == "too_large"
            assert await get(engine, web, f"/page/{n}") == PAGE
    endless = "/large/40000000/quietly"
    assert (await failure(engine, web.url(endless), TWO)).code == "too_large"
    assert await get(engine, web, "/page/last") == PAGE
    assert web.connections == 1
    assert endless in web.cancelled


async def test_data_that_came_for_pages_that_were_given_up_is_acknowledged(
    engine: HttpxEngine, web: Http2Web
) -> None:
    """Others have read it from the connection, which has room for 16 MB without that."""
    tiny = msgspec.structs.replace(TWO, max_bytes=1000)
    for n in range(6):
        urls = [web.url(f"/large/100000?{n}.{m}") for m in range(50)]
        errors = await asyncio.gather(*(failure(engine, url, tiny) for url in urls))
        assert {error.code for error in errors} == {"too_large"}
    response = await engine.get(web.url("/large/100000"), HEADERS, TWO)
    assert len(response.content) == 100_000
    assert web.connections == 1


async def test_a_page_that_takes_too_long_is_cancelled_at_the_server(
    engine: HttpxEngine, web: Http2Web
) -> None:
    """The connection stays, and the server need not go on with it."""
    hasty = msgspec.structs.replace(TWO, total_s=0.3)
    neighbour, *_ = await begin(engine, web, "/waits/1")
    for path in ("/hangs/1", "/half/1"):
        assert (await failure(engine, web.url(path), hasty)).code == "total_timeout"
    assert await get(engine, web, "/page/after") == PAGE
    assert web.cancelled == ["/hangs/1", "/half/1"]
    assert web.connections == 1
    assert not neighbour.done()
    neighbour.cancel()


# ---------------------------------------------------------------- what cannot be sent


@pytest.mark.parametrize("headers", [{"X-Bad": "a\r\nInjected: 1"}, {"TE": "gzip"}])
async def test_a_header_that_cannot_be_sent_harms_nobody(
    engine: HttpxEngine, web: Http2Web, headers: dict[str, str]
) -> None:
    """It is refused before it could be taken for a fault of the connection."""
    neighbour, *_ = await begin(engine, web, "/waits/1")
    with pytest.raises(FetchError) as caught:
        await engine.get(web.url("/page/1"), {**HEADERS, **headers}, TWO)
    assert caught.value.code == "bad_url"
    assert web.request_counts["/page/1"] == 0
    assert not neighbour.done()
    neighbour.cancel()
