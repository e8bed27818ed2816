"""What a page says, for good pages, bad pages and no pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from zcrawl.errors import ParseError
from zcrawl.frontier.url import DEFAULT, LinkResolver
from zcrawl.parse.page import PageOptions, ParsedPage, _flattened, _may_be_deep, is_html, parse_page

URL = "https://example.com/docs/page.html"
UTF8 = "text/html; charset=utf-8"


def parse(
    html: str | bytes, content_type: str = UTF8, *, url: str = URL, follow_nofollow: bool = False
) -> ParsedPage:
    body = html.encode() if isinstance(html, str) else html
    return parse_page(body, content_type, url, PageOptions(follow_nofollow), LinkResolver(DEFAULT))


def urls(page: ParsedPage) -> list[str]:
    return [url for url, _ in page.links]


def test_links_come_from_the_four_elements_once_and_in_document_order() -> None:
    """a, area, iframe and frame give links; a URL counts at its first place."""
    page = parse(
        "<iframe src=i></iframe><a href=/b>1</a><map><area href='c?x=1#f'></map>"
        "<a href='https://EXAMPLE.com/b#top'>again</a><a name=x>no</a><link href=/css><img src=/g>"
    )
    assert urls(page) == [
        "https://example.com/docs/i",
        "https://example.com/b",
        "https://example.com/docs/c?x=1",
    ]
    assert all(key == DEFAULT.key(url) for url, key in page.links)
    assert urls(parse("<frameset><frame src=left></frameset>")) == ["https://example.com/docs/left"]


def test_the_first_usable_base_holds_for_all_links() -> None:
    """A <base href> is honoured also for the links before it; later ones are ignored."""
    html = (
        "<a href=x>1</a><base href='data:,'><base href='/other/'><base href=/no/><a href='#t'>2</a>"
    )
    assert urls(parse(html)) == ["https://example.com/other/x", "https://example.com/other/"]


def test_a_place_on_the_same_page_is_no_link() -> None:
    """Fragments and empty hrefs lead nowhere else; neither do other schemes."""
    html = "<a href='#a'>1</a><a href=''>2</a><a href>3</a><a href='mailto:a@b.c'>4</a><iframe src>"
    assert parse(html + "<a href='javascript:void(0)'>").links == []


def test_a_space_before_a_fragment_is_part_of_the_link() -> None:
    """As browsers have it; at the ends of an href it is not."""
    page = parse(
        "<a href=' a #1 '>1</a><a href='a#2'>2</a><a href='a?b #3'>3</a><a href='a #4'>4</a>"
    )
    assert urls(page) == [
        "https://example.com/docs/a%20",
        "https://example.com/docs/a",
        "https://example.com/docs/a?b%20",
    ]


def test_nofollow_is_honoured_unless_told_otherwise() -> None:
    """rel=nofollow takes away one link, the robots meta all of them."""
    link = "<a href=a rel='x NoFollow'>1</a><a href=b rel=nofollower>2</a>"
    assert urls(parse(link)) == ["https://example.com/docs/b"]
    assert len(parse(link, follow_nofollow=True).links) == 2
    for content in ("nofollow", "noindex, NOFOLLOW", "none"):
        html = f"<meta name=Robots content='{content}'><a href=a>"
        assert parse(html).links == []
        assert len(parse(html, follow_nofollow=True).links) == 1


@pytest.mark.parametrize(
    ("content", "noindex"), [("noindex", True), ("NONE", True), ("nofollow", False), ("", False)]
)
def test_noindex_is_reported(content: str, noindex: bool) -> None:
    """The caller learns that the page forbids keeping it."""
    assert parse(f"<head><meta name=robots content='{content}'></head>").noindex is noindex


def test_a_title_is_one_clean_line() -> None:
    """Whitespace is collapsed, NULs and surrogates do not survive, the length is bounded."""
    assert parse("<title>\n  A &amp;\t B\0</title>").title == "A & B\ufffd"  # as HTML says
    assert parse("<title> \n </title>").title is None
    assert parse("<p>none</p>").title is None
    assert parse("<title>" + "x" * 10_000 + "</title>").title == "x" * 500
    title = parse(b"<title>\xed\xa0\x80 &#xD800; \xff</title>").title
    assert title is not None
    assert title.encode()
    assert parse("<title>first</title><title>second</title>").title == "first"
    assert parse("<body><svg><title>icon</title></svg>").title is None


def test_the_encoding_reaches_title_and_links() -> None:
    """A page in another encoding is read in it; links are escaped as UTF-8."""
    page = parse("<title>Größe</title><a href='ü'>".encode("latin-1"), "text/html; charset=latin1")
    assert (page.title, page.encoding) == ("Größe", "windows-1252")
    assert urls(page) == ["https://example.com/docs/%C3%BC"]
    assert parse("\ufeff<title>x</title>".encode("utf-16-le")).title == "x"
    assert parse("<title>x</title>".encode("utf-16-le"), "text/html;charset=utf-16le").title == "x"


@pytest.mark.parametrize("body", [b"\x89PNG\r\n\x1a\n....", b"%PDF-1.4 ...", bytes(range(32)) * 40])
def test_binary_data_that_claims_to_be_html_is_a_named_error(body: bytes) -> None:
    """A body that is not text raises binary_content."""
    with pytest.raises(ParseError) as caught:
        parse(body)
    assert caught.value.code == "binary_content"


@pytest.mark.parametrize(
    "body", [b"", b"\0", b"<", b"<a href=", b"<!--", b"<title>", b"\xff" * 999, b"</a></html>" * 50]
)
def test_broken_pages_are_pages(body: bytes) -> None:
    """Every body that is not binary data gives a page, perhaps an empty one."""
    assert parse(body).links == []
    assert parse(body, "").links == []


def test_a_page_with_100_000_links_keeps_them_all() -> None:
    """Large pages work, in time that grows with their size."""
    page = parse("<ul>" + "".join(f"<li><a href='p{n}'>{n}</a></li>" for n in range(100_000)))
    assert len(page.links) == 100_000
    assert page.links[-1][0] == "https://example.com/docs/p99999"


@pytest.mark.parametrize("tag", ["<div>", "<ul><li>", "<b><div>", "<span><p>"])
def test_absurdly_deep_pages_are_flattened_and_keep_their_links(tag: str) -> None:
    """100,000 nested elements take lexbor alone half a minute; here they cost as much as text."""
    page = parse(f"<title>deep</title>{tag * 100_000}<a href=x>end</a>{'</div>' * 1000}")
    assert (page.title, urls(page)) == ("deep", ["https://example.com/docs/x"])


@pytest.mark.parametrize("tag", ["<div>", "<ul><li>", "<b><div>"])
@pytest.mark.parametrize("text_before", [0, 40_000])
def test_pages_below_the_size_of_a_whole_check_are_sampled(tag: str, text_before: int) -> None:
    """99 KB of nested elements took 1.8 s. A dense part is met wherever it is, and links stay."""
    nested = tag * ((98_000 - text_before) // len(tag))
    page = f"<title>deep</title>{'x' * text_before}{nested}<a href=x>end</a>"
    assert _may_be_deep(page.encode())
    assert _flattened(page.encode()).count(b"<div>") == 0
    parsed = parse(page)
    assert (parsed.title, urls(parsed)) == ("deep", ["https://example.com/docs/x"])


def test_ordinary_pages_are_not_looked_through() -> None:
    """Text with a tag every 17 bytes is left as it is."""
    assert not _may_be_deep(
        b"<p>a paragraph of words <a href=/x>with a link in it</a>, and more</p>" * 2_000
    )


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/html", b"", True),
        ("Text/HTML; charset=x", b"", True),
        ("application/xhtml+xml", b"", True),
        ("application/json", b"<html>", False),
        ("", b"\xef\xbb\xbf \n<!DOCTYPE html>", True),
        ("", b"<?xml version='1.0'?><html xmlns='x'>", True),
        ("", b"<?xml version='1.0'?><rss>", False),
        ("", b"hello", False),
    ],
)
def test_html_is_told_by_its_type_or_else_by_its_beginning(
    content_type: str, body: bytes, expected: bool
) -> None:
    """A type decides; only without one the body is looked at."""
    assert is_html(content_type, body) is expected


MANUALS = [
    Path("/usr/share/doc/postgresql-doc-15/html/index.html"),
    Path("/usr/share/doc/python3-dev/html/library/functions.html"),
]


@pytest.mark.parametrize("path", [path for path in MANUALS if path.exists()])
def test_real_pages_have_a_title_and_links_that_point_to_files(path: Path) -> None:
    """On real manuals each link within the folder is a file that is there."""
    page = parse(path.read_bytes(), "text/html", url=f"https://m.example{path.as_posix()}")
    assert page.title
    assert page.encoding == "utf-8"
    assert len(page.links) > 20
    inside = f"https://m.example{path.parent.as_posix()}/"
    local = [url.removeprefix("https://m.example") for url in urls(page) if url.startswith(inside)]
    assert len(local) > 10
    assert all(Path(name).exists() for name in local)


def test_a_parsed_page_cannot_be_changed() -> None:
    """Results are frozen: stages hand them on without copying."""
    with pytest.raises(AttributeError):
        parse("x").title = "y"  # type: ignore[misc]
