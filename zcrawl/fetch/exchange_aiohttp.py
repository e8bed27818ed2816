"""One plain GET on one of aiohttp's connections, without aiohttp's session.

The session makes a request, a response, two timers and several copies of the headers for each
answer: more work than reading the page's links. Among the thousand requests that a crawler has for
a host only the path differs. So here the connection comes from aiohttp's connector (pool, DNS, TLS,
guard) and its protocol parses the answer, but the request is written and the answer taken by hand.

Used by `fetch_aiohttp` for what most requests are: a GET without body, proxy or credentials.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

from zcrawl.fetch.tls_aiohttp import aiohttp, context_for  # isort: skip - before aiohttp's parts
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from zcrawl.fetch.connection_aiohttp import Connector, GuardedRequest, Protocol
from zcrawl.fetch.policy import ACCEPT_ENCODING
from zcrawl.fetch.ports import HopLimits, TlsFiles

READ_BUFFER_BYTES: Final = 65_536  # aiohttp stops reading a socket at twice that
MAX_HEADER_BYTES: Final = 65_536  # of one line; aiohttp's own 8 KB is less than real cookies

# Nothing in it that could end the request line, be cut off it, or mean somebody's password.
_PLAIN: Final = re.compile(r"(https?://[^/?#@\\\s]+)(/[!\"$-~]*)", re.ASCII)
_BREAKS_A_HEADER: Final = re.compile(r"[\r\n\0]")
_MOST_ORIGINS: Final = 10_000

Destination = tuple[str, TlsFiles, bool]


class Answer:
    """An answer up to its headers. Whoever has it reads `content` and then calls `close`."""

    def __init__(
        self,
        connection: Connection,
        message: RawResponseMessage,
        content: StreamReader,
        deadline: asyncio.TimerHandle,
    ) -> None:
        self.status = message.code
        self.headers = message.headers
        self.raw_headers = message.raw_headers
        self.content = content
        self._connection = connection
        self._deadline = deadline

    @property
    def content_length(self) -> int | None:
        announced = self.headers.get("Content-Length", "")
        return int(announced) if announced.isdecimal() else None

    def close(self) -> None:
        """Gives the connection back after a whole body, and closes it after anything else."""
        self._deadline.cancel()
        if self.content.is_eof():
            self._connection.release()
        else:
            self._connection.close()


class Exchanges:
    def __init__(self, connector: Connector, loop: asyncio.AbstractEventLoop) -> None:
        self._connector = connector
        self._loop = loop
        self._requests: dict[Destination, GuardedRequest] = {}
        self._block: tuple[Mapping[str, str], str, bool] | None = None  # the headers seen last

    async def get(
        self,
        origin: str,
        path: str,
        headers: Mapping[str, str],
        limits: HopLimits,
        connecting: aiohttp.ClientTimeout,
    ) -> Answer:
        begun = self._loop.time()
        request = self._request(origin, limits)
        block, names_host = self._headers(headers)
        host = "" if names_host else f"Host: {request.headers['Host']}\r\n"
        head = f"GET {path} HTTP/1.1\r\n{host}{block}".encode()
        try:
            connection = await self._connector.connect(request, [], connecting)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"no connection to {origin}") from error
        protocol = connection.protocol
        assert isinstance(protocol, Protocol)
        deadline = self._loop.call_at(begun + limits.total_s, protocol.expire)
        try:
            protocol.set_response_params(
                read_until_eof=True,
                # Its own decompression has no limit on the whole body.
                auto_decompress=False,
                read_timeout=limits.read_s,
                read_bufsize=READ_BUFFER_BYTES,
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
            )
            assert protocol.transport is not None
            protocol.transport.write(head)
            protocol.start_timeout()
            while True:
                message, content = await protocol.read()
                if not 100 <= message.code < 200 or message.code == 101:
                    return Answer(connection, message, content, deadline)
        except BaseException:
            deadline.cancel()
            connection.close()
            raise

    def _request(self, origin: str, limits: HopLimits) -> GuardedRequest:
        """What the connector has to know about a destination."""
        destination = (origin, limits.tls, limits.verify_tls)
        known = self._requests.get(destination)
        if known is None:
            if len(self._requests) >= _MOST_ORIGINS:
                self._requests.clear()
            secure = origin.startswith("https:")
            known = self._requests[destination] = GuardedRequest(
                "GET",
                URL(origin + "/", encoded=True),
                loop=self._loop,
                ssl=context_for(limits.tls, limits.verify_tls) if secure else True,
            )
        return known

    def _headers(self, headers: Mapping[str, str]) -> tuple[str, bool]:
        """The caller's headers as lines, with the empty one; whether Host is among them."""
        if self._block is not None and self._block[0] == headers:
            return self._block[1:]
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if any(_BREAKS_A_HEADER.search(line) for line in lines):
            raise ValueError("a header has a line break in it")
        names = {name.lower() for name in headers}
        if "accept-encoding" not in names:
            lines.append(f"Accept-Encoding: {ACCEPT_ENCODING}")
        block = "\r\n".join(lines) + "\r\n\r\n"
        # A copy: a middleware may use one mapping for all its requests, and change it.
        self._block = (dict(headers), block, "host" in names)
        return self._block[1:]


def split_plain(url: str) -> tuple[str, str] | None:
    """Origin and path of a URL that can be asked for here; None if it needs aiohttp's session."""
    found = _PLAIN.fullmatch(url)
    return None if found is None else (found[1], found[2])
