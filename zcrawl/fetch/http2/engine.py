"""The engine `httpx`: a plain `httpx.AsyncClient`, for jobs that need HTTP/2 or its proxies.

It has the same limits and errors as the default engine.

Called by the worker's pipeline through `fetch.ports.Engine` when a job says `engine = "httpx"`.
It costs ten times the CPU of `general.wire`.

A connection serves several requests, on HTTP/2 at the same time. When it fails, the cause may be
any of them, so each request is sent once more on its own connection (`_Failed`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import httpx
import msgspec

from zcrawl.errors import FetchError
from zcrawl.fetch.body import ACCEPT_ENCODING, ARCHIVABLE_ENCODING, BodyReader
from zcrawl.fetch.http2.backend import (
    Resolve,
    StreamAllowance,
    allowance,
    cancel_stream,
    guarded_transport,
    resolve,
)
from zcrawl.fetch.http2.failures import ended_connection, http2_failure, translate, wants_http1
from zcrawl.fetch.policy import MAX_MESSAGE, fetch_error
from zcrawl.fetch.ports import HopLimits
from zcrawl.fetch.wire.tls import context_for
from zcrawl.model.reasons.failure import (
    BAD_URL,
    CONNECT,
    CONNECT_TIMEOUT,
    DNS,
    ENGINE,
    PROTOCOL,
    PROXY,
    TOO_LARGE,
    TOTAL_TIMEOUT,
)
from zcrawl.text.patterns import lazy_pattern

MOST_CLIENTS: Final = 32  # idle ones above that are closed
MOST_TURNS: Final = 5  # connections that may end before a request is sent, until it fails
_ALL_HEADERS: Final = "all_headers"
_BREAKS_A_HEADER: Final = lazy_pattern(r"[\r\n\0]")


class _Client:
    """A client with its transport and the number of its running requests."""

    def __init__(self, client: httpx.AsyncClient, transport: httpx.AsyncHTTPTransport) -> None:
        self.client = client
        self.transport = transport
        self.running = 0


class _Failed(msgspec.Struct):
    """An attempt without an answer."""

    error: Exception
    left: StreamAllowance
    method: str

    @property
    def unsent(self) -> bool:
        """Whether the connection failed while the request waited for its turn on it."""
        return self.left.connection is None and self.repeatable

    @property
    def repeatable(self) -> bool:
        """Whether the connection failed and not the page, so that the request may be repeated."""
        if self.method not in ("GET", "HEAD"):
            return False
        connection = self.left.connection
        if connection is not None and not connection.shared:
            return False
        if connection is None or connection.is_http2:
            return ended_connection(self.error)
        if self.left.began:
            return False
        # On HTTP/1.1, garbage may be the rest of the previous answer.
        no_http = isinstance(self.error, FetchError) and not self.left.is_answer
        garbled = no_http or isinstance(self.error, httpx.RemoteProtocolError)
        return garbled or ended_connection(self.error)

    @property
    def wants_http1(self) -> bool:
        """Whether the server requires HTTP/1.1."""
        return wants_http1(self.error)

    def raise_named(self, url: str, limits: HopLimits) -> NoReturn:
        failure = self._named(url)
        if limits.proxy is not None:
            failure = _failure_through_proxy(self.error, failure)
        if failure is self.error:
            raise failure
        raise failure from self.error

    def _named(self, url: str) -> FetchError:
        if isinstance(self.error, ValueError):
            # After it was sent: a status that is no number, which httpcore reads without looking.
            code = BAD_URL if self.left.connection is None else PROTOCOL
            return fetch_error(code, f"{url}: {self.error}"[:MAX_MESSAGE])
        return translate(url, self.error, self.left.began)


class HttpxEngine:
    """`fetch.ports.Engine` on httpx. One instance per event loop; opened on first use.

    `look_up` finds the addresses of a name.
    """

    def __init__(self, *, look_up: Resolve = resolve) -> None:
        self._look_up = look_up
        # What to verify and what to connect to is the client's business in httpx, not the
        # request's, and a client's connections must not serve a run that may not reach them.
        self._clients: dict[object, _Client] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
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
        clients, self._clients = self._clients, {}
        for entry in clients.values():
            await entry.client.aclose()

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        return await self._fetch("GET", url, headers, None, limits)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> httpx.Response:
        return await self._fetch(method, url, headers, body or None, limits)

    async def _fetch(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        limits: HopLimits,
    ) -> httpx.Response:
        try:
            request = _request(method, url, headers, body, limits)
        except FetchError:
            raise
        except Exception as error:  # whatever a URL or a header makes httpx raise
            raise fetch_error(BAD_URL, f"{url}: {error}"[:MAX_MESSAGE]) from error
        try:
            async with asyncio.timeout(limits.total_s):
                return await self._exchange(request, url, limits)
        except FetchError:
            raise
        except TimeoutError as error:
            raise fetch_error(TOTAL_TIMEOUT, f"{url}: not done in {limits.total_s} s") from error
        except Exception as error:
            raise translate(url, error) from error

    async def _exchange(
        self, request: httpx.Request, url: str, limits: HopLimits
    ) -> httpx.Response:
        """Return one answer. If a shared connection fails, repeat the request once on its own
        connection; a failure there is a failure of this page."""
        if limits.proxy is not None:
            await self._check_all(request.url, limits)
        shared = await self._client(limits)
        shared.running += 1
        try:
            for _ in range(MOST_TURNS):
                first = await _attempt(shared, request, limits)
                if isinstance(first, httpx.Response) or not first.unsent:
                    break
        finally:
            shared.running -= 1
        if isinstance(first, httpx.Response):
            return first
        if first.wants_http1:
            limits = msgspec.structs.replace(limits, http2=False)
        elif not first.repeatable:
            first.raise_named(url, limits)
        own = self._make_client(limits)
        async with own.client:
            second = await _attempt(own, request, limits)
        if isinstance(second, _Failed):
            second.raise_named(url, limits)
        return second

    async def _check_all(self, url: httpx.URL, limits: HopLimits) -> None:
        """Check all addresses of a name, because a proxy looks it up itself and may use any."""
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = await self._look_up(url.host, port)
        except OSError as error:
            raise fetch_error(DNS, f"{url.host}: {error}") from error
        for address in addresses:
            limits.guard.pick(url.host, port, [address])

    async def _client(self, limits: HopLimits) -> _Client:
        files, policy = limits.tls, limits.guard.policy
        key = (limits.verify_tls, policy, limits.proxy, files, limits.http2, limits.address)
        entry = self._clients.get(key)
        if entry is None:
            entry = self._clients[key] = self._make_client(limits)
            await self._close_idle(entry)
        return entry

    def _make_client(self, limits: HopLimits) -> _Client:
        if self._closed:
            raise fetch_error(ENGINE, "the engine is closed")
        transport = guarded_transport(
            limits.guard,
            self._look_up,
            limits.address,
            verify=context_for(limits.tls, limits.verify_tls, limits.http2),
            proxy=limits.proxy,
            http2=limits.http2,
        )
        client = httpx.AsyncClient(
            transport=transport,
            trust_env=False,
            # A crawl has no sessions, and httpx's own jar would keep every cookie of the web.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            event_hooks={"response": [_hide_location]},
        )
        return _Client(client, transport)

    async def _close_idle(self, newest: _Client) -> None:
        idle = [
            key for key, entry in self._clients.items() if not entry.running and entry is not newest
        ]
        for key in idle[: len(self._clients) - MOST_CLIENTS]:
            await self._clients.pop(key).client.aclose()


async def _attempt(
    entry: _Client, request: httpx.Request, limits: HopLimits
) -> httpx.Response | _Failed:
    left = StreamAllowance(limits.max_bytes)
    allowance.set(left)

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == "http2.response_closed.started" and left.connection is not None:
            await cancel_stream(entry.transport, left.connection, info["stream_id"])

    if limits.http2:
        request.extensions["trace"] = trace
    try:
        response = await entry.client.send(request, stream=True, follow_redirects=False)
        left.begin_body()
        response.headers = response.extensions.pop(_ALL_HEADERS, response.headers)
        try:
            if response.status_code == 407:  # only proxies answer so
                raise fetch_error(PROXY, f"{request.url}: the proxy wants other credentials")
            return await _read_whole(request, response, limits)
        finally:
            await response.aclose()
    except Exception as error:  # the caller, which knows whether this was the last attempt, names
        # it
        connection = left.connection
        if connection is not None and connection.is_http2 and ended_connection(error):
            await connection.fail(http2_failure(error) or str(error))
        return _Failed(error, left, request.method)


async def _hide_location(response: httpx.Response) -> None:
    """Hide Location from httpx. It parses the target of a redirect even if it does not follow, and
    fails for URLs such as http://0177.0.0.1/; `policy` checks it for all engines."""
    if "location" in response.headers:
        response.extensions[_ALL_HEADERS] = response.headers
        response.headers = response.headers.copy()
        del response.headers["location"]


def _failure_through_proxy(error: Exception, failure: FetchError) -> FetchError:
    """Return a failure through a proxy with the right code: of the proxy or of the server."""
    if isinstance(error, httpx.ProxyError):  # its answer to CONNECT begins with the status
        unreached = str(error)[:3] in ("502", "503", "504")
        return fetch_error(CONNECT if unreached else PROXY, str(failure))
    if failure.code in (CONNECT, CONNECT_TIMEOUT, DNS):
        return fetch_error(PROXY, str(failure))
    return failure


async def _read_whole(
    request: httpx.Request, response: httpx.Response, limits: HopLimits
) -> httpx.Response:
    encoding = response.headers.get("content-encoding", "")
    reader = BodyReader(encoding, limits.max_bytes, limits.archives)
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.max_bytes:
        raise fetch_error(TOO_LARGE, f"{announced} bytes announced, {limits.max_bytes} allowed")
    pieces: list[bytes] = []
    async for piece in response.aiter_raw():
        pieces += reader.feed(piece)
    reader.finish()
    raw = response.headers.raw
    kept = [p for p in raw if p[0].lower() not in (b"content-encoding", b"content-length")]
    extensions: dict[str, Any] = {"wire_headers": tuple(raw)}
    if limits.archives:
        sent = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers.raw]
        extensions |= {"sent_headers": sent, "wire_body": reader.raw_body}
    return httpx.Response(
        response.status_code,
        headers=kept if reader.decodes else raw,
        content=b"".join(pieces),
        request=request,
        extensions=extensions,
    )


def _request(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, limits: HopLimits
) -> httpx.Request:
    """Return the request; ValueError and errors of httpx if it cannot be sent."""
    limits.guard.check(url)
    for name, value in headers.items():
        if _BREAKS_A_HEADER.search(name + value):
            raise ValueError("a header has a line break in it")
        # h2 refuses it, and its error would look like an error of the server.
        if limits.http2 and name.lower() == "te" and value.strip().lower() != "trailers":
            raise ValueError("TE can only be 'trailers' on HTTP/2")
    encodings = ARCHIVABLE_ENCODING if limits.archives else ACCEPT_ENCODING
    seconds = {
        "connect": limits.connect_s,
        "read": limits.read_s,
        "write": limits.read_s,
        "pool": limits.connect_s,
    }
    request = httpx.Request(
        method,
        url,
        content=body,
        headers={"Accept": "*/*", "Accept-Encoding": encodings, **headers},
        extensions={"timeout": seconds},
    )
    if limits.proxy is None:
        # httpx normalises what it parses; the canonical URL is sent byte for byte. Not so
        # through a proxy, where httpcore would send it as the target of CONNECT too.
        request.extensions["target"] = _target(url)
    return request


def _target(url: str) -> bytes:
    """Return the target of the request line: everything after the host."""
    start = url.find("/", url.find("://") + 3)
    query = url.find("?")
    if start == -1 or -1 < query < start:
        return b"/" + (url[query:].encode("ascii") if query != -1 else b"")
    return url[start:].partition("#")[0].encode("ascii")
