"""Values of types: what pages say and what becomes of it."""

from __future__ import annotations

import ada_url
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.parse.extract.types import FieldProblem, to_bool, to_date, to_float, to_int, to_url


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("12.50", "", 12.5),
        ("12,50 €", "", 12.5),
        ("$1,234.56", "", 1234.56),
        ("1.234,56 EUR", "", 1234.56),
        ("1,234", "", 1234.0),
        ("1,234", ",", 1.234),
        ("1.234", "", 1.234),
        ("1.234", ",", 1234.0),
        ("1.234.567", "", 1234567.0),
        ("1 234,5", "", 1234.5),
        ("1’234.5", "", 1234.5),
        ("about −3.5 degrees", "", -3.5),
        ("from 10. to 20", "", 10.0),
        ("6.02e23", "", 6.02e23),
        (".5", "", 0.5),
        (7, "", 7.0),
    ],
)
def test_a_number_is_read_as_people_write_it(text: object, decimal: str, number: float) -> None:
    """Separators of thousands and decimals are recognised from the text, or set by the job."""
    assert to_float(text, decimal) == number


@pytest.mark.parametrize(
    "text", ["", "call us", "-", "9" * 400, 10**400, "1e999", None, True, [1], {"a": 1}]
)
def test_what_is_no_number_is_a_problem_and_not_zero(text: object) -> None:
    """Also numbers that no store can take."""
    with pytest.raises(FieldProblem):
        to_float(text)


def test_whole_numbers_are_whole_and_fit_into_every_store() -> None:
    """A fraction is not cut off; more than 64 bits are refused."""
    assert to_int("1,234 items") == 1234
    assert to_int(" 9223372036854775807 ") == 2**63 - 1
    assert to_int(3.0) == 3
    for text in ("3.5", "9223372036854775808", "9" * 5000, 2**70, float("inf"), "none", None):
        with pytest.raises(FieldProblem):
            to_int(text)


def test_yes_and_no_in_the_words_of_forms_and_data() -> None:
    """An attribute without a value is a yes; other words are a problem."""
    assert [to_bool(word) for word in ("Yes", "true", "1", "on", "", True, 1)] == [True] * 7
    assert [to_bool(word) for word in ("no", "FALSE", "0", False, 0)] == [False] * 5
    for word in ("maybe", 2, None):
        with pytest.raises(FieldProblem):
            to_bool(word)


@pytest.mark.parametrize(
    ("text", "format", "date"),
    [
        ("2026-01-31", "", "2026-01-31"),
        ("2026-01-31T10:00:00Z", "", "2026-01-31T10:00:00+00:00"),
        ("2026-01-31 10:00", "", "2026-01-31T10:00:00"),
        ("Sat, 31 Jan 2026 10:00:00 +0100", "", "2026-01-31T10:00:00+01:00"),
        ("31.01.2026", "%d.%m.%Y", "2026-01-31"),
        ("31.01.2026 10:30", "%d.%m.%Y %H:%M", "2026-01-31T10:30:00"),
        (1769853600, "", "2026-01-31T10:00:00+00:00"),
    ],
)
def test_dates_become_iso_8601(text: object, format: str, date: str) -> None:
    """What machines write is known, what people write needs a format."""
    assert to_date(text, format) == date


@pytest.mark.parametrize("text", ["soon", "31.01.2026", "", "9" * 1000, 1e30, None, True])
def test_what_is_no_date_is_a_problem(text: object) -> None:
    """`31.01.2026` could be read in two ways, so it is not guessed."""
    with pytest.raises(FieldProblem):
        to_date(text)


def test_urls_are_resolved_as_a_browser_does() -> None:
    """URLs are resolved against the page; an invalid URL is a problem of the field."""
    assert to_url("../b.png", "http://h.test/a/c/") == "http://h.test/a/b.png"
    assert to_url("//cdn.test/x", "https://h.test/") == "https://cdn.test/x"
    for bad in ("http://[", None, 3):
        with pytest.raises(FieldProblem):
            to_url(bad, "http://h.test/")


PIECES = st.sampled_from(
    [
        "a",
        "B.c",
        "x-1.png",
        "..",
        ".",
        "",
        "//",
        "/",
        "?q=1",
        "#f",
        "%20",
        "é",
        ":",
        "http:",
        "~u",
        ".x",
    ]
)
BASES = st.sampled_from(
    [
        "http://h.test/",
        "https://a.b-c.test/d/e",
        "http://h.test/d/?x=/y/z",
        "http://h.test/d/e/#/f/",
        "http://h.test:81/d/",
        "http://127.0.0.1/d/",
        "https://xn--bcher-kva.test/%C3%A9/x",
    ]
)


@given(st.lists(PIECES, max_size=6).map("".join), BASES)
def test_short_ways_to_a_url_lead_to_the_same_place(reference: str, base: str) -> None:
    """References that need no library mean what the library says they mean."""
    try:
        expected = ada_url.join_url(base, reference.strip())
    except ValueError:
        with pytest.raises(FieldProblem):
            to_url(reference, base)
        return
    assert to_url(reference, base) == expected


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("1700000000", "2023-11-14T22:13:20+00:00"),
        (" 1700000000\n", "2023-11-14T22:13:20+00:00"),
        ("1700000000.25", "2023-11-14T22:13:20.250000+00:00"),
        ("1700000000000", "2023-11-14T22:13:20+00:00"),
        ("1712011500001", "2024-04-01T22:45:00.001000+00:00"),  # its digits look like a day of 1712
        (1700000000, "2023-11-14T22:13:20+00:00"),
        (1700000000000, "2023-11-14T22:13:20+00:00"),
        ("2026-01-31", "2026-01-31"),
        ("20260131", "2026-01-31"),
        ("2026-01-31T10:00:00+01:00", "2026-01-31T10:00:00+01:00"),
        ("Sat, 31 Jan 2026 10:00:00 +0100", "2026-01-31T10:00:00+01:00"),  # feeds
        ("Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37+00:00"),  # headers, three forms
        ("Sunday, 06-Nov-94 08:49:37 GMT", "1994-11-06T08:49:37+00:00"),
        ("Sun Nov  6 08:49:37 1994", "1994-11-06T08:49:37"),
    ],
)
def test_dates_that_need_no_format(text: object, date: str) -> None:
    """Each form that docs/extraction.md promises, UNIX times as text too."""
    assert to_date(text) == date


@pytest.mark.parametrize("text", ["170000000", "17000000000", "12", "٣٣٣٣٣٣٣٣٣٣", "9" * 14, "1e9"])
def test_other_digits_are_no_date(text: str) -> None:
    """A number that could be anything is a problem, not a date of 1970."""
    with pytest.raises(FieldProblem):
        to_date(text)
