"""What is recorded of a fetch, and the WARC records that it becomes."""

from __future__ import annotations

import gzip
import io
from typing import Any

import httpx
import msgspec
import pytest

from zcrawl.frontier.url import DEFAULT
from zcrawl.mesh.messages import Assignment, PageRecord, Result
from zcrawl.model.capture import Capture
from zcrawl.model.spec import Fetch, JobSpec
from zcrawl.model.states import Outcome
from zcrawl.outputs.warc import render_warc
from zcrawl.plugins import Outgoing
from zcrawl.worker.pipeline.capture import REMOVED, Recording
from zcrawl.worker.pipeline.outgoing import Sending
from zcrawl.worker.results.attempt import Attempt

warcio = pytest.importorskip("warcio.archiveiterator")

URL = "http://a.test/old"
ONE = Assignment(1, 2, 3, 4, URL, 1, 1, "http://a.test/")
PAGE = PageRecord("http://a.test/new?x=1", None, "text/html", 5, 100.0, 12.0)
BLOBS: dict[str, bytes] = {}


async def keep(body: bytes) -> str:
    name = f"blob-{len(body)}-{body[:4]!r}"
    BLOBS[name] = body
    return name


def recording(**fetch: Any) -> Recording:
    return Recording(ONE, JobSpec("x", fetch=Fetch(**fetch)), {"User-Agent": "me"}, keep)


def answer(status: int, body: bytes = b"", **extensions: Any) -> httpx.Response:
    """As engines give it: decoded, with the wire's own headers beside it."""
    headers = extensions.pop("headers", [(b"Content-Type", b"text/html")])
    return httpx.Response(status, content=body, extensions={"wire_headers": headers, **extensions})


def result_of(made: Recording, attempt: Attempt) -> Result:
    """What is reported of an attempt with these exchanges."""
    made.add_to(attempt)
    return attempt.result()


def captured(made: Recording) -> bytes:
    """What goes to the leader with a page that is done."""
    extracted = result_of(made, Attempt(ONE).done(PAGE, 200, [])).extracted
    assert extracted is not None
    assert extracted.capture is not None
    return extracted.capture


def records(capture: bytes) -> list[Any]:
    data = render_warc([capture], BLOBS.__getitem__)
    pairs = []
    for record in warcio.ArchiveIterator(io.BytesIO(data), check_digests="raise"):
        pairs.append((record, record.raw_stream.read()))
    return pairs


async def test_each_hop_has_its_three_records_in_the_order_in_which_they_happened() -> None:
    """Request, response, metadata; a hop's metadata names the one before it."""
    made = recording()
    moved = [(b"Location", b"/new?x=1")]
    await made.add(URL, answer(301, b"moved", headers=moved), None, 10.0)
    await made.add(PAGE.final_url, answer(200, b"hello"), None, 11.0)
    pairs = records(captured(made))
    kinds = [record.rec_type for record, _ in pairs]
    assert kinds == ["response", "request", "metadata"] * 2
    responses = [(r, body) for r, body in pairs if r.rec_type == "response"]
    assert [(r.rec_headers["WARC-Target-URI"], body) for r, body in responses] == [
        (URL, b"moved"),
        (PAGE.final_url, b"hello"),
    ]
    assert responses[0][0].http_headers.get_statuscode() == "301"
    assert responses[0][0].http_headers["Location"] == "/new?x=1"
    requests = [r for r, _ in pairs if r.rec_type == "request"]
    assert [r.http_headers.statusline for r in requests] == [
        "/old HTTP/1.1",
        "/new?x=1 HTTP/1.1",
    ]
    assert {r.http_headers["Host"] for r in requests} == {"a.test"}
    first, last = [body.decode() for r, body in pairs if r.rec_type == "metadata"]
    assert "via: http://a.test/\r\n" in first
    assert f"via: {URL}\r\n" in last
    assert "hopsFromSeed: 1\r\n" in first
    assert "fetchTimeMs: 12\r\n" in last
    assert "body: as received\r\n" in last
    ids = [record.rec_headers["WARC-Record-ID"] for record, _ in pairs]
    assert len(set(ids)) == 6


async def test_a_compressed_body_is_archived_as_it_came() -> None:
    """With its Content-Encoding; the chunks of the transfer are gone, and their header too."""
    raw = gzip.compress(b"hello" * 100)
    headers = [(b"Content-Encoding", b"gzip"), (b"Transfer-Encoding", b"chunked")]
    made = recording()
    await made.add(URL, answer(200, b"hello" * 100, headers=headers, wire_body=raw), None, 10.0)
    (response, body), *_ = records(captured(made))
    assert body == raw
    archived_headers = response.http_headers
    assert archived_headers["Content-Encoding"] == "gzip"
    assert archived_headers["Content-Length"] == str(len(raw))
    assert archived_headers["Transfer-Encoding"] is None
    assert archived_headers["X-Crawler-Transfer-Encoding"] == "chunked"


@pytest.mark.parametrize("extensions", [{"rendered": True}, {}])
async def test_a_body_that_is_not_the_wires_says_so(extensions: dict[str, Any]) -> None:
    """An engine that tells only the decoded body, or a browser's document."""
    headers = [(b"Content-Encoding", b"br"), (b"Content-Length", b"3")]
    made = recording()
    await made.add(URL, answer(200, b"hello", headers=headers, **extensions), None, 10.0)
    (response, body), _, (_, metadata) = records(captured(made))
    assert body == b"hello"
    assert response.http_headers["Content-Encoding"] is None
    assert response.http_headers["X-Crawler-Content-Encoding"] == "br"
    assert response.http_headers["Content-Length"] == "5"
    assert (b"body: rendered" if extensions else b"body: decoded") in metadata


async def test_a_request_of_a_spider_is_recorded_as_it_was_sent() -> None:
    """Its method and body, and the answer before a middleware made it another one."""
    made, sending = recording(), Sending(ONE, {}, DEFAULT, [])
    sending.out = Outgoing(URL, "POST", {"X-A": "1"}, b"q=zmq", {}, 1)
    sending.answer = answer(200, b"theirs", sent_headers=[("X-A", "1")])
    await made.add(URL, answer(200, b"ours"), sending, 10.0)
    (_, body), (request, sent), _ = records(captured(made))
    assert (body, sent) == (b"theirs", b"q=zmq")
    assert request.http_headers.protocol == "POST"
    assert request.http_headers["X-A"] == "1"


async def test_secrets_are_not_archived() -> None:
    """Credentials, cookies, and whatever the job file writes as ${NAME}."""
    made = recording(headers={"X-Key": "${KEY}", "X-Open": "yes"})
    sent = [("Authorization", "Bearer s3"), ("cookie", "s3"), ("X-Key", "s3"), ("X-Open", "yes")]
    await made.add(URL, answer(200, b"hello", sent_headers=sent), None, 10.0)
    capture = captured(made)
    assert b"s3" not in capture
    _, (request, _), _ = records(capture)
    assert request.http_headers["X-Key"] == REMOVED
    assert request.http_headers["X-Open"] == "yes"


async def test_a_redirect_to_another_host_is_told_without_a_page() -> None:
    """The request that it becomes has a record of its own, made by another worker maybe."""
    made = recording()
    await made.add(URL, answer(302), None, 10.0)
    result = result_of(made, Attempt(ONE).skipped("redirected", status=302))
    assert result.outcome is Outcome.SKIPPED
    assert result.extracted is not None
    assert result.extracted.capture is not None
    capture = msgspec.json.decode(result.extracted.capture, type=Capture)
    assert (capture.final_url, capture.status, capture.hops, capture.body) == (URL, 302, [], "")
    (response, body), *_ = records(result.extracted.capture)
    assert body == b""
    assert response.http_headers["Content-Length"] == "0"


async def test_a_page_that_is_as_it_was_is_archived_as_it_was_answered() -> None:
    """A 304 has no body."""
    made = recording()
    await made.add(URL, answer(304), None, 10.0)
    result = result_of(made, Attempt(ONE).done(PAGE, 304, []))
    assert result.extracted is not None
    assert result.extracted.capture is not None
    (response, body), *_ = records(result.extracted.capture)
    assert (response.http_headers.get_statuscode(), body) == ("304", b"")


@pytest.mark.parametrize("status", [404, 410, 429, 500, 503, 599])
async def test_an_answer_that_fails_the_page_is_recorded_with_its_body(status: int) -> None:
    """Whether it was the last one is the leader's to say."""
    made = recording()
    await made.add(URL, answer(301, b"moved"), None, 10.0)
    await made.add("http://a.test/new", answer(status, b"no such thing"), None, 11.0)
    extracted = result_of(
        made, Attempt(ONE).failed(f"http_{status}", None, status=status)
    ).extracted
    assert extracted is not None
    assert extracted.capture is not None
    pairs = records(extracted.capture)
    assert [r.rec_type for r, _ in pairs] == ["response", "request", "metadata"] * 2
    response, body = pairs[3]
    assert response.http_headers.get_statuscode() == str(status)
    assert body == b"no such thing"
    assert response.rec_headers["WARC-Target-URI"] == "http://a.test/new"
    assert "via: " + URL in pairs[5][1].decode()


async def test_what_asks_not_to_be_kept_and_what_was_never_answered_is_not_recorded() -> None:
    """A page that says noindex, and an attempt that did not get as far as an answer."""
    made = recording()
    assert result_of(made, Attempt(ONE).failed("connect", None)).extracted is None
    await made.add(URL, answer(200, b"secret"), None, 10.0)
    assert result_of(made, Attempt(ONE).skipped("noindex", status=200)).extracted is None
    assert result_of(made, Attempt(ONE).skipped("soft_404", status=200)).extracted is not None


def test_captures_of_earlier_versions_are_still_read() -> None:
    """They hold decoded bodies, and say nothing of it."""
    BLOBS["old"] = b"hello"
    old = msgspec.json.encode(
        {
            "url": URL,
            "final_url": URL,
            "status": 200,
            "headers": [("Content-Encoding", "gzip")],
            "request": [("User-Agent", "me")],
            "at": 10.0,
            "body": "old",
        }
    )
    (response, body), _, (_, metadata) = records(old)
    assert body == b"hello"
    assert response.http_headers["Content-Encoding"] is None
    assert b"body: decoded" in metadata
