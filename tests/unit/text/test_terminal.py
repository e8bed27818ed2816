"""The one rule for foreign text on its way to a terminal."""

from __future__ import annotations

import json
import random
import sys
import unicodedata
from collections.abc import Iterator

import pytest

from tests.hostile_text import forbidden, hostile
from zcrawl.text.terminal import is_safe, shown, shown_json, shown_json_bytes

DANGEROUS = ("Cc", "Cf", "Zl", "Zp")


def every_character() -> Iterator[str]:
    return (chr(n) for n in range(sys.maxunicode + 1) if not 0xD800 <= n <= 0xDFFF)


def test_no_control_of_any_kind_is_shown_as_it_is() -> None:
    """Of all of Unicode: C0, DEL, C1, bidirectional, zero-width, tags, separators."""
    for char in every_character():
        if unicodedata.category(char) in DANGEROUS:
            assert not is_safe(char), ascii(char)
            assert shown(char).isascii(), ascii(char)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x9b31m", "a\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x1b]0;t\x07", "\\x1b]0;t\\x07"),
        ("\U000e0041", "\\U000e0041"),
        ("a\u2028b\u3164c\ufeff", "a\\u2028b\\u3164c\\ufeff"),
        ("\udc9b", "\\udc9b"),
        ("漢字 é ☃", "漢字 é ☃"),
        (7, "7"),
    ],
)
def test_a_dangerous_character_is_shown_by_its_code(text: object, seen: str) -> None:
    """And all others as they are."""
    assert shown(text) == seen


def test_what_the_caller_lays_out_stays() -> None:
    """Line breaks of a trace are kept where the caller says so, and nothing else is."""
    assert shown("a\nb\x1b\r", keep="\n") == "a\nb\\x1b\\r"


def test_escaped_json_means_the_same() -> None:
    """Whatever a string holds, what is read is what was written, and no control is left."""
    for char in every_character():
        if unicodedata.category(char) in DANGEROUS:
            text = shown_json(json.dumps(f"x{char}y", ensure_ascii=False))
            assert not forbidden(text), ascii(char)
            assert json.loads(text) == f"x{char}y"


def test_random_hostile_texts_become_harmless() -> None:
    """Text, JSON and the bytes of JSON, of a thousand strings under a fixed seed."""
    chance = random.Random(10)
    for _ in range(1_000):
        text = hostile(chance)
        assert not forbidden(shown(text))
        encoded = json.dumps({"k": text}, ensure_ascii=False)
        assert not forbidden(shown_json(encoded))
        assert json.loads(shown_json_bytes(encoded.encode())) == {"k": text}
