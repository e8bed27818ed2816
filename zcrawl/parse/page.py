"""Read one fetched page: its title, its links, and whether it may be indexed.

Called by the worker's pipeline for every HTML answer: in the event loop, or, if the page is large
or looks costly (`parse.cost`), in a child process that can be killed. Pure. A crawler spends most
of its CPU time here, so lexbor gets the body as bytes whenever the encoding allows it (UTF-8, or
plain ASCII in an encoding that contains it). lexbor reads invalid UTF-8 as U+FFFD, like a decoder.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from zcrawl.errors import ParseError
from zcrawl.frontier.url import LinkResolver, Resolver
from zcrawl.model.reasons.failure import BINARY_CONTENT, FORBIDDEN_CHARSET
from zcrawl.model.reasons.skip import UNSUPPORTED_SCHEME
from zcrawl.parse.charset import encoding_of, looks_binary, text_as
from zcrawl.parse.cost import ParsePlace, TimeBudget, check_depth, judge
from zcrawl.parse.directives import forbids_following, forbids_index
from zcrawl.parse.encodings import REPLACEMENT
from zcrawl.parse.links import links_of, tag_id
from zcrawl.text.patterns import lazy_pattern

if TYPE_CHECKING:  # loaded by jobs that extract
    from zcrawl.parse.extract.page_facts import PageContext
    from zcrawl.parse.extract.plan import Extracted, ExtractionPlan

MAX_TITLE_CHARS: Final = 500
MAX_ALTERNATES: Final = 200
_META: Final = tag_id("meta")
_LINK: Final = tag_id("link")
_TITLE: Final = tag_id("title")

_HTML_TYPES = ("text/html", "application/xhtml+xml")
# The beginnings of HTML without a Content-Type; a subset of the MIME Sniffing Standard.
_HTML_STARTS = (
    b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<meta", b"<script", b"<!--",
    b"<div", b"<p>", b"<h1", b"<a ", b"<table", b"<iframe", b"<style", b"<br",
)  # fmt: skip
_XHTML_MARK = b"<html"
_NOT_ASCII_COMPATIBLE = frozenset({"utf-16le", "utf-16be", "iso-2022-jp"})

# At each <div>, <li> and similar tags, an HTML parser searches all open elements. Browsers limit
# their number, lexbor does not: 100,000 nested <div> took 32 s, 16,000 of <ul><li> took 0.6 s.
_MANY_BYTES: Final = 100_000  # smaller pages are only sampled: the whole check costs them 7 %
_SAMPLED_BYTES: Final = 15_000  # shorter pages nest at most 3,000 deep: 25 ms
_SAMPLE: Final = 1_024
_BETWEEN_SAMPLES: Final = 6_000
_DENSE: Final = 90  # tags in a sample; the densest real pages have 60, text between them included
_MANY_TAGS: Final = 15_000
_MAX_DEPTH: Final = 1_000
# Tags that nest. Others (li, p, td, option ...) are closed by the next one of their kind.
_NESTING = lazy_pattern(
    rb"<(/?)(?:div|span|ul|ol|dl|section|article|main|nav|aside|header|footer|center|blockquote"
    rb"|form|fieldset|details|figure|menu|dir|pre|b|i|u|s|em|strong|font|small|big|code|tt)[>\s]"
)
_IRRELEVANT = lazy_pattern(
    rb"</?(?!(?:a|area|i?frame|frameset|noframes|base|meta|title|head|html|body|script|noscript"
    rb"|style|template|textarea|xmp)[\s/>])[a-z][^>]*>",
    re.I,
)


class PageOptions(msgspec.Struct, frozen=True):
    """The options of a job for reading pages."""

    follow_nofollow: bool = False  # True when the job ignores robots rules
    plan: ExtractionPlan | None = None  # of a job that extracts
    token: str = ""  # the crawler's name for <meta name=...>
    fingerprint: bool = False  # compute one, because the job looks for near duplicates


class ParsedPage(msgspec.Struct, frozen=True):
    """The content of a page. Links are (canonical URL, key), each once, in document order."""

    title: str | None
    links: list[tuple[str, bytes]]
    encoding: str  # name in the WHATWG Encoding Standard
    noindex: bool  # the page forbids keeping it; the caller decides
    rejected: dict[str, int]  # hrefs that look like URLs and cannot be crawled: reason → count
    extracted: Extracted | None = None  # None: the job extracts nothing, or not from this page
    canonical: str | None = None  # the URL of <link rel=canonical>, in canonical form
    alternates: tuple[tuple[str, str], ...] = ()  # (hreflang, URL) of <link rel=alternate>
    fingerprint: bytes = b""  # empty: not requested, or the text is too short


NOTHING_PARSED: Final = ParsedPage(None, [], "", False, {})  # for an answer that is not HTML


class ForThread(Exception):
    """The markup must be parsed in a thread (`parse_markup`); then call again with the tree."""

    def __init__(self, markup: bytes) -> None:
        super().__init__(f"{len(markup)} bytes")
        self.markup = markup


def is_html(content_type: str, body: bytes) -> bool:
    """Return whether a body is HTML, by its type, or without a type by its beginning."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind:
        return kind in _HTML_TYPES
    start = body[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith(b"<?xml"):
        return _XHTML_MARK in start
    return start.startswith(_HTML_STARTS)


def is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json") or kind.endswith("+json")


def parse_markup(markup: bytes, tags: int | None = None) -> LexborHTMLParser:
    """Return the tree of UTF-8 markup that has at most so many tags, if that is known.

    Lexbor runs without the interpreter's lock.
    """
    few = tags is not None and tags <= _MAX_DEPTH
    if not few and len(markup) > _SAMPLED_BYTES and _may_be_deep(markup):
        markup = _flattened(markup)
    try:
        return LexborHTMLParser(markup)
    except (ValueError, RuntimeError) as error:
        raise ParseError(f"lexbor refused the page: {error}") from None
    except SelectolaxError as error:  # only a failed allocation raises this for bytes
        raise MemoryError(f"lexbor: {error}") from None


def parse_page(
    body: bytes,
    content_type: str,
    url: str,
    options: PageOptions,
    resolver: LinkResolver,
    facts: PageContext | None = None,
    budget: TimeBudget | None = None,
    tree: LexborHTMLParser | None = None,
) -> ParsedPage:
    """Read the page that `url` (canonical, after redirects) answered with.

    Raises ParseError with code binary_content if the body is not text, forbidden_charset for an
    encoding that the standard forbids, or parse if lexbor refuses it; every other body gives a
    page, perhaps an empty one. With a budget it raises TooCostly for a page that must be read in a
    child process because it may take long or does, and ForThread for a page whose markup must be
    parsed in a thread: call again with that `tree`.
    """
    encoding = encoding_of(body, content_type)
    if looks_binary(body) and not encoding.startswith("utf-16"):
        raise ParseError("the body is binary data, not HTML", code=BINARY_CONTENT)
    page_resolver: Resolver = resolver
    if encoding == "utf-8":
        markup = body.removeprefix(b"\xef\xbb\xbf")
    else:
        markup = _as_utf8(body, encoding)
        page_resolver = resolver.for_page(encoding)
    plan = options.plan if facts is not None else None
    only_a, tags = False, None
    if budget is not None:
        if tree is None:
            cost = None if plan is None else plan.cost
            place, only_a, tags = judge(markup, options.fingerprint, cost)
            if place is ParsePlace.THREAD:
                raise ForThread(markup)
        budget.begin()
    if tree is None:
        tree = parse_markup(markup, tags)
    if budget is not None and plan is not None:
        check_depth(tree, plan.cost)
    head = _read_head(tree, options.token)
    canonical, alternates = _resolve_head(head, url, page_resolver)
    resolver.rejected.clear()
    follows = options.follow_nofollow or not forbids_following(head.robots)
    extracted: Extracted | None = None
    links: list[tuple[str, bytes]] = []
    base: str | None = None
    if follows and (plan is None or not plan.picks_links):
        links, base = links_of(tree, url, options.follow_nofollow, page_resolver, budget, only_a)
    if plan is not None and facts is not None:
        from zcrawl.parse.extract.page_facts import SourcePage

        source = SourcePage(
            facts, page_resolver, tree, None, head.title, options.follow_nofollow, base, budget
        )
        extracted = plan.apply(source)
        if follows and plan.picks_links:
            picked = None if extracted is None else extracted.links
            if picked is None:  # the block has no rules for links, or there is no block
                picked, _ = links_of(tree, url, options.follow_nofollow, page_resolver, budget)
            links = picked
    if budget is not None:
        budget.check()
    return ParsedPage(
        title=head.title,
        links=links,
        encoding=encoding,
        noindex=forbids_index(head.robots),
        rejected={code: n for code, n in resolver.rejected.items() if code != UNSUPPORTED_SCHEME},
        extracted=extracted,
        canonical=canonical,
        alternates=alternates,
        fingerprint=_fingerprint(tree) if options.fingerprint else b"",
    )


def _as_utf8(body: bytes, encoding: str) -> bytes:
    if encoding == REPLACEMENT:
        raise ParseError(
            "the page declares an encoding that the Encoding Standard forbids (ISO-2022-KR,"
            " ISO-2022-CN, HZ)",
            code=FORBIDDEN_CHARSET,
        )
    if encoding not in _NOT_ASCII_COMPATIBLE and body.isascii():
        return body
    return text_as(body, encoding).encode()


def _fingerprint(tree: LexborHTMLParser) -> bytes:
    from zcrawl.parse.fingerprint import fingerprint_of  # few jobs need it

    return fingerprint_of(tree)


def _may_be_deep(markup: bytes) -> bool:
    """Return whether there are enough tags to nest very deep. In a shorter page they must be close
    together, so a few samples find them."""
    if len(markup) > _MANY_BYTES:
        return markup.count(b"<") > _MANY_TAGS
    return any(
        markup.count(b"<", at, at + _SAMPLE) > _DENSE
        for at in range(0, len(markup), _BETWEEN_SAMPLES)
    )


def _flattened(markup: bytes) -> bytes:
    """Return the markup, or, if it nests very deep, the markup with only the tags that matter
    here."""
    steps = (-1 if slash else 1 for slash in _NESTING.findall(markup.lower()))
    if max(accumulate(steps), default=0) <= _MAX_DEPTH:
        return markup
    # No tag ends after the last `>`: for each `<` there, the pattern would search to the end.
    end = markup.rfind(b">") + 1
    return _IRRELEVANT.sub(b"", markup[:end]) + markup[end:]


class _Head(msgspec.Struct):
    title: str | None = None
    robots: set[str] = msgspec.field(default_factory=set)  # of <meta name=robots>
    canonical: str | None = None
    alternates: list[tuple[str, str]] = msgspec.field(default_factory=list)


def _read_head(tree: LexborHTMLParser, token: str) -> _Head:
    """Read the <head>; in the <body> these tags do not count."""
    head_data = _Head()
    head = tree.head
    for node in head.iter() if head is not None else ():
        tag = node.tag_id
        if tag == _META:
            attributes = node.attributes
            name = (attributes.get("name") or "").strip().lower()
            if name == "robots" or (token and name == token):
                words = (attributes.get("content") or "").lower().replace(",", " ")
                head_data.robots.update(words.split())
        elif tag == _LINK:
            _read_link(node.attributes, head_data)
        elif tag == _TITLE and head_data.title is None:
            head_data.title = _clean(node)
    return head_data


def _read_link(attributes: dict[str, str | None], head_data: _Head) -> None:
    rel, href = attributes.get("rel"), attributes.get("href")
    if not rel or not href:
        return
    words = rel.lower().split()
    if "canonical" in words:
        head_data.canonical = head_data.canonical or href
    elif "alternate" in words and len(head_data.alternates) < MAX_ALTERNATES:
        language = attributes.get("hreflang")
        if language:
            head_data.alternates.append((language[:40], href))


def _resolve_head(
    head: _Head, url: str, resolver: Resolver
) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    canonical = resolver.resolve(url, head.canonical) if head.canonical else None
    resolved = ((lang, resolver.resolve(url, href)) for lang, href in head.alternates)
    alternates = tuple((lang, link[0]) for lang, link in resolved if link is not None)
    return (None if canonical is None else canonical[0]), alternates


def _clean(node: LexborNode) -> str | None:
    """Return a title as one line that any store and terminal accepts; None if it is empty."""
    text = " ".join(node.text().replace("\0", "").split())[:MAX_TITLE_CHARS].rstrip()
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text or None
