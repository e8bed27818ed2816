"""Decide which cookies a server may set, and which server gets them (RFC 6265bis).

Called by `wire.cookie_jar`, which keeps the cookies of a run. Pure: the time comes in. The
invariants of a jar, whatever servers send:

- A cookie with a domain was set by a host of that domain, and the domain is neither a public suffix
  (`co.uk`, `github.io`) nor an address: otherwise it would be sent to sites of other owners.
- A cookie without a domain is sent only to the host that set it, on any port.
- A secure cookie was received over https and is sent only over https; the rules of `__Secure-` and
  `__Host-` names hold.

`http.cookiejar` was rejected: it accepts `Domain=.co.uk`, sends a host's own cookies to its
subdomains, ignores the prefixes, and raises errors for some dates.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from zcrawl.frontier.domains import is_public_suffix, plain_address
from zcrawl.text.patterns import lazy_pattern

MAX_COOKIE: Final = 4_096  # characters of a name and its value, as in browsers
MAX_ATTRIBUTE: Final = 1_024  # characters; longer attributes are ignored, as in browsers
MAX_AGE_S: Final = 400 * 86_400.0  # no cookie lasts longer

_SPACES: Final = " \t"
_DELIMITERS = lazy_pattern(
    r"[\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+"
)  # between parts of a date
_TIME = lazy_pattern(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[^0-9].*)?", re.DOTALL)
_DAY = lazy_pattern(r"([0-9]{1,2})(?:[^0-9].*)?", re.DOTALL)
_YEAR = lazy_pattern(r"([0-9]{2,4})(?:[^0-9].*)?", re.DOTALL)
_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_MAX_AGE = lazy_pattern(r"-?[0-9]+")


_Key = tuple[str, bool, str, str]


class CookiePlace(msgspec.Struct, frozen=True):
    """The URL of an answer or a request, as far as cookies depend on it."""

    host: str  # lower case, without brackets and port
    path: str  # begins with /
    secure: bool  # https


class Cookie(msgspec.Struct, frozen=True):
    name: str
    value: str
    domain: str
    host_only: bool
    path: str
    secure: bool
    expires: float | None  # Unix time; None: at the end of the run

    @property
    def key(self) -> _Key:
        return self.domain, self.host_only, self.path, self.name

    def goes_to(self, place: CookiePlace, now: float) -> bool:
        return (
            (self.secure <= place.secure)
            and not self.is_over(now)
            and self.is_of(place.host)
            and _is_below(place.path, self.path)
        )

    def is_of(self, host: str) -> bool:
        """Return whether the host may set it, and gets it."""
        if self.host_only:
            return host == self.domain
        return is_in_domain(host, self.domain) and may_span_hosts(self.domain)

    def is_over(self, now: float) -> bool:
        return self.expires is not None and self.expires <= now


class Jar:
    """The cookies of one run, by domain, so that a request reads only those of its own domains,
    however many hosts the run has."""

    def __init__(self) -> None:
        self._domains: dict[str, dict[_Key, tuple[int, Cookie]]] = {}  # with when it was first set
        self._serial = 0

    def of_host(self, host: str) -> list[Cookie]:
        """Return the cookies that the host may set and gets, in the order in which they were first
        set."""
        entries = sorted(self._entries(host), key=lambda entry: entry[0])
        return [cookie for _, cookie in entries if cookie.is_of(host)]

    def _entries(self, host: str) -> Iterator[tuple[int, Cookie]]:
        """Yield the cookies of the host's name and of the domains above it."""
        domain = host
        while domain:
            yield from self._domains.get(domain, {}).values()
            domain = domain.partition(".")[2]

    def put(self, cookie: Cookie, now: float) -> None:
        """Store a cookie, and replace an older one; an expired cookie deletes the older one."""
        if cookie.is_over(now):
            self.remove(cookie)
            return
        own = self._domains.setdefault(cookie.domain, {})
        self._serial += 1
        serial, _ = own.get(cookie.key, (self._serial, None))
        own[cookie.key] = (serial, cookie)

    def remove(self, cookie: Cookie) -> None:
        own = self._domains.get(cookie.domain, {})
        own.pop(cookie.key, None)
        if not own:
            self._domains.pop(cookie.domain, None)

    def set_by(self, place: CookiePlace, header: str, now: float) -> None:
        """Store the cookie of a Set-Cookie header; an invalid one is ignored."""
        cookie = read_set_cookie(header, place, now)
        if cookie is None or (not place.secure and self._has_secure(cookie, place.host)):
            return
        self.put(cookie, now)

    def for_request(self, place: CookiePlace, now: float) -> list[Cookie]:
        """Return the cookies to send, the longest path first."""
        own = [cookie for cookie in self.of_host(place.host) if cookie.goes_to(place, now)]
        return sorted(own, key=lambda cookie: -len(cookie.path))

    def _has_secure(self, other: Cookie, host: str) -> bool:
        """Return whether this cookie would hide or replace a cookie received over https."""
        return any(
            cookie.secure
            and cookie.name == other.name
            and _is_below(other.path, cookie.path)
            and cookie.is_of(host)
            for _, cookie in self._entries(host)
        )


def read_set_cookie(header: str, place: CookiePlace, now: float) -> Cookie | None:
    """Return the cookie of a Set-Cookie header of `place`; None if it is not valid or not
    allowed."""
    pair, *rest = header.split(";")
    name, equals, value = (part.strip(_SPACES) for part in pair.partition("="))
    if not equals:
        name, value = "", name
    text = name + value
    if not text or len(text) > MAX_COOKIE or not (text.isascii() and text.isprintable()):
        return None  # it could not be sent in a header
    attributes = dict(_attributes(rest))  # the last of each name counts
    secure = "secure" in attributes
    if secure and not place.secure:
        return None
    domain, host_only = place.host, True
    if attributes.get("domain"):
        domain = attributes["domain"].removeprefix(".").lower()
        if domain == place.host:
            host_only = not may_span_hosts(domain)
        elif is_in_domain(place.host, domain) and may_span_hosts(domain):
            host_only = False
        else:
            return None
    path = attributes.get("path", "")
    if not path.startswith("/"):
        path = _default_path(place.path)
    if not _obeys_prefix(name or value, attributes, place):
        return None
    expires = _expires(attributes, now)
    return Cookie(name, value, domain, host_only, path, secure, expires)


@functools.lru_cache(maxsize=1_000)  # asked for each cookie of each request
def may_span_hosts(domain: str) -> bool:
    """Return whether all hosts of the domain have one owner and may share cookies."""
    return bool(domain) and not plain_address(domain) and not is_public_suffix(domain)


def is_in_domain(host: str, domain: str) -> bool:
    return host == domain or (host.endswith("." + domain) and not plain_address(host))


def _attributes(parts: list[str]) -> Iterator[tuple[str, str]]:
    for part in parts:
        name, _, value = part.partition("=")
        value = value.strip(_SPACES)
        if len(value) <= MAX_ATTRIBUTE:
            yield name.strip(_SPACES).lower(), value


def _obeys_prefix(name: str, attributes: dict[str, str], place: CookiePlace) -> bool:
    """Return whether the rules of a prefix hold. For a cookie without a name, the value is checked,
    because servers would read it as a name."""
    lower = name.lower()
    if lower.startswith("__secure-"):
        return "secure" in attributes
    if lower.startswith("__host-"):
        alone = not attributes.get("domain") and attributes.get("path") == "/"
        return "secure" in attributes and alone
    return True


def _default_path(path: str) -> str:
    return path[: path.rfind("/")] or "/"


def _is_below(path: str, cookie_path: str) -> bool:
    if not path.startswith(cookie_path):
        return False
    return (
        len(path) == len(cookie_path) or cookie_path.endswith("/") or path[len(cookie_path)] == "/"
    )


def _expires(attributes: dict[str, str], now: float) -> float | None:
    age = attributes.get("max-age", "")
    if _MAX_AGE.fullmatch(age):
        # Python refuses to convert a number of 5,000 digits.
        seconds = MAX_AGE_S if len(age) > 12 else min(float(age), MAX_AGE_S)
        return now + seconds if not age.startswith("-") and seconds > 0 else 0.0
    date = parse_date(attributes.get("expires", ""))
    return None if date is None else min(date, now + MAX_AGE_S)


def parse_date(text: str) -> float | None:
    """Return the Unix time of a cookie's date, by the standard's lenient rules; None if invalid."""
    time: tuple[int, int, int] | None = None
    day = month = year = None
    for token in _DELIMITERS.split(text):
        if time is None and (match := _TIME.fullmatch(token)):
            time = int(match[1]), int(match[2]), int(match[3])
        elif day is None and (match := _DAY.fullmatch(token)):
            day = int(match[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (match := _YEAR.fullmatch(token)):
            year = int(match[1])
    if time is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    hour, minute, second = time
    if year < 1601 or hour > 23 or minute > 59 or second > 59:
        return None
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:  # there is no such day
        return None
    return moment.timestamp()
