"""The answer that the wire gives, and the `httpx.Response` that it becomes for who wants one.

Made by `engine` and `general.wire` for every page. httpx is loaded by the first who asks
for its types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

    from zcrawl.fetch.ports import Response


class LeanResponse:
    """Reads like an `httpx.Response`, and is cheap to make: most pages need no more than status,
    body and one header, which is found among `extensions["wire_headers"]`."""

    __slots__ = ("_headers", "_raw_headers", "_url", "content", "extensions", "status_code")

    def __init__(
        self, url: str, status: int, raw_headers: list[tuple[bytes, bytes]], body: bytes, **ext: Any
    ) -> None:
        self.status_code = status
        self.content = body
        self.extensions = ext
        self._url = url
        self._raw_headers = raw_headers
        self._headers: httpx.Headers | None = None

    @property
    def headers(self) -> httpx.Headers:
        if self._headers is None:
            import httpx

            self._headers = httpx.Headers(self._raw_headers)
        return self._headers

    def as_httpx(self) -> httpx.Response:
        import httpx

        request = httpx.Request("GET", self._url)
        answer = httpx.Response(
            self.status_code, headers=self.headers, request=request, extensions=self.extensions
        )
        answer._content = self.content  # decoded already: not to be done again by its headers
        answer.is_closed = answer.is_stream_consumed = True
        return answer


def as_httpx(response: Response) -> httpx.Response:
    """For plugins and spiders, and for what only httpx can say of an answer."""
    import httpx

    if isinstance(response, httpx.Response):
        return response
    assert isinstance(response, LeanResponse), "an engine answers with one of the two"
    return response.as_httpx()
