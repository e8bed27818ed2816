"""The answer of the engine `http`, which can be converted to an `httpx.Response`.

Made by `engine` and `general.wire` for every page. httpx is loaded when its types are first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

    from zcrawl.fetch.ports import Response


class LeanResponse:
    """An answer that is cheap to create and has the attributes of an `httpx.Response`. Most pages
    need only status, body and one header, which is in `extensions["wire_headers"]`."""

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
        answer._content = self.content  # already decoded: httpx must not decode it again
        answer.is_closed = answer.is_stream_consumed = True
        return answer


def as_httpx(response: Response) -> httpx.Response:
    """Convert an answer for plugins and spiders, and for properties that only httpx has."""
    import httpx

    if isinstance(response, httpx.Response):
        return response
    assert isinstance(response, LeanResponse), f"not a response: {type(response)}"
    return response.as_httpx()
