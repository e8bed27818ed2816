"""What extraction adds to a page: `python -m tests.bench.bench_extract`.

A page of 50 KB is read with links only, and again with a plan of ten fields on top, by turns, so
that a busy machine slows both; CPU time of the thread. What counts is the difference: <= 0.3 ms.
"""

from __future__ import annotations

import statistics
import time

from zcrawl.frontier.url import LinkResolver
from zcrawl.parse.extract import Plan
from zcrawl.parse.extract_page import PageFacts
from zcrawl.parse.page import PageOptions, parse_page
from zcrawl.submit.job_toml import parse_job

URL = "http://shop.test/books/17/"
JOB = """
name = "bench"
[extract.fields]
title = "h1"
author = { css = ".author", re = '^by (.+)$' }
price = { css = ".price", type = "float" }
currency = { css = ".price", attr = "data-currency" }
rating = { css = ".rating", attr = "data-rating", type = "int" }
image = { css = ".cover img", attr = "src", type = "url" }
published = { css = "time", attr = "datetime", type = "date" }
tags = { css = ".tags a", list = true }
last = { css = "#last", type = "bool" }
missing = ".not-there"
"""
ROUNDS = 300


def page() -> bytes:
    head = (
        "<html><head><title>Book</title></head><body><h1>A book</h1>"
        "<p class=author>by A. Nobody</p>"
        "<p class=price data-currency=EUR>1.234,50</p><p class=rating data-rating=4>****</p>"
        "<div class=cover><img src=c.png></div><time datetime=2026-01-31>January</time>"
        "<ul class=tags>" + "".join(f"<li><a href=/t/{n}>tag {n}</a></li>" for n in range(8))
    )
    row = "<div class=review><b>Reader {n}</b><p>{words}</p><a href=/r/{n}>more</a></div>"
    words = "The story holds what the cover promises, and a little more of it. " * 3
    body = "".join(row.format(n=n, words=words) for n in range(180))
    return f"{head}</ul>{body}<p id=last>yes</p></body></html>".encode()


def main() -> None:
    body = page()
    plan = Plan(parse_job(JOB, "bench").extract)
    facts = PageFacts(URL, "", {"url": URL}, None)
    resolver = LinkResolver()
    plain, extracting = PageOptions(), PageOptions(plan=plan)
    times: dict[str, list[float]] = {"links only": [], "with ten fields": []}
    for _ in range(ROUNDS):
        for name, options in (("links only", plain), ("with ten fields", extracting)):
            began = time.thread_time()
            parse_page(body, "text/html; charset=utf-8", URL, options, resolver, facts)
            times[name].append((time.thread_time() - began) * 1000)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:16} {median:.3f} ms (median of {ROUNDS}, {len(body) / 1000:.0f} KB)")
    print(f"extraction adds  {medians['with ten fields'] - medians['links only']:.3f} ms")


if __name__ == "__main__":
    main()
