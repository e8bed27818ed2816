"""A run's cookies: which ones a server may set, and which server gets them (RFC 6265bis)."""

from __future__ import annotations

import time

import pytest

from zcrawl.fetch.wire.cookie_jar import CookieStore
from zcrawl.fetch.wire.response import LeanResponse

NOW = 1_800_000_000.0  # in January 2027


def store() -> CookieStore:
    return CookieStore({}, lambda: NOW)


def taken(url: str, *headers: str | bytes) -> CookieStore:
    """A store that has seen one answer with these Set-Cookie headers."""
    made = store()
    take(made, url, *headers)
    return made


def take(made: CookieStore, url: str, *headers: str | bytes) -> None:
    lines = [h if isinstance(h, bytes) else h.encode() for h in headers]
    made.take(url, LeanResponse(url, 200, [(b"Set-Cookie", line) for line in lines], b""))


@pytest.mark.parametrize(
    ("domain", "other"),
    [
        (".co.uk", "http://victim.co.uk/"),
        ("co.uk", "http://victim.co.uk/"),
        ("CO.UK", "http://victim.co.uk/"),
        ("uk", "http://victim.uk/"),
        (".uk.", "http://victim.uk/"),
        ("co.uk.", "http://victim.co.uk/"),
        ("..co.uk", "http://victim.co.uk/"),
        ("", "http://victim.co.uk/"),
    ],
)
def test_no_cookie_is_kept_for_a_public_suffix(domain: str, other: str) -> None:
    """A supercookie would be sent to every site of the suffix."""
    made = taken("http://attacker.co.uk/", f"a=1; Domain={domain}")
    assert made.header(other) == ""


@pytest.mark.parametrize("suffix", ["github.io", "s3.amazonaws.com", "blogspot.com"])
def test_the_suffixes_of_hosters_count_too(suffix: str) -> None:
    """Pages of different owners under one name of a hoster are different sites."""
    made = taken(f"http://attacker.{suffix}/", f"a=1; Domain={suffix}")
    assert made.header(f"http://victim.{suffix}/") == ""
    assert made.header(f"http://attacker.{suffix}/") == ""


def test_a_host_that_is_a_public_suffix_keeps_its_cookie_for_itself() -> None:
    """The standard turns such a Domain into none at all."""
    made = taken("http://github.io/", "a=1; Domain=github.io")
    assert made.header("http://github.io/") == "a=1"
    assert made.header("http://victim.github.io/") == ""


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("http://a.example.com/", "b.example.com"),
        ("http://a.example.com/", "other.com"),
        ("http://badexample.com/", "example.com"),
        ("http://example.com/", "www.example.com"),
        ("http://10.0.0.1/", "0.0.1"),
        ("http://10.0.0.1/", "1"),
        ("http://[2001:db8::1]/", "2001:db8::2"),
        ("http://localhost:8000/", "local"),
    ],
)
def test_no_cookie_is_kept_for_a_foreign_host(url: str, domain: str) -> None:
    """Neither of a neighbour, nor of a part of an address, nor of a name that ends alike."""
    made = taken(url, f"a=1; Domain={domain}")
    for other in (url, f"http://{domain}/" if ":" not in domain else f"http://[{domain}]/"):
        assert made.header(other) == ""
    assert made.changes(url) is None


def test_a_cookie_without_domain_is_for_its_host_alone() -> None:
    """Also where the host is an address or a single word; a port makes no difference."""
    for host in ("example.com", "10.0.0.1", "[2001:db8::1]", "localhost"):
        made = taken(f"http://{host}:8080/", "a=1")
        assert made.header(f"http://{host}/") == "a=1"
        assert made.header(f"http://sub.{host}/" if "[" not in host else "http://x/") == ""
    assert taken("http://10.0.0.1/", "a=1; Domain=10.0.0.1").header("http://10.0.0.1/") == "a=1"


def test_a_cookie_with_a_domain_is_for_its_subdomains_too() -> None:
    """A login at www is good for the shop of the same site."""
    made = taken("http://www.example.co.uk/", "a=1; Domain=.example.co.uk")
    assert made.header("http://shop.example.co.uk/") == "a=1"
    assert made.header("http://example.co.uk/") == "a=1"
    assert made.header("http://badexample.co.uk/") == ""


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("https://a.com/", "__Host-a=1; Secure; Path=/; Domain=a.com"),
        ("https://a.com/", "__Host-a=1; Path=/"),
        ("https://a.com/", "__Host-a=1; Secure"),
        ("https://a.com/", "__Host-a=1; Secure; Path=/x"),
        ("https://a.com/", "__HOST-a=1; Secure; Path=/; Domain=a.com"),
        ("http://a.com/", "__Host-a=1; Secure; Path=/"),
        ("https://a.com/", "__Secure-a=1"),
        ("https://a.com/", "__secure-a=1"),
        ("http://a.com/", "__Secure-a=1; Secure"),
        ("https://a.com/", "=__Secure-a=1"),
        ("https://a.com/", "__Host-a"),
        ("http://a.com/", "a=1; Secure"),
    ],
)
def test_a_prefix_is_a_promise_that_is_checked(url: str, header: str) -> None:
    """`__Host-` and `__Secure-` cookies, and Secure ones, come from where they say."""
    made = taken(url, header)
    assert made.header("https://a.com/x/") == ""
    assert made.header("http://a.com/x/") == ""


def test_a_promise_that_holds_is_taken() -> None:
    """And a secure cookie does not travel in the clear."""
    made = taken("https://a.com/", "__Host-a=1; Secure; Path=/", "__Secure-b=2; Secure")
    assert made.header("https://a.com/") == "__Host-a=1; __Secure-b=2"
    assert made.header("http://a.com/") == ""


def test_plain_http_does_not_replace_a_secure_cookie() -> None:
    """An attacker who can change a plain answer cannot replace the cookie of a login."""
    made = taken("https://a.com/", "a=1; Secure")
    take(made, "http://a.com/", "a=2")
    assert made.header("https://a.com/") == "a=1"
    take(made, "http://a.com/", "a=2; Max-Age=0")
    assert made.header("https://a.com/") == "a=1"


def test_a_cookie_is_over_at_the_moment_that_was_set() -> None:
    """One with a life of 60 s is sent after 59 s, and not after 60 s."""
    now = [NOW]
    made = CookieStore({}, lambda: now[0])
    take(made, "http://a.com/", "a=1; Max-Age=60")
    now[0] += 59.0
    assert made.header("http://a.com/") == "a=1"
    now[0] += 1.0
    assert made.header("http://a.com/") == ""


def test_paths_and_their_order() -> None:
    """A cookie is sent to its path and the paths below it; the longest path comes first."""
    made = taken("http://a.com/x/y", "a=1", "b=2; Path=/", "c=3; Path=/z", "d=4; Path=no")
    assert made.header("http://a.com/x/y") == "a=1; d=4; b=2"
    assert made.header("http://a.com/xy") == "b=2"
    assert made.header("http://a.com/z/") == "c=3; b=2"


@pytest.mark.parametrize(
    ("attribute", "kept"),
    [
        ("Max-Age=60", True),
        ("Max-Age=0", False),
        ("Max-Age=-5", False),
        ("Max-Age=x", True),
        ("Max-Age=99999999999999999999999", True),
        ("Expires=Wed, 21 Oct 2037 07:28:00 GMT", True),
        ("Expires=Wed, 21-Oct-37 07:28:00 GMT", True),
        ("Expires=Wed, 21 Oct 2015 07:28:00 GMT", False),
        ("Expires=Thu, 01 Jan 1970 00:00:00 GMT", False),
        ("Expires=Sun Nov  6 08:49:37 1994", False),
        ("Expires=Tue, 32 Foo 2015 07:28:00 GMT", True),
        ("Expires=0", True),
        ("Expires=Wed, 21 Oct 2015 07:28:00 GMT; Max-Age=60", True),
        ("Max-Age=0; Expires=Wed, 21 Oct 2037 07:28:00 GMT", False),
    ],
)
def test_a_cookie_lasts_as_long_as_it_says(attribute: str, kept: bool) -> None:
    """Max-Age goes before Expires; a date that is none means no date, as in browsers."""
    made = taken("http://a.com/", f"a=1; {attribute}")
    assert made.header("http://a.com/") == ("a=1" if kept else "")


def test_what_is_over_is_taken_away() -> None:
    """A server that logs the crawl out sets the cookie again, with a date in the past."""
    made = taken("http://a.com/", "a=1", "b=2")
    take(made, "http://a.com/", "a=; Max-Age=0")
    assert made.header("http://a.com/") == "b=2"


def test_kept_cookies_come_back_by_the_same_rules() -> None:
    """A row of the database that says more than its host may is left out."""
    made = taken("http://www.a.com/", "a=1", "b=2; Domain=a.com; Max-Age=60")
    changed = made.changes("http://www.a.com/")
    assert changed is not None
    host, data = changed
    again = CookieStore({host: data}, lambda: NOW)
    assert again.header("http://www.a.com/") == "a=1; b=2"
    assert again.header("http://shop.a.com/") == "b=2"
    assert again.changes("http://www.a.com/") is None
    wrong = CookieStore({"www.other.co.uk": data, "a.com": b"[1]", "b.com": b"{"}, lambda: NOW)
    assert wrong.header("http://www.a.com/") == ""
    wide = b'[["a","1",".co.uk","/",false,null],["b","2",".com","/",false,null]]'
    assert CookieStore({"x.co.uk": wide}, lambda: NOW).header("http://y.co.uk/") == ""


def test_only_what_a_header_can_hold_is_kept() -> None:
    """Controls, other alphabets and giants are left out; the answer's other cookies are kept."""
    made = taken(
        "http://a.com/", "a=\x01", "b=\u00e9", b"c=\xff", "d=" + "x" * 5_000, "e=5", "=", ""
    )
    assert made.header("http://a.com/") == "e=5"


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("attribute", ["", ";Domain=c.test", ";Path=/{}", ";Secure"])
def test_very_many_cookies_of_one_answer_take_a_moment(scheme: str, attribute: str) -> None:
    """128 KB of headers have 9,000 of them. Each was compared with all before it, for 7 s, in which
    the worker did nothing else."""
    url = f"{scheme}://a.b.c.test/"
    headers = [f"{n:x}=1{attribute.format(n)}" for n in range(5_000)]

    def step_s() -> float:
        began = time.process_time()
        taken(url, *headers)
        return time.process_time() - began

    assert min(step_s() for _ in range(3)) < 0.05
