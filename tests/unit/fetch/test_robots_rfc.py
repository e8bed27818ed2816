"""robots.txt as RFC 9309 describes it, and in agreement with protego."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protego import Protego

from zcrawl.fetch.robots import RobotsRules

AGENT = "zcrawl/0.1 (+https://zcrawl.test)"
SITE = "https://www.example.com"


def allows(robots: str, path: str, agent: str = AGENT) -> bool:
    return RobotsRules.parse(200, robots.encode(), agent).allows(SITE + path)


SIMPLE = """
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""


@pytest.mark.parametrize(
    ("agent", "path", "allowed"),
    [
        ("zcrawl", "/publications/x", True),
        ("zcrawl", "/pictures/a.gif", False),
        ("zcrawl", "/pictures/a.gif?x", True),
        ("zcrawl", "/example/page.html", False),
        ("foobot", "/anything", False),
        ("foobot", "/example/page.html", True),
        ("FooBot/2.1", "/example/allowed.gif", True),
        ("barbot", "/example/page.html", False),
        ("bazbot", "/example/page.html", False),
        ("bazbot", "/example/other.html", True),
        ("quxbot", "/example/page.html", True),
    ],
)
def test_groups_as_in_section_5_1(agent: str, path: str, allowed: bool) -> None:
    """A crawler obeys the group that names it, and the star's only if none does."""
    assert allows(SIMPLE, path, agent) is allowed


def test_the_longest_match_as_in_section_5_2() -> None:
    """The most specific rule counts, whatever the order."""
    robots = "User-Agent: *\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n"
    assert not allows(robots, "/example/page/disallowed.gif")
    assert allows(robots, "/example/page/other.gif")


@pytest.mark.parametrize(
    ("rule", "path", "allowed"),
    [
        ("Disallow: /fish", "/fish.html", False),
        ("Disallow: /fish", "/Fish", True),
        ("Disallow: /fish", "/catfish", True),
        ("Disallow: /fish*", "/fishheads/yummy.html", False),
        ("Disallow: /*.php", "/folder/any.php.file.html", False),
        ("Disallow: /*.php$", "/folder/filename.php?x=1", True),
        ("Disallow: /*.php$", "/folder/filename.php", False),
        ("Disallow: /a%3cd.html", "/a%3Cd.html", False),
        ("Disallow: /bar/ツ", "/bar/%E3%83%84", False),
        ("Disallow: /p\nAllow: /p", "/page", True),
        ("Disallow:", "/anything", True),
        ("Disallow: / # a comment", "/x", False),
    ],
)
def test_matching_as_in_section_2_2(rule: str, path: str, allowed: bool) -> None:
    """Case, escapes, `*`, `$`, comments, and Allow before Disallow when they are equally long."""
    assert allows(f"User-agent: *\n{rule}\n", path) is allowed


def test_groups_of_the_same_crawler_count_together() -> None:
    """Section 2.2.1: they are combined."""
    robots = "User-agent: zcrawl\nDisallow: /a\n\nUser-agent: other\nDisallow: /\n\n"
    robots += "User-agent: zcrawl\nDisallow: /b\n"
    assert [allows(robots, path) for path in ("/a", "/b", "/c")] == [False, False, True]


@pytest.mark.parametrize(
    ("status", "allowed"), [(404, True), (401, True), (500, False), (0, False)]
)
def test_statuses_as_in_section_2_3_1(status: int, allowed: bool) -> None:
    """Unavailable means no rules, unreachable means nothing is allowed."""
    rules = RobotsRules.parse(status, b"User-agent: *\nDisallow: /\n", AGENT)
    assert rules.allows(f"{SITE}/x") is allowed


_WORDS = st.sampled_from(["/", "/a", "/a/b", "/*", "*.x$", "/a*b", "/a?c", "%41", "/a$", ""])
_OTHER = st.sampled_from(["", "# no rule", "nonsense", "Sitemap: https://www.example.com/s.xml"])
_NAMES = st.builds("User-agent: {}".format, st.sampled_from(["*", "zcrawl", "other", ""]))
_RULES = st.builds("Disallow: {}".format, _WORDS) | st.builds("Allow: {}".format, _WORDS)
_DELAYS = st.builds("Crawl-delay: {}".format, st.sampled_from(["1", "0.5", "x", "", "-1"]))
# Delays stand behind the rules here: elsewhere protego and the RFC differ.
_GROUPS = st.tuples(
    st.lists(_NAMES | _OTHER, max_size=3), st.lists(_RULES, min_size=1, max_size=5),
    st.lists(_DELAYS | _OTHER, max_size=2),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(_GROUPS, max_size=4), st.sampled_from(["/", "/a", "/a/b", "/a/c.x", "/a?c", "/A"]))
def test_our_answers_are_protegos(
    groups: list[tuple[list[str], list[str], list[str]]], path: str
) -> None:
    """Protego, which Scrapy uses, reads files without odd orders of lines as we do."""
    text = "\n".join(line for group in groups for part in group for line in part)
    rules, protego = RobotsRules.parse(200, text.encode(), "zcrawl"), Protego.parse(text)
    assert rules.allows(SITE + path) == protego.can_fetch(SITE + path, "zcrawl")
    assert (rules.crawl_delay_s or None) == (protego.crawl_delay("zcrawl") or None)
    assert list(rules.sitemaps) == list(protego.sitemaps)


@pytest.mark.parametrize(
    "line",
    [
        "Sitemap: https://www.example.com/s.xml",
        "Crawl-delay: 5",
        "Request-rate: 1/5",
        "Host: www.example.com",
        "Noindex: /x",
        "Clean-param: s /forum",
        "unknown",
        "",
        "# comment",
    ],
)
def test_other_records_as_in_section_2_2_4(line: str) -> None:
    """They do not end a group's list of names, so its rules hold for all of them."""
    robots = f"User-agent: zcrawl\n{line}\nUser-agent: other\n{line}\nDisallow: /x\n"
    assert not allows(robots, "/x")
    assert not allows(robots, "/x", "other")
    robots = f"User-agent: zcrawl\nDisallow: /x\n{line}\nDisallow: /y\n"
    assert not allows(robots, "/x")
    assert not allows(robots, "/y")


@pytest.mark.parametrize(
    ("robots", "ours", "others"),
    [
        ("User-agent: zcrawl\nCrawl-delay: 5\nUser-agent: other\nCrawl-delay: 60\n", 5.0, 60.0),
        ("User-agent: *\nCrawl-delay: 1\n\nUser-agent: other\nDisallow: /x\n", 1.0, None),
        ("User-agent: zcrawl\nUser-agent: other\nCrawl-delay: 7\nDisallow: /\n", 7.0, 7.0),
        ("User-agent: zcrawl\nSitemap: x\nUser-agent: other\nRequest-rate: 1/9\n", 9.0, 9.0),
    ],
)
def test_a_delay_holds_for_the_names_directly_above_it(
    robots: str, ours: float | None, others: float | None
) -> None:
    """The RFC does not know it, and another crawler's delay is not meant for us."""
    for agent, delay in ((AGENT, ours), ("other", others)):
        assert RobotsRules.parse(200, robots.encode(), agent).crawl_delay_s == delay


@pytest.mark.parametrize(
    ("name", "agent", "is_ours"),
    [
        ("zcrawl", AGENT, True),
        ("ZCRAWL/1.0", AGENT, True),
        ("zcrawl bot", AGENT, True),
        ("zcrawl/0.1 (+https://other.test)", AGENT, True),
        ("zcrawl*", AGENT, True),
        ("zcrawl;", AGENT, True),
        ("zcraw", AGENT, False),
        ("zcrawler", AGENT, False),
        ("bot zcrawl", AGENT, False),
        ("my-zcrawl", AGENT, False),
        ("zcrawl-news", AGENT, False),
        ("zcrawl2", AGENT, False),
        ("test", AGENT, False),
        ("0.1", AGENT, False),
        ("360spider", "360spider/2", True),
        ("search", "search-news2/1.0", True),
        ("search-news", "search-news2/1.0", True),
        ("search-new", "search-news2/1.0", False),
        ("foo2bot/3", "Mozilla/5.0 (compatible; Foo2Bot/1.0)", True),
        ("", AGENT, False),
        ("/", AGENT, False),
    ],
)
def test_names_are_product_tokens_as_in_section_2_2_1(name: str, agent: str, is_ours: bool) -> None:
    """Of the group and of ourselves only the token counts, and as a whole."""
    assert allows(f"User-agent: {name}\nDisallow: /\n", "/x", agent) is not is_ours
    robots = f"User-agent: *\nDisallow: /\n\nUser-agent: {name}\nDisallow: /y\n"
    assert allows(robots, "/x", agent) is is_ours


def test_the_longest_of_our_names_counts() -> None:
    """A group for the whole name before one for its beginning."""
    robots = "User-agent: search\nDisallow: /a\n\nUser-agent: search-news\nDisallow: /b\n"
    assert allows(robots, "/a", "search-news")
    assert not allows(robots, "/b", "search-news")
    assert allows(robots, "/b", "search-images")
    assert not allows(robots, "/a", "search-images")


@pytest.mark.parametrize(
    ("first", "is_read"),
    [
        (b"\xef\xbb\xbf", True),
        (b"\xef\xbb", True),
        (b"\xef", True),
        (b"\xef\x11\xbf", False),
        (b"\xff\xfe", False),
    ],
)
def test_what_is_left_of_a_byte_order_mark_hides_no_line(first: bytes, is_read: bool) -> None:
    """Other bytes before the first line are part of it."""
    rules = RobotsRules.parse(200, first + b"User-agent: *\nDisallow: /\n", AGENT)
    assert rules.allows(f"{SITE}/x") is not is_read


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_end_as_in_section_2_2(end: str) -> None:
    """CR, LF or both, and nothing else: U+2028 and form feed are part of a value."""
    assert not allows(end.join(["User-agent: *", "", "Disallow: /x", ""]), "/x")
    for other in ("\u2028", "\x0c", "\x85"):
        assert allows(f"User-agent: *\nDisallow: /a{other}Disallow: /x\n", "/x")
