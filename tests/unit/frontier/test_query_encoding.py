"""Queries of links on pages that are not UTF-8."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.extraction import item
from zcrawl.errors import BadUrl
from zcrawl.frontier.query_encoding import encode_query
from zcrawl.frontier.url import (
    CANONICAL_VERSION,
    DEFAULT,
    CanonicalRules,
    LinkResolver,
    canonicalize,
    join,
)
from zcrawl.parse.page import PageOptions, parse_page
from zcrawl.spider import Page, Request
from zcrawl.worker.extensions.spider_child import Gathered


@pytest.mark.parametrize(
    ("href", "encoding", "expected"),
    [
        ("/a?c=\u20ac", "iso-8859-15", "/a?c=%A4"),
        ("?q=\u043f\u0440", "windows-1251", "?q=%EF%F0"),
        ("?q=\u20ac", "koi8-r", "?q=%26%238364%3B"),
        ("?q=\u0081", "windows-1252", "?q=%81"),
        # only the query, and of it only what a query escapes
        ("/\u20ac/?a b=\"\u20ac'#\u20ac", "iso-8859-15", "/\u20ac/?a%20b=%22%A4%27#\u20ac"),
        ("/\u20ac", "iso-8859-15", "/\u20ac"),
        ("/x#?\u20ac", "iso-8859-15", "/x#?\u20ac"),
        ("?a\n=\t\u20ac", "iso-8859-15", "?a=%A4"),
        ("?a=%E4\u20ac", "iso-8859-15", "?a=%E4%A4"),
        # second bytes may be ASCII; they stay
        ("?q=\u30a2\u8868", "shift_jis", "?q=%83A%95\\"),
        ("?q=\u2170\xa5\u2212", "shift_jis", "?q=%FA@\\%81|"),
        ("?q=\u2460\uff71\u2212", "euc-jp", "?q=%AD%A1%8E%B1%A1%DD"),
        ("?q=\u4e02", "euc-jp", "?q=%26%2319970%3B"),
        ("?q=\u65e5a\u203eb\uff76\uff9e", "iso-2022-jp", "?q=%1B$BF|%1B(Ba%1B(J~b%1B$B%+!+%1B(B"),
        ("?q=\u20ac\u4e2d", "gbk", "?q=%80%D6%D0"),
        ("?q=\u20ac\U0001f4a9", "gb18030", "?q=%A2%E3%949%DA3"),
        ("?q=\U0001f4a9", "gbk", "?q=%26%23128169%3B"),
        ("?q=\u4e2d\u20ac\U00022c51", "big5", "?q=%A4%A4%A3%E1%26%23142417%3B"),
        ("?q=\uac00", "euc-kr", "?q=%B0%A1"),
    ],
)  # fmt: skip
def test_a_query_is_written_in_the_pages_encoding(href: str, encoding: str, expected: str) -> None:
    """As the URL Standard has it, with a reference for what the encoding does not have."""
    assert encode_query(href, encoding) == expected


PAGE = (
    "<meta charset=iso-8859-15><base href=/b/><link rel=canonical href='/c?\u20ac'>"
    "<a href='x?p=\u20ac'>a</a>"
)


@pytest.mark.parametrize(("version", "query"), [(1, "%E2%82%AC"), (2, "%A4")])
def test_the_rule_depends_on_the_version_of_the_run(version: int, query: str) -> None:
    """A run that began with version 1 keeps it; links and canonical links alike."""
    resolver = LinkResolver(CanonicalRules(version=version))
    body = PAGE.encode("iso8859-15")
    page = parse_page(body, "text/html", "https://h.test/", PageOptions(), resolver)
    assert [url for url, _ in page.links] == [f"https://h.test/b/x?p={query}"]
    assert page.canonical == f"https://h.test/c?{query}"


def test_the_version_of_new_runs_uses_the_pages_encoding() -> None:
    """Without being told, the newest version holds."""
    assert CANONICAL_VERSION == CanonicalRules().version == 2
    assert join("https://h.test/", "?\u20ac", page_encoding="iso-8859-15") == "https://h.test/?%A4"
    assert canonicalize("https://h.test/?\u20ac") == "https://h.test/?%E2%82%AC"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16le", "utf-16be", "replacement"])
def test_unicode_pages_have_queries_in_utf_8(encoding: str) -> None:
    """The Standard's output encoding of UTF-16 is UTF-8."""
    resolver = LinkResolver(DEFAULT)
    assert resolver.for_page(encoding) is resolver


def test_the_cache_does_not_mix_encodings() -> None:
    """One href on pages in three encodings is three URLs."""
    resolver = LinkResolver(DEFAULT)
    for _ in range(2):
        links = [
            resolver.for_page(name).resolve("https://h.test/", "/x?\u20ac")
            for name in ("utf-8", "iso-8859-15", "windows-1252")
        ]
        assert [link and link[0].partition("?")[2] for link in links] == ["%E2%82%AC", "%A4", "%80"]


def test_items_have_urls_in_the_pages_encoding_too() -> None:
    """Fields of type url, Markdown and microdata resolve as links do."""
    html = (
        "<meta charset=iso-8859-15>"
        "<div itemscope itemtype=T><a itemprop=u href='?\u20ac'>x</a></div>"
    )
    spec = (
        "[extract.fields]\n"
        "link = { css = 'a', attr = 'href', type = 'url' }\n"
        "text = { css = 'div', type = 'markdown' }\n"
        "data = { microdata = 'T.u' }\n"
    )
    fields = item(spec, html.encode("iso8859-15"), kind="text/html")
    assert fields["link"].endswith("?%A4")
    assert "?%A4)" in fields["text"]
    assert fields["data"].endswith("?%A4")


def test_a_spiders_page_resolves_as_the_crawler_does() -> None:
    """`links` and `join` know the encoding of the page."""
    page = Page("https://h.test/", 200, [("Content-Type", "text/html")], PAGE.encode("iso8859-15"))
    assert page.links == ["https://h.test/b/x?p=%A4"]
    assert page.join("?\u20ac") == "https://h.test/?%A4"
    assert page.encoding == "iso-8859-15"


def test_a_spiders_page_keeps_the_version_of_its_run() -> None:
    """A run that began with version 1 has queries in UTF-8, from spiders too."""
    body = PAGE.encode("iso8859-15")
    page = Page("https://h.test/", 200, [], body, canonical_version=1)
    assert page.links == ["https://h.test/b/x?p=%E2%82%AC"]
    assert page.join("?\u20ac") == "https://h.test/?%E2%82%AC"
    assert page.encode_query("?\u20ac") == "?\u20ac"


def test_a_spiders_relative_request_is_one_of_the_pages_links() -> None:
    """Its query is in the page's encoding; an absolute URL is the spider's own, in UTF-8."""
    gathered = Gathered()
    gathered.page = Page("https://h.test/", 200, [], PAGE.encode("iso8859-15"))
    gathered.take_all([Request("/x?\u20ac"), Request("https://h.test/?\u20ac"), Request("?a")])
    assert [request.url for request in gathered.requests] == [
        "/x?%A4",
        "https://h.test/?\u20ac",
        "?a",
    ]


@settings(deadline=None)
@given(
    st.text(max_size=40),
    st.sampled_from(
        ["windows-1252", "shift_jis", "euc-jp", "iso-2022-jp", "big5", "gbk", "gb18030", "euc-kr",
         "iso-8859-8-i", "x-user-defined", "x-mac-cyrillic", "koi8-u", "macintosh", "ibm866"]
    ),
)  # fmt: skip
def test_whatever_is_linked_has_a_canonical_form(query: str, encoding: str) -> None:
    """It is ASCII, and canonicalising it again changes nothing."""
    try:
        url = join("https://h.test/", "/x?" + query, page_encoding=encoding)
    except BadUrl:
        return
    assert url.isascii()
    assert canonicalize(url) == url
