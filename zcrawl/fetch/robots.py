"""Decide what a host's robots.txt allows, and its crawl delay (RFC 9309).

Called by the worker's pipeline, which fetches robots.txt like any other URL, parses the answer
here and keeps the rules per host and user agent. Pure; no status and no body raises an error.

How the lines are read (RFC 9309, section 2):

- Lines end with CR, LF or both. Fields are accepted in upper and lower case, with common
  misspellings, and without a colon.
- A group is one or more User-agent lines with the rules after them. Only Allow and Disallow end
  the list of names: Crawl-delay, Sitemap and unknown lines do not (section 2.2.4).
- Crawl-delay and Request-rate are not in the RFC. They hold for the names directly above them:
  those since the last rule or delay, so that one crawler's delay is not another's.
- The name of a group is the product token at the beginning of its value: `zcrawl/1.0` and `zcrawl
  bot` are zcrawl. Our names are the tokens of the user agent (not those of its contact address),
  and their beginnings up to a hyphen or a digit. The groups with our longest name count; if there
  is none, the groups of `*`.

How rules are applied to a path (RFC 9309, section 2.2.2): the longest matching rule counts, and of
two equally long rules the one that allows. `*` matches anything, `$` at the end matches the end.
Escapes are decoded before the comparison, but `%2F` is not `/`, and in a rule `%2A` is not a
wildcard.

A file may have 25,000 rules, and each URL must be checked. So rules without `*` are looked up by
their text, one length after the other, and rules with `*` are tried only if their rarest part is in
the path. A malicious file can defeat that: after _MOST_TRIED rules the path counts as forbidden,
which is the safe choice.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from zcrawl.text.patterns import lazy_pattern

MAX_SITEMAPS: Final = 1_000

_FIELDS: Final = {
    alias: field
    for field, aliases in {
        "agent": ("user-agent", "useragent", "user agent"),
        "disallow": (
            "disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw",
        ),
        "allow": ("allow",),
        "delay": ("crawl-delay", "crawl delay"),
        "rate": ("request-rate", "request rate"),
        "sitemap": ("sitemap", "sitemaps", "site-map"),
    }.items()
    for alias in aliases
}  # fmt: skip
_LINE = lazy_pattern(r"[^\r\n]+")
_TOKEN = lazy_pattern(r"\d*[^\W\d][\w-]*")  # not a version number
_LETTERS = lazy_pattern(r"[^\W\d]+(?:-[^\W\d]+)*")
# In "zcrawl/0.1 (+https://github.com/…)" github is not a name of the crawler.
_CONTACT_URL = lazy_pattern(r"\+?https?://[^\s;,)]*", re.IGNORECASE)
_RATE = lazy_pattern(r"([0-9]{1,30})/([0-9]{1,30})([smhd]?)(?:\s.*)?", re.IGNORECASE | re.DOTALL)
_UNIT_S: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MARK: Final = b"\xef\xbb\xbf"


class RobotsGroup(msgspec.Struct):
    """The rules of a robots.txt for one crawler. A rule is (allowed, path as written)."""

    rules: list[tuple[bool, str]] = msgspec.field(default_factory=list)
    crawl_delay_s: float | None = None
    request_delay_s: float | None = None  # of Request-rate


def read_group(body: bytes, user_agent: str) -> tuple[RobotsGroup, tuple[str, ...]]:
    """Return the group for this user agent, and the sitemaps of the file."""
    lines = list(_lines(_text(body)))
    group = RobotsGroup()
    own = _best_name(user_agent, {value for field, value in lines if field == "agent"})
    rules_are_ours = delay_is_ours = False  # whether our name is among the names above
    rules_came = delay_came = False  # whether the next name begins a new list
    sitemaps: list[str] = []
    for field, value in lines:
        match field:
            case "agent":
                is_ours = own is not None and value == own
                rules_are_ours = is_ours or (rules_are_ours and not rules_came)
                delay_is_ours = is_ours or (delay_is_ours and not delay_came)
                rules_came = delay_came = False
            case "sitemap":
                sitemaps.append(value)
            case "allow" | "disallow":
                rules_came = delay_came = True
                if rules_are_ours and value:
                    group.rules.append((field == "allow", value))
            case _:
                delay_came = True
                if delay_is_ours and field == "delay":
                    group.crawl_delay_s = _delay_of_line(value, group.crawl_delay_s)
                elif delay_is_ours:
                    group.request_delay_s = _rate_delay_s(value, group.request_delay_s)
    return group, tuple(filter(None, sitemaps))[:MAX_SITEMAPS]


def _text(body: bytes) -> str:
    """Decode the file without its byte-order mark, also a damaged one."""
    for length in (3, 2, 1):
        if body.startswith(_MARK[:length]):
            body = body[length:]
            break
    return body.decode("utf-8", "replace")


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield (field, value) of lines with a known field; for User-agent, the value is the token."""
    for line in _LINE.findall(text):
        line = line.partition("#")[0].strip()
        name, colon, value = line.partition(":")
        field = _FIELDS.get(name.strip().lower()) if colon else None
        if field is None and line and not (colon and not value[:1].strip()):
            field, value = _without_colon(line)
        if field is not None:
            yield field, _group_name(value) if field == "agent" else value.strip()


def _without_colon(line: str) -> tuple[str | None, str]:
    words = line.split(None, 2)
    for count in (1, 2):
        field = _FIELDS.get(" ".join(words[:count]).lower())
        if field is not None:
            return field, " ".join(line.split()[count:])
    return None, ""


def _group_name(value: str) -> str:
    value = value.strip().lower()
    if value == "*" or value[:2].rstrip() == "*":
        return "*"
    token = _TOKEN.match(value.replace("*", ""))
    return "" if token is None else token[0]


def _best_name(user_agent: str, names: set[str]) -> str | None:
    """Return the name in the file that fits our user agent best; None if no group applies."""
    best = "*" if "*" in names else None
    length = 0
    for token in _TOKEN.findall(_CONTACT_URL.sub("", user_agent).lower().replace("*", "")):
        for name in _spellings(token):
            if name in names and len(name) > length:
                best, length = name, len(name)
    return best


def _spellings(token: str) -> Iterator[str]:
    """Yield the names of a token: `search-news2` obeys `search-news2`, `search-news` and
    `search`."""
    yield token
    letters = _LETTERS.match(token)
    while letters is not None:
        token = letters[0]
        yield token
        cut = token.rfind("-")
        letters = _LETTERS.match(token[:cut]) if cut > 0 else None


def _delay_of_line(value: str, before: float | None) -> float | None:
    try:
        delay_s = float(value)
    except ValueError:
        return before
    return delay_s if math.isfinite(delay_s) and delay_s >= 0 else before


def _rate_delay_s(value: str, before: float | None) -> float | None:
    rate = _RATE.fullmatch(value)
    if rate is None or not int(rate[1]) or not int(rate[2]):
        return before
    return int(rate[2]) * _UNIT_S[rate[3].lower()] / int(rate[1])


_FEW: Final = 100  # up to this number, all rules with `*` are tried, 0.4 us each
_MOST_TRIED: Final = 2_000
_KEY_CHARS: Final = 8  # at the end of a part, which are its key; of a shorter part 4, 2, 1 or 0

_ESCAPE = lazy_pattern(rb"%([0-9A-Fa-f]{2})")
_ESCAPED: Final = tuple(b"%%%02X" % code for code in range(256))
_UNESCAPED: Final = {
    escape: escape if code in b"/%*" else bytes([code]) for code, escape in enumerate(_ESCAPED)
}
_TO_ESCAPE = lazy_pattern(rb"[^A-Za-z0-9_.~/%=*-]")
_PLAIN = lazy_pattern(r"[A-Za-z0-9_.~/=-]*")
_PLAIN_RULE = lazy_pattern(r"[A-Za-z0-9_.~/=*-]*")
_STARS = lazy_pattern(r"\*+")
_INDEX: Final = "/index.html"


class _Wildcard(msgspec.Struct, frozen=True, gc=False):
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
        """Return the part to index the rule by: the rarest, of equally rare ones the longest."""
        return min(self.part_keys(), key=lambda key: (frequency[key], -len(key)))

    def part_keys(self) -> Iterator[str]:
        for part in (self.start, *self.parts, self.end):
            length = len(part)
            if length >= _KEY_CHARS:
                yield part[-_KEY_CHARS:]
            else:  # few lengths, because each one costs a look-up at each place of a path
                yield part[-4:] if length >= 4 else part[-2:]


class PathRules:
    """The rules of a group, indexed for fast look-ups."""

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
        # One number as the key, because a sort keeps the interpreter's lock until its end.
        self._wildcards = sorted(wildcards, key=lambda rule: -2 * rule.length - rule.allowed)
        self._by_key: dict[str, list[int]] = {}  # a part → places in the list
        self._key_lengths: list[int] = []
        if len(self._wildcards) > _FEW:
            self._index_by_parts()

    @property
    def forbids_something(self) -> bool:
        values = (*self._prefixes.values(), *self._whole.values())
        return not all(values) or not all(rule.allowed for rule in self._wildcards)

    def allow(self, path: str) -> bool:
        """Return whether a path may be fetched. `path` is from a canonical URL, with its query."""
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
        """Yield the rules with `*` that may match, in their order; None when there are too many."""
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

    def _index_by_parts(self) -> None:
        frequency = Counter(key for rule in self._wildcards for key in rule.part_keys())
        for place, rule in enumerate(self._wildcards):
            self._by_key.setdefault(rule.key(frequency), []).append(place)
        self._key_lengths = sorted({len(key) for key in self._by_key})


def normal_path(path: str) -> str:
    """Return the same text for all spellings of a path."""
    return path if _PLAIN.fullmatch(path) else _normal(path.replace("*", "%2A"))


def _patterns(allowed: bool, written: str) -> Iterator[str]:
    """Yield the patterns of a rule, usually one."""
    if written.startswith(("https://", "http://")):
        written = f"/{written}"  # matches only a path that contains this URL
    anchor = "$" if written.endswith("$") else ""
    pattern = _normal(written[: len(written) - len(anchor)]) + anchor
    if not pattern.startswith(("/", "*", "$")):
        return  # no path begins like this
    yield pattern
    if anchor:  # some authors mean the character $
        yield _normal(written)
    if allowed and pattern.endswith(_INDEX):
        yield pattern.removesuffix("index.html") + "$"  # the folder itself is the same page


def _normal(text: str) -> str:
    """Decode escapes except those of `/`, `%` and `*`, and escape everything that is not a letter,
    a digit or one of `-_.~/=*`."""
    if _PLAIN_RULE.fullmatch(text):
        return text
    data = text.encode("utf-8", "replace")
    if b"%" in data:
        data = _ESCAPE.sub(lambda match: _UNESCAPED[match[0].upper()], data)
    return _TO_ESCAPE.sub(lambda match: _ESCAPED[match[0][0]], data).decode()


def _wildcard(allowed: bool, pattern: str) -> _Wildcard:
    anchored = pattern.endswith("$")
    start, *parts, end = _STARS.split(pattern.removesuffix("$"))
    return _Wildcard(len(pattern), allowed, start, tuple(parts), end, anchored)


MAX_ROBOTS_BYTES = 500 * 1024  # RFC 9309 section 2.5; the rest is not read
MAX_CRAWL_DELAY_S = 3600.0
LEAST_CRAWL_DELAY_S = 0.001  # shorter delays count as 0: values such as `1e-310` are attacks


class RobotsRules(msgspec.Struct, frozen=True):
    """The rules of one robots.txt for one user agent."""

    user_agent: str
    crawl_delay_s: float | None = None  # the slower one of Crawl-delay and Request-rate
    retry_later: bool = False  # robots.txt was unavailable: nothing may be fetched until it is read
    # again
    _paths: PathRules | None = None  # None: everything is allowed, or nothing if retry_later
    sitemaps: tuple[str, ...] = ()

    @classmethod
    def parse(cls, status: int, body: bytes, user_agent: str) -> RobotsRules:
        """Return the rules for the answer to GET /robots.txt, after its redirects.

        2xx: the file is parsed. 4xx and remaining 3xx: there are no rules. 5xx, 429 and 0 (no
        answer): the rules are unknown, so nothing is fetched for now. 429 differs from RFC 9309,
        because "slow down" does not mean "everything is allowed".
        """
        if status == 429 or status >= 500 or status < 200:
            return cls(user_agent, retry_later=True)
        if status >= 300:
            return cls(user_agent)
        group, sitemaps = read_group(_whole_lines(body), user_agent)
        paths = PathRules(group.rules)
        return cls(
            user_agent=user_agent,
            crawl_delay_s=_delay_s(group),
            _paths=paths if paths.forbids_something else None,
            sitemaps=sitemaps,
        )

    def allows(self, url: str) -> bool:
        """Return whether a canonical URL of this host may be fetched."""
        if self._paths is None:
            return not self.retry_later
        start = url.find("/", 8)  # after the host
        path = url[start:] if start >= 0 else "/"
        return path == "/robots.txt" or self._paths.allow(path)


def robots_url(origin: str) -> str:
    """Return the URL of the robots.txt of an origin (scheme://name[:port])."""
    return origin.rstrip("/") + "/robots.txt"


def _whole_lines(body: bytes) -> bytes:
    if len(body) > MAX_ROBOTS_BYTES:
        # The last line may be cut: "Disallow: /private" must not become "Disallow: /".
        cut = max(body.rfind(end, 0, MAX_ROBOTS_BYTES) for end in (b"\n", b"\r"))
        body = body[: cut if cut > 0 else 0]
    return body


def _delay_s(group: RobotsGroup) -> float | None:
    delays = [d for d in (group.crawl_delay_s, group.request_delay_s) if d is not None]
    if not delays:
        return None
    slowest = max(delays)
    return min(MAX_CRAWL_DELAY_S, slowest) if slowest >= LEAST_CRAWL_DELAY_S else 0.0
