"""Sitemaps in all their forms, whole and broken."""

from __future__ import annotations

import gzip
import time

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
    """Sitemaps in an index are not pages."""
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
    """Cut off in the middle: no URL is half of one."""
    for cut in range(1, len(URLSET)):
        sitemap = read_sitemap(URLSET[:-cut], NOW)
        assert sitemap.error == "sitemap_broken"
        assert sitemap.entries == read_sitemap(URLSET, NOW).entries[: len(sitemap.entries)]
    assert (len(read_sitemap(URLSET[:-60], NOW).entries), sitemap.lost) == (2, 0)
    assert read_sitemap(URLSET[:-60], NOW).complaints() == {
        "sitemap_broken": 1, "sitemap_entry_lost": 1,
    }  # fmt: skip


def urlset(*locations: str, before: str = "") -> str:
    entries = "".join(f"<url><loc>{location}</loc></url>" for location in locations)
    return f"{before}<urlset>{entries}</urlset>"


def urls(body: str | bytes) -> list[str]:
    data = body.encode() if isinstance(body, str) else body
    return [url for url, _ in read_sitemap(data, NOW).entries]


DECLARED = '<?xml version="1.0" encoding="{}"?>'
CHINESE = urlset("https://x.test/\u4e2d", "https://x.test/2")


@pytest.mark.parametrize(
    "body",
    [
        CHINESE.encode(),
        ("\ufeff" + CHINESE).encode(),
        ("\n \n" + DECLARED.format("UTF-8") + CHINESE).encode(),
        ("\ufeff\n" + DECLARED.format("UTF-8") + CHINESE).encode(),
        (DECLARED.format("gb2312") + CHINESE).encode("gbk"),
        (DECLARED.format("Big5") + CHINESE).encode("big5"),
        (DECLARED.format("UTF-16") + CHINESE).encode("utf-16"),
        (DECLARED.format("UTF-8") + CHINESE).encode("utf-16"),
        (DECLARED.format("UTF-16") + CHINESE).encode("utf-16-be"),
        CHINESE.encode("utf-16-le"),
        gzip.compress((DECLARED.format("gb2312") + CHINESE).encode("gbk")),
        "https://x.test/\u4e2d\nhttps://x.test/2".encode("utf-16"),
        "https://x.test/\u4e2d\r\nhttps://x.test/2\r".encode("utf-16-be"),
    ],
)
def test_a_sitemap_is_decoded_first(body: bytes) -> None:
    """Marks, declarations, blank lines before them, and UTF-16 that says nothing."""
    sitemap = read_sitemap(body, NOW)
    assert [url for url, _ in sitemap.entries] == ["https://x.test/\u4e2d", "https://x.test/2"]
    assert sitemap.complaints() == {}


A, B, C = (f"https://x.test/{name}" for name in "abc")


@pytest.mark.parametrize(
    ("body", "expected", "complaints"),
    [
        (urlset(A, f"{B}?x=1&y=2", C), [A, f"{B}?x=1&y=2", C], {"sitemap_repaired": 1}),
        (urlset(A, f"{B}?x=1&copy=2", C), [A, f"{B}?x=1&copy=2", C], {"sitemap_repaired": 1}),
        (urlset(A, f"{B}?<3", C), [A, C], {"sitemap_repaired": 1, "sitemap_entry_lost": 1}),
        (
            urlset(A, f"{B}\udce9", C).encode("utf-8", "surrogateescape"), [A, C],
            {"sitemap_repaired": 1, "sitemap_entry_lost": 1},
        ),
        (
            urlset(A, C).replace("</url>", "<t>\udce9</t></url>").encode(errors="surrogateescape"),
            [A, C], {"sitemap_repaired": 2},
        ),
        (urlset(A, f"{B}&nbsp;", C), [A, C], {"sitemap_entry_lost": 1}),
        (urlset(A, f"{B}&#0;", C), [A, C], {"sitemap_entry_lost": 1}),
        (urlset(A, f"{B}&#x41;&#66;"), [A, f"{B}AB"], {}),
        (urlset(A, f"<![CDATA[{B}?x&y&amp;]]>"), [A, f"{B}?x&y&amp;"], {}),
        (urlset(A, f"<!-- {B} -->{C}"), [A, C], {}),
        (urlset(A, "", C), [A, C], {"sitemap_entry_lost": 1}),
        (urlset(A, C).replace("</url>", "", 1), [A, C], {"sitemap_repaired": 2}),
        (urlset(A, C).replace("</loc>", "", 1), [A, C], {"sitemap_repaired": 1}),
        (urlset(A, C).replace("</url>", "</x></url>"), [A, C], {"sitemap_repaired": 2}),
        (urlset(A, f"<b x=\"</loc></url><url><loc>{C}"), [A, C],
         {"sitemap_repaired": 1, "sitemap_entry_lost": 1}),
        (urlset(A, C, before="<b>Warning</b>: line 3<br />\n<?xml version='1.0'?>"), [A, C],
         {}),
        (urlset(A, C, before="Warning: line 3\n<?xml version='1.0'?>"), [A, C], {}),
        (urlset(A, C) + "<!-- 0.2 s --> junk & more", [A, C], {}),
        (f"<!DOCTYPE u [<!ENTITY e '{B}'><!ELEMENT u ANY>]>" + urlset(A, "&e;"), [A],
         {"sitemap_entry_lost": 1}),
        ("<URLSET><URL><LOC>" + A + "</LOC></URL></URLSET>", [A], {}),
        (
            f"<urlset><url><image><loc>{B}</loc></image><loc>{A}</loc></url></urlset>", [A], {},
        ),
        (
            f"<rss><channel><image><url>{B}</url></image><item><link>{A}</link></item></channel></rss>",
            [A], {},
        ),
        (f"{A}\nHello, this is no URL\n# a comment\n{B}", [A, B], {"sitemap_entry_lost": 1}),
    ],
)  # fmt: skip
def test_a_fault_costs_what_it_touches(
    body: str | bytes, expected: list[str], complaints: dict[str, int]
) -> None:
    """And is counted: nothing is lost in silence."""
    data = body.encode() if isinstance(body, str) else body
    sitemap = read_sitemap(data, NOW)
    assert [url for url, _ in sitemap.entries] == expected
    assert sitemap.complaints() == complaints


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body><p>Not found</body></html>",
        b"<?xml version='1.0'?><error>no such bucket</error>",
        b"Not found",
        b"x\n" * 100,
        b"\x00\x01\x02\x03" * 99,
    ],
)
def test_what_is_no_sitemap_is_said_to_be_none(body: bytes) -> None:
    """It has no entries, and that has a reason."""
    sitemap = read_sitemap(body, NOW)
    assert (sitemap.entries, sitemap.children, sitemap.error) == ([], [], "sitemap_broken")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_pieces_change_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the file is cut for reading: within a character, a tag, a reference, a comment."""
    body = (
        DECLARED.format("gb2312")
        + f"<!-- {'x' * 1_100} -->"
        + "<!DOCTYPE u [<!ENTITY e 'x'>]><urlset><!-- <url> --><url a='>'><loc>https://x.test/\u4e2d"
        + "?a=1&amp;b=2&c=&#65;</loc></url><url><loc><![CDATA[https://x.test/]]]>2</loc></url></urlset>"
    ).encode("gbk")
    whole = read_sitemap(body, NOW)
    monkeypatch.setattr("zcrawl.parse.sitemap._PIECE", size)
    assert read_sitemap(body, NOW) == whole
    assert [url for url, _ in whole.entries] == [
        "https://x.test/\u4e2d?a=1&b=2&c=A",
        "https://x.test/]2",
    ]


@pytest.mark.parametrize(
    "piece", ["<", "&", "<a ", "<!--", "<![CDATA[", '<a b="', "</url>", "<!DOCTYPE ", "&#", "<?"]
)
def test_no_sitemap_takes_long(piece: str) -> None:
    """The time is linear in the length, and a file with too many faults is given up."""
    began = time.process_time()
    read_sitemap(b"<urlset>" + piece.encode() * (4_000_000 // len(piece)), NOW)
    assert time.process_time() - began < 4.0


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise(body: bytes) -> None:
    """G7: no content at the URL of a sitemap raises an error."""
    read_sitemap(body, NOW)
    read_sitemap(b"<urlset>" + body, NOW)
    read_sitemap(b"\x1f\x8b" + body, NOW)
