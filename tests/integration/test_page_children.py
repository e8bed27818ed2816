"""Pages that are read in child processes: the same result, and a name for whatever goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.web.monsters import MONSTERS
from zcrawl.errors import FetchError, ParseError, RetryClass
from zcrawl.frontier.url import CanonicalRules, LinkResolver
from zcrawl.model.extraction import Block, Field, Follow, ItemRule
from zcrawl.model.spec import JobSpec
from zcrawl.parse import page_protocol as wire
from zcrawl.parse.children.pages import MOST_CHILDREN, PageChildren
from zcrawl.parse.extract.page_facts import PageContext
from zcrawl.parse.extract.plan import ExtractionPlan
from zcrawl.parse.page import PageOptions, ParsedPage
from zcrawl.parse.reading import read_page
from zcrawl.parse.sitemap import read_sitemap
from zcrawl.submit.read import to_dict

HTML = "text/html; charset=utf-8"
URL = "https://example.com/docs/page"
RULES = CanonicalRules()
PLAIN = wire.PageSetup(RULES)
HANGS = b"<p " + b" ".join(b"a%d" % n for n in range(150_000)) + b">"  # 1.2 MB, more than 100 s
EXTRACTING = JobSpec(
    name="extracts",
    extract=(
        Block(
            item=ItemRule(css="p"),
            fields={"text": Field(css="a"), "n": Field(css="b", type="int")},
            follow=(Follow(css="a", to="next"),),
        ),
    ),
)


@contextlib.asynccontextmanager
async def children(timeout_s: float = 60.0) -> AsyncIterator[PageChildren]:
    pool = PageChildren(timeout_s)
    try:
        yield pool
    finally:
        await pool.close()


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def here(body: bytes, setup: wire.PageSetup, facts: PageContext | None = None) -> ParsedPage:
    return read_page(body, HTML, URL, facts, wire.options_of(setup), LinkResolver(setup.rules))


def page_of(chance: random.Random) -> bytes:
    """A harmless page out of small pieces of everything."""
    kinds = chance.sample(sorted(MONSTERS.keys() - {"null_bytes"}), 4)  # no binary data
    parts = [MONSTERS[kind](chance.randint(20, 600), chance) for kind in kinds]
    words = " ".join(f"word{chance.randint(0, 999)}" for _ in range(100))
    links = "".join(f"<p><a href=/x{n}>t{n}</a><b>{n}</b>" for n in range(chance.randint(0, 30)))
    return f"<title>t</title><p>{words}{links}".encode() + b"".join(parts)


async def test_a_child_gives_what_the_event_loop_gives() -> None:
    """One function, two places: title, links, counts, fingerprints, items, whatever the page."""
    setups = [
        PLAIN,
        wire.PageSetup(RULES, True, "zcrawl", True),
        wire.PageSetup(CanonicalRules(sort_query=True, collapse_www=True), False, "", False),
        wire.PageSetup(RULES, spec=msgspec.json.encode(to_dict(EXTRACTING))),
    ]
    async with children() as pool:
        for seed in range(80):
            chance = random.Random(seed)
            body, setup = page_of(chance), chance.choice(setups)
            facts = PageContext(URL, "", {"url": URL}, None) if setup.spec else None
            there = await pool.read(setup, body, HTML, URL, facts)
            expected = here(body, setup, facts)
            if expected.extracted is not None:
                expected.extracted.links = None  # they are the page's, and told once
            assert there == expected, f"seed {seed}"
        assert pool.started == 1


async def test_an_extracting_job_keeps_its_plan_in_the_child() -> None:
    """The child compiles the job's rules, and JSON is read there too."""
    spec = JobSpec(name="j", extract=(Block(fields={"a": Field(json="x[1]", type="int")}),))
    setup = wire.PageSetup(RULES, spec=msgspec.json.encode(to_dict(spec)))
    facts = PageContext(URL, "", {"url": URL}, None)
    async with children() as pool:
        page = await pool.read(setup, b'{"x": [1, "2"]}', "application/json", URL, facts)
    assert page.extracted is not None
    assert page.extracted.items == [b'{"url":"https://example.com/docs/page","a":2}']


async def test_many_links_come_in_order_and_each_once() -> None:
    """They travel in several frames."""
    body = b"".join(b"<a href=/%d>" % n for n in range(3 * wire.LINKS_A_FRAME + 5))
    async with children() as pool:
        page = await pool.read(PLAIN, body, HTML, URL, None)
    assert page.links == here(body, PLAIN).links
    assert len(page.links) == 3 * wire.LINKS_A_FRAME + 5


async def test_a_page_that_takes_too_long_is_named_and_the_next_one_is_read() -> None:
    """Its child is killed, and it is not tried again."""
    async with children(timeout_s=0.5) as pool:
        with pytest.raises(FetchError) as caught:
            await pool.read(PLAIN, HANGS, HTML, URL, None)
        assert (caught.value.code, caught.value.retry) == ("parse_timeout", RetryClass.PERMANENT)
        assert pool.pids == []
    async with children() as pool:
        assert (await pool.read(PLAIN, b"<title>x", HTML, URL, None)).title == "x"


async def test_a_page_that_needs_all_memory_costs_its_child_only() -> None:
    """Formatting elements that are copied into each paragraph: 60 KB would need gigabytes."""
    names = b"".join(b"<b id=%d>" % n for n in range(900))
    bomb = b"<p>" + names + b"</p><p>x" * 20_000
    async with children() as pool:
        with pytest.raises(FetchError) as caught:
            await pool.read(PLAIN, bomb, HTML, URL, None)
        assert (caught.value.code, caught.value.retry) == ("parse_memory", RetryClass.PERMANENT)
        assert (await pool.read(PLAIN, b"<title>x", HTML, URL, None)).title == "x"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
async def test_a_child_that_dies_blames_its_page_and_no_other(number: signal.Signals) -> None:
    """A crash in C, or a hand from outside: the page may be tried again, the next is read."""
    async with children() as pool:
        await pool.read(PLAIN, b"<p>", HTML, URL, None)  # the child is there
        reading = asyncio.create_task(pool.read(PLAIN, HANGS, HTML, URL, None))
        await asyncio.sleep(0)
        (pid,) = pool.pids
        os.kill(pid, number)
        with pytest.raises(FetchError, match=f"signal {number.value}") as caught:
            await reading
        assert (caught.value.code, caught.value.retry) == ("parse_died", RetryClass.TRANSIENT)
        assert (await pool.read(PLAIN, b"<title>x", HTML, URL, None)).title == "x"


async def test_what_cannot_be_read_is_told_as_in_the_loop() -> None:
    """A ParseError keeps its code, and the child goes on."""
    async with children() as pool:
        for _ in range(2):
            with pytest.raises(ParseError) as caught:
                await pool.read(PLAIN, b"\x89PNG\0\0\0\0" * 100, HTML, URL, None)
            assert caught.value.code == "binary_content"
        assert pool.started == 1


async def test_a_page_that_hangs_does_not_hold_up_the_others() -> None:
    """Another child is started for them, up to a limit."""
    async with children() as pool:
        hanging = [
            asyncio.create_task(pool.read(PLAIN, HANGS, HTML, URL, None))
            for _ in range(MOST_CHILDREN - 1)
        ]
        for n in range(10):
            page = await pool.read(PLAIN, b"<title>%d" % n, HTML, URL, None)
            assert page.title == str(n)
        assert pool.started <= MOST_CHILDREN
        for task in hanging:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


async def test_a_read_that_is_cancelled_leaves_no_answer_behind() -> None:
    """The next page gets its own answer, from a new child."""
    async with children() as pool:
        await pool.read(PLAIN, b"<p>", HTML, URL, None)
        reading = asyncio.create_task(pool.read(PLAIN, b"<title>old", HTML, URL, None))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert (await pool.read(PLAIN, b"<title>new", HTML, URL, None)).title == "new"


async def test_closing_ends_every_child() -> None:
    """Also one that has a page in its hands."""
    pool = PageChildren()
    await pool.read(PLAIN, b"<p>", HTML, URL, None)
    reading = asyncio.create_task(pool.read(PLAIN, HANGS, HTML, URL, None))
    await asyncio.sleep(0)
    (pid,) = pool.pids
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await pool.close()
    assert not exists(pid)


async def test_a_sitemap_is_read_as_in_the_loop() -> None:
    """Entries, further sitemaps, and why reading ended."""
    url = b"<url><loc>https://x.test/%d</loc><lastmod>2020-01-01</lastmod></url>"
    body = b"<urlset>" + b"".join(url % n for n in range(3_000))
    async with children() as pool:
        assert await pool.read_sitemap(body, 1.7e9) == read_sitemap(body, 1.7e9)


def test_plans_know_what_their_selectors_cost() -> None:
    """Every selector of a job counts: of fields in fields, of items, of links."""
    block = Block(
        item=ItemRule(css="a b"),
        fields={"o": Field(css="p", fields={"i": Field(css="x y z")})},
        follow=(Follow(css="a ~ b"),),
    )
    cost = ExtractionPlan((block,)).cost
    assert (cost.steps, cost.wide) == (2, 1)
    assert PageOptions().plan is None
