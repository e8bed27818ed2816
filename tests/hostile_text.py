"""Strings that drive a terminal, and the code points that must never reach one."""

from __future__ import annotations

import random
import re
from typing import Final

# Written out on purpose, not taken from the code under test. ESC is among them: where a program
# itself writes escape sequences, `foreign` looks for those of the strings.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\u3164"
    "\U000e0000-\U000e01ef]"
)
_DRIVING: Final = re.compile(
    "[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\u3164\U000e0000-\U000e01ef]"
    "|\x1b\\]0;owned|\x1b\\[6n"
)
PIECES: Final = (
    "\x1b]0;owned\x07",
    "\x1b[6n",
    "\x9b6n",
    "\x9d0;owned\x9c",
    "\x90",
    "\x85",
    "\x7f",
    "\x00",
    "\x08",
    "\u202egnp.exe",
    "\u2066",
    "\u2069",
    "\u200f",
    "\u061c",
    "\u200b",
    "\u2028",
    "\u2029",
    "\ufeff",
    "\u3164",
    "\U000e0041",
    "\U000e0101",
    "[/b][red]",
    "漢字",
    "plain",
)
EVERYTHING: Final = "".join(PIECES)


def hostile(chance: random.Random) -> str:
    return "".join(chance.choices(PIECES, k=chance.randint(1, 6)))


def forbidden(text: str) -> list[str]:
    """The code points of `text` that a terminal must not get, but for line feeds and tabs."""
    return [ascii(char) for char in _FORBIDDEN.findall(text)]


def driving(screen: str) -> list[str]:
    """The same in what a program wrote that drives its terminal itself."""
    return [ascii(piece) for piece in _DRIVING.findall(screen)]
