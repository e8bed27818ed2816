"""The spider that stands for Scrapy in the benchmark. Runs in Scrapy's own venv, not in ours.

It does what `zcrawl crawl` does by default: all links of the same host, one small item per page,
robots.txt obeyed, 32 requests in flight and no delay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import scrapy
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor


class SiteSpider(scrapy.Spider):
    name = "site"
    custom_settings = {  # noqa: RUF012  Scrapy's own way to say it
        "CONCURRENT_REQUESTS": 32,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": True,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
    }

    def __init__(self, url: str, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.url = url
        self.extractor = LinkExtractor(allow_domains=[urlsplit(url).netloc])

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(self.url)  # unlike start_urls: filtered, so the page counts once

    def parse(self, response: Response) -> Iterator[dict[str, str | None] | scrapy.Request]:
        if not isinstance(response, HtmlResponse):
            return
        yield {"url": response.url, "title": response.css("title::text").get()}
        for link in self.extractor.extract_links(response):
            yield scrapy.Request(link.url)
