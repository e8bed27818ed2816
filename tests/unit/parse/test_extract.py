"""Extraction: fields, items, blocks and links."""

from __future__ import annotations

import json

from tests.unit.extraction import PAGE, URL, extract, item, items, read


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
    assert [(article["name"], article["link"]) for article in items(job, PAGE)] == [
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
    fields = item(job, PAGE)
    assert fields["head"] == {"title": "The Title", "price": "EUR 1.234,50"}
    assert [article["name"] for article in fields["articles"]] == ["First", "Second"]
    assert fields["articles"][1]["text"] == "Second no number"
    assert fields["nothing"] is None


def test_defaults_fill_in_and_do_not_count_as_filled() -> None:
    """The fill rate counts values of the pages, not defaults of the job."""
    extracted = extract(
        '[extract.fields]\na = { css = ".a", default = 5 }\nb = "h1"\n'
        'c = { css = "h1", type = "int" }',
        PAGE,
    )
    assert json.loads(extracted.items[0]) == {"url": URL, "a": 5, "b": "The Title", "c": None}
    assert extracted.fields == {"a": [0, 1, 0], "b": [1, 0, 0], "c": [0, 0, 1]}


def test_a_field_that_fails_is_reported_with_its_page_and_its_reason() -> None:
    """The item is kept, although one field has failed."""
    extracted = extract(
        '[extract.fields]\nn = { css = "li:nth-child(3)", type = "int" }\nt = "h1"', PAGE
    )
    (report,) = map(json.loads, extracted.problems)
    assert report["url"] == URL
    assert report["errors"] == {"n": "not a number: 'three'"}
    assert len(extracted.items) == 1
    assert not extracted.rejected


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
    entries = items(rules, body)
    assert [(entry["text"], entry["number"]) for entry in entries] == [
        ("one", 1),
        ("two", 2),
        (None, None),
    ]
    assert [entry["link"] for entry in entries][:2] == [
        "http://shop.test/a/1",
        "http://shop.test/a/2",
    ]
    assert entries[2]["link"] is None


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
    """By URL, by selector, by block."""
    assert extract(BLOCKS, PAGE, url="http://shop.test/list").items == []
    assert len(extract(BLOCKS, PAGE).items) == 1
    assert len(extract(BLOCKS, PAGE, url="http://shop.test/list", block="detail").items) == 1
    assert read(BLOCKS, "<p>nothing").extracted is None


def test_followed_links_carry_the_block_they_go_to() -> None:
    """A rule may name elements around links; nofollow is obeyed; other links are left."""
    parsed_page = read(BLOCKS, PAGE, url="http://shop.test/list")
    keys = {key: url for url, key in parsed_page.links}
    assert [url for url, _ in parsed_page.links] == [
        "http://shop.test/1",
        "http://shop.test/base/?p=2",
    ]
    assert parsed_page.extracted is not None
    named = {block: [keys[key] for key in of] for block, of in parsed_page.extracted.blocks.items()}
    assert named == {"detail": ["http://shop.test/1"], "list": ["http://shop.test/base/?p=2"]}


def test_without_follow_all_links_are_followed_and_with_none_no_link_is() -> None:
    """`follow = []` is the end of the way."""
    assert len(read('[extract]\nfields = { t = "h1" }', PAGE).links) == 2
    assert read('[extract]\nfields = { t = "h1" }\nfollow = []', PAGE).links == []
    by_pattern = '[extract]\nfields = { t = "h1" }\nfollow = [{ re = "p=2$" }]'
    assert [url for url, _ in read(by_pattern, PAGE).links] == ["http://shop.test/base/?p=2"]
    nofollow = "<meta name=robots content=nofollow><a href=/x>x</a>"
    assert read('[extract]\nfollow = ["a"]', nofollow).links == []


def test_paging_links_are_named_whichever_rule_names_them_first() -> None:
    """They are followed without adding depth; a rule before theirs changes nothing of that."""
    job = """[extract]
    fields = { t = "h1" }
    follow = ["a", { css = "a.next", paging = true }]"""
    parsed_page = read(job, PAGE)
    assert parsed_page.extracted is not None
    keys = dict(parsed_page.links)
    assert parsed_page.extracted.paging == [keys["http://shop.test/base/?p=2"]]
    assert extract('[extract]\nfields = { t = "h1" }\nfollow = ["a.next"]', PAGE).paging == []


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
    parsed_page = read(job, page)
    assert parsed_page.extracted is not None
    keys = {key: url for url, key in parsed_page.links}
    named = {block: [keys[key] for key in of] for block, of in parsed_page.extracted.blocks.items()}
    assert named == {"a": ["http://shop.test/1"], "b": ["http://shop.test/2"]}


def test_no_field_glues_words_at_tags_that_separate_them() -> None:
    """`str`, a pattern on it, list fields and microdata: cells and lines are separate words."""
    page = """<div itemscope itemtype="https://schema.org/Shop">
<p itemprop=name>Old<br>Mill</p></div>
<table><tr><td>Weight</td><td>12 kg</td></tr></table><ul><li>a<br>b</li><li>c<i>d</i></li></ul>"""
    job = r"""
[extract.fields]
row = "table"
weight = { css = "table", re = 'Weight (\d+)', type = "int" }
lines = { css = "li", list = true }
name = { microdata = "Shop.name" }
"""
    fields = item(job, page)
    assert (fields["row"], fields["weight"]) == ("Weight 12 kg", 12)
    assert (fields["lines"], fields["name"]) == (["a b", "cd"], "Old Mill")
