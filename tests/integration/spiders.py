"""What the tests of spiders share: a job with a spider of their own, and its crawl."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from tests.integration.crawling import FAST, crawl, items
from tests.web.echo_site import EchoSite
from zcrawl.model.spec import Fetch, JobSpec
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.submit.code import code_of


def job(source: str, site: EchoSite, **changes: Any) -> JobSpec:
    """A job with the spider `Test` in `source`; its argument is the site's origin."""
    fields: dict[str, Any] = {
        "name": "spider",
        "spider": "test.py:Test",
        "spider_args": {"origin": site.origin},
        "code": code_of(textwrap.dedent(source).encode(), "test.py"),
        "politeness": FAST,
        "fetch": Fetch(allow_private=True),
    }
    return JobSpec(**{**fields, **changes})


BASE = """
from zcrawl.spider import Page, Request, Spider, on

class Base(Spider):
    def __init__(self, origin):
        self.origin = origin
"""


async def crawled(
    tmp_path: Path, spec: JobSpec, workers: int = 1, seeds: list[str] | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    out = tmp_path / "out.jsonl"
    async with EmbeddedCluster(tmp_path / "d", workers) as cluster:
        view = await crawl(cluster, spec, seeds or [], out)
    return view, items(out)
