"""Plugins for zcrawl, one of each kind. See docs/plugins.md of zcrawl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from zcrawl.errors import FetchError, RetryClass
from zcrawl.plugins import Middleware, Outgoing, PageFacts, Parsed, Skip


class Stamp(Middleware):
    """Sends a key with each request, and puts a stamp on each item."""

    def __init__(self, key: str = "stamp") -> None:
        self._key = key

    def before_request(self, request: Outgoing) -> None:
        request.headers["X-Stamp"] = self._key

    async def after_response(self, request: Outgoing, response: httpx.Response) -> None:
        if response.headers.get("x-not-wanted"):
            raise Skip("not_wanted")

    def before_item(self, item: dict[str, Any], page: PageFacts) -> dict[str, Any] | None:
        if item.get("line") == "":
            return None
        return {**item, "stamp": self._key, "of": page.url}


class Lines:
    """Reads plain text: an item for each line, and a link for each line that is a URL."""

    def accepts(self, url: str, content_type: str) -> bool:
        return content_type.startswith("text/plain")

    def parse(self, url: str, content_type: str, body: bytes) -> Parsed:
        lines = body.decode("utf-8", "replace").splitlines()
        links = [line for line in lines if line.startswith(("http://", "https://", "/"))]
        return Parsed([{"line": line} for line in lines], links, title=lines[0] if lines else None)


class Files:
    """Answers from memory: an engine for jobs that must not touch a network."""

    PAGES: Mapping[str, str] = {"/": "<title>Home</title><a href=/a>a</a>", "/a": "<title>A"}

    def __init__(self, pages: Mapping[str, str] = PAGES) -> None:
        """`pages` is the job's `[plugins.files] pages`, by path. What is wrong with it is raised
        here: the pages of such a job fail with that text, `plugin_broken`."""
        for path in pages:
            if not path.startswith("/"):
                raise ValueError(f"pages: {path!r} is no path; it begins with /")
        self._pages = pages

    async def get(self, url: str, headers: Mapping[str, str], limits: Any) -> httpx.Response:
        path = httpx.URL(url).path
        if path not in self._pages:
            raise FetchError(f"no file {path}", code="no_file", retry=RetryClass.PERMANENT)
        kind = {"Content-Type": "text/html"}
        return httpx.Response(200, headers=kind, content=self._pages[path].encode())

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: Any
    ) -> httpx.Response:
        raise FetchError("files can only be read", code="read_only", retry=RetryClass.PERMANENT)

    async def aclose(self) -> None:
        """There is nothing to close."""
