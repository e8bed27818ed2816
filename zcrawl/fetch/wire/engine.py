"""The engine `http`: plain GETs with our own client, everything else with aiohttp.

Made by `roles.engines`; implements `fetch.ports.Engine`. aiohttp is loaded by the first request
that needs it; most workers never need it, and so start faster and with less memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from zcrawl.errors import FetchError
from zcrawl.fetch.policy import MAX_MESSAGE, fetch_error
from zcrawl.fetch.ports import HopLimits, Response
from zcrawl.fetch.wire.connection import WireResponse
from zcrawl.fetch.wire.connector import LookUp
from zcrawl.fetch.wire.pool import PlainWire, split_plain
from zcrawl.fetch.wire.response import LeanResponse
from zcrawl.model.reasons.failure import BAD_URL, ENGINE, RESET

if TYPE_CHECKING:
    from zcrawl.fetch.general.wire import AiohttpWire


class HttpEngine:
    """The default engine. One instance per event loop; opened by its first request. `look_up`
    returns the addresses of a name for plain GETs; default: the system's."""

    def __init__(self, *, look_up: LookUp | None = None) -> None:
        self._look_up = look_up
        self._plain: PlainWire | None = None
        self._full: AiohttpWire | None = None
        self._closed = False

    async def __aenter__(self) -> HttpEngine:
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
        if self._plain is not None:
            self._plain.close()
            self._plain = None
        if self._full is not None:
            await self._full.aclose()

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> Response:
        plain = None
        if limits.proxy is None and not limits.archives:
            plain = split_plain(url)
        if plain is None:
            return await self._full_wire().get(url, headers, limits)
        limits.guard.check(url)
        wire = self._plain or self._plain_wire()
        try:
            answer = await wire.get(plain, headers, limits)
        except FetchError:
            raise
        except ValueError as error:
            raise fetch_error(BAD_URL, f"{url}: {error}"[:MAX_MESSAGE]) from error
        except OSError as error:
            raise fetch_error(RESET, f"{url}: {error}"[:MAX_MESSAGE]) from error
        except Exception as error:  # a bug, ours or a library's, and not the fault of the page
            text = f"{url}: {type(error).__name__}: {error}"
            raise fetch_error(ENGINE, text[:MAX_MESSAGE]) from error
        return LeanResponse(
            url, answer.status, _fitting_headers(answer), answer.body, wire_headers=answer.headers
        )

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> Response:
        return await self._full_wire().send(method, url, headers, body, limits)

    def _plain_wire(self) -> PlainWire:
        self._refuse_if_closed()
        self._plain = PlainWire(asyncio.get_running_loop(), self._look_up)
        return self._plain

    def _full_wire(self) -> AiohttpWire:
        if self._full is None:
            self._refuse_if_closed()
            from zcrawl.fetch.general.wire import AiohttpWire

            self._full = AiohttpWire()
        return self._full

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise fetch_error(ENGINE, "the engine is closed")


def _fitting_headers(answer: WireResponse) -> list[tuple[bytes, bytes]]:
    """Return the headers without those that do not fit the decoded body."""
    if not answer.decoded:
        return answer.headers
    unfitting = (b"content-encoding", b"content-length")
    return [pair for pair in answer.headers if pair[0].lower() not in unfitting]
