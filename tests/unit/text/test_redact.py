"""The values of secrets are removed from texts, in the forms in which they come back."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from zcrawl.text.redact import Redactor

VALUE = 'hunter2 "ü"/+'


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        json.dumps({"key": VALUE}),
        json.dumps({"key": VALUE}, ensure_ascii=False),
        f"http://x/?q={quote(VALUE, safe='')}",
        "http://x/?q=" + quote(VALUE, safe="").replace("%20", "+"),
        "Basic " + base64.b64encode(VALUE.encode()).decode(),
    ],
)
def test_a_value_is_removed_in_every_form(text: str) -> None:
    """As it is, as JSON, in a URL and in base64; in texts and in bytes."""
    redactor = Redactor({"PW": VALUE})
    assert "hunter2" not in redactor.text(text)
    assert "${PW}" in redactor.text(text)
    assert redactor.data(b"\xff" + text.encode()) == b"\xff" + redactor.text(text).encode()


def test_a_longer_value_goes_first_and_a_short_one_stays() -> None:
    """A value may contain another one; values of fewer than 4 characters are ordinary text."""
    redactor = Redactor({"A": "abcd", "B": "abcdefgh", "C": "1"})
    assert redactor.text("abcdefgh abcd 1") == "${B} ${A} 1"
    assert Redactor({}).longest == 0
    assert redactor.longest >= 8


def test_a_piece_shows_no_part_of_a_value_at_its_edges() -> None:
    """A value that an edge cuts in two is found in neither half."""
    redactor = Redactor({"PW": "abcdefgh"})
    whole = b"." * 50 + b"abcdefgh" + b"." * 50
    for cut in range(45, 65):
        shown = redactor.piece(whole[:cut], cut_after=True)
        shown += redactor.piece(whole[cut:], cut_before=True)
        assert not set(b"abcdefgh") & set(shown), cut
