"""Extraction in one line, for its tests: a job's text and a page in, what was found out."""

from __future__ import annotations

import json
from typing import Any

from zcrawl.frontier.url import DEFAULT, LinkResolver
from zcrawl.parse.extract.page_facts import PageContext
from zcrawl.parse.extract.plan import Extracted, ExtractionPlan
from zcrawl.parse.json_page import parse_json
from zcrawl.parse.page import PageOptions, ParsedPage, parse_page
from zcrawl.submit.read import parse_job

URL = "http://shop.test/a/page.html"
PAGE = """<html><head><base href="/base/"><title> A  page </title></head><body>
<h1> The <b>Title</b> </h1><p class=price>EUR 1.234,50</p><img src="i.png" alt="">
<ul><li data-n=1>one</li><li data-n=2>two</li><li data-n=x>three</li></ul>
<article><h2>First</h2><a href="/1">more</a><p>SKU 11-22</p></article>
<article><h2>Second</h2><p>no number</p></article>
<a rel="nofollow" href="/no">no</a><a class=next href="?p=2">next</a></body></html>"""


def plan_of(text: str) -> ExtractionPlan:
    job = parse_job('name = "x"\n' + text, "job.toml")
    return ExtractionPlan(job.extract, job.schema)


def read(
    text: str,
    body: str | bytes,
    *,
    url: str = URL,
    block: str = "",
    main: dict[str, Any] | None = None,
    kind: str = "text/html; charset=utf-8",
) -> ParsedPage:
    facts = PageContext(url, block, {"url": url, "status": 200, "fetched_at": "now"}, main)
    options = PageOptions(plan=plan_of(text))
    data = body.encode() if isinstance(body, str) else body
    if "json" in kind:
        return parse_json(data, kind, options, LinkResolver(DEFAULT), facts)
    return parse_page(data, kind, url, options, LinkResolver(DEFAULT), facts)


def extract(text: str, body: str | bytes, **options: Any) -> Extracted:
    extracted = read(text, body, **options).extracted
    assert extracted is not None
    return extracted


def items(text: str, body: str | bytes, **options: Any) -> list[dict[str, Any]]:
    return [json.loads(item) for item in extract(text, body, **options).items]


def item(text: str, body: str | bytes, **options: Any) -> dict[str, Any]:
    (fields,) = items(text, body, **options)
    return fields
