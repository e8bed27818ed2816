"""Where a page names its encoding, and what only looks like it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zcrawl.parse.charset import decode, encoding_of
from zcrawl.parse.encodings import header_encoding, meta_encoding, xml_encoding
from zcrawl.parse.meta_search import search_meta


@pytest.mark.parametrize(
    ("content_type", "name"),
    [
        ("text/html; charset=koi8-r", "koi8-r"),
        ('text/html;foo=bar ; Charset="koi8-r"', "koi8-r"),
        ('text/html; charset="koi8-\\r"', "koi8-r"),
        ("text/html; charset=koi8-r; charset=utf-8", "koi8-r"),
        ("text/html; charset=; charset=koi8-r", "koi8-r"),
        ("text/html; charset= koi8-r ", "koi8-r"),
        # the word within another word, within a value, or not as a parameter
        ("text/html; mycharset=koi8-r", None),
        ("text/html; x-charset=koi8-r", None),
        ('text/html; title="a; charset=koi8-r"', None),
        ('text/html; title="a; charset=koi8-r"; charset=utf-8', "utf-8"),
        ("text/html charset=koi8-r", None),
        ("charset=koi8-r", None),
        # spellings that are none
        ("text/html; charset = koi8-r", None),
        ("text/html; charset='koi8-r'", None),
        ('text/html; charset=""; charset=koi8-r', None),
        ("text/html; charset=no-such-thing", None),
        # lines that were joined: the last type counts, if it says something of its own
        ("text/html; charset=koi8-r, text/html", "koi8-r"),
        ("text/html; charset=koi8-r, text/plain", None),
        ("text/html; charset=koi8-r, text/html; charset=utf-8", "utf-8"),
        ("text/html; charset=koi8-r, nonsense", "koi8-r"),
        ("", None),
        ("\udcff;\0", None),
    ],
)
def test_the_header_is_read_by_its_parameters(content_type: str, name: str | None) -> None:
    """Only a parameter with the exact name charset counts; text in quotes is not a parameter."""
    assert header_encoding(content_type) == name


@pytest.mark.parametrize(
    ("markup", "name"),
    [
        ("<meta charset=koi8-r>", "koi8-r"),
        ("<meta\fcharset\n= 'koi8-r' />", "koi8-r"),
        ("<meta data-x='<p>' charset=koi8-r>", "koi8-r"),
        ("<meta charset='&#107;oi8-r'>", "koi8-r"),
        ("<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>", "koi8-r"),
        ("<meta content='charset=\"koi8-r\"' http-equiv=CONTENT-TYPE>", "koi8-r"),
        ("<meta content='charset; charset = koi8-r;x' http-equiv=content-type>", "koi8-r"),
        ("<svg><meta charset=koi8-r></svg>", "koi8-r"),
        ("<template><meta charset=koi8-r></template>", "koi8-r"),
        # a text that speaks of a charset declares none
        ("<meta name=description content='How to set charset=koi8-r'>", None),
        ("<meta content='text/html; charset=koi8-r'>", None),
        ("<meta http-equiv=refresh content='text/html; charset=koi8-r'>", None),
        ("<meta http-equiv='Content-Type ' content='charset=koi8-r'>", None),
        ("<meta data-charset=koi8-r>", None),
        ("<metadata charset=koi8-r>", None),
        ("<p charset=koi8-r>", None),
        ("</meta charset=koi8-r>", None),
        ("<meta charset=nonsense charset=koi8-r>", None),
        ("<meta charset='koi8-r>", None),
        ("<meta charset=koi8-r", None),
        # what is no tag for a browser
        ("<!-- <meta charset=koi8-r> -->", None),
        ("<script>'<meta charset=koi8-r>'</script>", None),
        ("<style><meta charset=koi8-r></style>", None),
        ("<title>How to <meta charset=koi8-r></title>", None),
        ("<textarea><meta charset=koi8-r></textarea>", None),
        ("<p title='<meta charset=koi8-r>'>", None),
        ("<!doctype x '<meta charset=koi8-r'>", None),
        ("<svg><![CDATA[<meta charset=koi8-r>]]></svg>", None),
        # and what is one after all
        ("<!--><meta charset=koi8-r>", "koi8-r"),
        ("<!-- --!><meta charset=koi8-r>", "koi8-r"),
        ("<title></title ><meta charset=koi8-r>", "koi8-r"),
        ("<script></scripts></script><meta charset=koi8-r>", "koi8-r"),
        ("< p title='><meta charset=koi8-r>", "koi8-r"),
        ("<meta charset=nonsense><meta charset=koi8-r>", "koi8-r"),
    ],
)
def test_a_meta_is_read_by_its_attributes(markup: str, name: str | None) -> None:
    """`charset`, or `content` together with http-equiv=content-type, of a tag that is one."""
    assert meta_encoding(markup.encode()) == name


LONG = "x" * 1_100


@pytest.mark.parametrize(
    ("before", "heard"),
    [
        ("", True),
        (f"<!-- {LONG} -->", True),
        (f"<html><head><script>{LONG}</script><link><style>{LONG}</style>", True),
        (f"<head></head>{' ' * 900}", True),
        (f"<head></head>{LONG}", False),
        (f"<p>{LONG}", False),
        (f"<template>{LONG}", False),
    ],
)
def test_behind_the_first_kilobyte_a_meta_counts_in_the_head(before: str, heard: bool) -> None:
    """As browsers look for it; the body of an ASCII page is not searched."""
    page = f"{before}<meta charset=koi8-r>".encode()
    assert meta_encoding(page) == ("koi8-r" if heard else None)
    assert meta_encoding(page, to_the_end=True) == "koi8-r"


def test_any_meta_is_better_than_a_guess() -> None:
    """For a page that is not UTF-8, a late declaration is used before a guess."""
    page = f"<body>{LONG}<meta charset=iso-8859-15>Preis: 5 € und mehr".encode("iso8859-15")
    assert decode(page, "text/html") == (page.decode("iso8859-15"), "iso-8859-15")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("<?xml version='1.0'?><p>é</p>".encode("utf-16-le"), "utf-16le"),
        ("<?xml version='1.0'?><p>é</p>".encode("utf-16-be"), "utf-16be"),
    ],
)
def test_utf_16_without_a_mark_is_seen_by_its_declaration(body: bytes, name: str) -> None:
    """The first bytes of an XML declaration tell the order of bytes."""
    assert encoding_of(body, "text/html") == name
    assert encoding_of(body, "text/html; charset=utf-8") == "utf-8"


@pytest.mark.parametrize(
    "piece",
    [
        "<a ", "<meta ", "<!--", "<a '", '<meta x="', "<script>", "</", "<![CDATA[", "=",
        "<meta charset", "<link>", "<meta charset a b c d>",
    ],
)  # fmt: skip
def test_no_page_takes_long(piece: str) -> None:
    """Time grows with the length and not with its square, whatever never closes."""
    body = piece.encode() * (2_000_000 // len(piece))
    began = time.process_time()
    meta_encoding(body, to_the_end=True)
    xml_encoding(b"<?xml " + body)
    header_encoding("text/html;" + piece * 10_000)
    assert time.process_time() - began < 2.0


PIECES = (
    "<?xml ?>", "<!DOCTYPE html>", "<html", " lang=", '"', "'", "en", ">", "\n", "\x0b", "<head>",
    "x", '<meta charset="koi8-r">', "<meta ", 'charset="utf-8"', "/>", "<title>", "<!--", "-->",
    ' http-equiv="Content-Type" ', 'content="text/html; charset=koi8-u"', '<META CHARSET="none" />',
)  # fmt: skip
HEADS = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)


@settings(deadline=None, max_examples=500)
@given(HEADS)
def test_the_short_way_for_usual_pages_changes_nothing(head: str) -> None:
    """What it finds is what a search finds, tag by tag."""
    assert meta_encoding(head.encode()) == search_meta(head.encode(), False)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["<meta", " charset", "=", '"', "'", ">", "koi8-r", "<!--", "-->", "&#x", "<svg>", "\0"]
        )
    ).map("".join)
    | st.text(max_size=80)
)
def test_nothing_raises(text: str) -> None:
    """G7: whatever a header or a page says."""
    header_encoding(text)
    meta_encoding(text.encode("utf-8", "replace"))
    xml_encoding(b"<?xml encoding=" + text.encode("utf-8", "replace"))
