"""What a robots.txt allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.fetch.robots import MAX_ROBOTS_BYTES, RobotsRules, robots_url

AGENT = "zcrawl/0.1 (+https://github.com/zcrawl/zcrawl)"
URL = "https://example.com/private/page?x=1"


def rules(body: str, status: int = 200) -> RobotsRules:
    return RobotsRules.parse(status, body.encode(), AGENT)


def test_the_rules_are_at_the_origins_root() -> None:
    """One robots.txt per scheme, name and port."""
    assert robots_url("https://example.com:8443") == "https://example.com:8443/robots.txt"
    assert robots_url("https://example.com/") == "https://example.com/robots.txt"


def test_the_longest_match_wins() -> None:
    """Allow and Disallow are weighed by length, with wildcards and anchors (RFC 9309)."""
    parsed = rules("User-agent: *\nDisallow: /private\nAllow: /private/open\nDisallow: /*.zip$\n")
    assert not parsed.allows(URL)
    assert parsed.allows("https://example.com/private/open/x")
    assert not parsed.allows("https://example.com/a/b.zip")
    assert parsed.allows("https://example.com/a/b.zip?x")
    assert parsed.allows("https://example.com/")


def test_our_own_group_wins_over_everybodys() -> None:
    """A group that names us is the only one that counts, in any case of letters."""
    parsed = rules("User-agent: *\nDisallow: /\n\nUser-agent: ZCrawl\nDisallow: /private\n")
    assert parsed.allows("https://example.com/a")
    assert not parsed.allows(URL)


@pytest.mark.parametrize("group", ["github", "https", "com", "crawl"])
def test_a_word_of_our_contact_address_is_not_our_name(group: str) -> None:
    """Only the product's name counts, not what stands in its comment or within it."""
    assert rules(f"User-agent: {group}\nDisallow: /\n").allows(URL)


def test_a_bot_named_in_the_comment_is_still_recognised() -> None:
    """`Mozilla/5.0 (compatible; Foobot/1.0; +https://…)` is Foobot."""
    parsed = RobotsRules.parse(
        200,
        b"User-agent: foobot\nDisallow: /\n",
        "Mozilla/5.0 (compatible; Foobot/1.0; +https://foobot.example/)",
    )
    assert not parsed.allows(URL)


@pytest.mark.parametrize("status", [301, 302, 400, 401, 403, 404, 410, 451])
def test_no_file_means_no_rules(status: int) -> None:
    """4xx, and redirects that led nowhere, allow everything, whatever the body says."""
    parsed = rules("User-agent: *\nDisallow: /\nCrawl-delay: 9", status)
    assert parsed.allows(URL)
    assert not parsed.retry_later
    assert parsed.crawl_delay_s is None


@pytest.mark.parametrize("status", [0, 100, 429, 500, 502, 503, 599, 999])
def test_no_answer_means_nothing_for_now(status: int) -> None:
    """While the rules are unknown, nothing is fetched, and robots.txt is requested again."""
    parsed = rules("User-agent: *\nAllow: /", status)
    assert not parsed.allows(URL)
    assert parsed.retry_later


@pytest.mark.parametrize(
    ("line", "delay"),
    [
        ("Crawl-delay: 2.5", 2.5),
        ("Crawl-delay: 0", 0.0),
        ("Crawl-delay: 1e-310", 0.0),
        ("Request-rate: 99999999999999999999/1", 0.0),
        ("Crawl-delay: 86400", 3600.0),
        ("Crawl-delay: soon", None),
        ("Crawl-delay: -3", None),
        ("Crawl-delay: nan", None),
        ("Crawl-delay: inf", None),
        ("Request-rate: 1/5", 5.0),
        ("Request-rate: 2/1m", 30.0),
        ("Request-rate: 1/2d", 3600.0),
        ("Request-rate: 0/5", None),
        ("Crawl-delay: 2\nRequest-rate: 1/10", 10.0),
        ("Crawl-delay: 20\nRequest-rate: 1/10", 20.0),
        ("Allow: /", None),
    ],
)
def test_the_slower_wish_is_the_delay(line: str, delay: float | None) -> None:
    """Crawl-delay and Request-rate are both heard, within an hour; nonsense is not."""
    assert rules(f"User-agent: *\n{line}\n").crawl_delay_s == delay


def test_a_delay_for_others_is_not_ours() -> None:
    """A group that does not name us does not slow us."""
    assert rules("User-agent: other\nCrawl-delay: 9\n").crawl_delay_s is None


@pytest.mark.parametrize(
    "body", ["", "\n\n", "User-agent: *\nDisallow:\n", "User-agent: *\nDisallow: # all\nAllow: /\n"]
)
def test_an_empty_disallow_allows_everything(body: str) -> None:
    """The common ways to say that all is open are seen when parsing, not for each URL."""
    parsed = rules(body)
    assert parsed.allows(URL)
    assert parsed._paths is None


@pytest.mark.parametrize("word", ["disallow", "DISALLOW", "dissallow", "disalow", "diasllow"])
@pytest.mark.parametrize("separator", [": ", ":", " : ", " "])
def test_the_short_cut_misses_no_spelling(word: str, separator: str) -> None:
    """Every spelling of Disallow that the parser knows reaches it."""
    assert not rules(f"User-agent: *\r\n  {word}{separator}/private\r\n").allows(URL)


def test_a_byte_order_mark_hides_no_rule() -> None:
    """A BOM before the first line is ignored."""
    parsed = RobotsRules.parse(200, b"\xef\xbb\xbfUser-agent: *\nDisallow: /private", AGENT)
    assert not parsed.allows(URL)


def test_what_is_behind_the_size_limit_is_not_read() -> None:
    """500 KiB are read, up to the last whole line: a cut rule would say something else."""
    head = b"User-agent: *\nDisallow: /private\n"
    filler = b"#" * (MAX_ROBOTS_BYTES - len(head) - len(b"\nDisallow: /")) + b"\n"
    body = head + filler + b"Disallow: /late/and/long\nDisallow: /never\n"
    parsed = RobotsRules.parse(200, body, AGENT)
    assert not parsed.allows(URL)
    assert parsed.allows("https://example.com/")
    assert parsed.allows("https://example.com/never")
    assert RobotsRules.parse(200, b"x" * (MAX_ROBOTS_BYTES + 1), AGENT).allows(URL)


@pytest.mark.parametrize("url", ["https://[::1/x", "", "no url", "https://example.com/\udcff"])
def test_odd_urls_get_an_answer(url: str) -> None:
    """No string makes `allows` raise."""
    assert rules("User-agent: *\nDisallow: /private?x\n").allows(url) in (True, False)


LINES = st.lists(
    st.tuples(
        st.sampled_from([b"User-agent", b"Disallow", b"Allow", b"Crawl-delay", b"Request-rate"]),
        st.sampled_from([b": ", b":", b" "]),
        st.binary(max_size=30) | st.sampled_from([b"*", b"/", b"/a*b$", b"1/5", b"1/0", b"%zz"]),
    )
).map(lambda lines: b"\n".join(b"".join(line) for line in lines))


@given(body=st.binary(max_size=500) | LINES, status=st.integers(-1, 1000), path=st.text())
def test_no_bytes_and_no_status_raise(body: bytes, status: int, path: str) -> None:
    """Whatever a server says, there are rules, and they have an answer and a sane delay."""
    parsed = RobotsRules.parse(status, body, AGENT)
    assert parsed.allows("https://example.com/" + path) in (True, False)
    assert parsed.crawl_delay_s is None or 0 <= parsed.crawl_delay_s <= 3600
