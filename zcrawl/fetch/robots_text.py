"""Reads the lines of a robots.txt: which group is ours, and what it says (RFC 9309, section 2).

Called by `fetch.robots`. Pure, and total: no bytes raise.

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
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

import msgspec

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
_LINE = re.compile(r"[^\r\n]+")
_TOKEN = re.compile(r"\d*[^\W\d][\w-]*")  # no version number
_LETTERS = re.compile(r"[^\W\d]+(?:-[^\W\d]+)*")
# In "zcrawl/0.1 (+https://github.com/…)" nobody is called github.
_CONTACT_URL = re.compile(r"\+?https?://[^\s;,)]*", re.IGNORECASE)
_RATE = re.compile(r"([0-9]{1,30})/([0-9]{1,30})([smhd]?)(?:\s.*)?", re.IGNORECASE | re.DOTALL)
_UNIT_S: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MARK: Final = b"\xef\xbb\xbf"


class Group(msgspec.Struct):
    """What a robots.txt says to one crawler. A rule is (allowed, path as written)."""

    rules: list[tuple[bool, str]] = msgspec.field(default_factory=list)
    crawl_delay_s: float | None = None
    request_delay_s: float | None = None  # of Request-rate


def read_group(body: bytes, user_agent: str) -> tuple[Group, tuple[str, ...]]:
    """The group for this user agent, and the sitemaps that the file names for everybody."""
    lines = list(_lines(_text(body)))
    group = Group()
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
                    group.crawl_delay_s = _delay_s(value, group.crawl_delay_s)
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


def _delay_s(value: str, before: float | None) -> float | None:
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
