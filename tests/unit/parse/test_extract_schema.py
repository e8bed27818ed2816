"""Schemas and required fields: which items are set aside, and with which reason."""

from __future__ import annotations

import json

import pytest

from tests.unit.extraction import PAGE, extract, plan_of
from zcrawl.errors import JobError
from zcrawl.parse.extract.item_schema import MOST_SHOWN, describe


def test_an_item_without_a_required_field_is_set_aside_with_the_reason() -> None:
    """Also when the field is inside of another; the item itself is in the report."""
    job = (
        '[extract]\nitem = "article"\n[extract.fields]\nname = "h2"\n'
        'link = { css = "a", required = true }'
    )
    extracted = extract(job, PAGE)
    assert len(extracted.items) == 1
    (report,) = map(json.loads, extracted.rejected)
    assert report["reason"] == "required: link"
    assert report["item"]["name"] == "Second"
    assert extracted.reasons == {"required: link": 1}
    nested = (
        '[extract.fields]\no = { css = "ul", fields = { x = { css = ".x", required = true } } }'
    )
    assert extract(nested, PAGE).reasons == {"required: o.x": 1}


def test_an_item_that_breaks_the_schema_is_set_aside() -> None:
    """The reason names the field that breaks the schema, but not its value."""
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
    extracted = extract(job, PAGE)
    assert len(extracted.items) == 2
    assert extracted.reasons == {"schema: n": 1}
    assert "x" in json.loads(extracted.rejected[0])["errors"]["n"]


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
    extracted = extract(SCHEMA + schema, body)
    if reason is None:
        assert not extracted.rejected
        assert extracted.items
    else:
        assert any(reason in full_reason for full_reason in extracted.reasons), extracted


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


@pytest.mark.parametrize(
    ("item", "where", "text"),
    [
        ({"n": "x"}, "n", 'n is "x": why'),
        ({"n": None}, "n", "n: why"),
        ({}, "shop.n", "shop.n: why"),
        ({"n": [1, {"a": 2}]}, "n[1].a", 'n is [1,{"a":2}]: why'),
        ({"a.b": 3}, "a.b", "a.b is 3: why"),
        ({"n": 1}, "item", "why"),
        ({"n": "x" * 1_000_000}, "n", f'n is "{"x" * (MOST_SHOWN - 1)}…: why'),
    ],
)
def test_an_example_names_the_field_its_value_and_why(
    item: dict[str, object], where: str, text: str
) -> None:
    """The value is cut short; a field without one is only named."""
    assert describe(item, where, "why") == text


def test_the_first_item_of_each_reason_is_the_example() -> None:
    """By a schema or a required field."""
    job = """
[extract]
item = "li"
[extract.fields]
n = { attr = "data-n" }
[extract.schema.properties]
n = { enum = ["0"] }
"""
    extracted = extract(job, PAGE)
    assert list(extracted.examples) == ["schema: n"]
    assert len(extracted.rejected) > 1
    assert extracted.examples["schema: n"].startswith('n is "1": ')
    lacking = '[extract.fields]\nt = { css = ".none", required = true }'
    assert extract(lacking, PAGE).examples == {"required: t": "t: it has no value"}
