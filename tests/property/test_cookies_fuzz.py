"""Random Set-Cookie headers from random hosts: RFC 6265bis holds, and nothing raises."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator

import pytest
from publicsuffixlist import PublicSuffixList

from zcrawl.errors import BadUrl
from zcrawl.fetch.cookies import parse_date
from zcrawl.fetch.wire.cookie_jar import MAX_COOKIES, MAX_SENT, CookieStore
from zcrawl.fetch.wire.response import LeanResponse
from zcrawl.frontier.url import canonicalize, host_name_of

NOW = 1_800_000_000.0
SUFFIXES = PublicSuffixList()
HOSTS = (
    *(
        "a.co.uk",
        "b.co.uk",
        "www.a.co.uk",
        "co.uk",
        "uk",
        "a.github.io",
        "b.github.io",
        "github.io",
    ),
    *("example.com", "www.example.com", "shop.www.example.com", "badexample.com", "com", "a.com."),
    *("localhost", "local", "x.localhost", "10.0.0.1", "10.0.0.2", "[2001:db8::1]", "wiki.corp"),
    *("xn--bcher-kva.example", "a.xn--p1ai", "www.ck", "a.b.ck", "ck", "1.2.3.4"),
)
NAMES = ("a", "b", "__Host-a", "__Secure-a", "__hOsT-a", "", " ", "sid", "\x00", "é", "a b", "a,b")
WORDS = (
    *("Domain", "domain", "DOMAIN", "Path", "Secure", "secure", "HttpOnly", "Max-Age", "Expires"),
    *("SameSite", "Version", "Port", "Comment", "Partitioned", "", " ", "$Path", "\x7f", "Domain "),
)
VALUES = (
    *("/", "/x", "x", "", "..", ".", "0", "-1", "1", "9" * 5000, "1e9", "nan", "\ud800", "é"),
    *("Wed, 21 Oct 2037 07:28:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "31 Feb 2030 1:2:3"),
    *("00 Foo 0000 99:99:99", "1 Jan 99999 1:2:3", "\u0663 Jan 2030 1:2:3", '"quoted"', ";;", "\t"),
)
PATHS = ("/", "/x", "/x/", "/x/y", "/xy", "//", "/%2F")


def lines(rng: random.Random) -> Iterator[bytes]:
    """Set-Cookie headers, sensible and not."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        if rng.random() < 0.1:
            yield rng.randbytes(rng.randrange(60))
            continue
        parts = [f"{rng.choice(NAMES)}{rng.choice(('=', '=', '=', ''))}{rng.randrange(100)}"]
        for _ in range(rng.randrange(5)):
            word = rng.choice(WORDS)
            pool = HOSTS if word.strip().lower() == "domain" else VALUES
            value = rng.choice(("", ".", "..")) + rng.choice(pool) + rng.choice(("", "", "."))
            parts.append(rng.choice((word, f"{word}={value}", f"{word} = {value} ")))
        text = rng.choice((";", "; ", " ;\t")).join(parts)
        yield text.encode("utf-8", "surrogatepass")


def place(rng: random.Random) -> str:
    scheme = rng.choice(("http", "https"))
    port = rng.choice(("", "", ":8080"))
    return canonicalize(f"{scheme}://{rng.choice(HOSTS)}{port}{rng.choice(PATHS)}")


def host_of(url: str) -> str:
    return host_name_of(url).strip("[]").rstrip(".")


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def same_owner(setter: str, getter: str) -> bool:
    """Whether a cookie of one host may ever reach the other: by a common registered domain."""
    if setter == getter:
        return True
    if is_address(setter) or is_address(getter):
        return False
    own = SUFFIXES.privatesuffix(setter)
    return own is not None and own == SUFFIXES.privatesuffix(getter)


@pytest.mark.parametrize("seed", range(40))
def test_no_header_sends_a_cookie_to_another_owner(seed: int) -> None:
    """Whatever one host sets, no host of another owner is sent any of it, nothing secure leaves in
    the clear, promised prefixes hold, bounds hold, and what is kept comes back the same."""
    rng = random.Random(seed)
    for _ in range(60):
        setter = place(rng)
        store = CookieStore({}, lambda: NOW)
        for _ in range(rng.choice((1, 3))):
            headers = [(b"set-cookie", line) for line in lines(rng)]
            store.take(setter, LeanResponse(setter, 200, headers, b""))
        changed = store.changes(setter)
        again = CookieStore(dict([changed]) if changed else {}, lambda: NOW)
        for _ in range(25):
            getter = place(rng)
            sent = store.header(getter)
            assert sent.isascii()
            assert sent.isprintable()
            assert len(sent) <= MAX_SENT
            assert len(sent.split("; ")) <= MAX_COOKIES
            assert sorted(again.header(getter)) == sorted(sent)
            if not same_owner(host_of(setter), host_of(getter)):
                assert sent == "", (setter, getter, headers)
            if "__host-" in sent.lower():
                assert host_of(setter) == host_of(getter)
            if "__host-" in sent.lower() or "__secure-" in sent.lower():
                assert setter.startswith("https:")
                assert getter.startswith("https:")


@pytest.mark.parametrize("seed", range(20))
def test_kept_rows_of_a_stranger_are_read_or_left_out(seed: int) -> None:
    """Bytes that were kept, turned over at random: never an error, never a foreign host."""
    rng = random.Random(seed)
    good = b'[["a","1","www.a.co.uk","/",false,null],["b","2",".a.co.uk","/",true,1900000000.0]]'
    for _ in range(200):
        data = bytearray(good)
        for _ in range(rng.randrange(6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        store = CookieStore({"www.a.co.uk": bytes(data)}, lambda: NOW)
        for host in ("b.co.uk", "co.uk", "example.com", "10.0.0.1"):
            assert store.header(f"https://{host}/") == ""


@pytest.mark.parametrize("seed", range(10))
def test_a_date_is_a_number_or_nothing(seed: int) -> None:
    """Random mixtures of the parts of dates."""
    rng = random.Random(seed)
    parts = ("Jan", "feb", "2037", "37", "99999", "31", "0", "07:28:00", "99:1:1", "GMT", ",", "\0")
    for _ in range(500):
        text = rng.choice((" ", "-", ",", "")).join(rng.choices(parts, k=rng.randrange(8)))
        date = parse_date(text)
        assert date is None or -12e9 < date < 3e11


def test_every_host_of_the_fuzzer_is_a_url() -> None:
    """Otherwise the fuzzer would try nothing."""
    for host in HOSTS:
        try:
            canonicalize(f"http://{host}/")
        except BadUrl as error:
            pytest.fail(f"{host}: {error}")
