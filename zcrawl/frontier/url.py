"""Decide whether two spellings are the same URL: canonical form, key, and target of a link.

Called by `submit` for seeds, by `parse` for every link of every page, and by the leader, which
verifies samples of what workers send. Pure. The canonical form, version 2, is the WHATWG
serialisation (ada_url) of an http or https URL with these rules on top:

 1. scheme and host in lower case, international names in punycode, IPv4 and IPv6 normalised
 2. the default port (http 80, https 443) is dropped
 3. user name and password are removed: credentials are never stored
 4. the fragment is dropped; spaces before it are part of the URL
 5. dot segments are resolved, `\\` is `/`, an empty path is `/`
 6. percent-escapes have upper-case hex digits, and escaped unreserved characters
    (A-Z a-z 0-9 - . _ ~) are written plainly; but in a URL with a stray `%` (one that starts no
    escape) nothing is unescaped, because `%%32E` would become `%2E` and then `.`
 7. what must be escaped (spaces, controls, everything non-ASCII as UTF-8) is: the form is ASCII.
    The query of a link is escaped in the encoding of its page (`frontier.query_encoding`)
 8. an empty query (`?`) is dropped
 9. parameters named in `drop_params` are removed, whatever their case
10. the order of parameters is kept, unless `sort_query`: then by name, equal names in their order
11. at most 8,192 bytes

Canonicalising twice changes nothing (a property test holds that). Anything else raises `BadUrl`.
Change a rule and CANONICAL_VERSION has to change too. A run stores the version by which its keys
are made and goes on by the rules of that version: `CanonicalRules.version` says which ones hold. A
run of a version that is not in CANONICAL_VERSIONS waits for masters and workers that know it: a key
by other rules would lose a page or fetch it twice. Whatever changes with a version belongs behind
`rules.version`; a version leaves CANONICAL_VERSIONS when its rules are removed. Versions:

1  queries of links are escaped as UTF-8, whatever the encoding of their page; spaces before a
   fragment are stripped
2  in the encoding of the page; such spaces are escaped
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Protocol
from urllib.parse import unquote_plus

import msgspec
from ada_url import join_url, normalize_url

from zcrawl.errors import BadUrl
from zcrawl.frontier.query_encoding import WRITTEN_AS_UTF8, encode_query
from zcrawl.model.reasons.failure import BAD_URL
from zcrawl.model.reasons.skip import UNSUPPORTED_SCHEME, URL_TOO_LONG
from zcrawl.text.patterns import lazy_pattern

CANONICAL_VERSION: Final = 2  # of new runs
CANONICAL_VERSIONS: Final = frozenset({1, 2})  # that this software can go on with
PAGE_ENCODING_SINCE: Final = 2  # the first version that escapes queries in the page's encoding
FRAGMENT_SPACES_SINCE: Final = 2  # the first version that keeps spaces before a fragment
MAX_URL_BYTES: Final = 8192
KEY_BYTES: Final = 16

_MAX_CACHED: Final = 20_000  # entries of a resolver
_MAX_CACHED_HREF: Final = 256  # characters; longer hrefs hardly ever repeat

# What the URL standard strips from both ends before it parses.
_STRIPPED = "".join(map(chr, range(0x21)))
_SCHEME = lazy_pattern(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CREDENTIALS = lazy_pattern(r"^(https?:)?.*@", re.IGNORECASE | re.DOTALL)
_ESCAPE = lazy_pattern(r"%[0-9A-Fa-f]{2}")
# Escapes that have another normal form: with lower-case digits, or of a letter, a digit or `-._~`.
# All others stay, and 2,600 of them in one URL took 2 ms when each was looked at.
_ODD_ESCAPE = lazy_pattern(
    r"%(?:[A-Fa-f0-9][a-f]|[a-f][A-Fa-f0-9]"
    r"|2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])"
)
_STRAY_PERCENT = lazy_pattern(r"%(?![0-9A-Fa-f]{2})")
# A path that joins to a directory by plain concatenation: no dot segment, nothing to escape.
_PLAIN_PATH = lazy_pattern(
    r"(?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]*/)*(?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)?"
)
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class CanonicalRules(msgspec.Struct, frozen=True):
    """What a job adds to the canonical form, and the version of the form that its run keeps."""

    sort_query: bool = False
    drop_params: frozenset[str] = frozenset()
    collapse_scheme: bool = False  # http and https have one key: the first one found is crawled
    collapse_www: bool = False  # the same for a leading `www.`
    version: int = CANONICAL_VERSION  # of the form itself, as stored with the run

    @property
    def are_known(self) -> bool:
        """Whether this software can compute keys by these rules."""
        return self.version in CANONICAL_VERSIONS

    def key(self, url: str) -> bytes:
        """Return the key of a canonical URL; only the key collapses, not the fetched URL."""
        if not (self.collapse_scheme or self.collapse_www):
            return url_key(url)
        if self.collapse_scheme and url.startswith("http://"):
            url = "https" + url[4:]
        if self.collapse_www:
            name = url.find("//") + 2
            if url.startswith("www.", name):
                url = url[:name] + url[name + 4 :]
        return url_key(url)

    def redirect_key(self, url: str) -> bytes:
        """Return a key for a redirect's target that collapses to the key of its origin.

        Example: from http to https where both collapse. The first request has the usual key, so the
        target gets one that no link can have.
        """
        return url_key(f"{url}#redirected")


DEFAULT: Final = CanonicalRules()  # for URLs outside of runs, whose keys nobody keeps


def canonicalize(url: str, rules: CanonicalRules = DEFAULT) -> str:
    """Return the canonical form of an absolute URL. Raises only BadUrl."""
    return _canonical(None, url, rules)


def join(
    base: str, href: str, rules: CanonicalRules = DEFAULT, page_encoding: str = "utf-8"
) -> str:
    """Return the canonical form of the link `href` on the page `base`. Raises only BadUrl."""
    if uses_page_encoding(page_encoding, rules):
        href = encode_query(href, page_encoding)
    return _canonical(base, href, rules)


def absolute(base: str, href: str, page_encoding: str = "utf-8") -> str:
    """Return the absolute URL of `href` as a browser does, of any scheme. Raises ValueError."""
    if page_encoding not in WRITTEN_AS_UTF8:
        href = encode_query(href, page_encoding)
    return str(join_url(base, href))


def uses_page_encoding(page_encoding: str, rules: CanonicalRules) -> bool:
    """Return whether queries of links on such a page are escaped in its own encoding."""
    return page_encoding not in WRITTEN_AS_UTF8 and rules.version >= PAGE_ENCODING_SINCE


def url_key(url: str) -> bytes:
    """Return 128 bits of BLAKE2b of a URL.

    Other packages must use `CanonicalRules` (an architecture rule): with two keys by different
    rules a page would be lost or fetched twice.
    """
    return blake2b(url.encode(), digest_size=KEY_BYTES).digest()


def without_fragment(href: str) -> str:
    """Return the part before the fragment.

    After a space (`a b #c`) the `#` stays: spaces are stripped only at the end of the whole href;
    before a fragment they are part of the URL (`a%20b%20`).
    """
    cut = href.find("#")
    if cut > 0 and href[cut - 1] <= " ":
        cut += 1
    return href if cut < 0 else href[:cut]


def origin_of(canonical_url: str) -> str:
    """Return scheme, name and port, the unit of politeness: `https://example.com:8443`."""
    return canonical_url[: canonical_url.find("/", 8)]  # no host begins later than at 8


def host_name_of(canonical_url: str) -> str:
    """Return the host's name without its port; an IPv6 address keeps its brackets."""
    netloc = canonical_url[canonical_url.find("/") + 2 : canonical_url.find("/", 8)]
    name, colon, port = netloc.rpartition(":")
    return name if colon and port.isdigit() else netloc


def netloc_of(canonical_url: str) -> str:
    """Return the host's name with its port, even if it is the scheme's default."""
    netloc = canonical_url[canonical_url.find("/") + 2 : canonical_url.find("/", 8)]
    if netloc.rpartition(":")[2].isdigit():  # an IPv6 address ends in a bracket
        return netloc
    return f"{netloc}:{443 if canonical_url.startswith('https:') else 80}"


class Resolver(Protocol):
    """The interface of `LinkResolver`, also for pages in other encodings."""

    @property
    def rejected(self) -> Counter[str]: ...

    @property
    def page_encoding(self) -> str: ...  # that queries are escaped in

    def resolve(self, base_url: str, href: str) -> tuple[str, bytes] | None: ...

    def resolve_all(self, base_url: str, hrefs: Iterable[str]) -> list[tuple[str, bytes]]: ...


class LinkResolver:
    """Resolves hrefs to (canonical URL, key), fast, because pages repeat their navigation.

    One per worker and set of rules. An absolute href means the same everywhere, one that begins
    with `/` the same on one origin, any other the same within one directory: three caches,
    emptied together when they hold more than _MAX_CACHED entries. `rejected` counts by reason.
    """

    page_encoding: Final = "utf-8"

    def __init__(self, rules: CanonicalRules) -> None:
        self.rejected: Counter[str] = Counter()
        self._rules = rules
        self._key = rules.key if rules.collapse_scheme or rules.collapse_www else url_key
        self._base: str | None = None  # as given; the next three derive from it
        self._page: str | None = None  # in canonical form; None if it has none
        self._origin = self._directory = ""
        self._cached = 0
        # Values: the result, or the code of the BadUrl.
        self._absolute: dict[str, tuple[str, bytes] | str] = {}
        self._by_place: dict[str, dict[str, tuple[str, bytes] | str]] = {}
        self._by_origin = self._by_directory = self._absolute

    def resolve(self, base_url: str, href: str) -> tuple[str, bytes] | None:
        """Return URL and key of `href` on the page `base_url`; None if it cannot be crawled."""
        if base_url != self._base:
            self._enter(base_url)
        if "#" in href:
            href = without_fragment(href)
        if href.startswith("/"):
            cache = self._by_origin
        elif href.startswith(("http://", "https://")):
            cache = self._absolute
        else:
            cache = self._by_directory
        answer = cache.get(href)
        if answer is None:
            answer = self._look_up(href, cache is self._absolute)
            if len(href) <= _MAX_CACHED_HREF and (
                cache is not self._by_directory or _depends_on_directory_only(href)
            ):
                cache[href] = answer
                self._count_cached()
        if isinstance(answer, str):
            self.rejected[answer] += 1
            return None
        return answer

    def resolve_all(self, base_url: str, hrefs: Iterable[str]) -> list[tuple[str, bytes]]:
        """Return URL and key of those `hrefs` that can be crawled, in their order."""
        if base_url != self._base:
            self._enter(base_url)
        # Whether a cache can hold an href depends on its beginning, so at most one of them does.
        by_directory, by_origin, absolute = self._by_directory, self._by_origin, self._absolute
        links: list[tuple[str, bytes]] = []
        for href in hrefs:
            answer = by_directory.get(href) or by_origin.get(href) or absolute.get(href)
            link = answer if type(answer) is tuple else self.resolve(base_url, href)
            if link is not None:
                links.append(link)
        return links

    def for_page(self, encoding: str) -> Resolver:
        """Return a resolver that encodes queries in the encoding of a page."""
        if uses_page_encoding(encoding, self._rules):
            return _EncodingResolver(self, encoding)
        return self

    def cached(self) -> int:
        """How many entries the caches hold."""
        return self._cached

    def _look_up(self, href: str, absolute: bool) -> tuple[str, bytes] | str:
        if not absolute:
            if self._page is None:
                return BAD_URL
            rooted = href.startswith("/")
            if href and _PLAIN_PATH.fullmatch(href, 1 if rooted else 0):
                url = self._origin + href if rooted else self._directory + href
                if len(url) <= MAX_URL_BYTES:
                    return url, self._key(url)
        try:
            url = _canonical(None if absolute else self._page, href, self._rules)
        except BadUrl as error:
            return error.code
        return url, self._key(url)

    def _enter(self, base_url: str) -> None:
        """Select the caches for the origin and directory of a page."""
        self._page = base_url
        self._origin = origin_of(base_url)
        # A plain path on an origin that was met in canonical form needs no second look (5 us).
        if not (
            self._origin in self._by_place
            and base_url.startswith("/", len(self._origin))
            and _PLAIN_PATH.fullmatch(base_url, len(self._origin) + 1)
        ):
            try:
                self._page = canonicalize(base_url)
            except BadUrl:
                self._page = None
            self._origin = origin_of(self._page or "")
        path = (self._page or "").partition("?")[0]
        self._directory = path[: path.rfind("/") + 1]
        self._by_origin = self._place(self._origin)
        self._by_directory = self._place(self._directory)
        self._base = base_url

    def _place(self, place: str) -> dict[str, tuple[str, bytes] | str]:
        cache = self._by_place.get(place)
        if cache is None:
            cache = self._by_place[place] = {}
            self._count_cached()
        return cache

    def _count_cached(self) -> None:
        self._cached += 1
        if self._cached > _MAX_CACHED:
            self._cached = 0
            self._absolute.clear()
            self._by_place.clear()
            self._base = None  # the next call enters again


class _EncodingResolver:
    """A resolver for one page that is not UTF-8. Hrefs are encoded before the caches see them."""

    def __init__(self, resolver: LinkResolver, encoding: str) -> None:
        self.rejected = resolver.rejected
        self.page_encoding = encoding
        self._resolve, self._resolve_all = resolver.resolve, resolver.resolve_all

    def resolve(self, base_url: str, href: str) -> tuple[str, bytes] | None:
        return self._resolve(base_url, encode_query(href, self.page_encoding))

    def resolve_all(self, base_url: str, hrefs: Iterable[str]) -> list[tuple[str, bytes]]:
        return self._resolve_all(
            base_url, [encode_query(href, self.page_encoding) for href in hrefs]
        )


def _depends_on_directory_only(href: str) -> bool:
    """False for ``, `?page=2` and `http:?page=2`, which keep the file name of their page too."""
    return ":" not in href and href.lstrip(_STRIPPED)[:1] not in ("", "?", "#")


def _canonical(base: str | None, href: str, rules: CanonicalRules) -> str:
    written = href  # a password with a # in it is not a fragment, and must not be shown
    if rules.version >= FRAGMENT_SPACES_SINCE:
        href = without_fragment(href.strip(_STRIPPED))
    else:
        href = href.partition("#")[0].strip(_STRIPPED)
    scheme = _SCHEME.match(href)
    if scheme and scheme[1].lower() not in ("http", "https"):
        raise _bad(written, UNSUPPORTED_SCHEME, "only http:// and https:// URLs are crawled")
    if len(href) > MAX_URL_BYTES or (base is not None and len(base) > MAX_URL_BYTES):
        raise _bad(written, URL_TOO_LONG, f"longer than {MAX_URL_BYTES} bytes")
    try:
        url = normalize_url(href) if base is None else join_url(base, href)
    except ValueError:
        raise _bad(written, BAD_URL, "not a valid URL") from None
    name = 8 if url.startswith("https://") else 7
    if name == 7 and not url.startswith("http://"):  # `ht\ntps:` or a base of another scheme
        raise _bad(written, UNSUPPORTED_SCHEME, "only http:// and https:// URLs are crawled")
    path = url.find("/", name)
    at = url.rfind("@", name, path)
    if at >= 0:
        url, path = url[:name] + url[at + 1 :], path - (at + 1 - name)
    cut = url.find("#", path)  # of a base, or left behind a space
    if cut >= 0:
        url = url[:cut]
    if "%" in url:
        url = url[:path] + _normal_escapes(url[path:])
    mark = url.find("?", path)
    if mark >= 0:
        query = url[mark + 1 :]
        if rules.sort_query or rules.drop_params:
            query = _apply(rules, query)
        url = f"{url[:mark]}?{query}" if query else url[:mark]
    if len(url) > MAX_URL_BYTES:
        raise _bad(written, URL_TOO_LONG, f"longer than {MAX_URL_BYTES} bytes")
    return url


def _normal_escape(match: re.Match[str]) -> str:
    char = chr(int(match[0][1:], 16))
    return char if char in _UNRESERVED else match[0].upper()


def _normal_escapes(text: str) -> str:
    # No dot segment can arise here: ada_url reads %2e as a dot when it resolves them.
    if _STRAY_PERCENT.search(text):
        return _ESCAPE.sub(lambda match: match[0].upper(), text)
    return _ODD_ESCAPE.sub(_normal_escape, text)


def _apply(rules: CanonicalRules, query: str) -> str:
    pairs = query.split("&")
    if rules.drop_params:
        dropped = _lower(rules.drop_params)
        pairs = [p for p in pairs if unquote_plus(p.partition("=")[0]).lower() not in dropped]
    if rules.sort_query:
        pairs.sort(key=lambda pair: pair.partition("=")[0])
    return "&".join(pairs)


@functools.lru_cache(maxsize=64)  # of each run: there may be 10,000 names, and a URL needs few
def _lower(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def quoted(text: str, most: int = 200) -> str:
    """Return a URL for messages: printable, short, and without a password."""
    return ascii(_CREDENTIALS.sub(r"\1//", text[:MAX_URL_BYTES]))[:most]


def _bad(href: str, code: str, reason: str) -> BadUrl:
    return BadUrl(f"{quoted(href)}: {reason}", code=code)
