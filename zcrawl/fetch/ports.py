"""What the pipeline needs from a fetch engine: one hop at a time, bounded, typed.

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
    """Paths on the worker; empty: the system's certificates, and none of our own."""

    ca: str = ""
    cert: str = ""
    key: str = ""


class HopLimits(msgspec.Struct, frozen=True):
    """Limits of one request: seconds, bytes, and what may be connected to."""

    total_s: float = 20.0
    connect_s: float = 10.0
    read_s: float = 15.0
    max_bytes: int = 10_000_000  # of the body after decompression
    verify_tls: bool = True
    guard: Guard = STRICT
    proxy: str | None = None  # http:// or socks5://, with its credentials
    tls: TlsFiles = TlsFiles()
    http2: bool = False  # where the engine has it
    browser: Browser | None = None  # how a page is rendered, by the engine that does
    run: int = 0  # whose cookies and storage a browser keeps apart
    cookies: bool = False  # whether they last longer than a page
    archives: bool = False  # tell what was sent, and the body as it came (`extensions`)
    address: str | None = None  # the only one to connect to; AddressMoved if the host has another


class Response(Protocol):
    """What the pipeline reads of an answer. Loading httpx for its type is a tenth of a start."""

    status_code: int

    @property
    def extensions(self) -> Any: ...

    @property
    def content(self) -> bytes: ...

    @property
    def headers(self) -> httpx.Headers: ...


class Engine(Protocol):
    """One way to do one HTTP request."""

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> Response:
        """The answer to one GET with its decoded body read whole.

        Raises FetchError, and nothing else, for whatever the network or the server does.
        """
        ...

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> Response:
        """The answer to a request that is no plain GET: of logins and spiders."""
        ...

    async def aclose(self) -> None: ...
