"""Links of pages that are not UTF-8, through the whole crawler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.crawling import FAST, crawl
from tests.web.server import MisbehavingWeb
from tests.web.shelf import Document
from zcrawl.model.spec import JobSpec
from zcrawl.roles.embedded import EmbeddedCluster

LINK = "<a href='/status/200?price=\u20ac'>cheap</a>"
LONG = "<p>" + "x" * 3_000 + "</p>"


@pytest.mark.parametrize(
    ("encoding", "query"), [("utf-8", "%E2%82%AC"), ("iso8859-15", "%A4"), ("cp1252", "%80")]
)
async def test_a_server_is_asked_in_the_encoding_of_its_page(
    encoding: str, query: str, tmp_path: Path
) -> None:
    """As a browser would, also when the page names its encoding behind the first kilobyte."""
    async with MisbehavingWeb() as web:
        label = {"iso8859-15": "iso-8859-15", "cp1252": "windows-1252"}.get(encoding, encoding)
        body = f"{LONG}<meta charset={label}>{LINK}"
        web.shelf["start"] = Document(body, encoding=encoding)
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, JobSpec("j", politeness=FAST), [web.url("/shelf/start")])
        paths = {hit.path for hit in web.log}
    assert view["pages"] == 2
    assert paths == {"/robots.txt", "/shelf/start", f"/status/200?price={query}"}
