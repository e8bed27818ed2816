"""What protego's own public suite asks of a parser, asked of ours: the same questions, in files and
paths of our own, through the code that the crawler uses."""

from __future__ import annotations

import pytest

from zcrawl.fetch.robots import RobotsRules

SITE = "https://shop.test"


def rules(text: str, agent: str = "zcrawl") -> RobotsRules:
    return RobotsRules.parse(200, text.encode(), agent)


def star(*lines: str) -> str:
    return "User-agent: *\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "allowed", "forbidden"),
    [
        (star("Disallow: /cart", "Allow: /help"), "/help /x/cart", "/cart /cart/1 /carts"),
        # A longer Allow opens a part of what is closed, whatever the order.
        (star("Disallow: /", "Allow: /news"), "/news /news/1", "/ /shop"),
        (star("Allow: /news", "Disallow: /"), "/news", "/shop"),
        (star("Allow: /a/", "Disallow: /a/b.html"), "/a/c.html", "/a/b.html"),
        (star("Disallow: /a/", "Allow: /a/b.html"), "/a/b.html", "/a/ /a/c"),
        (star("Disallow: /a", "Allow: /a/"), "/a/ /a/b", "/a"),
        # Of two that are equally long Allow counts.
        (star("Disallow: /", "Allow: /"), "/ /x", ""),
        (star("Allow: /dir", "Disallow: /dir"), "/dir/x", ""),
        (star("Disallow:", "Allow:"), "/ /x", ""),
        # Wildcards and the end.
        (star("Allow: /page", "Disallow: /*.html"), "/page", "/page.html"),
        (star("Allow: /x/page.", "Disallow: /*.html"), "/x/page.html", "/x/y.html"),
        (star("Disallow: /img/*/big$"), "/img/big /img/a/bigger", "/img/a/big /img/a/b/big"),
        (star("Disallow: /pre*fix"), "/refix /prefi", "/prefix /pre/fix /prefixes"),
        (star("Disallow: *m"), "/foo /bar.txt", "/moo /foo.htm"),
        (star("Allow: /only.html", "Disallow: *"), "/only.html", "/ /other"),
        (star("Allow: /$", "Disallow: /"), "/", "/x /?q"),
        (star("Allow: /foo$", "Disallow: /foo"), "/foo", "/foo/ /food"),
        (star("Allow: " + "*" * 17 + "/" + "*" * 4 + ".js", "Disallow: /"), "/a.js", "/a.css"),
        (star("Disallow: /a$b"), "/a", "/a$b"),  # a dollar in the middle is a dollar
        # Query and parameters belong to the path.
        (star("Disallow: /?"), "/ /x?y", "/?q=1"),
        (star("Disallow: /;"), "/", "/;p"),
        (star("Disallow: /path;p?q"), "/path", "/path;p?q /path;p?q=2"),
        # Escapes mean what they stand for.
        (star("Disallow: /", "Allow: /a%3cd.html"), "/a%3Cd.html /a<d.html", "/b"),
        (star("Disallow: /", "Allow: /a<*"), "/a%3cd.html /a<d.html", "/a"),
        (star("Disallow: /caf\u00e9"), "/cafe", "/caf%C3%A9 /caf%c3%a9/x"),
        (star("Disallow: /a%2Fb"), "/a/b", "/a%2fb /a%2Fb/c"),
        # Spellings that people use.
        (star("Dissallow: /1", "Disalow: /2", "Diasllow: /3", "Disallaw: /4"), "/5", "/1 /2 /3 /4"),
        ("user-AGENT : *\ndisALLOW : /x", "/y", "/x"),
        ("\ufeffUser-agent: *\r\nDisallow: /x\r\n", "/y", "/x"),
        ("User-agent: *\rDisallow: /x\r", "/y", "/x"),
        (star("Disallow: /x # why", "# Disallow: /y"), "/y", "/x"),
        (star("Disallow: /x   \t"), "/y", "/x"),
        (star("", "", "Disallow: /x"), "/y", "/x"),  # a group does not end with an empty line
        (star("Sitemap: https://shop.test/s.xml", "Disallow: /x"), "/y", "/x"),
        (star("Crawl-delay: 5", "Disallow: /x"), "/y", "/x"),
        ("Disallow: /x", "/x", ""),  # rules of nobody
        ("", "/ /x", ""),
    ],
)
def test_what_is_open_and_what_is_not(text: str, allowed: str, forbidden: str) -> None:
    """Precedence, wildcards, escapes, spellings."""
    robots = rules(text)
    for path in allowed.split():
        assert robots.allows(SITE + path), path
    for path in forbidden.split():
        assert not robots.allows(SITE + path), path


@pytest.mark.parametrize(
    ("text", "allowed", "forbidden"),
    [
        # More wildcards.
        (star("Disallow: /sale*"), "/sal", "/sale /sales/1"),
        (star("Disallow: /sale*/end"), "/sales/x", "/sale/end /sales/end /sale/a/b/end"),
        (
            star("Disallow: /s*/*end.html"),
            "/s1/endx.html",
            "/s/end.html /s1/bend.html /s/a/end.html",
        ),
        (star("Disallow: /a/b/c", "Allow: /a/*/d"), "/a/c /a//c /a/x/c", "/a/b/c"),
        (star("Disallow: /a/b$", "Allow: /a/b/c"), "/a/b/ /a/b/c /a/b/x", "/a/b"),
        # The examples of the drafts of 1994 and 1996.
        (
            star("Disallow: /maze/ # endless", "Disallow: /old.html"),
            "/ /old.htm",
            "/old.htmlx /maze/1",
        ),
        (star("Allow: /tmp", "Disallow: /"), "/tmp /tmp.html /tmp/a", "/x"),
        (star("Allow: /tmp/", "Disallow: /"), "/tmp/ /tmp/a", "/tmp /tmp.html"),
        (star("Allow: /a%2fb.html", "Disallow: /"), "/a%2fb.html", "/a/b.html"),
        (star("Allow: /a/b.html", "Disallow: /"), "/a/b.html", "/a%2fb.html"),
        (star("Allow: /%7ejoe/", "Disallow: /"), "/~joe/x /%7Ejoe/x", "/joe"),
        (star("Allow: /~joe/", "Disallow: /"), "/%7Ejoe/x", "/joe/x"),
        (
            star("Disallow: /org/plans", "Allow: /org/", "Allow: /serv", "Disallow: /"),
            "/server /services/fast /org/about",
            "/ /orgo.gif /org/plans",
        ),
        # Escapes, case, symbols that stand for themselves.
        (
            star("Disallow: /", "Allow: /a?b=c&d=http://e.test?f&g"),
            "/a?b=c&d=http://e.test?f&g",
            "/a",
        ),
        (star("Disallow: /", "Allow: /a/%62%61%7A"), "/a/baz /a/%62%61%7A", "/a/b"),
        (star("Disallow: /", "Allow: /a/%E3%83%84"), "/a/%E3%83%84", "/a/b"),
        (star("Disallow: /", "Allow: /a/\u30c4"), "/a/%E3%83%84", "/a/b"),
        (star("Disallow: /X/"), "/x/y", "/X/y"),
        (star("Disallow: /x$/a", "Disallow: /v*v$/a"), "/x/a", "/x$/ab /x%24/ab /v1v$/ab"),
        (star("Disallow: /x/a%24", "Disallow: /x%2Ax/a"), "/x/a /x1x/a", "/x/a$ /x/a$b /x*x/a"),
        (star("Disallow: /x/a$", "Disallow: /x*x/a"), "/x/ab", "/x*x/a /x/a$ /x/a%24"),
        # Things that are no paths, and directories.
        (star("Disallow: http://other.test/"), "/ /other", "/http://other.test/"),
        (star("Disallow: //dir/*"), "/ /dir /dir/a //dir", "//dir/a"),
        (star("Allow: /dir/index.html", "Disallow: /"), "/dir/ /dir/index.html", "/dir/index.htm"),
        # Lines that are none.
        (star("Disallow: /a/b#c", "Allow: /"), "/a/c", "/a/b"),
        (star("Harry Potter", "Colour: red", "Disallow: /x"), "/y", "/x"),
        ("user-agent *\ndisallow /x", "/y", "/x"),
        ("User-agent: *\n\r\n\nDisallow: /x", "/y", "/x"),
        ("Disallow: /x\nUser-agent: zcrawl\nDisallow: /z", "/x", "/z"),
        # Groups: our own before the star's, whatever it says.
        ("User-agent: zcrawl\nDisallow:\n\nUser-agent: *\nDisallow: /", "/ /x", ""),
        ("User-agent: *\nDisallow: /\n\nUser-agent: ZCRAWL\nDisallow: /x", "/y", "/x"),
        ("User-agent: *\nOdd: /g\nUser-agent: third\nDisallow: /", "", "/ /g"),
        ("User-agent: other\nDisallow: /\nUser-agent: zcrawl", "/ /x", ""),
        ("User-agent: zcra*wl\nDisallow: /x", "/y", "/x"),
    ],
)
def test_the_rest_of_what_is_asked(text: str, allowed: str, forbidden: str) -> None:
    """Examples of the old drafts, odd lines, and who is meant."""
    test_what_is_open_and_what_is_not(text, allowed, forbidden)


def test_a_crawler_may_have_a_name_beyond_ascii() -> None:
    """The name is used in the file and in the User-Agent header."""
    text = "User-agent: *\nDisallow: /all\nUser-agent: Unic\u00f6de\nDisallow: /own"
    robots = rules(text, "unic\u00f6de/1.0")
    assert robots.allows(SITE + "/all")
    assert not robots.allows(SITE + "/own")


GROUPS = """
User-agent: one
User-agent: two
Disallow: /both
Crawl-delay: 2

User-agent: *
Disallow: /all
Crawl-delay: 1

User-agent: ONE
Disallow: /again

User-agent: three
"""


@pytest.mark.parametrize(
    ("agent", "allowed", "forbidden", "delay"),
    [
        ("one", "/all", "/both /again", 2.0),
        ("Two/1.0", "/all /again", "/both", 2.0),
        ("three", "/all /both", "", None),
        ("four", "/both", "/all", 1.0),
    ],
)
def test_each_crawler_has_its_group(
    agent: str, allowed: str, forbidden: str, delay: float | None
) -> None:
    """Several names for one group, one name for several, and the star for those without."""
    robots = rules(GROUPS, agent)
    assert all(robots.allows(SITE + path) for path in allowed.split())
    assert not any(robots.allows(SITE + path) for path in forbidden.split())
    assert robots.crawl_delay_s == delay


@pytest.mark.parametrize(
    ("line", "delay"),
    [
        ("Crawl-delay: 10", 10.0),
        ("Crawl-delay: 0.5", 0.5),
        ("Crawl-delay: soon", None),
        ("Request-rate: 1/10s", 10.0),
        ("Request-rate: 100/15m", 9.0),
        ("Request-rate: 400/1h", 9.0),
        ("Request-rate: 8640/1d", 10.0),
        ("Request-rate: 1/10s 1820-1940", 10.0),  # its hours are not looked at: slow all day
        ("Request-rate: nonsense", None),
        ("Request-rate: 0/10", None),
        ("Visit-time: 0100-0400", None),
    ],
)
def test_what_is_asked_of_the_pace(line: str, delay: float | None) -> None:
    """In every unit, or not at all."""
    assert rules(star(line, "Disallow: /x")).crawl_delay_s == delay


def test_all_sitemaps_are_found_wherever_they_stand() -> None:
    """They belong to no group."""
    text = "Sitemap: https://a.test/1\n" + star("Disallow: /x", "sitemap: https://a.test/2")
    text += "\nUser-agent: other\nSITEMAP: https://a.test/3"
    assert rules(text).sitemaps == tuple(f"https://a.test/{n}" for n in (1, 2, 3))
