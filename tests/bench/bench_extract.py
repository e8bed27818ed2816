"""What extraction adds to a page; a part of `make bench-jobs`.

A page of 50 KB is read with links only, and again with a plan of ten fields on top, by turns, so
that a busy machine slows both; CPU time of the thread. What counts is the difference within each
pair: <= 0.3 ms. A machine with other work to do spoils caches, which makes both halves slower; the
lowest tenth of the pairs tells what a quiet one would need.
"""

from __future__ import annotations

import gc
import time

from tests.bench.measure import Spread
from zcrawl.frontier.url import DEFAULT, LinkResolver
from zcrawl.parse.extract.page_facts import PageContext
from zcrawl.parse.extract.plan import ExtractionPlan
from zcrawl.parse.page import PageOptions, parse_page
from zcrawl.roles.worker_main import GC_THRESHOLDS
from zcrawl.submit.read import parse_job

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


def measured(rounds: int = ROUNDS) -> tuple[int, dict[str, Spread]]:
    """The page's bytes; milliseconds, whose lowest and highest are the 10th and 90th percentile."""
    body = page()
    plan = ExtractionPlan(parse_job(JOB, "bench").extract)
    facts = PageContext(URL, "", {"url": URL}, None)
    resolver = LinkResolver(DEFAULT)
    plain, extracting = PageOptions(), PageOptions(plan=plan)
    gc.freeze()  # as a worker does when it has loaded all
    gc.set_threshold(*GC_THRESHOLDS)
    times: dict[str, list[float]] = {"links only": [], "with ten fields": []}
    for _ in range(rounds):
        for name, options in (("links only", plain), ("with ten fields", extracting)):
            began = time.thread_time()
            parse_page(body, "text/html; charset=utf-8", URL, options, resolver, facts)
            times[name].append((time.thread_time() - began) * 1000)
    pairs = zip(times["with ten fields"], times["links only"], strict=True)
    times["the ten fields"] = [more - less for more, less in pairs]
    return len(body), {name: _middle(values) for name, values in times.items()}


def _middle(values: list[float]) -> Spread:
    tenth = len(values) // 10
    return Spread.of(sorted(values)[tenth : len(values) - tenth])


def report(rounds: int = ROUNDS) -> str:
    size, spreads = measured(rounds)
    lines = [f"| a page of {size / 1000:.0f} KB, {rounds} pairs | CPU, ms (10–90 %) |", "|---|---|"]
    lines += [f"| {name} | {spread.text(3)} |" for name, spread in spreads.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
