"""Hostile pages and broken jobs: extraction stays within its bounds, and says what is wrong."""

from __future__ import annotations

import time

import pytest

from tests.unit.extraction import extract, item, plan_of
from zcrawl.errors import JobError


def test_a_catastrophic_pattern_takes_linear_time() -> None:
    """`(a+)+$` on many a's would keep a backtracking engine busy for centuries."""
    began = time.perf_counter()
    job = "[extract.fields]\nx = { css = 'p', re = '^(a+)+$' }\ny = { css = 'p', re = '(x+x+)+y' }"
    fields = item(job, "<p>" + "a" * 100_000 + "!" + "x" * 100_000)
    assert (fields["x"], fields["y"]) == (None, None)
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("jsonld = 'T.floor(to_number(x))'", '"1e999"'),
        ("jsonld = 'T.ceil(to_number(x))'", '"nan"'),
        ("jsonld = 'T.avg([x])'", "1" + "0" * 400),
        ("jsonld = 'T.x', type = 'date', format = '%d%d'", '"11"'),
    ],
)
def test_a_value_that_an_expression_cannot_calculate_is_a_problem_of_its_field(
    field: str, value: str
) -> None:
    """Any other error would fail the page, with all its links."""
    page = f'<script type="application/ld+json">{{"@type": "T", "x": {value}}}</script><h1>t</h1>'
    job = f"[extract.fields]\nbad = {{ {field} }}\ngood = 'h1'"
    fields = item(job, page)
    assert (fields["bad"], fields["good"]) == (None, "t")


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        ('[extract.fields]\na = "p[["', "bad_selector", "extract.fields.a.css"),
        ('[extract]\nitem = ":foo("\nfields = { a = "p" }', "bad_selector", "extract.item"),
        ("[extract.fields]\na = { css = 'p', re = '(' }", "bad_expression", "extract.fields.a.re"),
        ("[extract.fields]\na = { css = 'p', re = '(?=x)' }", "bad_expression", "look-around"),
        ("[extract.fields]\na = { json = 'a[' }", "bad_path", "extract.fields.a.json"),
        ('[extract]\nmatch = "("', "bad_expression", "extract.match"),
        ('[extract]\nfollow = ["a["]', "bad_selector", "extract.follow[1].css"),
    ],
)
def test_a_broken_selector_pattern_or_path_is_told_with_its_key(
    text: str, code: str, key: str
) -> None:
    """When the job is read, not page by page."""
    with pytest.raises(JobError) as caught:
        plan_of(text)
    assert caught.value.code == code
    assert key in str(caught.value)


def test_items_of_a_page_are_bounded_in_number_and_size() -> None:
    """What is above is set aside with its reason: a result must fit into a message."""
    job = '[extract]\nitem = "p"\nfields = { t = { type = "html" } }'
    extracted = extract(job, "<p>x</p>" * 10_050)
    assert len(extracted.items) == 10_000
    assert extracted.reasons == {"too_many_items": 1}
    extracted = extract(job, f"<p>{'y' * 999_900}</p>" * 6)
    assert len(extracted.items) == 4
    assert extracted.reasons == {"too_large": 2}


def test_items_that_are_set_aside_are_kept_all_of_them_within_the_page_limit() -> None:
    """A thousand broken items on one page are a thousand reports; megabytes are only counted."""
    job = (
        '[extract]\nitem = "p"\n[extract.fields]\nt = { type = "html" }\n'
        'x = { css = "b", required = true }'
    )
    extracted = extract(job, "<p>x</p>" * 1_000)
    assert len(extracted.rejected) == 1_000
    assert extracted.reasons == {"required: x": 1_000}
    extracted = extract(job, f"<p>{'y' * 999_900}</p>" * 12)
    assert sum(extracted.reasons.values()) == 12
    assert sum(map(len, extracted.rejected)) < 8_000_000


def test_bytes_that_are_no_text_do_no_harm() -> None:
    """Wrong encodings, zeros and lone surrogates become something that every store takes."""
    body = b"<h1>a\x00b\xff\xfe \xed\xa0\x80</h1><i data-x='\\ud800'>"
    fields = item("[extract.fields]\nt = 'h1'\nx = { css = 'i', attr = 'data-x' }", body)
    assert "\0" not in fields["t"]
    assert fields["t"].encode()


def test_absurdly_nested_pages_are_read_within_bounds() -> None:
    """Nesting that would exhaust a recursion is walked, or flattened by the parser's guard."""
    job = (
        '[extract.fields]\nt = { css = "body", type = "text" }\n'
        'm = { css = "body", type = "markdown" }'
    )
    fields = item(job, "<div>" * 900 + "deep" + "<ul><li>" * 400 + "deeper")
    assert "deep" in fields["t"]
    assert "deeper" in fields["m"]
    scopes = "<div itemprop=a itemscope>" * 500
    assert (
        item('[extract]\nstructured = ["microdata"]', f"<div itemscope>{scopes}x")["microdata"]
        == {}
    )
