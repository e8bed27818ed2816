"""Decides whether the rules of a robots.txt group let a path be fetched (RFC 9309, section 2.2.2).

Called by `fetch.robots` for each URL. Pure. The longest rule that matches counts, of two that are
equally long the one that allows; `*` stands for anything, `$` at the end for the end. Escapes are
compared by what they stand for, but `%2F` is no `/`, and in a rule `%2A` is no wildcard.

A file may have 25,000 rules, and a worker has to ask them for each URL. So a rule without `*` is
looked up by its text, one length after the other, and of the rules with `*` only those are tried
whose rarest part is in the path. A file may be written to defeat that: when _MOST_TRIED rules were
tried, the path is forbidden, because nobody can be sure that it is not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

_FEW: Final = 100  # rules with `*` that are simply tried, 0.4 us each
_MOST_TRIED: Final = 2_000
_KEY_CHARS: Final = 12  # of a part, by which it is found

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_TO_ESCAPE = re.compile(rb"[^A-Za-z0-9_.~/%=*-]")
_PLAIN = re.compile(r"[A-Za-z0-9_.~/=-]*")
_PLAIN_RULE = re.compile(r"[A-Za-z0-9_.~/=*-]*")
_STARS = re.compile(r"\*+")
_INDEX: Final = "/index.html"


class _Wildcard(msgspec.Struct, frozen=True):
    """A rule with `*`: a beginning, parts in that order, and an end."""

    length: int  # of the rule as written; the longest counts
    allowed: bool
    start: str
    parts: tuple[str, ...]
    end: str
    anchored: bool  # whether the end of the path is the end of the rule

    def matches(self, path: str) -> bool:
        if not path.startswith(self.start):
            return False
        at = len(self.start)
        for part in self.parts:
            at = path.find(part, at)
            if at < 0:
                return False
            at += len(part)
        if self.anchored:
            return len(path) - len(self.end) >= at and path.endswith(self.end)
        return path.find(self.end, at) >= 0

    def key(self, frequency: Counter[str]) -> str:
        """The part by which it is found: the rarest, of equally rare ones the longest."""
        return min(self.part_keys(), key=lambda key: (frequency[key], -len(key)))

    def part_keys(self) -> Iterator[str]:
        for part in (self.start, *self.parts, self.end):
            yield part[-_KEY_CHARS:]


class PathRules:
    """The rules of a group, in the form in which paths are looked up."""

    def __init__(self, rules: Iterable[tuple[bool, str]]) -> None:
        self._prefixes: dict[str, bool] = {}  # beginning of a path → allowed
        self._whole: dict[str, bool] = {}  # a path to its end → allowed
        wildcards: set[_Wildcard] = set()
        for allowed, written in rules:
            for pattern in _patterns(allowed, written):
                if "*" in pattern:
                    wildcards.add(_wildcard(allowed, pattern))
                elif pattern.endswith("$"):
                    self._whole[pattern[:-1]] = self._whole.get(pattern[:-1], False) or allowed
                else:
                    self._prefixes[pattern] = self._prefixes.get(pattern, False) or allowed
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)
        # The order in which they count.
        self._wildcards = sorted(wildcards, key=lambda rule: (-rule.length, not rule.allowed))
        self._by_key: dict[str, list[int]] = {}  # a part → places in the list
        self._key_lengths: list[int] = []
        if len(self._wildcards) > _FEW:
            self._find_by_parts()

    @property
    def forbids_something(self) -> bool:
        values = (*self._prefixes.values(), *self._whole.values())
        return not all(values) or not all(rule.allowed for rule in self._wildcards)

    def allow(self, path: str) -> bool:
        """`path` is that of a canonical URL, with its query."""
        path = normal_path(path)
        best, allowed = -1, True
        if path in self._whole:
            best, allowed = len(path) + 1, self._whole[path]
        else:
            for length in self._lengths:
                if length <= len(path) and path[:length] in self._prefixes:
                    best, allowed = length, self._prefixes[path[:length]]
                    break
        for rule in self._candidates(path):
            if rule is None:
                return False
            if rule.length < best or (rule.length == best and allowed):
                break
            if rule.matches(path):
                return rule.allowed
        return allowed

    def _candidates(self, path: str) -> Iterator[_Wildcard | None]:
        """The rules with `*` that may match, in their order; None when it were too many."""
        if not self._by_key:
            yield from self._wildcards
            return
        places: list[int] = []
        for length in self._key_lengths:
            for key in {path[at : at + length] for at in range(len(path) - length + 1)}:
                if key in self._by_key:
                    places += self._by_key[key]
        places.sort()
        for number, place in enumerate(places):
            yield None if number >= _MOST_TRIED else self._wildcards[place]

    def _find_by_parts(self) -> None:
        frequency = Counter(key for rule in self._wildcards for key in rule.part_keys())
        for place, rule in enumerate(self._wildcards):
            self._by_key.setdefault(rule.key(frequency), []).append(place)
        self._key_lengths = sorted({len(key) for key in self._by_key})


def normal_path(path: str) -> str:
    """One spelling for all paths that mean the same."""
    return path if _PLAIN.fullmatch(path) else _normal(path.replace("*", "%2A"))


def _patterns(allowed: bool, written: str) -> Iterator[str]:
    """What a rule means: usually one pattern."""
    if written.startswith(("https://", "http://")):
        written = f"/{written}"  # only a path that has it can match
    anchor = "$" if written.endswith("$") else ""
    pattern = _normal(written[: len(written) - len(anchor)]) + anchor
    if not pattern.startswith(("/", "*", "$")):
        return  # no path begins so
    yield pattern
    if anchor:  # some mean the character
        yield _normal(written)
    if allowed and pattern.endswith(_INDEX):
        yield pattern.removesuffix("index.html") + "$"


def _normal(text: str) -> str:
    """Escapes other than those of `/`, `%` and `*` are what they stand for, and all else that is no
    letter, digit or one of `-_.~/=*` is an escape."""
    if _PLAIN_RULE.fullmatch(text):
        return text
    data = _ESCAPE.sub(
        lambda match: (
            match[0].upper() if (raw := bytes.fromhex(match[1].decode())) in b"/%*" else raw
        ),
        text.encode("utf-8", "replace"),
    )
    return _TO_ESCAPE.sub(lambda match: b"%%%02X" % match[0][0], data).decode()


def _wildcard(allowed: bool, pattern: str) -> _Wildcard:
    anchored = pattern.endswith("$")
    start, *parts, end = _STARS.split(pattern.removesuffix("$"))
    return _Wildcard(len(pattern), allowed, start, tuple(parts), end, anchored)
