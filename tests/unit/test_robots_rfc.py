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


_WORDS = st.sampled_from(["/", "/a", "/a/b", "/*", "*.x$", "/a*b", "/a?c", "%41", ""])
_LINES = st.one_of(
    st.builds("Disallow: {}".format, _WORDS),
    st.builds("Allow: {}".format, _WORDS),
    st.builds("User-agent: {}".format, st.sampled_from(["*", "zcrawl", "other"])),
    st.builds("Crawl-delay: {}".format, st.sampled_from(["1", "0.5", "x", ""])),
    st.sampled_from(["", "# no rule", "nonsense", "Sitemap: https://www.example.com/s.xml"]),
)


@settings(deadline=None)
@given(st.lists(_LINES, max_size=12), st.sampled_from(["/", "/a", "/a/b", "/a/c.x", "/a?c", "/A"]))
def test_our_answers_are_protegos(lines: list[str], path: str) -> None:
    """The short cut for files without rules, and all else around the library, changes nothing."""
    text = "\n".join(lines)
    rules, protego = RobotsRules.parse(200, text.encode(), "zcrawl"), Protego.parse(text)
    assert rules.allows(SITE + path) == protego.can_fetch(SITE + path, "zcrawl")
    assert (rules.crawl_delay_s or None) == (protego.crawl_delay("zcrawl") or None)
    assert list(rules.sitemaps) == list(protego.sitemaps)
