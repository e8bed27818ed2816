"""What every engine must make of what the web does to it, the same for all of them."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import aiohttp
import httpx
import pytest
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.web import MisbehavingWeb, WebThread
from tests.web.behaviours import CHARSETS, PAGE
from zcrawl.errors import BlockedAddress, FetchError, RetryClass
from zcrawl.fetch.fetch_aiohttp import AiohttpWire
from zcrawl.fetch.fetch_httpx import HttpxEngine
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.policy import RETRY_CLASS_OF
from zcrawl.fetch.ports import Engine, HopLimits

HEADERS = {"User-Agent": "zcrawl-test/1"}
OPEN = Guard(allow_private=True)  # the web of these tests is on loopback
PATIENT = HopLimits(max_bytes=500_000, guard=OPEN)  # for what must not end by a timeout
HASTY = HopLimits(read_s=0.3, guard=OPEN)  # silence ends it
BUSY = HopLimits(total_s=0.7, guard=OPEN)  # only the total ends it


@pytest.fixture(params=[AiohttpWire, HttpxEngine], ids=["aiohttp", "httpx"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    async with request.param() as engine:
        yield engine


@pytest.fixture
async def web() -> AsyncIterator[MisbehavingWeb]:
    async with MisbehavingWeb(tls=True) as web:
        yield web


async def failure(engine: Engine, url: str, limits: HopLimits = PATIENT) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await engine.get(url, HEADERS, limits)
    assert type(caught.value) in (FetchError, BlockedAddress)
    assert caught.value.retry is RETRY_CLASS_OF[caught.value.code]
    assert len(str(caught.value)) < 2_000
    return caught.value


MISBEHAVIOURS = [
    ("/drip", BUSY, "total_timeout"),
    ("/drip-header", BUSY, "total_timeout"),
    ("/hang", BUSY, "total_timeout"),
    ("/hang", HASTY, "read_timeout"),
    ("/stall", HASTY, "read_timeout"),
    ("/lies-long", PATIENT, "truncated"),
    ("/chunked-cut", PATIENT, "truncated"),
    ("/reset-within", PATIENT, "truncated"),
    ("/cut-gzip", PATIENT, "truncated"),
    ("/large/500001", PATIENT, "too_large"),
    ("/endless", PATIENT, "too_large"),
    ("/gzip-bomb", PATIENT, "too_large"),
    ("/broken-gzip", PATIENT, "bad_encoding"),
    ("/corrupt-gzip", PATIENT, "bad_encoding"),
    ("/compressed/zstd", PATIENT, "bad_encoding"),
    ("/garbage", PATIENT, "protocol"),
    ("/huge-header", PATIENT, "protocol"),
    ("/bad-chunk", PATIENT, "protocol"),
    ("/close-at-once", PATIENT, "reset"),
    ("/close-in-header", PATIENT, "reset"),
    ("/reset", PATIENT, "reset"),
]


@pytest.mark.parametrize(("path", "limits", "code"), MISBEHAVIOURS)
async def test_each_misbehaviour_has_its_name(
    engine: Engine, web: MisbehavingWeb, path: str, limits: HopLimits, code: str
) -> None:
    """A bad server ends a fetch with the named error, and is not asked a second time."""
    error = await failure(engine, web.url(path), limits)
    assert error.code == code
    assert web.hits(path) <= 1  # on a busy machine the total may end before the request


@pytest.mark.parametrize(
    "path",
    [
        "/status/200",
        "/chunked",
        "/until-close",
        "/slow/20",
        "/large-header",
        "/odd-header",
        "/cookie",
        "/close-after",
        "/compressed/gzip",
        "/compressed/gzip-members",
        "/compressed/gzip-trailer",
        "/compressed/deflate",
        "/compressed/raw-deflate",
        "/compressed/gzip-gzip",
        "/compressed/unknown",
    ],
)
async def test_what_browsers_can_read_is_read(
    engine: Engine, web: MisbehavingWeb, path: str
) -> None:
    """Odd but readable answers give the page, decoded."""
    response = await engine.get(web.url(path), HEADERS, PATIENT)
    assert (response.status_code, response.content) == (200, PAGE)
    assert "hello" in response.text


@pytest.mark.parametrize("path", ["/lies-short", "/lies-short-at-once", "/lies-short-and-closes"])
async def test_more_body_than_announced_loses_only_the_excess(
    engine: Engine, web: MisbehavingWeb, path: str
) -> None:
    """A Content-Length that is too small cuts the body there, as in browsers; the connection is
    not used again, so that the excess cannot pass for the next answer."""
    response = await engine.get(web.url(path), HEADERS, PATIENT)
    assert response.content == b"12345"
    after = await engine.get(web.url("/status/200"), HEADERS, PATIENT)
    assert after.content == PAGE


@pytest.mark.parametrize("status", [201, 204, 301, 304, 404, 429, 500, 503, 999])
async def test_every_status_is_an_answer(engine: Engine, web: MisbehavingWeb, status: int) -> None:
    """A status is no error at this level, and no redirect is followed."""
    response = await engine.get(web.url(f"/status/{status}"), HEADERS, PATIENT)
    assert response.status_code == status


@pytest.mark.parametrize("status", [204, 304])
async def test_a_body_where_none_belongs_is_lost_with_its_connection(
    engine: Engine, web: MisbehavingWeb, status: int
) -> None:
    """Bytes behind a status that has no body are no error, and not the next answer."""
    response = await engine.get(web.url(f"/body-after/{status}"), HEADERS, PATIENT)
    assert (response.status_code, response.content) == (status, b"")
    after = await engine.get(web.url("/status/200"), HEADERS, PATIENT)
    assert after.content == PAGE


async def test_an_answer_that_nobody_asked_for_is_nobodys(
    engine: Engine, web: MisbehavingWeb
) -> None:
    """What a server says on an idle connection is not taken for the answer to the next request."""
    assert (await engine.get(web.url("/speaks-again"), HEADERS, PATIENT)).content == PAGE
    # Meanwhile, on another connection, which gives the server the time to speak.
    elsewhere = web.url("/slow/300").replace("127.0.0.1", "localhost")
    assert (await engine.get(elsewhere, HEADERS, PATIENT)).content == PAGE
    for code in (404, 500):
        response = await engine.get(web.url(f"/status/{code}"), HEADERS, PATIENT)
        assert (response.status_code, response.content) == (code, PAGE)


@pytest.mark.parametrize(
    "path",
    ["/hops/3", "/loop/a", "/redirect-self", "/redirect-elsewhere", "/redirect-file"],
)
async def test_redirects_are_left_to_the_pipeline(
    engine: Engine, web: MisbehavingWeb, path: str
) -> None:
    """One get is one request; the Location is handed on."""
    response = await engine.get(web.url(path), HEADERS, PATIENT)
    assert response.status_code in (301, 302)
    assert response.headers["location"]
    assert len(web.log) == 1


async def test_a_redirect_without_location_is_an_answer_too(
    engine: Engine, web: MisbehavingWeb
) -> None:
    """Its lack of a Location is the policy's business."""
    response = await engine.get(web.url("/redirect-without-location"), HEADERS, PATIENT)
    assert response.status_code == 302
    assert "location" not in response.headers


async def test_a_flaky_server_is_not_asked_again_behind_the_frontiers_back(
    engine: Engine, web: MisbehavingWeb
) -> None:
    """Retries are decided elsewhere: each get costs one request, and its failure is told."""
    assert (await engine.get(web.url("/flaky/3"), HEADERS, PATIENT)).status_code == 500
    assert (await engine.get(web.url("/flaky/3"), HEADERS, PATIENT)).status_code == 503
    assert web.hits("/flaky/3") == 2


async def test_retry_after_reaches_the_caller(engine: Engine, web: MisbehavingWeb) -> None:
    """The header is there to be parsed."""
    response = await engine.get(web.url("/retry-after/7"), HEADERS, PATIENT)
    assert (response.status_code, response.headers["retry-after"]) == (503, "7")


@pytest.mark.parametrize("path", ["/binary-as-html", "/nul", "/many-links/5000", "/bad-links"])
async def test_bodies_are_bytes_whatever_they_are(
    engine: Engine, web: MisbehavingWeb, path: str
) -> None:
    """No content makes an engine fail, and its text can be had."""
    response = await engine.get(web.url(path), HEADERS, PATIENT)
    assert response.status_code == 200
    assert response.content
    assert isinstance(response.text, str)


@pytest.mark.parametrize("name", sorted(CHARSETS))
async def test_a_charset_in_the_header_is_honoured(
    engine: Engine, web: MisbehavingWeb, name: str
) -> None:
    """`text` reads the body as the header says."""
    response = await engine.get(web.url(f"/charset/{name}"), HEADERS, PATIENT)
    assert CHARSETS[name] in response.text


@pytest.mark.parametrize("name", ["lying", "unheard-of"])
async def test_a_wrong_charset_raises_nothing(
    engine: Engine, web: MisbehavingWeb, name: str
) -> None:
    """A charset that lies or does not exist gives some text."""
    response = await engine.get(web.url(f"/charset/{name}"), HEADERS, PATIENT)
    assert "title" in response.text


async def test_a_decoded_body_has_no_headers_of_the_encoded_one(
    engine: Engine, web: MisbehavingWeb
) -> None:
    """What was undone is not announced any more, and what was sent can still be seen."""
    response = await engine.get(web.url("/compressed/gzip"), HEADERS, PATIENT)
    assert "content-encoding" not in response.headers
    assert response.headers.get("content-length", str(len(PAGE))) == str(len(PAGE))
    assert (b"Content-Encoding", b"gzip") in response.extensions["wire_headers"]


async def test_an_empty_body_may_claim_any_encoding(engine: Engine, web: MisbehavingWeb) -> None:
    """Nothing is nothing, compressed or not."""
    response = await engine.get(web.url("/compressed/empty"), HEADERS, PATIENT)
    assert response.content == b""


async def test_header_bytes_beyond_ascii_survive(engine: Engine, web: MisbehavingWeb) -> None:
    """Neither reading nor listing such headers raises."""
    response = await engine.get(web.url("/odd-header"), HEADERS, PATIENT)
    assert "caf" in response.headers["x-odd"]
    assert (b"X-Odd", b"caf\xe9 \xff\xfe") in response.headers.raw


async def test_the_url_is_sent_byte_for_byte(engine: Engine, web: MisbehavingWeb) -> None:
    """The canonical form is not normalised a second time on its way out."""
    path = "/echo/a%2Fb/%7e;x='y'|%C3%BC?q=%41&r=a+b&empty=&s=%2B[]"
    response = await engine.get(web.url(path), HEADERS, PATIENT)
    assert response.text.splitlines()[0] == path
    assert str(response.request.url).startswith(web.origin)


async def test_the_headers_are_those_of_the_caller(engine: Engine, web: MisbehavingWeb) -> None:
    """The user agent is the job's, compression is asked for, no cookie comes back."""
    await engine.get(web.url("/cookie"), HEADERS, PATIENT)
    await engine.get(web.url("/echo"), {**HEADERS, "X-Job": "7"}, PATIENT)
    sent = web.log[-1].headers
    assert sent["user-agent"] == "zcrawl-test/1"
    assert sent["x-job"] == "7"
    assert sent["host"] == f"127.0.0.1:{web.port}"
    assert sent["accept-encoding"].startswith("gzip, deflate")
    assert "cookie" not in sent


async def test_a_mapping_that_is_changed_between_two_requests_is_sent_as_it_is(
    engine: Engine, web: MisbehavingWeb
) -> None:
    """Whoever keeps one mapping of headers and changes it is not answered from a memory of it."""
    headers = dict(HEADERS)
    for number in ("1", "2"):
        headers["X-Number"] = number
        response = await engine.get(web.url("/echo"), headers, PATIENT)
        assert f"x-number: {number}" in response.text.lower()


async def test_connections_are_used_again(engine: Engine, web: MisbehavingWeb) -> None:
    """Good answers of all kinds leave the connection to the next request."""
    for path in ("/status/200", "/chunked", "/status/404", "/compressed/gzip", "/status/204"):
        await engine.get(web.url(path), HEADERS, PATIENT)
    assert {hit.connection for hit in web.log} == {1}


async def test_a_stale_connection_costs_no_attempt(engine: Engine, web: MisbehavingWeb) -> None:
    """A server that hangs up on a pooled connection is asked again on a new one, once."""
    url = web.url("/close-on-second")
    assert (await engine.get(url, HEADERS, PATIENT)).status_code == 200
    assert (await engine.get(url, HEADERS, PATIENT)).status_code == 200
    assert [hit.connection for hit in web.log] == [1, 1, 2]


async def test_a_connection_closed_while_idle_is_replaced(
    engine: Engine, web: MisbehavingWeb
) -> None:
    """A server that promised keep-alive and closed anyway does no harm."""
    for _ in range(3):
        response = await engine.get(web.url("/close-after"), HEADERS, PATIENT)
        assert response.content == PAGE
    assert len({hit.connection for hit in web.log}) == 3


async def test_a_body_of_just_the_limit_is_no_error(engine: Engine, web: MisbehavingWeb) -> None:
    """The limit itself is allowed, compressed or not."""
    response = await engine.get(web.url("/large/500000"), HEADERS, PATIENT)
    assert len(response.content) == 500_000
    exact = HopLimits(max_bytes=len(PAGE) + 40, guard=OPEN)  # gzip makes this page a little longer
    assert (await engine.get(web.url("/compressed/gzip"), HEADERS, exact)).content == PAGE


async def test_a_bomb_does_not_fill_the_memory(engine: Engine, web: MisbehavingWeb) -> None:
    """10 GB behind gzip cost no more memory than the limit and a few buffers."""
    await engine.get(web.url("/status/200"), HEADERS, PATIENT)
    gc.collect()
    tracemalloc.start()
    try:
        error = await failure(engine, web.url("/gzip-bomb"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.code == "too_large"
    assert peak < 8_000_000  # the server's own block of 1 MB included


async def test_nobody_listens(engine: Engine, unused_tcp_port: int) -> None:
    """A refused connection is `connect`, and may pass."""
    error = await failure(engine, f"http://127.0.0.1:{unused_tcp_port}/")
    assert (error.code, error.retry) == ("connect", RetryClass.TRANSIENT)


async def test_a_name_that_does_not_exist(engine: Engine) -> None:
    """A failed look-up is `dns`."""
    assert (await failure(engine, "http://nothing.invalid/")).code == "dns"


async def test_a_handshake_that_never_ends(engine: Engine, web: MisbehavingWeb) -> None:
    """A connection that does not come to be in time is `connect_timeout`."""
    url = web.url("/").replace("http://", "https://")  # waits for a request, not for TLS
    assert (
        await failure(engine, url, HopLimits(connect_s=0.3, guard=OPEN))
    ).code == "connect_timeout"


async def test_an_untrusted_certificate(engine: Engine, web: MisbehavingWeb) -> None:
    """A self-signed certificate is `tls` and will not pass, unless the job does not care."""
    error = await failure(engine, web.tls_url("/status/200"))
    assert (error.code, error.retry) == ("tls", RetryClass.PERMANENT)
    careless = HopLimits(verify_tls=False, guard=OPEN)
    response = await engine.get(web.tls_url("/status/200"), HEADERS, careless)
    assert response.content == PAGE
    assert (await failure(engine, web.tls_url("/status/200"))).code == "tls"


async def test_http_spoken_to_a_tls_port(engine: Engine, web: MisbehavingWeb) -> None:
    """Plain HTTP to a TLS port has a name too."""
    url = f"http://127.0.0.1:{web.tls_port}/"
    assert (await failure(engine, url)).code in ("reset", "protocol")


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "http://127.0.0.1:99999/", "http://", "no url", ""]
)
async def test_what_cannot_be_sent_is_a_fetch_error(engine: Engine, url: str) -> None:
    """No string makes an engine raise anything but FetchError."""
    await failure(engine, url)


async def test_a_header_that_cannot_be_sent_is_a_fetch_error(
    engine: Engine, web: MisbehavingWeb
) -> None:
    """A line break in a header value is refused, not sent."""
    with pytest.raises(FetchError) as caught:
        await engine.get(web.url("/status/200"), {"X-Bad": "a\r\nInjected: 1"}, PATIENT)
    assert caught.value.code == "bad_url"
    assert not web.log


async def test_cancellation_passes_and_leaves_the_engine_usable(
    engine: Engine, web: MisbehavingWeb
) -> None:
    """A cancelled fetch is cancelled, not failed, and takes nothing with it."""
    tasks = [
        asyncio.create_task(engine.get(web.url(path), HEADERS, PATIENT))
        for path in ("/hang", "/stall", "/drip")
    ]
    await web.arrived(len(tasks))
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert (await engine.get(web.url("/status/200"), HEADERS, PATIENT)).content == PAGE


async def test_many_at_once(engine: Engine, web: MisbehavingWeb) -> None:
    """Good and bad answers side by side do not touch each other."""
    paths = ["/status/200", "/lies-long", "/close-at-once", "/garbage", "/chunked"] * 8
    results = await asyncio.gather(
        *(engine.get(web.url(path), HEADERS, PATIENT) for path in paths), return_exceptions=True
    )
    told = [
        getattr(result, "content", None) or getattr(result, "code", result) for result in results
    ]
    assert told == [PAGE, "truncated", "reset", "protocol", PAGE] * 8


async def test_a_closed_engine_blames_no_url(engine: Engine, web: MisbehavingWeb) -> None:
    """After aclose, which may be called twice, a fetch fails as `engine`, to be tried again."""
    await engine.aclose()
    await engine.aclose()
    error = await failure(engine, web.url("/status/200"))
    assert (error.code, error.retry) == ("engine", RetryClass.TRANSIENT)


def test_the_names_are_the_same_on_uvloop() -> None:
    """The product runs on uvloop, whose transports end in other ways than asyncio's."""

    async def main() -> list[str]:
        async with MisbehavingWeb() as web, AiohttpWire() as wire:
            errors = [failure(wire, web.url(path), limits) for path, limits, _ in MISBEHAVIOURS]
            return [error.code for error in await asyncio.gather(*errors)]

    assert uvloop.run(main()) == [code for _, _, code in MISBEHAVIOURS]


def test_the_web_can_run_on_a_thread() -> None:
    """Tests that block, or crawl from other processes, have the same web."""
    with WebThread() as web, httpx.Client() as client:
        assert client.get(web.url("/status/200")).content == PAGE
        assert client.get(web.url("/status/what")).status_code == 400
        assert client.get(web.url("/nothing/of/that/name")).status_code == 404
    assert web.log[0].path == "/status/200"


# ---------------------------------------------------------------- the wire's httpx face


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


async def test_unknown_failures_are_ours() -> None:
    """An exception nobody thought of becomes `engine`, so that no URL dies of our bug."""
    from zcrawl.fetch import fetch_aiohttp, fetch_httpx

    for translate in (fetch_aiohttp.translate, fetch_httpx.translate):
        assert translate("http://x/", RuntimeError("what?")).code == "engine"
    assert fetch_aiohttp.translate("http://x/", aiohttp.ClientError()).code == "engine"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_for_archives_an_engine_tells_what_went_over_the_wire(
    engine: Engine, web: MisbehavingWeb, coding: str
) -> None:
    """The body before decoding and the headers that were sent; to nobody else."""
    url = web.url(f"/compressed/{coding}")
    archiving = HopLimits(max_bytes=500_000, guard=OPEN, archives=True)
    plain, told = [await engine.get(url, HEADERS, limits) for limits in (PATIENT, archiving)]
    assert "wire_body" not in plain.extensions and "sent_headers" not in plain.extensions
    raw = told.extensions["wire_body"]
    assert raw and raw != told.content == plain.content
    assert zlib.decompress(raw, 47 if coding == "gzip" else zlib.MAX_WBITS) == PAGE
    assert all(type(name) is str for name, _ in told.extensions["sent_headers"])
    sent = {name.lower(): value for name, value in told.extensions["sent_headers"]}
    assert sent["user-agent"] == HEADERS["User-Agent"]
    assert sent["host"] and "gzip" in sent["accept-encoding"]
    unencoded = await engine.get(web.url("/good"), HEADERS, archiving)
    assert unencoded.extensions["wire_body"] is None
