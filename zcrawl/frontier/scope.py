"""Decide whether a link belongs to a crawl, with the reason if not.

Called by the worker for every new link of a page (`results.link_filter`), and by `master.recall`
for pages that a job remembers. Pure. A filter is compiled
once per run from the job's [scope]; the first rule that does not fit gives the reason:

    too_deep            deeper than max_depth (seeds have depth 0)
    out_of_scope_host   no entry of `hosts` matches; without entries: the hosts of the seeds
    binary_extension    skip_binary, and the link ends in a non-HTML file extension
    excluded            an `exclude` expression is found in the canonical URL (`text.expressions`)
    not_included        there are `include` expressions, and none is found

Links that are left out are counted by reason and shown with the run.

An entry of `hosts` is
    example.com         this name, with any scheme and any port, and none of its sub-domains
    example.com:8443    this name on this port only (80 and 443 are http's and https's defaults)
    *.example.com       all its sub-domains, however deep, but not example.com itself
    *                   every host
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zcrawl.errors import BadUrl, JobError
from zcrawl.frontier.url import CanonicalRules, canonicalize, host_name_of, origin_of
from zcrawl.model.reasons.skip import (
    BINARY_EXTENSION,
    EXCLUDED,
    NOT_INCLUDED,
    OUT_OF_SCOPE_HOST,
    TOO_DEEP,
)
from zcrawl.model.reasons.usage import BAD_EXPRESSION
from zcrawl.model.spec import Scope
from zcrawl.text.expressions import Pattern, compile_pattern
from zcrawl.text.patterns import lazy_pattern

# In this order: images; audio and video; archives and disk images; documents; fonts; programs;
# what a page loads but nobody visits. json, xml, txt, csv and the like are not here: they may be
# feeds, sitemaps or data worth having. Nor are extensions that are words too (.key, .pages).
_BINARY = """
    apng avif bmp cr2 dng eps gif heic heif ico jfif jpe jpeg jpg jxl nef png psd svg svgz tga tif
    tiff webp xcf
    3gp aac aif aiff amr asf avi flac flv m2ts m3u8 m4a m4b m4v mid midi mkv mov mp2 mp3 mp4 mpeg
    mpg oga ogg ogv opus qt swf vob wav weba webm wma wmv
    7z bz2 cab cpio dmg gz img iso jar lha lz lz4 lzma lzo rar tar tbz tbz2 tgz txz vhd vmdk war
    whl xpi xz zip zst
    djvu doc docm docx dotx epub mobi odg odp ods odt pdf potx pps ppsx ppt pptm pptx ps rtf vsd
    vsdx xls xlsb xlsm xlsx
    eot otf pfb ttc ttf woff woff2
    apk appimage bin deb dll dylib ear exe ipa ko msi msix pkg pyc rpm sqlite wasm
    css js mjs
"""
BINARY_EXTENSIONS: Final = frozenset(_BINARY.split())

SCOPE_REASONS: Final = frozenset(
    {TOO_DEEP, OUT_OF_SCOPE_HOST, BINARY_EXTENSION, EXCLUDED, NOT_INCLUDED}
)
MAX_PROGRAM: Final = 10_000  # instructions of all expressions of a scope together
_MAX_CACHED_HOSTS: Final = 10_000
_HOST_ENTRY = lazy_pattern(r"(\*\.)?(\[[^\]]*\]|[^:/?#@*\s\\]+)(?::([0-9]{1,5}))?")


class ScopeFilter:
    """The compiled scope of one run. Raises JobError for a wrong entry or expression."""

    def __init__(self, scope: Scope, seed_hosts: frozenset[str]) -> None:
        self._max_depth = scope.max_depth
        self._skip_binary = scope.skip_binary
        self._excludes = _patterns("scope.exclude", scope.exclude, MAX_PROGRAM)
        excludes_cost = sum(pattern.size for pattern in self._excludes)
        self._includes = _patterns("scope.include", scope.include, MAX_PROGRAM - excludes_cost)
        # The most steps of `verdict` for each byte of the URL.
        self.cost = excludes_cost + sum(pattern.size for pattern in self._includes)
        entries = scope.hosts or sorted(seed_hosts)
        self._any_host = "*" in entries
        # (name, port) with port "" for any; a wildcard's name is kept with its leading dot.
        self._names: set[tuple[str, str]] = set()
        self._suffixes: set[tuple[str, str]] = set()
        for entry in entries:
            if entry != "*":
                wildcard, name, port = _parse_host(entry)
                (self._suffixes if wildcard else self._names).add((name, port))
        self._host_verdicts: dict[str, bool] = {}

    def verdict(self, url: str, depth: int) -> str | None:
        """Return None if the canonical `url` at `depth` belongs to the crawl, else the reason."""
        if self._max_depth is not None and depth > self._max_depth:
            return TOO_DEEP
        if not self.has_host(url):
            return OUT_OF_SCOPE_HOST
        if self._skip_binary and has_binary_extension(url):
            return BINARY_EXTENSION
        if self._excludes and any(pattern.found_in(url) for pattern in self._excludes):
            return EXCLUDED
        if self._includes and not any(pattern.found_in(url) for pattern in self._includes):
            return NOT_INCLUDED
        return None

    def has_host(self, url: str) -> bool:
        """Return whether the host of `url` belongs to the crawl."""
        origin = origin_of(url)
        inside = self._host_verdicts.get(origin)
        if inside is None:
            inside = self._remember(origin, self._any_host or self._matches(origin))
        return inside

    def _remember(self, origin: str, inside: bool) -> bool:
        # Pages can name any number of hosts, so the cache is emptied when it is full.
        if len(self._host_verdicts) >= _MAX_CACHED_HOSTS:
            self._host_verdicts.clear()
        self._host_verdicts[origin] = inside
        return inside

    def _matches(self, origin: str) -> bool:
        name = host_name_of(origin + "/")
        port = origin[origin.find("//") + 2 + len(name) + 1 :] or _default_port(origin)
        if (name, "") in self._names or (name, port) in self._names:
            return True
        return any(
            name.endswith(suffix) and suffix_port in ("", port)
            for suffix, suffix_port in self._suffixes
        )


def canonical_rules(scope: Scope, version: int) -> CanonicalRules:
    """Return the URL rules of a run: the stored version, and the settings of its job."""
    return CanonicalRules(
        scope.sort_query,
        frozenset(scope.drop_params),
        scope.collapse_scheme,
        scope.collapse_www,
        version,
    )


def validate_scope(scope: Scope) -> None:
    """Raise JobError if no ScopeFilter can be compiled. Used by `submit`."""
    ScopeFilter(scope, frozenset())
    if scope.max_depth is not None and scope.max_depth < 0:
        raise JobError(f"scope.max_depth is {scope.max_depth}; it cannot be negative")


def has_binary_extension(url: str) -> bool:
    """Return whether a canonical URL ends in a non-HTML file extension."""
    end = url.find("?")
    if end < 0:
        end = len(url)
    # An extension is short; looking further left would only find directories and the host.
    dot = url.rfind(".", max(url.rfind("/", 0, end), end - 10), end)
    return dot >= 0 and url[dot + 1 : end].lower() in BINARY_EXTENSIONS


def _default_port(origin: str) -> str:
    return "443" if origin.startswith("https:") else "80"


def _parse_host(entry: str) -> tuple[bool, str, str]:
    """(is a wildcard, name in canonical form, port or "")."""
    parts = _HOST_ENTRY.fullmatch(entry.strip())
    if parts is None:
        raise JobError(
            f"scope.hosts: {entry!a} is not a host; write example.com, example.com:8443, "
            "*.example.com or *, without scheme and path"
        )
    try:
        name = host_name_of(canonicalize(f"http://{parts[2]}/"))
    except BadUrl:
        raise JobError(f"scope.hosts: {entry!a} is not a valid host name") from None
    port = parts[3] or ""
    if port and not 0 < int(port) < 65536:
        raise JobError(f"scope.hosts: {entry!a} has port {port}; ports go from 1 to 65535")
    wildcard = parts[1] is not None
    return wildcard, f".{name}" if wildcard else name, port and str(int(port))


def _patterns(key: str, expressions: Iterable[str], most: int) -> tuple[Pattern, ...]:
    """Compile each expression by itself; joined by |, their groups would break. Stop at the first
    one above `most` instructions: to compile all of a hostile job would hold the leader."""
    patterns: list[Pattern] = []
    for number, text in enumerate(expressions, 1):
        pattern = compile_pattern(text, f"{key}[{number}]")
        most -= pattern.size
        if most < 0:
            raise JobError(
                "scope.include and scope.exclude are too large together: more than "
                f"{MAX_PROGRAM} instructions at {key}[{number}]; use fewer or simpler expressions",
                code=BAD_EXPRESSION,
            )
        patterns.append(pattern)
    return tuple(patterns)
