"""Extraction: fields, items, blocks, links, and what becomes of pages that do not play along."""

from __future__ import annotations

import json
import time

import pytest

from tests.unit.extraction import URL, extract, item, items, plan_of, read
from zcrawl.errors import JobError, ParseError

PAGE = """<html><head><base href="/base/"><title> A  page </title></head><body>
<h1> The <b>Title</b> </h1><p class=price>EUR 1.234,50</p><img src="i.png" alt="">
<ul><li data-n=1>one</li><li data-n=2>two</li><li data-n=x>three</li></ul>
<article><h2>First</h2><a href="/1">more</a><p>SKU 11-22</p></article>
<article><h2>Second</h2><p>no number</p></article>
<a rel="nofollow" href="/no">no</a><a class=next href="?p=2">next</a></body></html>"""


def test_fields_come_from_texts_attributes_and_patterns() -> None:
    """A string is the text of the first match, with its spaces made one."""
    fields = """
[extract.fields]
title = "h1"
price = { css = ".price", type = "float" }
image = { css = "img", attr = "src", type = "url" }
currency = { css = ".price", re = '([A-Z]{3})' }
numbers = { css = "li", attr = "data-n", list = true }
skus = { css = "article p", re = '\\d+', type = "int", list = true }
status = { page = "status", type = "int" }
page = { page = "title" }
"""
    assert item(fields, PAGE) == {
        "url": URL,
        "title": "The Title",
        "price": 1234.5,
        "image": "http://shop.test/base/i.png",
        "currency": "EUR",
        "numbers": ["1", "2", "x"],
        "skus": [11, 22],
        "status": 200,
        "page": "A page",
    }


def test_one_item_per_match_and_fields_are_looked_for_within_it() -> None:
    """What stands in another item does not count."""
    job = (
        '[extract]\nitem = "article"\nfields = { name = "h2", link = { css = "a", attr = "href" } }'
    )
    assert [(one["name"], one["link"]) for one in items(job, PAGE)] == [
        ("First", "/1"),
        ("Second", None),
    ]


def test_objects_and_lists_of_objects_nest() -> None:
    """A field without a source inside of another is the element itself."""
    job = """
[extract.fields]
head = { css = "body", fields = { title = "h1", price = { css = ".price" } } }
articles = { css = "article", list = true, fields = { name = "h2", text = {} } }
nothing = { css = ".none", fields = { a = "b" } }
"""
    found = item(job, PAGE)
    assert found["head"] == {"title": "The Title", "price": "EUR 1.234,50"}
    assert [one["name"] for one in found["articles"]] == ["First", "Second"]
    assert found["articles"][1]["text"] == "Secondno number"
    assert found["nothing"] is None


def test_defaults_fill_in_and_do_not_count_as_filled() -> None:
    """The fill rate tells what the pages say, not what the job says."""
    found = extract(
        '[extract.fields]\na = { css = ".a", default = 5 }\nb = "h1"\n'
        'c = { css = "h1", type = "int" }',
        PAGE,
    )
    assert json.loads(found.items[0]) == {"url": URL, "a": 5, "b": "The Title", "c": None}
    assert found.fields == {"a": [0, 1, 0], "b": [1, 0, 0], "c": [0, 0, 1]}


def test_a_field_that_fails_is_reported_with_its_page_and_its_reason() -> None:
    """The item is kept: one bad price is no reason to lose the rest."""
    found = extract(
        '[extract.fields]\nn = { css = "li:nth-child(3)", type = "int" }\nt = "h1"', PAGE
    )
    (report,) = map(json.loads, found.problems)
    assert report["url"] == URL and report["errors"] == {"n": "no number: 'three'"}
    assert len(found.items) == 1 and not found.rejected


def test_an_item_without_a_required_field_is_set_aside_with_the_reason() -> None:
    """Also when the field is inside of another; the item itself is in the report."""
    job = (
        '[extract]\nitem = "article"\n[extract.fields]\nname = "h2"\n'
        'link = { css = "a", required = true }'
    )
    found = extract(job, PAGE)
    assert len(found.items) == 1
    (report,) = map(json.loads, found.rejected)
    assert report["reason"] == "required: link" and report["item"]["name"] == "Second"
    assert found.reasons == {"required: link": 1}
    nested = (
        '[extract.fields]\no = { css = "ul", fields = { x = { css = ".x", required = true } } }'
    )
    assert extract(nested, PAGE).reasons == {"required: o.x": 1}


def test_an_item_that_breaks_the_schema_is_set_aside() -> None:
    """With where it breaks it; the value itself is not part of what is counted."""
    job = """
[extract]
item = "li"
[extract.fields]
n = { attr = "data-n" }
[extract.schema]
required = ["n"]
[extract.schema.properties]
n = { enum = ["1", "2"] }
"""
    found = extract(job, PAGE)
    assert len(found.items) == 2
    assert found.reasons == {"schema: n": 1}
    assert "x" in json.loads(found.rejected[0])["errors"]["n"]


SCHEMA = """
[extract]
fields = { a = { css = "p", type = "int" }, tags = { css = "i", list = true } }
[extract.schema]
additionalProperties = false
[extract.schema.properties]
"""


@pytest.mark.parametrize(
    ("schema", "body", "reason"),
    [
        ("url = {}\ntags = {}\na = { type = 'integer', minimum = 5 }", "<p>4", "schema: a"),
        ("url = {}\ntags = {}\na = { type = 'integer', minimum = 5 }", "<p>5", None),
        ("url = {}\ntags = {}\na = { type = 'integer' }", "", None),  # not required: may be null
        ("url = {}\ntags = {}\na = { type = 'string' }", "<p>4", "schema: a"),
        ("url = {}\ntags = {}\na = { type = ['string', 'integer'] }", "<p>4", None),
        ("url = {}\ntags = {}", "<p>4", "schema: item"),  # `a` is one too many
        ("url = {}\na = {}\ntags = { type = 'array', minItems = 2 }", "<i>x", "schema: tags"),
        ("url = {}\na = {}\ntags = { items = { maxLength = 1 } , type = 'array' }", "", "JobError"),
        (
            "url = {}\na = {}\ntags = { items = { type = 'string', maxLength = 1 } }",
            "<i>xy",
            "tags",
        ),
    ],
)
def test_the_schema_knows_types_limits_and_closed_objects(
    schema: str, body: str, reason: str | None
) -> None:
    """A keyword that does not belong to a type, or to this version, is refused, not ignored."""
    if reason == "JobError":
        with pytest.raises(JobError, match="maxLength"):
            plan_of(SCHEMA + schema)
        return
    found = extract(SCHEMA + schema, body)
    if reason is None:
        assert not found.rejected and found.items
    else:
        assert any(reason in one for one in found.reasons), found


def test_the_jobs_schema_holds_for_blocks_without_one_of_their_own() -> None:
    """A block that has one is held to that alone."""
    blocks = """
[schema]
required = ["a"]
[schema.properties]
a = { enum = ["1"] }
[[extract]]
match = "/a/"
fields = { a = "p" }
[[extract]]
fields = { a = "p" }
[extract.schema.properties]
a = { enum = ["2"] }
"""
    assert extract(blocks, "<p>2").reasons == {"schema: a": 1}
    assert extract(blocks, "<p>1").items
    other = "http://shop.test/b"
    assert extract(blocks, "<p>1", url=other).reasons == {"schema: a": 1}
    assert extract(blocks, "<p>2", url=other).items


def test_fields_with_one_selector_each_read_their_own_item() -> None:
    """The element is looked for once per item and shared by its fields, never by two items."""
    rules = """
[extract]
item = "li"
[extract.fields]
text = "a"
link = { css = "a", attr = "href", type = "url" }
number = { css = "a", attr = "data-n", type = "int" }
"""
    body = "<ul><li><a href=1 data-n=1>one</a><li><a href=2 data-n=2>two</a><li>none</ul>"
    found = items(rules, body)
    assert [(one["text"], one["number"]) for one in found] == [("one", 1), ("two", 2), (None, None)]
    assert [one["link"] for one in found][:2] == ["http://shop.test/a/1", "http://shop.test/a/2"]
    assert found[2]["link"] is None


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
    found = item(rules, f"<h1>x</h1><script type='application/ld+json'>{script}</script>")
    assert found["offer"] == {"price": 9.5, "name": None, "all": []}


@pytest.mark.parametrize(
    "keyword", ["pattern = 'x'", "'$ref' = '#/a'", "anyOf = []", "format = 'a'"]
)
def test_schema_keywords_that_would_not_be_checked_are_refused(keyword: str) -> None:
    """Silence would be a promise."""
    job = (
        "[extract]\nfields = { a = 'p' }\n[extract.schema.properties]\n"
        f"a = {{ type = 'string', {keyword} }}"
    )
    with pytest.raises(JobError, match="not supported"):
        plan_of(job)


# ---------------------------------------------------------------- blocks and links

BLOCKS = """
[[extract]]
name = "list"
match = '/list'
follow = [{ css = "article", to = "detail" }, { css = "a.next", to = "list" }]
[[extract]]
name = "detail"
match = { css = "h1" }
fields = { title = "h1" }
"""


def test_the_first_block_that_matches_reads_a_page_unless_its_link_named_one() -> None:
    """By URL, by selector, by label."""
    assert extract(BLOCKS, PAGE, url="http://shop.test/list").items == []
    assert len(extract(BLOCKS, PAGE).items) == 1
    assert len(extract(BLOCKS, PAGE, url="http://shop.test/list", label="detail").items) == 1
    assert read(BLOCKS, "<p>nothing").extracted is None


def test_followed_links_carry_the_block_they_go_to() -> None:
    """A rule may name elements around links; nofollow is obeyed; other links are left."""
    found = read(BLOCKS, PAGE, url="http://shop.test/list")
    keys = {key: url for url, key in found.links}
    assert [url for url, _ in found.links] == ["http://shop.test/1", "http://shop.test/base/?p=2"]
    assert found.extracted is not None
    named = {label: [keys[key] for key in of] for label, of in found.extracted.labels.items()}
    assert named == {"detail": ["http://shop.test/1"], "list": ["http://shop.test/base/?p=2"]}


def test_without_follow_all_links_are_followed_and_with_none_no_link_is() -> None:
    """`follow = []` is the end of the way."""
    assert len(read('[extract]\nfields = { t = "h1" }', PAGE).links) == 2
    assert read('[extract]\nfields = { t = "h1" }\nfollow = []', PAGE).links == []
    by_pattern = '[extract]\nfields = { t = "h1" }\nfollow = [{ re = "p=2$" }]'
    assert [url for url, _ in read(by_pattern, PAGE).links] == ["http://shop.test/base/?p=2"]
    nofollow = "<meta name=robots content=nofollow><a href=/x>x</a>"
    assert read('[extract]\nfollow = ["a"]', nofollow).links == []


# ---------------------------------------------------------------- data for machines

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
    found = item(job, STRUCTURED)
    assert (found["price"], found["prices"], found["person"]) == (9.99, [9.99, 8.0], "P")
    assert (found["title"], found["images"], found["author"]) == ("T", ["1", "2"], "A")
    assert found["opengraph"] == {"og:title": "T", "og:image": ["1", "2"]}
    book = found["microdata"]["Book"]
    assert book["url"] == "http://shop.test/b" and book["tag"] == ["t1", "t2"]
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
    found = read(job, JSON, kind="application/json")
    assert found.extracted is not None
    assert [json.loads(one) for one in found.extracted.items] == [
        {"url": URL, "id": 1, "x": "a", "whole": {"x": "a"}, "css": None},
        {"url": URL, "id": 2, "x": None, "whole": None, "css": None},
    ]
    assert [url for url, _ in found.links] == ["http://shop.test/p2"]
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
    found = extract(job, "<p>", main={"error": "gone"})
    assert json.loads(found.problems[0])["errors"] == {"t": "gone", "m": "gone"}


# ---------------------------------------------------------------- hostile pages and jobs


def test_a_catastrophic_pattern_takes_linear_time() -> None:
    """`(a+)+$` on many a's would keep a backtracking engine busy for centuries."""
    began = time.perf_counter()
    job = "[extract.fields]\nx = { css = 'p', re = '^(a+)+$' }\ny = { css = 'p', re = '(x+x+)+y' }"
    found = item(job, "<p>" + "a" * 100_000 + "!" + "x" * 100_000)
    assert (found["x"], found["y"]) == (None, None)
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        ('[extract.fields]\na = "p[["', "bad_selector", "extract.fields.a.css"),
        ('[extract]\nitem = ":foo("\nfields = { a = "p" }', "bad_selector", "extract.item"),
        ("[extract.fields]\na = { css = 'p', re = '(' }", "bad_pattern", "extract.fields.a.re"),
        ("[extract.fields]\na = { css = 'p', re = '(?=x)' }", "bad_pattern", "look-around"),
        ("[extract.fields]\na = { json = 'a[' }", "bad_path", "extract.fields.a.json"),
        ('[extract]\nmatch = "("', "bad_pattern", "extract.match"),
        ('[extract]\nfollow = ["a["]', "bad_selector", "extract.follow[1].css"),
    ],
)
def test_a_broken_selector_pattern_or_path_is_told_with_its_key(
    text: str, code: str, key: str
) -> None:
    """When the job is read, not page by page."""
    with pytest.raises(JobError) as caught:
        plan_of(text)
    assert caught.value.code == code and key in str(caught.value)


def test_items_of_a_page_are_bounded_in_number_and_size() -> None:
    """What is above is set aside with its reason: a result must fit into a message."""
    job = '[extract]\nitem = "p"\nfields = { t = { type = "html" } }'
    found = extract(job, "<p>x</p>" * 10_050)
    assert len(found.items) == 10_000 and found.reasons == {"too_many_items": 1}
    found = extract(job, f"<p>{'y' * 999_900}</p>" * 6)
    assert len(found.items) == 4 and found.reasons == {"too_large": 2}


def test_items_that_are_set_aside_are_kept_all_of_them_within_the_page_limit() -> None:
    """A thousand broken items on one page are a thousand reports; megabytes are only counted."""
    job = (
        '[extract]\nitem = "p"\n[extract.fields]\nt = { type = "html" }\n'
        'x = { css = "b", required = true }'
    )
    found = extract(job, "<p>x</p>" * 1_000)
    assert len(found.rejected) == 1_000 and found.reasons == {"required: x": 1_000}
    found = extract(job, f"<p>{'y' * 999_900}</p>" * 12)
    assert sum(found.reasons.values()) == 12
    assert sum(map(len, found.rejected)) < 8_000_000


def test_bytes_that_are_no_text_do_no_harm() -> None:
    """Wrong encodings, zeros and lone surrogates become something that every store takes."""
    body = b"<h1>a\x00b\xff\xfe \xed\xa0\x80</h1><i data-x='\\ud800'>"
    found = item("[extract.fields]\nt = 'h1'\nx = { css = 'i', attr = 'data-x' }", body)
    assert "\0" not in found["t"] and found["t"].encode()


def test_absurdly_nested_pages_are_read_within_bounds() -> None:
    """Nesting that would exhaust a recursion is walked, or flattened by the parser's guard."""
    job = (
        '[extract.fields]\nt = { css = "body", type = "text" }\n'
        'm = { css = "body", type = "markdown" }'
    )
    found = item(job, "<div>" * 900 + "deep" + "<ul><li>" * 400 + "deeper")
    assert "deep" in found["t"] and "deeper" in found["m"]
    scopes = "<div itemprop=a itemscope>" * 500
    assert (
        item('[extract]\nstructured = ["microdata"]', f"<div itemscope>{scopes}x")["microdata"]
        == {}
    )


def test_the_first_rule_that_names_a_link_decides_and_nofollow_is_obeyed() -> None:
    """A link goes to one block; one that its page disowns goes nowhere."""
    job = """
[[extract]]
name = "a"
follow = [{ css = "a.x", to = "a" }, { css = "a", to = "b" }]
[[extract]]
name = "b"
"""
    page = "<a class=x href=/1>1</a><a href=/2>2</a><a rel='nofollow' href=/3>3</a>"
    found = read(job, page)
    assert found.extracted is not None
    keys = {key: url for url, key in found.links}
    named = {label: [keys[key] for key in of] for label, of in found.extracted.labels.items()}
    assert named == {"a": ["http://shop.test/1"], "b": ["http://shop.test/2"]}
