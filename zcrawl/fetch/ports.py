"""The interface between the pipeline and the fetch engines: one bounded request at a time.

An engine answers with an `httpx.Response`, or with something that reads like one (`Response`);
plugins and spiders see httpx's own type (`wire.response.as_httpx`). Engines never follow
redirects: the pipeline does, hop by hop, through the same checks as the first request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from zcrawl.fetch.guard import STRICT, Guard
from zcrawl.model.spec import Browser

if TYPE_CHECKING:
    import httpx


class TlsFiles(msgspec.Struct, frozen=True):
    """Paths on the worker. Empty: the system's certificates, and no client certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""


class HopLimits(msgspec.Struct, frozen=True):
    """Limits of one request: seconds, bytes, and allowed addresses."""

    total_s: float = 20.0
    connect_s: float = 10.0
    read_s: float = 15.0
    max_bytes: int = 10_000_000  # of the body after decompression
    verify_tls: bool = True
    guard: Guard = STRICT
    proxy: str | None = None  # http:// or socks5://, with its credentials
    tls: TlsFiles = TlsFiles()
    http2: bool = False  # if the engine supports it
    browser: Browser | None = None  # settings for rendering, used by the browser engine
    run: int = 0  # a browser separates cookies and storage by run
    cookies: bool = False  # whether they are kept between pages
    archives: bool = False  # return the sent headers and the raw body too (in `extensions`)
    address: str | None = None  # the only one to connect to; AddressMoved if the host has another


class Response(Protocol):
    """The parts of an answer that the pipeline reads. httpx is not loaded for its type, because
    that takes a tenth of a worker's start."""

    status_code: int

    @property
    def extensions(self) -> Any: ...

    @property
    def content(self) -> bytes: ...

    @property
    def headers(self) -> httpx.Headers: ...


class Engine(Protocol):
    """An implementation of HTTP requests."""

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> Response:
        """Send one GET, and return the answer with its whole decoded body.

        Raises only FetchError for failures of the network and the server.
        """
        ...

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> Response:
        """Send another request than a plain GET, for logins and spiders; return the answer."""
        ...

    async def aclose(self) -> None: ...
