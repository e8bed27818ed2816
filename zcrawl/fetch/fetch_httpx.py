"""An engine on a plain `httpx.AsyncClient`: httpx's own wire, for those who need what only it has
(HTTP/2, its proxies, its transports). The same limits and the same errors as the default engine.

Called by the worker's pipeline through `fetch.ports.Engine` when a job says `engine = "httpx"`.
It costs ten times the CPU of `fetch_aiohttp`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Any, Final, Self

import httpx

from zcrawl.errors import FetchError
from zcrawl.fetch.backend_httpx import (
    Allowance,
    Resolve,
    allowance,
    guarded_transport,
    resolve,
)
from zcrawl.fetch.bodies import ACCEPT_ENCODING, ARCHIVABLE_ENCODING, BodyReader
from zcrawl.fetch.policy import MAX_MESSAGE, fetch_error
from zcrawl.fetch.ports import HopLimits
from zcrawl.fetch.tls_file import context_for

MOST_CLIENTS: Final = 32  # idle ones above that are closed
_ALL_HEADERS: Final = "all_headers"


class _Client:
    """A client and how many requests are using it."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.running = 0


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
        for one in clients.values():
            await one.client.aclose()

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        return await self._ask("GET", url, headers, None, limits)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> httpx.Response:
        return await self._ask(method, url, headers, body or None, limits)

    async def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        limits: HopLimits,
    ) -> httpx.Response:
        try:
            async with asyncio.timeout(limits.total_s):
                return await self._exchange(method, url, headers, body, limits)
        except FetchError:
            raise
        except TimeoutError as error:
            raise fetch_error("total_timeout", f"{url}: not done in {limits.total_s} s") from error
        except Exception as error:
            failure = translate(url, error)
            if limits.proxy is not None:
                failure = _blamed(error, failure)
            raise failure from error

    async def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        limits: HopLimits,
    ) -> httpx.Response:
        limits.guard.check(url)
        encodings = ARCHIVABLE_ENCODING if limits.archives else ACCEPT_ENCODING
        request = httpx.Request(
            method,
            url,
            content=body,
            headers={"Accept": "*/*", "Accept-Encoding": encodings, **headers},
            extensions={
                "timeout": {
                    "connect": limits.connect_s,
                    "read": limits.read_s,
                    "write": limits.read_s,
                    "pool": limits.connect_s,
                }
            },
        )
        if limits.proxy is None:
            # httpx normalises what it parses; the canonical URL is sent byte for byte. Not so
            # through a proxy, where httpcore would send it as the target of CONNECT too.
            request.extensions["target"] = _target(url)
        if limits.proxy is not None:
            await self._check_all(request.url, limits)
        one = await self._client(limits)
        one.running += 1
        left = Allowance(limits.max_bytes)
        allowance.set(left)
        try:
            response = await self._send(one.client, request)
            left.begin_body()
            try:
                if response.status_code == 407:  # only proxies answer so
                    raise fetch_error("proxy", f"{url}: the proxy wants other credentials")
                return await _read_whole(request, response, limits)
            finally:
                await response.aclose()
        finally:
            one.running -= 1

    async def _send(self, client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        """The answer up to its headers, with a second try if a pooled connection was stale."""
        fresh = False

        async def trace(event: str, _: Mapping[str, Any]) -> None:
            nonlocal fresh
            fresh = fresh or event == "connection.connect_tcp.started"

        request.extensions["trace"] = trace
        try:
            response = await client.send(request, stream=True, follow_redirects=False)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            if fresh:
                raise
            response = await client.send(request, stream=True, follow_redirects=False)
        response.headers = response.extensions.pop(_ALL_HEADERS, response.headers)
        return response

    async def _check_all(self, url: httpx.URL, limits: HopLimits) -> None:
        """A proxy looks names up by itself: all that the name means here is checked before."""
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await self._look_up(url.host, port)
        except OSError as error:
            raise fetch_error("dns", f"{url.host}: {error}") from error
        for address in found:
            limits.guard.pick(url.host, port, [address])

    async def _client(self, limits: HopLimits) -> _Client:
        files, policy = limits.tls, limits.guard.policy
        key = (limits.verify_tls, policy, limits.proxy, files, limits.http2, limits.address)
        found = self._clients.get(key)
        if found is None:
            if self._closed:
                raise fetch_error("engine", "the engine is closed")
            transport = guarded_transport(
                limits.guard,
                self._look_up,
                limits.address,
                verify=context_for(files, limits.verify_tls, limits.http2),
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
            found = self._clients[key] = _Client(client)
            await self._close_idle(found)
        return found

    async def _close_idle(self, newest: _Client) -> None:
        idle = [key for key, one in self._clients.items() if not one.running and one is not newest]
        for key in idle[: len(self._clients) - MOST_CLIENTS]:
            await self._clients.pop(key).client.aclose()


async def _hide_location(response: httpx.Response) -> None:
    """httpx reads where a redirect leads, also if it is not to follow, and fails for a URL that it
    does not like, such as http://0177.0.0.1/. That is judged elsewhere, for all engines alike."""
    if "location" in response.headers:
        response.extensions[_ALL_HEADERS] = response.headers
        response.headers = response.headers.copy()
        del response.headers["location"]


def _blamed(error: Exception, failure: FetchError) -> FetchError:
    """Whose failure it is, on the way through a proxy: only the proxy is connected to."""
    if isinstance(error, httpx.ProxyError):  # its answer to CONNECT begins with the status
        unreached = str(error)[:3] in ("502", "503", "504")
        return fetch_error("connect" if unreached else "proxy", str(failure))
    if failure.code in ("connect", "connect_timeout", "dns"):
        return fetch_error("proxy", str(failure))
    return failure


async def _read_whole(
    request: httpx.Request, response: httpx.Response, limits: HopLimits
) -> httpx.Response:
    encoding = response.headers.get("content-encoding", "")
    reader = BodyReader(encoding, limits.max_bytes, limits.archives)
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.max_bytes:
        raise fetch_error("too_large", f"{announced} bytes announced, {limits.max_bytes} allowed")
    pieces: list[bytes] = []
    try:
        async for piece in response.aiter_raw():
            pieces += reader.feed(piece)
    except (httpx.RemoteProtocolError, httpx.ReadError) as error:
        code = "truncated" if _ended_early(error) else "protocol"
        raise fetch_error(code, f"{request.url}: {error}") from error
    reader.finish()
    raw = response.headers.raw
    kept = [p for p in raw if p[0].lower() not in (b"content-encoding", b"content-length")]
    told: dict[str, Any] = {"wire_headers": tuple(raw)}
    if limits.archives:
        sent = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers.raw]
        told |= {"sent_headers": sent, "wire_body": reader.as_it_came}
    return httpx.Response(
        response.status_code,
        headers=kept if reader.decodes else raw,
        content=b"".join(pieces),
        request=request,
        extensions=told,
    )


def _ended_early(error: httpx.TransportError) -> bool:
    """Whether the body broke off, rather than being no HTTP any more."""
    return isinstance(error, httpx.ReadError) or "closed connection" in str(error)


def _target(url: str) -> bytes:
    """What stands in the request line: everything behind the authority."""
    start = url.find("/", url.find("://") + 3)
    query = url.find("?")
    if start == -1 or -1 < query < start:
        return b"/" + (url[query:].encode("ascii") if query != -1 else b"")
    return url[start:].partition("#")[0].encode("ascii")


def translate(url: str, error: Exception) -> FetchError:
    """The one place where httpx's errors get our names. Narrow types come first."""
    text = f"{url}: {error}" if str(error) else f"{url}: {type(error).__name__}"
    match error:
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            code = "connect_timeout"
        case httpx.TimeoutException():
            code = "read_timeout"
        case httpx.ConnectError():
            causes = list(_causes(error))
            if any(isinstance(cause, ssl.SSLError) for cause in causes):
                code = "tls"
            elif any(isinstance(cause, socket.gaierror) for cause in causes):
                code = "dns"
            else:
                code = "connect"
        case httpx.RemoteProtocolError():
            # h11 has one error for silence and for nonsense; only its text tells them apart.
            code = "reset" if "disconnected" in str(error) else "protocol"
        case httpx.UnsupportedProtocol() | httpx.LocalProtocolError() | httpx.InvalidURL():
            code = "bad_url"
        case httpx.NetworkError() | OSError():
            code = "reset"
        case ExceptionGroup():  # anyio wraps what its connection attempts raise
            return translate(url, error.exceptions[0])
        case ValueError() | OverflowError():
            code = "bad_url"
        case _:
            code = "engine"
    return fetch_error(code, text[:MAX_MESSAGE])


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
