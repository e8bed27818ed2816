"""A spider in a package: jobs name it as `zcrawl_stamp.spiders:Titles`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zcrawl.spider import Page, Request, Spider


class Titles(Spider):
    """One item per page with its title; follows the links that contain `only`."""

    def __init__(self, only: str = "/") -> None:
        self._only = only

    def parse(self, page: Page) -> Iterator[dict[str, Any] | Request]:
        yield {"url": page.url, "title": page.text_of("title")}
        for link in page.links:
            if self._only in link:
                yield Request(link)
