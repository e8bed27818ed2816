"""Foreign text on its way to a terminal."""

from __future__ import annotations

import pytest

from console.plain import MOST_CHARACTERS, fit, plain, width
from tests.hostile_text import forbidden

HOSTILE = [
    "[/b][red]markup[/]",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "two\nlines\r\ttab",
    "\u202egnp.exe\u2066\u200f",
    "\x9b31m c1 \x90",
    "e" + "\u0301" * 500,
    "漢字" * 50,
    "\ud800 lone \udfff",
    "x" * 10_000,
    "\u2028\u2029\u200b\ufeff",
    "\u3164\U000e0041\U000e0101\u2800 hidden",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_drives_a_terminal_gets_through(text: str) -> None:
    """Neither escapes nor line breaks nor overrides; and it is never empty."""
    shown = plain(text)
    assert shown and len(shown) <= MOST_CHARACTERS * 8
    for char in shown:
        assert char.isprintable(), ascii(char)
    assert not forbidden(shown)
    shown.encode("utf-8")


def test_what_is_removed_can_be_seen() -> None:
    """By its code, so that an operator sees that something is odd."""
    assert plain("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"


def test_markup_stays_as_it_is() -> None:
    """It is text like any other."""
    assert plain("https://x.test/[/b]") == "https://x.test/[/b]"


def test_a_pile_of_accents_is_cut() -> None:
    """They take no room on the screen, but all of it in memory."""
    assert plain("e" + "\u0301" * 500) == "e\u0301\u0301"


@pytest.mark.parametrize("text", [plain(sample) for sample in HOSTILE])
@pytest.mark.parametrize("cells", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("right", [False, True])
def test_a_text_fits_into_exactly_its_cells(text: str, cells: int, right: bool) -> None:
    """Also where half of a wide character would have to go."""
    assert width(fit(text, cells, right)) == cells
