"""Make untrusted text harmless for a terminal. Pure; used by CLI, console and logs.

URLs, titles, headers, error details, names of jobs and nodes come from others. Three kinds of
characters in them are never sent to a terminal unchanged:

- controls: C0, DEL and C1 (U+0080-U+009F; U+009B begins a sequence as ESC [ does);
- characters that reorder or hide text: bidirectional controls, zero-width characters, tags, line
  and paragraph separators, and letters without a shape (Hangul fillers, variation selectors of
  the supplement);
- code points that are not characters: lone surrogates, private and unassigned code points.

They are shown by their code: `\\x9b`, `\\u202e`. In JSON the escapes mean the same character, so
JSON is escaped always, whether a terminal or a program reads it.
"""

from __future__ import annotations

import re
from typing import Final

from zcrawl.text.patterns import lazy_pattern

# Characters that hide text, although `str.isprintable` accepts them.
_SHAPELESS: Final = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef"
)
_HIDDEN: Final = lazy_pattern(f"[{_SHAPELESS}]")
# In JSON: C0 is escaped by JSON itself. Private and unassigned code points do nothing to a
# terminal and are data; a program that reads them gets the same either way.
_IN_JSON: Final = lazy_pattern(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    f"\U000e0000-\U000e00ff{_SHAPELESS}]"
)


def shown(text: object, keep: str = "") -> str:
    """Return `text` with dangerous characters replaced by their codes, except those in `keep` (for
    example line breaks)."""
    plain = str(text)
    if is_safe(plain):
        return plain
    return "".join(char if char in keep or is_safe(char) else _code(char) for char in plain)


def is_safe(text: str) -> bool:
    """Return whether this text or character may be sent to a terminal unchanged."""
    return text.isprintable() and (text.isascii() or not _HIDDEN.search(text))


def shown_json(text: str) -> str:
    """Return equivalent JSON without dangerous characters."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _IN_JSON.sub(_json_code, text)


def shown_json_bytes(data: bytes) -> bytes:
    """Return equivalent JSON as UTF-8, such as the items of a run."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return shown_json(data.decode("utf-8", "replace")).encode()


def _code(char: str) -> str:
    return ascii(char)[1:-1]


def _json_code(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))
