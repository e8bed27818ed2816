"""Guarded connections of aiohttp, with changes for common mistakes of servers.

Used by `wire`; this module depends on internals of aiohttp. `resolver` chooses the addresses before
a connection is made, `GuardedRequest` checks the connected peer before anything is sent.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest, ClientResponse, ConnectionKey
from aiohttp.connector import Connection
from aiohttp.helpers import EMPTY_BODY_STATUS_CODES
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD

from zcrawl.fetch.general.resolver import GuardedResolver, allowed, guard, pinned
from zcrawl.fetch.general.socks import connect_through
from zcrawl.fetch.policy import MAX_HEAD_BYTES, fetch_error, head_too_large
from zcrawl.model.reasons.failure import ENGINE, PROXY, TOO_LARGE

# Whether the current request uses a new connection, not one from the pool.
fresh: contextvars.ContextVar[bool] = contextvars.ContextVar("zcrawl_fresh_connection")
# The SOCKS5 proxy of the current request.
socks: contextvars.ContextVar[str | None] = contextvars.ContextVar("zcrawl_socks", default=None)
# The limit of the body for the current request.
max_bytes: contextvars.ContextVar[int] = contextvars.ContextVar("zcrawl_max_bytes", default=0)
# Whether the current request has a connection to the server, through the proxy if there is one.
established: contextvars.ContextVar[bool] = contextvars.ContextVar("zcrawl_up", default=True)


class GuardedRequest(ClientRequest):
    """Refuses peers that the guard does not allow, and separates connections by policy.

    A pooled connection is used only if it was made under the same policy (two runs may have
    different rights), through the same proxy and to the pinned address. Nothing is sent to a
    refused peer.
    """

    async def send(self, conn: Connection) -> ClientResponse:
        self._check_peer(conn)
        return await super().send(conn)

    def _check_peer(self, conn: Connection) -> None:
        transport = conn.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        if peer is None:  # the connection has ended already
            raise aiohttp.ServerDisconnectedError
        target, proxy = self.proxy or self.url, socks.get()
        host, port = target.raw_host, target.port
        if proxy is not None:
            if getattr(conn.protocol, "proxy", None) != proxy:
                raise fetch_error(ENGINE, f"{host}:{port}: connected without its SOCKS5 proxy")
            parts = urlsplit(proxy)
            host, port = parts.hostname, parts.port
        allowed(host or "", port or 0, [peer[0]])

    @property
    def connection_key(self) -> ConnectionKey:
        key = super().connection_key
        own, proxy, address = guard.get(), socks.get(), pinned.get()
        if own.is_strict and proxy is None and address is None:
            return key
        # The only field that the pool compares and nothing else reads.
        mark = (key.proxy_headers_hash, own.policy, proxy, address)
        return key._replace(proxy_headers_hash=mark)  # type: ignore[arg-type]


class Protocol(ResponseHandler):
    """The parser protocol of aiohttp, with two tolerant and three strict changes.

    - Garbage in the middle of a body (a bad chunk) fails the reader at once; aiohttp 3.14 fails
      only a wait for headers, and the reader waits for the total timeout.
    - If a body is longer than announced, in one segment with the headers, only the excess is
      dropped, as in browsers; aiohttp drops the whole answer. A 204 or 304 announces an empty body.
    - Data on an idle connection, without a request, closes the connection; aiohttp uses it as the
      answer to the next request, and from then on each page has the content of another.
    - A reset does not end a body without a length; aiohttp would return the incomplete body.
    - All bytes count: chunk extensions and trailers count for the limit of the body, interim
      answers and empty lines for the limit of the headers. aiohttp reads them without a limit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.proxy: str | None = None  # the SOCKS5 proxy that the connection was made through
        self._params: dict[str, Any] = {}
        self._first: bytes | None = None  # segment of the answer, while it is being parsed
        self._received = 0  # bytes of the answer
        self._body_from = 0  # bytes up to the end of the headers; 0: the headers are not complete
        self._max_bytes = 0

    def set_response_params(self, **params: Any) -> None:
        self._params = params
        self._first = None
        self._received = self._body_from = 0
        self._max_bytes = max_bytes.get()
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        self._first = data if self._first is None else b""
        self._received += len(data)
        super().data_received(data)
        self._first = b""  # not kept, so that an idle connection does not hold a page in memory
        if self._received - self._body_from > self._limit():
            self._fail_too_large()

    def feed_data(self, data: Any, size: int = 0) -> None:
        message, _ = data
        if message.code >= 200:  # otherwise an interim answer; the final one follows
            self._body_from = self._received
        super().feed_data(data, size)

    def _limit(self) -> int:
        return self._max_bytes if self._body_from else MAX_HEAD_BYTES

    def _fail_too_large(self) -> None:
        error = head_too_large()
        if self._body_from:
            error = fetch_error(TOO_LARGE, f"more than {self._max_bytes} bytes sent")
        payload = self._payload
        if payload is not None and not payload.is_eof():
            payload.set_exception(error)
        self.set_exception(error)
        if self.transport is not None:
            self.transport.abort()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        if isinstance(exc, HttpProcessingError):
            if self._first and self._deliver_announced_part(self._first):
                self._should_close = True
                return
            payload = self._payload
            if payload is not None and not payload.is_eof():
                payload.set_exception(exc)
        super().set_exception(exc, *cause)

    def is_connected(self) -> bool:
        """Return whether the pool may use this connection for a request."""
        return super().is_connected() and not self._buffer

    def connection_lost(self, exc: BaseException | None) -> None:
        payload = self._payload
        if isinstance(exc, ConnectionResetError) and payload is not None and not payload.is_eof():
            payload.set_exception(aiohttp.ClientPayloadError("reset within the body"))
        super().connection_lost(exc)

    def _deliver_announced_part(self, data: bytes) -> bool:
        """Deliver the announced part of a body that is too long; False if that is not the case."""
        head, end, body = data.partition(b"\r\n\r\n")
        super().set_response_params(**self._params)  # a new parser: the old one has failed
        parser = self._parser
        assert parser is not None
        try:
            messages, _, _ = parser.feed_data(head + end)
            message, payload = messages[0]
            if message.code in EMPTY_BODY_STATUS_CODES:
                self.feed_data((message, EMPTY_PAYLOAD), 0)
                return True
            length = int(message.headers["Content-Length"])
            if length >= len(body):
                return False
            parser.feed_data(body[:length])
        except (HttpProcessingError, LookupError, ValueError):
            return False
        self.feed_data((message, payload), 0)
        return True


class Connector(aiohttp.TCPConnector):
    """Connects to allowed addresses, and records when a connection is new: only a pooled one can be
    stale."""

    def __init__(self, resolver: GuardedResolver, **options: Any) -> None:
        super().__init__(resolver=resolver, use_dns_cache=False, **options)
        self._guarded_resolver = resolver
        factory: Callable[..., ResponseHandler] = Protocol
        self._factory = functools.partial(factory, loop=self._loop)

    async def _create_connection(self, req: ClientRequest, *args: Any, **kwargs: Any) -> Any:
        fresh.set(True)
        established.set(False)
        connection = await super()._create_connection(req, *args, **kwargs)
        established.set(True)
        return connection

    async def _wrap_create_connection(self, *args: Any, addr_infos: Any, **kwargs: Any) -> Any:
        proxy = socks.get()
        if proxy is None:
            return await super()._wrap_create_connection(*args, addr_infos=addr_infos, **kwargs)
        parts = urlsplit(proxy)
        assert parts.hostname is not None
        assert parts.port is not None
        try:
            through = await self._guarded_resolver.resolve(parts.hostname, parts.port)
        except OSError as error:
            raise fetch_error(PROXY, f"proxy {parts.hostname}: {error}") from error
        address, port, *_ = addr_infos[0][4]  # allowed by the resolver, or a checked literal
        # address
        sock = await connect_through(parts, through[0]["host"], address, port)
        transport, protocol = await self._wrap_existing_connection(*args, sock=sock, **kwargs)
        assert isinstance(protocol, Protocol)
        protocol.proxy = proxy
        return transport, protocol
