"""The answer that the wire gives: an `httpx.Response` that is cheap to make.

Made by `fetch_aiohttp` for every page.
"""

from __future__ import annotations

from typing import Any

import httpx

_BODY_IS_READ = httpx.ByteStream(b"")


class LeanResponse(httpx.Response):
    """An `httpx.Response` whose body is there already and whose request and headers are built on
    demand: they cost more than the rest of the answer. The pipeline knows the URL, and finds the
    one header that it needs among `extensions["wire_headers"]`.
    """

    def __init__(
        self, url: str, status: int, raw_headers: list[tuple[bytes, bytes]], body: bytes, **ext: Any
    ) -> None:
        # What httpx.Response's own __init__ sets, without what it makes for a body to come.
        self.status_code = status
        self._raw_headers = raw_headers
        self._headers: httpx.Headers | None = None
        self._request: httpx.Request | None = None
        self.next_request = None
        self.extensions = ext
        self.history: list[httpx.Response] = []
        self.is_closed = True
        self.is_stream_consumed = True
        self.default_encoding = "utf-8"
        self.stream = _BODY_IS_READ
        self._num_bytes_downloaded = len(body)
        self._content = body
        self._url = url

    @property
    def headers(self) -> httpx.Headers:
        if self._headers is None:
            self._headers = httpx.Headers(self._raw_headers)
        return self._headers

    @headers.setter
    def headers(self, value: httpx.Headers) -> None:
        self._headers = value

    @property
    def request(self) -> httpx.Request:
        if self._request is None:
            self._request = httpx.Request("GET", self._url)
        return self._request

    @request.setter
    def request(self, value: httpx.Request) -> None:
        self._request = value
