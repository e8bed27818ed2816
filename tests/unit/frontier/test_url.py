"""The canonical form, rule by rule, and what bad input becomes."""

from __future__ import annotations

import hashlib
import string
import time

import pytest

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


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTP://EXAMPLE.com", "http://example.com/"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("http://example.com:443/a", "http://example.com:443/a"),
        ("https://user:secret@example.com/", "https://example.com/"),
        ("http://a@b@h/", "http://h/"),
        ("http://h/a#f?x", "http://h/a"),
        ("http://h/a/./b/../c//d", "http://h/a/c//d"),
        ("http://h/a/%2e%2E/b", "http://h/b"),
        ("http://h/../..", "http://h/"),
        ("http://h/%7euser/%41%2d%2f%c3%a9", "http://h/~user/A-%2F%C3%A9"),
        ("http://h/?q=%7e%26%3d", "http://h/?q=~%26%3D"),
        ("http://h/100%/%41%zz%c3", "http://h/100%/%41%zz%C3"),
        ("http://h/%%32E%%32E/x", "http://h/%%32E%%32E/x"),
        ("http://h/a/%252e%252e/b", "http://h/a/%252e%252e/b"),
        ("http://h/a?", "http://h/a"),
        ("http://h?b=2&a=1", "http://h/?b=2&a=1"),
        ("http://h/?a?b", "http://h/?a?b"),
        ("http:\\\\h\\a\\b", "http://h/a/b"),
        ("  http://h/a b\t\n ", "http://h/a%20b"),
        ("ht\ntp://h/\ta", "http://h/a"),
        ("http:///h/x", "http://h/x"),
        ("http:h/x", "http://h/x"),
        ("http://bücher.example/ü?ü", "http://xn--bcher-kva.example/%C3%BC?%C3%BC"),
        ("http://faß.de/", "http://xn--fa-hia.de/"),
        ("http://☕.example/", "http://xn--53h.example/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://[2001:DB8:0:0::1]:80/", "http://[2001:db8::1]/"),
        ("http://[::ffff:1.2.3.4]:8080/", "http://[::ffff:102:304]:8080/"),
        ("http://h/a\x00b\x7f", "http://h/a%00b%7F"),
        ("http://h/<>\"'`{}|^", "http://h/%3C%3E%22'%60%7B%7D|%5E"),
    ],
)
def test_each_spelling_has_one_form(url: str, expected: str) -> None:
    """The canonical form follows the list in the module's docstring."""
    assert canonicalize(url) == expected
    assert canonicalize(expected) == expected


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "bad_url"),
        ("   ", "bad_url"),
        ("example.com/x", "bad_url"),
        ("//example.com/", "bad_url"),
        ("http:///", "bad_url"),
        ("http://", "bad_url"),
        ("http://[", "bad_url"),
        ("http://[::1", "bad_url"),
        ("http://h:65536/", "bad_url"),
        ("http://h:x/", "bad_url"),
        ("http://a b/", "bad_url"),
        ("http://a\x00b/", "bad_url"),
        ("http://1.2.3.256/", "bad_url"),
        ("http://h/\ud800", "bad_url"),
        ("http://user:secret@[/", "bad_url"),
        ("mailto:a@example.com", "unsupported_scheme"),
        ("JavaScript:void(0)", "unsupported_scheme"),
        ("data:text/html," + "x" * 100_000, "unsupported_scheme"),
        ("ftp://h/", "unsupported_scheme"),
        ("ma\nilto:a", "unsupported_scheme"),
        ("localhost:8080/x", "unsupported_scheme"),
        ("http://h/" + "x" * 1_000_000, "url_too_long"),
        ("http://h/" + "ü" * 2000, "url_too_long"),
    ],
)
def test_what_is_no_crawlable_url_is_a_named_error(url: str, code: str) -> None:
    """BadUrl says why, in a short printable message that holds no password."""
    with pytest.raises(BadUrl) as caught:
        canonicalize(url)
    assert caught.value.code == code
    message = str(caught.value)
    assert len(message) < 300
    assert message.isprintable()
    assert "secret" not in message


def test_a_url_may_be_as_long_as_the_limit_but_no_longer() -> None:
    """8,192 bytes pass, one more does not; a fragment does not count."""
    longest = "http://h/" + "x" * (MAX_URL_BYTES - 9)
    assert canonicalize(longest + "#" + "y" * 9999) == longest
    with pytest.raises(BadUrl, match="8192"):
        canonicalize(longest + "x")


def test_query_rules_drop_and_sort() -> None:
    """Named parameters go, whatever their case; sorting is by name and keeps equal names' order."""
    url = "http://h/?b=2&SID=9&a=z&b=1&a=a&utm%5Fsource=q"
    drop = frozenset({"sid", "UTM_source"})
    assert canonicalize(url, CanonicalRules(drop_params=drop)) == "http://h/?b=2&a=z&b=1&a=a"
    both = CanonicalRules(sort_query=True, drop_params=drop)
    assert canonicalize(url, both) == "http://h/?a=z&a=a&b=2&b=1"
    assert canonicalize("http://h/x?sid=1", both) == "http://h/x"


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("g", "http://a/b/c/g"),
        ("./g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"),
        ("//g", "http://g/"),
        ("?y", "http://a/b/c/d;p?y"),
        ("", "http://a/b/c/d;p?q"),
        ("#s", "http://a/b/c/d;p?q"),
        ("../../../g", "http://a/g"),
        ("g?y/./x", "http://a/b/c/g?y/./x"),
        ("g;x=1/../y", "http://a/b/c/y"),
        ("http:g", "http://a/b/c/g"),
        ("https:g", "https://g/"),
        ("..\\g", "http://a/b/g"),
        (" \n/g ", "http://a/g"),
        ("g #s", "http://a/b/c/g%20"),
        ("g  #s", "http://a/b/c/g%20%20"),
        (" g #s ", "http://a/b/c/g%20"),
        ("g# s ", "http://a/b/c/g"),
        ("g\t\n#s", "http://a/b/c/g"),
        ("g\x01#s", "http://a/b/c/g%01"),
        ("g?y #s", "http://a/b/c/g?y%20"),
        ("g? #s", "http://a/b/c/g?%20"),
        ("g #a #b", "http://a/b/c/g%20"),
        ("/ #s", "http://a/%20"),
        (" #s", "http://a/b/c/d;p?q"),
        ("http://a/g #s", "http://a/g%20"),
    ],
)
def test_relative_references_resolve_as_in_a_browser(href: str, expected: str) -> None:
    """The examples of RFC 3986 with the WHATWG's reading."""
    base = "http://a/b/c/d;p?q"
    assert join(base, href) == expected
    resolver = LinkResolver(DEFAULT)
    for _ in range(2):
        assert resolver.resolve(base, href) == (expected, DEFAULT.key(expected))


def test_a_space_before_the_fragment_makes_no_host() -> None:
    """Spaces are allowed in paths and queries, not in names."""
    with pytest.raises(BadUrl):
        canonicalize("http://a #s")


def test_a_run_of_the_first_version_goes_on_without_the_space() -> None:
    """Its keys were made so; another form of the same link would be another page."""
    old = CanonicalRules(version=1)
    resolver = LinkResolver(old)
    for href in ("g #s", " g #s ", "/g #s", "http://a/g #s", "g#s", "g"):
        expected = join("http://a/", href, old)
        assert expected == "http://a/g"
        assert resolver.resolve("http://a/", href) == (expected, old.key(expected))
    assert join("http://a/", "g #s") == "http://a/g%20"


def test_joining_with_a_bad_base_is_a_named_error() -> None:
    """Neither a broken base nor one of another scheme escapes as another exception."""
    for base in ("", "nonsense", "mailto:x", "file:///x", "http://h/\ud800", "x" * 99_999):
        with pytest.raises(BadUrl):
            join(base, "g")
        assert LinkResolver(DEFAULT).resolve(base, "g") is None


def test_a_key_is_128_bits_of_blake2b() -> None:
    """The key is the same on every node and in every version of Python."""
    url = "http://example.com/"
    assert DEFAULT.key(url) == hashlib.blake2b(url.encode(), digest_size=16).digest()
    assert len(DEFAULT.key(url)) == 16


@pytest.mark.parametrize(
    ("url", "origin", "name"),
    [
        ("https://example.com/a/b", "https://example.com", "example.com"),
        ("https://example.com:8443/", "https://example.com:8443", "example.com"),
        ("http://a/", "http://a", "a"),
        ("http://[::1]:81/x:y", "http://[::1]:81", "[::1]"),
        ("http://[::1]/", "http://[::1]", "[::1]"),
    ],
)
def test_origin_and_name_are_cut_from_the_form(url: str, origin: str, name: str) -> None:
    """Politeness paces origins, scope matches names."""
    assert canonicalize(url) == url
    assert (origin_of(url), host_name_of(url)) == (origin, name)


def test_a_resolver_counts_what_it_rejects() -> None:
    """Each rejected href counts under its reason, cached or not."""
    resolver = LinkResolver(DEFAULT)
    for href in ("mailto:x", "mailto:x", "http://[", "x" * 9000, "\ud800"):
        assert resolver.resolve("http://h/", href) is None
    assert resolver.rejected == {"unsupported_scheme": 2, "bad_url": 2, "url_too_long": 1}


def test_a_bad_page_does_not_spoil_the_cache_for_others() -> None:
    """An absolute link means the same whatever page it stands on."""
    resolver = LinkResolver(DEFAULT)
    assert resolver.resolve("nonsense", "http://x/") == ("http://x/", DEFAULT.key("http://x/"))
    assert resolver.resolve("nonsense", "y") is None
    assert resolver.resolve("http://h/", "y") == ("http://h/y", DEFAULT.key("http://h/y"))


def test_the_caches_of_a_resolver_are_bounded() -> None:
    """However many links and pages pass, memory stays bounded and answers stay right."""
    resolver = LinkResolver(DEFAULT)
    for n in range(25_000):
        assert resolver.resolve(f"http://h/{n % 300}/", f"p{n}") is not None
        assert resolver.cached() <= 20_000
    assert resolver.resolve("http://h/7/", "p7") == ("http://h/7/p7", DEFAULT.key("http://h/7/p7"))


def test_pages_of_one_directory_share_only_what_means_the_same_on_both() -> None:
    """`?p=2`, an empty href and `http:?p=2` keep the page's own name, so no cache may mix them."""
    resolver = LinkResolver(DEFAULT)
    for page in ("http://h/d/one", "http://h/d/two", "http://h/d/one"):
        for href in ("?p=2", "", " ?p=3", "http:?p=4", "same", "#x", " #x", "?p=5 #x", "same #x"):
            expected = join(page, href)
            assert resolver.resolve(page, href) == (expected, DEFAULT.key(expected))


@pytest.mark.parametrize(
    ("rules", "same"),
    [
        (CanonicalRules(), set()),
        (CanonicalRules(collapse_scheme=True), {"http://shop.test/a?b=1"}),
        (CanonicalRules(collapse_www=True), {"https://www.shop.test/a?b=1"}),
        (
            CanonicalRules(collapse_scheme=True, collapse_www=True),
            {
                "http://shop.test/a?b=1",
                "https://www.shop.test/a?b=1",
                "http://www.shop.test/a?b=1",
            },
        ),
    ],
    ids=["none", "scheme", "www", "both"],
)
def test_variants_have_one_key_only_if_a_job_asks(rules: CanonicalRules, same: set[str]) -> None:
    """Only the key collapses: what is fetched is what was found. A resolver gives the same keys."""
    page = "https://shop.test/a?b=1"
    variants = {f"{s}://{w}shop.test/a?b=1" for s in ("http", "https") for w in ("", "www.")}
    others = {"https://ww.shop.test/a?b=1", "https://shop.test/a", "https://wwwshop.test/a?b=1"}
    resolver = LinkResolver(rules)
    for url in (variants - {page}) | others:
        assert canonicalize(url, rules) == url
        assert (rules.key(url) == rules.key(page)) is (url in same), url
        assert resolver.resolve(page, url) == (url, rules.key(url))


def test_every_escape_has_one_normal_form() -> None:
    """Escapes of letters, digits and `-._~` are decoded, all others have upper-case digits."""
    unreserved = set(string.ascii_letters + string.digits + "-._~")
    for code in range(256):
        normal = chr(code) if chr(code) in unreserved else f"%{code:02X}"
        for digits in {
            f"{code:02x}",
            f"{code:02X}",
            f"{code:02x}".title(),
            f"{code:02X}".swapcase(),
        }:
            assert canonicalize(f"http://a/x%{digits}y") == f"http://a/x{normal}y", digits


def test_long_urls_in_other_scripts_cost_little() -> None:
    """A job may bring a thousand of them to the leader's event loop. Each took 0.7 ms."""
    url = "http://a.test/" + "ä" * 480

    def step_s() -> float:
        began = time.process_time()
        for _ in range(100):
            canonicalize(url)
        return time.process_time() - began

    assert min(step_s() for _ in range(3)) < 0.02


def test_very_many_dropped_parameters_cost_a_url_little() -> None:
    """Their names are put into lower case once for a run, and not for each URL."""
    rules = CanonicalRules(drop_params=frozenset(f"P{n}" for n in range(9_000)))

    def step_s() -> float:
        began = time.process_time()
        for n in range(100):
            assert canonicalize(f"http://a/?p{n}=1&b=2", rules) == "http://a/?b=2"
        return time.process_time() - began

    assert min(step_s() for _ in range(3)) < 0.02
