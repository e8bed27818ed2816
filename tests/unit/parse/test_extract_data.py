"""Extraction from data for machines: JSON-LD, OpenGraph, microdata, JSON, and main content."""

from __future__ import annotations

import json

import pytest

from tests.unit.extraction import URL, extract, item, read
from zcrawl.errors import ParseError


def test_an_object_of_json_ld_is_read_by_paths_of_its_own() -> None:
    """Inside of it `json` finds parts of it; a selector finds nothing there, and breaks nothing."""
    rules = """
[extract.fields.offer]
jsonld = "Product.offers"
[extract.fields.offer.fields]
price = { json = "price", type = "float" }
name = "h1"
all = { css = "p", list = true }
"""
    script = '{"@type": "Product", "offers": {"price": "9.50"}}'
    fields = item(rules, f"<h1>x</h1><script type='application/ld+json'>{script}</script>")
    assert fields["offer"] == {"price": 9.5, "name": None, "all": []}


STRUCTURED = """<head><meta property="og:title" content="T"><meta property="og:image" content="1">
<meta property="og:image" content="2"></head><body>
<script type="application/ld+json">{broken</script>
<script type="application/ld+json">{"@graph": [{"@type": ["Product", "Thing"],
 "offers": [{"price": "9.99"}, {"price": "8"}]}, {"@type": "Person", "name": "P"}]}</script>
<div itemscope itemtype="https://schema.org/Book"><span itemprop="name">B</span>
<a itemprop="url" href="/b">x</a><div itemprop="author" itemscope itemtype="x/Person">
<i itemprop="name">A</i></div><i itemprop="tag">t1</i><i itemprop="tag">t2</i></div>"""


def test_json_ld_opengraph_and_microdata_by_field_or_whole() -> None:
    """A broken script does not hide the others; types are named without their vocabulary."""
    job = """
[extract]
structured = ["opengraph", "microdata"]
[extract.fields]
price = { jsonld = "Product.offers[].price", type = "float" }
prices = { jsonld = "Product.offers[].price", type = "float", list = true }
person = { jsonld = "all[?\\"@type\\"=='Person'].name" }
title = { opengraph = "og:title" }
images = { opengraph = "og:image", list = true }
author = { microdata = "Book.author.name" }
"""
    fields = item(job, STRUCTURED)
    assert (fields["price"], fields["prices"], fields["person"]) == (9.99, [9.99, 8.0], "P")
    assert (fields["title"], fields["images"], fields["author"]) == ("T", ["1", "2"], "A")
    assert fields["opengraph"] == {"og:title": "T", "og:image": ["1", "2"]}
    book = fields["microdata"]["Book"]
    assert book["url"] == "http://shop.test/b"
    assert book["tag"] == ["t1", "t2"]
    assert book["author"] == {"@type": "x/Person", "name": "A"}


JSON = b'{"items": [{"id": 1, "n": {"x": "a"}}, {"id": "2", "n": null}], "next": "/p2"}'


def test_json_pages_are_read_by_paths() -> None:
    """One item per entry, links to follow, in UTF-8 or what the header says."""
    job = """
[extract]
item = { json = "items" }
follow = [{ json = "next" }]
[extract.fields]
id = { json = "id", type = "int" }
x = { json = "n.x" }
whole = { json = "n" }
css = "h1"
"""
    parsed_page = read(job, JSON, kind="application/json")
    assert parsed_page.extracted is not None
    assert [json.loads(text) for text in parsed_page.extracted.items] == [
        {"url": URL, "id": 1, "x": "a", "whole": {"x": "a"}, "css": None},
        {"url": URL, "id": 2, "x": None, "whole": None, "css": None},
    ]
    assert [url for url, _ in parsed_page.links] == ["http://shop.test/p2"]
    latin = '{"items": [{"n": {"x": "ä"}}]}'.encode("latin-1")
    assert item(job, latin, kind="application/json; charset=latin-1")["x"] == "ä"


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff\xfe\xfd", b"nul"])
def test_what_is_no_json_is_a_named_error(body: bytes) -> None:
    """Also when it nests a hundred thousand times."""
    with pytest.raises(ParseError) as caught:
        read('[extract]\nfields = { a = { json = "a" } }', body, kind="application/json")
    assert caught.value.code == "bad_json"


def test_main_content_is_taken_from_who_found_it() -> None:
    """Its failure is the field's failure."""
    job = (
        '[extract.fields]\nt = { main = true, type = "text" }\n'
        'm = { main = true, type = "markdown" }'
    )
    assert item(job, "<p>", main={"text": "T", "markdown": "# M"}) == {
        "url": URL,
        "t": "T",
        "m": "# M",
    }
    extracted = extract(job, "<p>", main={"error": "gone"})
    assert json.loads(extracted.problems[0])["errors"] == {"t": "gone", "m": "gone"}
