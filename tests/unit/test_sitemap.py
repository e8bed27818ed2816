"""Sitemaps in all their forms, whole and broken."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zcrawl.parse.sitemap import MAX_ENTRIES, read_sitemap

NOW = 1_700_000_000.0  # 2023-11-14
NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
URLSET = f"""<?xml version="1.0"?><urlset {NS}>
<url><loc> https://x.test/a?b=1&amp;c=2 </loc><lastmod>2023-11-14</lastmod></url>
<url><loc>https://x.test/old</loc><lastmod>2001-01-01T10:00:00+01:00</lastmod></url>
<url><loc>https://x.test/plain</loc><priority>0.3</priority></url>
</urlset>""".encode()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_sitemap_lists_pages_the_newest_first(pack: type[bytes]) -> None:
    """lastmod becomes a priority; a page without one is like any other."""
    sitemap = read_sitemap(pack(URLSET), NOW)
    assert sitemap.entries == [
        ("https://x.test/a?b=1&c=2", -100),
        ("https://x.test/old", 0),
        ("https://x.test/plain", 0),
    ]
    assert sitemap.error == ""


def test_an_index_lists_sitemaps() -> None:
    """They are no pages."""
    body = (
        f"<sitemapindex {NS}><sitemap><loc>https://x.test/1.xml.gz</loc></sitemap></sitemapindex>"
    )
    sitemap = read_sitemap(body.encode(), NOW)
    assert (sitemap.children, sitemap.entries) == (["https://x.test/1.xml.gz"], [])


@pytest.mark.parametrize(
    "body",
    [
        "<rss><channel><link>https://x.test/</link><item><link>https://x.test/p</link>"
        "<pubDate>Tue, 14 Nov 2023 10:00:00 GMT</pubDate></item></channel></rss>",
        '<feed xmlns="http://www.w3.org/2005/Atom"><link href="https://x.test/"/><entry>'
        '<link rel="edit" href="https://x.test/e"/><link href="https://x.test/p"/>'
        "<updated>2023-11-14T09:00:00Z</updated></entry></feed>",
    ],
)
def test_feeds_are_sitemaps_too(body: str) -> None:
    """RSS and Atom, as the sitemap protocol allows."""
    assert read_sitemap(body.encode(), NOW).entries == [("https://x.test/p", -100)]


def test_a_text_file_has_a_url_a_line() -> None:
    """With or without a byte order mark, and nothing else counts."""
    body = b"\xef\xbb\xbfhttps://x.test/a\r\n\r\nnonsense\nhttps://x.test/b"
    assert [url for url, _ in read_sitemap(body, NOW).entries] == [
        "https://x.test/a",
        "https://x.test/b",
    ]


def test_what_is_beyond_the_limits_is_not_read() -> None:
    """50,000 entries; 50 MB also when a small file grows to them."""
    body = "".join(f"https://x.test/{n}\n" for n in range(MAX_ENTRIES + 5)).encode()
    many = read_sitemap(body, NOW)
    assert (len(many.entries), many.error) == (MAX_ENTRIES, "sitemap_too_many")
    bomb = gzip.compress(b"<urlset>" + b" " * 60_000_000, 1)
    assert read_sitemap(bomb, NOW).error == "sitemap_too_large"


def test_a_broken_sitemap_gives_what_it_had_until_there() -> None:
    """Cut off in the middle, or with entities that grow."""
    assert len(read_sitemap(URLSET[:-60], NOW).entries) == 2
    laughs = b'<!DOCTYPE x [<!ENTITY a "aaaa">]><urlset><url><loc>&a;</loc></url></urlset>'
    assert read_sitemap(laughs, NOW).error == "sitemap_broken"


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise(body: bytes) -> None:
    """G7: whatever is behind the URL of a sitemap."""
    read_sitemap(body, NOW)
    read_sitemap(b"<urlset>" + body, NOW)
    read_sitemap(b"\x1f\x8b" + body, NOW)
