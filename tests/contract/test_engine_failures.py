"""Failures have the same codes and limits on every engine."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import aiohttp
import pytest
import uvloop

from tests.contract.engine_tools import HEADERS, OPEN, PATIENT, failure
from tests.web import MisbehavingWeb
from tests.web.behaviours import PAGE
from zcrawl.errors import FetchError, RetryClass
from zcrawl.fetch.ports import Engine, HopLimits
from zcrawl.fetch.wire.engine import HttpEngine

HASTY = HopLimits(read_s=0.3, guard=OPEN)  # silence ends it
BUSY = HopLimits(total_s=0.7, guard=OPEN)  # only the total ends it
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
    """A bad server ends a fetch with the named error, without a second request."""
    error = await failure(engine, web.url(path), limits)
    assert error.code == code
    assert web.hits(path) <= 1  # on a busy machine the total may end before the request


async def test_a_bomb_does_not_fill_the_memory(engine: Engine, web: MisbehavingWeb) -> None:
    """10 GB in gzip need no more memory than the limit and a few buffers."""
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
    outcomes = [
        getattr(result, "content", None) or getattr(result, "code", result) for result in results
    ]
    assert outcomes == [PAGE, "truncated", "reset", "protocol", PAGE] * 8


async def test_a_closed_engine_blames_no_url(engine: Engine, web: MisbehavingWeb) -> None:
    """After aclose, which may be called twice, a fetch fails as `engine`, to be tried again."""
    await engine.aclose()
    await engine.aclose()
    error = await failure(engine, web.url("/status/200"))
    assert (error.code, error.retry) == ("engine", RetryClass.TRANSIENT)


def test_the_names_are_the_same_on_uvloop() -> None:
    """The product runs on uvloop, whose transports end in other ways than asyncio's."""

    async def main() -> list[str]:
        async with MisbehavingWeb() as web, HttpEngine() as wire:
            errors = [failure(wire, web.url(path), limits) for path, limits, _ in MISBEHAVIOURS]
            return [error.code for error in await asyncio.gather(*errors)]

    assert uvloop.run(main()) == [code for _, _, code in MISBEHAVIOURS]


async def test_unknown_failures_are_ours() -> None:
    """An unexpected exception becomes `engine`, so that the URL is retried after our bug."""
    from zcrawl.fetch.general import failures as general_failures
    from zcrawl.fetch.http2 import failures as http2_failures

    for translate in (general_failures.translate, http2_failures.translate):
        assert translate("http://x/", RuntimeError("what?")).code == "engine"
    assert general_failures.translate("http://x/", aiohttp.ClientError()).code == "engine"


FLOODS = [
    ("/endless-extension", {"too_large", "protocol"}),
    ("/many-extensions", {"too_large"}),
    ("/endless-chunk-padding", {"too_large", "protocol"}),
    ("/endless-trailer", {"too_large", "protocol"}),
    ("/many-trailers", {"too_large", "protocol"}),
    ("/many-headers", {"protocol"}),
    ("/endless-header-padding", {"protocol"}),
    ("/endless-interims", {"protocol"}),
    ("/endless-blank", {"protocol"}),
]


@pytest.mark.parametrize(("path", "codes"), FLOODS)
async def test_what_is_no_body_counts_towards_the_limit(
    engine: Engine, web: MisbehavingWeb, path: str, codes: set[str]
) -> None:
    """Chunk extensions, trailers, headers and interim answers without end: each ends by its name,
    after not much more than the limit, and none fills the memory."""
    await engine.get(web.url("/status/200"), HEADERS, PATIENT)
    gc.collect()
    tracemalloc.start()
    try:
        error = await failure(engine, web.url(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.code in codes
    assert peak < 8_000_000
