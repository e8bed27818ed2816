"""What holds for every URL, whatever a page or a user writes."""

from __future__ import annotations

import contextlib
import string

import ada_url
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zcrawl.errors import BadUrl
from zcrawl.frontier.url import (
    DEFAULT,
    MAX_URL_BYTES,
    CanonicalRules,
    LinkResolver,
    canonicalize,
    host_name_of,
    join,
    origin_of,
)

CODES = {"bad_url", "url_too_long", "unsupported_scheme"}
RULES = st.builds(
    CanonicalRules,
    sort_query=st.booleans(),
    drop_params=st.frozensets(st.sampled_from(["sid", "UTM_source", "a", "ä"]), max_size=2),
)
# Pieces that interact: escapes that hide dots, percent signs and slashes, and everything else.
PIECES = (
    "%2e %2E .. . / \\ // %2f %25 % %% %3 %32 E %41 %7e ~ ? & = # ; : @ a B ä ß "
    "sid=1 UTM_source=x a=%41 + %20 | ^ [ ] \t \n \x00 \x7f é \u2028 \ud800 %ff http: //h"
)
BEFORE_A_FRAGMENT = (" ", "  ", "\t", " #", "# ", "#", "a", "?", "\x01")
HOSTS = (
    "example.com EXAMPLE.com:80 u:p@h.example:8443 [::1] [::1]:81 127.1 bücher.example x.y. "
    "xn--bcher-kva.example a%41.example 0x7f.1:443 faß.de u@h"
)
PIECE = st.one_of(
    st.sampled_from(PIECES.split(" ")), st.sampled_from(BEFORE_A_FRAGMENT), st.text(max_size=4)
)
TAILS = st.lists(PIECE, max_size=10).map("".join)
URLS = st.builds(
    lambda scheme, authority, tail: f"{scheme}://{authority}{tail}",
    st.sampled_from(["http", "https", "HTTP"]),
    st.sampled_from(HOSTS.split()),
    TAILS,
)
ANYTHING = st.one_of(URLS, TAILS, st.text(st.characters(), max_size=40))


def up_to_mark(href: str) -> str:
    """With the mark of the fragment, and without the fragment, which nobody looks at."""
    head, mark, _ = href.partition("#")
    return head + mark


@given(url=ANYTHING, rules=RULES)
@example(url="http://h/%%32E%%32E/x", rules=CanonicalRules())
@example(url="http://h/a/%2E%2e/..%2f", rules=CanonicalRules())
@example(url="http://h/?&&sid=1&", rules=CanonicalRules(drop_params=frozenset({"sid"})))
@settings(max_examples=400, deadline=None)
def test_canonicalising_twice_changes_nothing(url: str, rules: CanonicalRules) -> None:
    """The canonical form is its own canonical form, for all rules; else two keys mean one URL."""
    with contextlib.suppress(BadUrl):
        once = canonicalize(url, rules)
        assert canonicalize(once, rules) == once


@given(url=ANYTHING, rules=RULES)
@settings(max_examples=400, deadline=None)
def test_the_form_is_short_ascii_without_secrets_or_a_named_error(
    url: str, rules: CanonicalRules
) -> None:
    """Whatever comes in, a safe string or a BadUrl with a known code comes out."""
    try:
        result = canonicalize(url, rules)
    except BadUrl as error:
        assert error.code in CODES
        assert str(error).isprintable()
        assert str(error).isascii()
        return
    assert result.isascii()
    assert result.isprintable()
    assert " " not in result
    assert len(result) <= MAX_URL_BYTES
    assert "#" not in result
    assert "@" not in origin_of(result)
    assert result.startswith(("http://", "https://"))
    assert len(DEFAULT.key(result)) == 16


@given(url=URLS)
@settings(max_examples=400, deadline=None)
def test_the_form_means_the_same_as_what_ada_url_reads(url: str) -> None:
    """Host, port and path length agree with the WHATWG parser on the untouched input."""
    with contextlib.suppress(BadUrl):
        result = canonicalize(url)
        theirs = ada_url.URL(up_to_mark(url))
        assert host_name_of(result) == theirs.hostname
        assert origin_of(result) == theirs.origin
        ours = ada_url.URL(result)
        assert ours.pathname.count("/") == theirs.pathname.count("/")
        assert ours.href == result


@given(base=URLS, href=ANYTHING, rules=RULES)
@settings(max_examples=400, deadline=None)
def test_joining_is_joining_by_the_standard_and_then_canonicalising(
    base: str, href: str, rules: CanonicalRules
) -> None:
    """`join` adds nothing of its own to the standard's idea of a relative reference."""
    try:
        expected = canonicalize(ada_url.join_url(base, up_to_mark(href)), rules)
    except (BadUrl, ValueError):
        expected = None
    try:
        assert join(base, href, rules) == expected
    except BadUrl:
        assert expected is None


PLAIN = st.text(string.ascii_letters + string.digits + "-_.~/", max_size=12)


@given(
    bases=st.lists(URLS, min_size=1, max_size=3),
    hrefs=st.lists(st.one_of(ANYTHING, PLAIN, st.just("?p=2")), min_size=1, max_size=8),
    rules=RULES,
)
@settings(max_examples=400, deadline=None)
def test_a_resolver_with_warm_caches_answers_as_join_does(
    bases: list[str], hrefs: list[str], rules: CanonicalRules
) -> None:
    """Caches and shortcuts change the speed of an answer, never the answer."""
    resolver = LinkResolver(rules)
    for base in [*bases, *bases]:
        for href in [*hrefs, *hrefs]:
            try:
                page = canonicalize(base)
            except BadUrl:
                continue
            try:
                url = join(page, href, rules)
            except BadUrl:
                assert resolver.resolve(page, href) is None
            else:
                assert resolver.resolve(page, href) == (url, DEFAULT.key(url))
                assert resolver.resolve(base, href) == (url, DEFAULT.key(url))


@given(
    bases=st.lists(URLS, min_size=1, max_size=3),
    hrefs=st.lists(st.one_of(ANYTHING, PLAIN, st.just("/a"), st.just("#b")), max_size=8),
    rules=RULES,
    encoding=st.sampled_from(["utf-8", "euc-jp"]),
)
@settings(max_examples=400, deadline=None)
def test_hrefs_resolved_together_give_what_each_gives_alone(
    bases: list[str], hrefs: list[str], rules: CanonicalRules, encoding: str
) -> None:
    """`resolve_all` looks into the caches in another way: same links, same counts of rejects."""
    together, alone = LinkResolver(rules), LinkResolver(rules)
    for base in [*bases, *bases]:
        links = together.for_page(encoding).resolve_all(base, hrefs)
        resolve = alone.for_page(encoding).resolve
        answers = [resolve(base, href) for href in hrefs]
        assert links == [link for link in answers if link is not None]
        assert together.rejected == alone.rejected
