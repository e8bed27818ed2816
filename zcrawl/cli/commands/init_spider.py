"""Templates of `zcrawl init NAME --spider`: a spider, its job file, and a test of its handlers."""

from __future__ import annotations

import keyword
import re
from typing import Final

from zcrawl.errors import JobError
from zcrawl.submit.code import code_of
from zcrawl.submit.read import parse_table
from zcrawl.submit.validate import spec_from_dict

JOB: Final = """\
# A zcrawl job with a spider of its own: {name}.py. Run it here:  zcrawl crawl {name}.toml
# A cluster accepts it if its masters have allow_code = true:     zcrawl submit {name}.toml
name = "{name}"
spider = "{name}.py:{cls}"
spider_args = {{ root = "{seed}" }}

[scope]                       # without hosts: those of the requests that `start` yields
max_pages = 1000

[politeness]                  # per host
rate = 2.0                    # requests a second

[spider_limits]
timeout = 30.0                # seconds for one page; a handler that takes longer is cut off
"""

SPIDER: Final = '''\
"""A spider for zcrawl: its handlers take pages and yield items and requests. docs/spiders.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zcrawl.spider import Page, Request, Spider, on


class {cls}(Spider):
    def __init__(self, root: str) -> None:  # the job's spider_args
        self.root = root

    def start(self) -> Iterator[Request]:
        yield Request(self.root)

    def parse(self, page: Page) -> Iterator[Request | dict[str, Any]]:
        """Handle pages that no other handler takes."""
        yield {{"url": page.url, "title": page.text_of("title")}}
        for link in page.links:
            yield Request(link)

    @on(type="application/json")
    def data(self, page: Page) -> Iterator[dict[str, Any]]:
        """Handle pages of one kind: by content type, or by @on(r"a pattern of the URL")."""
        yield {{"url": page.url, "data": page.json()}}
'''

TEST: Final = '''\
"""Tests of the handlers, without a crawl: each gets a page, and its results are compared."""

from __future__ import annotations

from {name} import {cls}

from zcrawl.spider import Page, Request

HTML = [("Content-Type", "text/html; charset=utf-8")]


def test_a_page_gives_an_item_and_its_links() -> None:
    """The title is read, and the links are followed."""
    page = Page("{seed}", 200, HTML, b"<title>Hello</title><a href='/next'>next</a>")
    item, request = {cls}("{seed}").parse(page)
    assert item == {{"url": "{seed}", "title": "Hello"}}
    assert request == Request(page.join("/next"))


def test_it_starts_at_its_root() -> None:
    """The first request is the job's argument."""
    assert list({cls}("{seed}").start()) == [Request("{seed}")]
'''


def spider_files(name: str, seed: str) -> dict[str, str]:
    """Return file name → text; everything is checked before anything is written."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise JobError(
            f"{name!r} cannot be the name of a Python module; use small letters, digits and _"
        )
    cls = "".join(part.capitalize() for part in name.split("_")) or "Mine"
    if '"' in seed or "\\" in seed:
        raise JobError(f"{seed!r} has characters that a job file cannot hold")
    words = {"name": name, "seed": seed, "cls": cls}
    job, spider = JOB.format(**words), SPIDER.format(**words)
    code = code_of(spider.encode(), f"{name}.py")
    table = parse_table(job, f"{name}.toml")
    table["code"] = {"sha256": code.sha256, "source": code.source}
    spec_from_dict(table, f"{name}.toml")
    return {f"{name}.toml": job, f"{name}.py": spider, f"test_{name}.py": TEST.format(**words)}
