"""Decides what a host's robots.txt allows and how slow it wants to be crawled (RFC 9309).

Called by the worker's pipeline, which fetches robots.txt like any other URL, parses the answer
here and keeps the rules per host and user agent. Pure, and total: no status and no bytes raise.

Reads the lines of a robots.txt: which group is ours, and what it says (RFC 9309, section 2).

- Lines end with CR, LF or both. A field is known in any case of letters, in the misspellings that
  people use, and without its colon.
- A group is one or more User-agent lines with the rules behind them. Only Allow and Disallow end
  the list of names: Crawl-delay, Sitemap and unknown lines do not (section 2.2.4).
- Crawl-delay and Request-rate are not in the RFC. They hold for the names directly above them:
  those since the last rule or delay, so that one crawler's delay is not another's.
- The name of a group is the product token at the beginning of its value: `zcrawl/1.0` and `zcrawl
  bot` are zcrawl. Ours are the tokens of the user agent, without what is in its contact address,
  and what they begin with up to a hyphen or a digit. The group with the longest of them counts,
  together with all others of that name; if there is none, the groups of `*`.

Decides whether the rules of a robots.txt group let a path be fetched (RFC 9309, section 2.2.2).

The longest rule that matches counts, of two that are
equally long the one that allows; `*` stands for anything, `$` at the end for the end. Escapes are
compared by what they stand for, but `%2F` is no `/`, and in a rule `%2A` is no wildcard.

A file may have 25,000 rules, and a worker has to ask them for each URL. So a rule without `*` is
looked up by its text, one length after the other, and of the rules with `*` only those are tried
whose rarest part is in the path. A file may be written to defeat that: when _MOST_TRIED rules were
tried, the path is forbidden, because nobody can be sure that it is not.
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
_TOKEN = lazy_pattern(r"\d*[^\W\d][\w-]*")  # no version number
_LETTERS = lazy_pattern(r"[^\W\d]+(?:-[^\W\d]+)*")
# In "zcrawl/0.1 (+https://github.com/…)" nobody is called github.
_CONTACT_URL = lazy_pattern(r"\+?https?://[^\s;,)]*", re.IGNORECASE)
_RATE = lazy_pattern(r"([0-9]{1,30})/([0-9]{1,30})([smhd]?)(?:\s.*)?", re.IGNORECASE | re.DOTALL)
_UNIT_S: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MARK: Final = b"\xef\xbb\xbf"


class RobotsGroup(msgspec.Struct):
    """What a robots.txt says to one crawler. A rule is (allowed, path as written)."""

    rules: list[tuple[bool, str]] = msgspec.field(default_factory=list)
    crawl_delay_s: float | None = None
    request_delay_s: float | None = None  # of Request-rate


def read_group(body: bytes, user_agent: str) -> tuple[RobotsGroup, tuple[str, ...]]:
    """The group for this user agent, and the sitemaps that the file names for everybody."""
    lines = list(_lines(_text(body)))
    group = RobotsGroup()
    own = _best_name(user_agent, {value for field, value in lines if field == "agent"})
    rules_are_ours = delay_is_ours = False  # whether we are among the names above
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
    """Without a byte-order mark, or what is left of one."""
    for length in (3, 2, 1):
        if body.startswith(_MARK[:length]):
            body = body[length:]
            break
    return body.decode("utf-8", "replace")


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """(field, value) of the lines that have a known field; the value of a name is its token."""
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
    """Which of the file's names means us; None: no group does."""
    best = "*" if "*" in names else None
    length = 0
    for token in _TOKEN.findall(_CONTACT_URL.sub("", user_agent).lower().replace("*", "")):
        for name in _spellings(token):
            if name in names and len(name) > length:
                best, length = name, len(name)
    return best


def _spellings(token: str) -> Iterator[str]:
    """`search-news2` obeys a group of that name, of `search-news` and of `search`."""
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


_FEW: Final = 100  # rules with `*` that are simply tried, 0.4 us each
_MOST_TRIED: Final = 2_000
_KEY_CHARS: Final = 12  # of a part, by which it is found

_ESCAPE = lazy_pattern(rb"%([0-9A-Fa-f]{2})")
_TO_ESCAPE = lazy_pattern(rb"[^A-Za-z0-9_.~/%=*-]")
_PLAIN = lazy_pattern(r"[A-Za-z0-9_.~/=-]*")
_PLAIN_RULE = lazy_pattern(r"[A-Za-z0-9_.~/=*-]*")
_STARS = lazy_pattern(r"\*+")
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


MAX_ROBOTS_BYTES = 500 * 1024  # RFC 9309 section 2.5; what is behind it is not read
MAX_CRAWL_DELAY_S = 3600.0
LEAST_CRAWL_DELAY_S = 0.001  # a shorter one asks for nothing: `1e-310` was written to do harm


class RobotsRules(msgspec.Struct, frozen=True):
    """What one robots.txt means for one user agent."""

    user_agent: str
    crawl_delay_s: float | None = None  # the slower one of Crawl-delay and Request-rate
    retry_later: bool = False  # nobody could say: everything is off limits until asked again
    _paths: PathRules | None = None  # None: everything is allowed, or nothing if retry_later
    sitemaps: tuple[str, ...] = ()

    @classmethod
    def parse(cls, status: int, body: bytes, user_agent: str) -> RobotsRules:
        """The rules that follow from the answer to GET /robots.txt, after its redirects.

        2xx is read. 4xx and what is left of 3xx mean that there are no rules. 5xx, 429 and 0
        (nobody answered) say nothing about the rules, so nothing is fetched for now; 429 is among
        them against the letter of RFC 9309, for a server that says "slow down" has not said
        "take everything".
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
        """Whether `url`, in canonical form and of this host, may be fetched."""
        if self._paths is None:
            return not self.retry_later
        start = url.find("/", 8)  # behind the host
        path = url[start:] if start >= 0 else "/"
        return path == "/robots.txt" or self._paths.allow(path)


def robots_url(origin: str) -> str:
    """Where the rules of an origin (scheme://name[:port]) are."""
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
