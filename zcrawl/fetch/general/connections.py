"""aiohttp's connections: guarded, kinder to the web as it is and honest about being new.

Used by `wire`, which is the wire; here is what it has to know of aiohttp's insides. `resolver`
chooses the addresses before a connection is made, `GuardedRequest` looks at the connected peer
before anything is sent.
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

# Whether the request at hand got a connection of its own rather than one from the pool.
fresh: contextvars.ContextVar[bool] = contextvars.ContextVar("zcrawl_fresh_connection")
# The SOCKS5 proxy of the request at hand.
socks: contextvars.ContextVar[str | None] = contextvars.ContextVar("zcrawl_socks", default=None)
# The limit of the body that answers the request at hand.
max_bytes: contextvars.ContextVar[int] = contextvars.ContextVar("zcrawl_max_bytes", default=0)
# Whether the request at hand has a whole connection: through the proxy, if there is one.
established: contextvars.ContextVar[bool] = contextvars.ContextVar("zcrawl_up", default=True)


class GuardedRequest(ClientRequest):
    """Takes no connection from the pool that was made under another policy (what one run may
    reach, another may not), through another proxy, or to another address than the pinned one.

    Sends nothing to a peer that the guard refuses, whatever led the connection there.
    """

    async def send(self, conn: Connection) -> ClientResponse:
        self._check_peer(conn)
        return await super().send(conn)

    def _check_peer(self, conn: Connection) -> None:
        transport = conn.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        if peer is None:  # the connection is gone already
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
        # The one field that the pool compares and nobody reads.
        mark = (key.proxy_headers_hash, own.policy, proxy, address)
        return key._replace(proxy_headers_hash=mark)  # type: ignore[arg-type]


class Protocol(ResponseHandler):
    """aiohttp's parser protocol, kinder in two cases that the web is full of, stricter in three.

    - Nonsense in the middle of a body (a bad chunk) fails the reader at once; aiohttp 3.14 tells
      only whoever waits for the headers, and the reader waits for the total timeout.
    - More body than was announced, in one segment with the headers, loses only the excess, as in
      browsers; aiohttp throws away the whole answer. A 204 or 304 has announced nothing.
    - An answer that nobody asked for, on an idle connection, ends that connection; aiohttp gives
      it to the next request, and from then on each page has the content of another.
    - A reset is no end of a body without a length; aiohttp takes the half for the whole.
    - All bytes count: chunk extensions and trailers towards the limit of the body, interim answers
      and empty lines towards that of the headers. aiohttp reads them without end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.proxy: str | None = None  # the SOCKS5 proxy that the connection was made through
        self._params: dict[str, Any] = {}
        self._first: bytes | None = None  # segment of the answer, while it is being parsed
        self._came = 0  # bytes of the answer
        self._body_from = 0  # how many of them had come with the headers; 0: those still come
        self._max_bytes = 0

    def set_response_params(self, **params: Any) -> None:
        self._params = params
        self._first = None
        self._came = self._body_from = 0
        self._max_bytes = max_bytes.get()
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        self._first = data if self._first is None else b""
        self._came += len(data)
        super().data_received(data)
        self._first = b""  # not kept: an idle connection should hold no page
        if self._came - self._body_from > self._limit():
            self._refuse_more()

    def feed_data(self, data: Any, size: int = 0) -> None:
        message, _ = data
        if message.code >= 200:  # else an interim answer; the real one follows
            self._body_from = self._came
        super().feed_data(data, size)

    def _limit(self) -> int:
        return self._max_bytes if self._body_from else MAX_HEAD_BYTES

    def _refuse_more(self) -> None:
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
            if self._first and self._announced_part_of(self._first):
                self._should_close = True
                return
            payload = self._payload
            if payload is not None and not payload.is_eof():
                payload.set_exception(exc)
        super().set_exception(exc, *cause)

    def is_connected(self) -> bool:
        """Whether the pool may give this connection to a request."""
        return super().is_connected() and not self._buffer

    def connection_lost(self, exc: BaseException | None) -> None:
        payload = self._payload
        if isinstance(exc, ConnectionResetError) and payload is not None and not payload.is_eof():
            payload.set_exception(aiohttp.ClientPayloadError("reset within the body"))
        super().connection_lost(exc)

    def _announced_part_of(self, data: bytes) -> bool:
        """Answer with the announced length of the body, if there was more; else False."""
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
    """Connects to what the resolver allows, and notes when a connection is made, which tells a
    stale one from a server that hangs up."""

    def __init__(self, resolver: GuardedResolver, **options: Any) -> None:
        super().__init__(resolver=resolver, use_dns_cache=False, **options)
        self._guarded_resolver = resolver
        factory: Callable[..., ResponseHandler] = Protocol
        self._factory = functools.partial(factory, loop=self._loop)

    async def _create_connection(self, req: ClientRequest, *args: Any, **kwargs: Any) -> Any:
        fresh.set(True)
        established.set(False)
        made = await super()._create_connection(req, *args, **kwargs)
        established.set(True)
        return made

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
        address, port, *_ = addr_infos[0][4]  # allowed by the resolver, or spelt out and checked
        sock = await connect_through(parts, through[0]["host"], address, port)
        transport, protocol = await self._wrap_existing_connection(*args, sock=sock, **kwargs)
        assert isinstance(protocol, Protocol)
        protocol.proxy = proxy
        return transport, protocol
