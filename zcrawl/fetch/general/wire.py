"""Send requests that are not plain GETs, with aiohttp (`fetch.ports.Engine`).

The whole body is read within its limits, the answer is a `LeanResponse`, and all failures are
`FetchError`. Used by `fetch.wire.engine` for bodies, proxies and archives.

httpx was rejected because it needs ten times the CPU (docs/dependencies.md).
"""

from __future__ import annotations

import asyncio
import base64
import functools
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from zcrawl.errors import FetchError
from zcrawl.fetch.body import ACCEPT_ENCODING, ARCHIVABLE_ENCODING, BodyReader
from zcrawl.fetch.general.connections import (
    Connector,
    GuardedRequest,
    established,
    fresh,
    max_bytes,
    socks,
)
from zcrawl.fetch.general.failures import translate
from zcrawl.fetch.general.resolver import GuardedResolver, allowed, guard, pinned
from zcrawl.fetch.general.self_test import prove_guard
from zcrawl.fetch.guard import as_address
from zcrawl.fetch.policy import fetch_error
from zcrawl.fetch.ports import HopLimits, Response
from zcrawl.fetch.wire.response import LeanResponse
from zcrawl.fetch.wire.tls import context_for
from zcrawl.model.reasons.failure import DNS, ENGINE, PROXY, TOO_LARGE

Headers = Mapping[str, str] | list[tuple[str, str]]
KEEPALIVE_S = 15.0
READ_BUFFER_BYTES = 65_536  # aiohttp stops reading a socket at twice that
MAX_HEADER_BYTES = 65_536  # of one line; aiohttp's own 8 KB is less than real cookies


class AiohttpWire:
    """An engine on aiohttp. One instance per event loop; opened on first use or by `async with`.

    `limits.guard` checks the origin before each request, the addresses after each look-up, and the
    peer before anything is sent. `resolver` looks names up; a `FetchError` from it is passed on
    unchanged. The first request waits for the proof that aiohttp calls the guard (`self_test`);
    without the proof, no request is sent.
    """

    def __init__(self, *, resolver: AbstractResolver | None = None) -> None:
        self._inner_resolver = resolver
        self._resolver: GuardedResolver | None = None
        self._session: aiohttp.ClientSession | None = None
        self._proof: asyncio.Task[None] | None = None  # that the guard is called
        self._closed = False
        self._timeout_of: tuple[HopLimits, aiohttp.ClientTimeout] | None = None

    async def __aenter__(self) -> AiohttpWire:
        self._open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if self._proof is not None:
            self._proof.cancel()
        if session is not None:
            await session.close()
        if self._resolver is not None:
            await self._resolver.close()

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> Response:
        return await self._fetch("GET", url, headers, None, limits)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> Response:
        return await self._fetch(method, url, headers, body or None, limits)

    async def _fetch(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        limits: HopLimits,
    ) -> Response:
        if limits.archives and not any(name.lower() == "accept-encoding" for name in headers):
            headers = {**headers, "Accept-Encoding": ARCHIVABLE_ENCODING}
        try:
            response = await self._send(method, url, headers, body, limits)
            try:
                if response.status == 407:  # only proxies answer so
                    raise fetch_error(PROXY, f"{url}: the proxy wants other credentials")
                return await _read_whole(url, response, limits)
            finally:
                # After a whole body, the connection is in the pool already; after a broken or
                # oversized body, this closes it.
                response.close()
        except FetchError:
            raise
        except Exception as error:
            raise translate(url, error, limits.proxy) from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            if self._closed:
                raise fetch_error(ENGINE, "the engine is closed")
            self._resolver = GuardedResolver(self._inner_resolver)
            self._session = _new_session(self._resolver)
        return self._session

    async def _prove_guard(self) -> None:
        """Wait for the proof that the guard is called; FetchError if it fails.

        The next request tries again: a machine without free file descriptors fails it too.
        """
        if self._proof is None:
            self._proof = asyncio.create_task(prove_guard(_new_session), name="guard self-test")
        proof = self._proof
        if not proof.done():
            await asyncio.wait([proof])
        if proof.cancelled():
            raise fetch_error(ENGINE, "the engine is closed")
        error = proof.exception()
        if error is not None:
            if self._proof is proof:
                self._proof = None
            raise error

    async def _send(
        self,
        method: str,
        url: str,
        headers: Headers,
        body: bytes | None,
        limits: HopLimits,
    ) -> aiohttp.ClientResponse:
        """Send the request, and return the answer up to its headers."""
        session = self._session or self._open()
        limits.guard.check(url)
        await self._prove_guard()
        guard.set(limits.guard)
        pinned.set(limits.address)
        max_bytes.set(limits.max_bytes)
        target = URL(url, encoded=True)  # the URL is canonical, and is sent unchanged
        options: dict[str, Any] = {}
        if limits.proxy is not None:
            options, headers = await self._proxy_options(limits.proxy, target, limits, headers)
        else:
            socks.set(None)
            _check_literal(target)
        if url.startswith("https:"):
            options["ssl"] = context_for(limits.tls, limits.verify_tls)
        send_request = functools.partial(
            session.request,
            method,
            target,
            data=body,
            headers=headers,
            timeout=self._timeout(limits),
            allow_redirects=False,
            **options,
        )
        repeatable = method in ("GET", "HEAD")
        while True:
            fresh.set(False)
            established.set(True)
            try:
                return await send_request()
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                # The server closed a pooled connection before it got our request. There was no
                # answer (`message` would be part of one), so the request is sent again, once.
                answered = not isinstance(getattr(error, "message", ""), str)
                if fresh.get() or answered or not repeatable:
                    raise
                repeatable = False

    async def _proxy_options(
        self, proxy: str, target: URL, limits: HopLimits, headers: Headers
    ) -> tuple[dict[str, Any], Headers]:
        """Return the options and headers for a proxy. An HTTP proxy looks the name up itself, so
        all addresses of the name are checked before."""
        if proxy.startswith("socks5:"):
            socks.set(proxy)
            _check_literal(target)
            return {}, headers
        socks.set(None)
        assert self._resolver is not None
        try:
            async with asyncio.timeout(limits.connect_s):
                await self._resolver.check_all(target.raw_host or "", target.port or 0)
        except TimeoutError:
            raise fetch_error(
                DNS, f"{target.raw_host}: no answer in {limits.connect_s} s"
            ) from None
        except OSError as error:
            raise fetch_error(DNS, f"{target.raw_host}: {error}") from error
        url = URL(proxy)
        _check_literal(url)
        options: dict[str, Any] = {"proxy": url.with_user(None)}
        if url.user:
            plain = f"{url.user}:{url.password or ''}".encode()
            auth = ("Proxy-Authorization", f"Basic {base64.b64encode(plain).decode()}")
            if target.scheme == "https":  # sent with CONNECT, which the server does not see
                options["proxy_headers"] = dict([auth])
            else:
                pairs = headers if isinstance(headers, list) else list(headers.items())
                headers = [*pairs, auth]
        return options, headers

    def _timeout(self, limits: HopLimits) -> aiohttp.ClientTimeout:
        cached = self._timeout_of
        if cached is not None and cached[0] is limits:
            return cached[1]
        timeout = aiohttp.ClientTimeout(
            total=limits.total_s, connect=limits.connect_s, sock_read=limits.read_s
        )
        self._timeout_of = (limits, timeout)
        return timeout


def _new_session(resolver: GuardedResolver) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        connector=Connector(resolver, limit=0, keepalive_timeout=KEEPALIVE_S),
        request_class=GuardedRequest,
        cookie_jar=aiohttp.DummyCookieJar(),
        # aiohttp's own decompression has no limit for the whole body, and before 3.13.3 none for a
        # single piece.
        auto_decompress=False,
        read_bufsize=READ_BUFFER_BYTES,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        headers={"Accept-Encoding": ACCEPT_ENCODING},
        skip_auto_headers=("User-Agent",),
    )
    # aiohttp also repeats a GET when the server closes a new connection. That would be a second
    # request that ignores the pace; `AiohttpWire` repeats on pooled connections only.
    session._retry_connection = False
    return session


def _check_literal(target: URL) -> None:
    """Raise BlockedAddress or AddressMoved for a refused literal address, because aiohttp does not
    call the resolver for it."""
    host = target.raw_host or ""
    if as_address(host) is not None:
        allowed(host, target.port or 0, [host])


async def _read_whole(
    url: str, response: aiohttp.ClientResponse, limits: HopLimits
) -> LeanResponse:
    reader = BodyReader(_content_encoding(response), limits.max_bytes, limits.archives)
    announced = response.content_length
    if announced is not None and announced > limits.max_bytes:
        raise fetch_error(TOO_LARGE, f"{announced} bytes announced, {limits.max_bytes} allowed")
    content = response.content
    pieces: list[bytes] = []
    while not content.at_eof():
        pieces += reader.feed(await content.readany())
    reader.finish()
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    extensions = _extensions(response)
    if limits.archives and isinstance(response, aiohttp.ClientResponse):
        # Names have a type of aiohttp that our codecs cannot encode.
        sent = [(str(name), value) for name, value in response.request_info.headers.items()]
        extensions.update(sent_headers=sent, wire_body=reader.raw_body)
    return LeanResponse(url, response.status, _headers(response, reader), body, **extensions)


def _content_encoding(response: aiohttp.ClientResponse) -> str:
    """Join all lines of that name with commas, which means the same (RFC 9110, 5.3)."""
    return ",".join(response.headers.getall("Content-Encoding", ()))


def _headers(response: aiohttp.ClientResponse, reader: BodyReader) -> list[tuple[bytes, bytes]]:
    """Return the headers without those that do not fit the decoded body."""
    raw = response.raw_headers
    if not reader.decodes:
        return list(raw)
    return [pair for pair in raw if pair[0].lower() not in (b"content-encoding", b"content-length")]


def _extensions(response: aiohttp.ClientResponse) -> dict[str, Any]:
    return {"wire_headers": response.raw_headers}  # as sent, for archives
