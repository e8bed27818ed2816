"""What every engine must make of an answer, the same for all of them."""

from __future__ import annotations

import zlib

import httpx
import pytest

from tests.contract.engine_tools import HEADERS, OPEN, PATIENT
from tests.web import MisbehavingWeb, WebThread
from tests.web.behaviours import CHARSETS, PAGE
from zcrawl.fetch.ports import Engine, HopLimits
from zcrawl.fetch.wire.response import as_httpx


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
    assert "hello" in as_httpx(response).text


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
    """A status is not an error at this level, and no redirect is followed."""
    response = await engine.get(web.url(f"/status/{status}"), HEADERS, PATIENT)
    assert response.status_code == status


@pytest.mark.parametrize("status", [204, 304])
async def test_a_body_where_none_belongs_is_lost_with_its_connection(
    engine: Engine, web: MisbehavingWeb, status: int
) -> None:
    """Bytes after a status without a body are not an error, and not the next answer."""
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
    """An engine does not retry: each get is one request, and its failure is reported."""
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
    assert isinstance(as_httpx(response).text, str)


@pytest.mark.parametrize("name", sorted(CHARSETS))
async def test_a_charset_in_the_header_is_honoured(
    engine: Engine, web: MisbehavingWeb, name: str
) -> None:
    """`text` reads the body as the header says."""
    response = await engine.get(web.url(f"/charset/{name}"), HEADERS, PATIENT)
    assert CHARSETS[name] in as_httpx(response).text


@pytest.mark.parametrize("name", ["lying", "unheard-of"])
async def test_a_wrong_charset_raises_nothing(
    engine: Engine, web: MisbehavingWeb, name: str
) -> None:
    """A charset that lies or does not exist gives some text."""
    response = await engine.get(web.url(f"/charset/{name}"), HEADERS, PATIENT)
    assert "title" in as_httpx(response).text


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
    assert as_httpx(response).text.splitlines()[0] == path
    assert str(as_httpx(response).request.url).startswith(web.origin)


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
    """If a caller changes its mapping of headers, the next request has the new headers."""
    headers = dict(HEADERS)
    for number in ("1", "2"):
        headers["X-Number"] = number
        response = await engine.get(web.url("/echo"), headers, PATIENT)
        assert f"x-number: {number}" in as_httpx(response).text.lower()


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


def test_the_web_can_run_on_a_thread() -> None:
    """Tests that block, or crawl from other processes, have the same web."""
    with WebThread() as web, httpx.Client() as client:
        assert client.get(web.url("/status/200")).content == PAGE
        assert client.get(web.url("/status/what")).status_code == 400
        assert client.get(web.url("/nothing/of/that/name")).status_code == 404
    assert web.log[0].path == "/status/200"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_for_archives_an_engine_tells_what_went_over_the_wire(
    engine: Engine, web: MisbehavingWeb, coding: str
) -> None:
    """The body before decoding and the headers that were sent; to nobody else."""
    url = web.url(f"/compressed/{coding}")
    archiving = HopLimits(max_bytes=500_000, guard=OPEN, archives=True)
    plain, archived = [await engine.get(url, HEADERS, limits) for limits in (PATIENT, archiving)]
    assert "wire_body" not in plain.extensions
    assert "sent_headers" not in plain.extensions
    raw = archived.extensions["wire_body"]
    assert raw
    assert raw != archived.content == plain.content
    assert zlib.decompress(raw, 47 if coding == "gzip" else zlib.MAX_WBITS) == PAGE
    assert all(type(name) is str for name, _ in archived.extensions["sent_headers"])
    sent = {name.lower(): value for name, value in archived.extensions["sent_headers"]}
    assert sent["user-agent"] == HEADERS["User-Agent"]
    assert sent["host"]
    assert "gzip" in sent["accept-encoding"]
    unencoded = await engine.get(web.url("/good"), HEADERS, archiving)
    assert unencoded.extensions["wire_body"] is None
