"""What a page in the browser may do and what its answers mean, decided without a browser."""

from __future__ import annotations

import pytest

from zcrawl.fetch import browser_plan as plan
from zcrawl.fetch.browser_plan import NavigationDecision, RequestBudget, Step
from zcrawl.fetch.policy import RETRY_CLASS_OF
from zcrawl.model.spec import BLOCKABLE, Browser

HERE = "https://site.example/a"


def test_blocked_kinds_and_ads_are_refused_and_counted() -> None:
    """By Chromium's kind of the request, and ads by their host, whatever their kind."""
    budget = RequestBudget(Browser(block=("image", "xhr", "ads")))
    assert not budget.allows("image", "https://x/i.png")
    assert not budget.allows("fetch", "https://x/api")
    assert not budget.allows("script", "https://stats.g.doubleclick.net/dc.js")
    assert budget.allows("script", "https://x/doubleclick.net/a.js")
    assert budget.allows("font", "https://x/f.woff")
    assert (budget.made, budget.refused) == (2, 3)


def test_a_page_has_so_many_requests_and_no_more() -> None:
    """Blocked ones are not counted against it."""
    budget = RequestBudget(Browser(block=("image",), max_requests=2))
    assert not budget.allows("image", "https://x/1")
    assert [budget.allows("script", f"https://x/{n}") for n in range(3)] == [True, True, False]


def test_every_kind_that_a_job_may_block_blocks_something() -> None:
    """A word that is accepted and does nothing would be a lie."""
    kinds = ("image", "font", "media", "stylesheet", "script", "xhr", "beacon", "document")
    for word in BLOCKABLE:
        budget = RequestBudget(Browser(block=(word,)))
        tried = [budget.allows(kind, "https://doubleclick.net/") for kind in kinds]
        assert not all(tried), word


@pytest.mark.parametrize(
    ("host", "ad"),
    [
        ("doubleclick.net", True),
        ("a.b.doubleclick.net", True),
        ("notdoubleclick.net", False),
        ("doubleclick.net.example", False),
        ("[::1]:80", False),
    ],
)
def test_ads_are_known_by_their_domain(host: str, ad: bool) -> None:
    """A sub-domain belongs to its network, a look-alike does not."""
    assert plan.is_ad(f"https://{host}/x") is ad
    assert not plan.is_ad("data:text/plain,doubleclick.net")


@pytest.mark.parametrize(
    ("status", "headers", "step"),
    [
        (200, {"content-type": "text/html; charset=x"}, Step.RENDER),
        (200, {"content-type": "application/xhtml+xml"}, Step.RENDER),
        (200, {}, Step.RENDER),
        (200, {"content-type": "application/json"}, Step.TAKE),
        (200, {"content-type": "text/html", "content-disposition": "attachment"}, Step.TAKE),
        (204, {"content-type": "text/html"}, Step.TAKE),
        (302, {"content-type": "text/html"}, Step.LEAVE),
        (404, {"content-type": "text/html"}, Step.LEAVE),
        (503, {}, Step.LEAVE),
    ],
)
def test_only_good_html_is_rendered(status: int, headers: dict[str, str], step: Step) -> None:
    """Other bodies are returned unchanged; redirects and failures need only the headers."""
    assert plan.on_answer(status, headers) is step


def test_a_page_that_leaves_is_a_redirect_unless_a_click_made_it_leave() -> None:
    """A reload is followed, but not for ever; a click may lead to the same origin only."""
    other = "https://site.example/b"
    assert plan.on_move(HERE, other, 0, clicked=False) is NavigationDecision.REPORT
    assert plan.on_move(HERE, other, 0, clicked=True) is NavigationDecision.FOLLOW
    assert (
        plan.on_move(HERE, "https://site.example:8443/b", 0, clicked=True)
        is NavigationDecision.REFUSE
    )
    assert plan.on_move(HERE, HERE + "#top", 0, clicked=False) is NavigationDecision.FOLLOW
    assert plan.on_move(HERE, HERE, plan.MOST_RELOADS, clicked=False) is NavigationDecision.REFUSE


def test_after_a_click_a_redirect_may_not_lead_away() -> None:
    """Not to another host, nor to one that only begins like this one."""
    origin = "https://site.example"
    assert plan.on_later_answer(200, "", origin)
    assert plan.on_later_answer(302, "/b", origin)
    assert plan.on_later_answer(302, "https://site.example/b", origin)
    assert plan.on_later_answer(302, "//site.example/b", origin)
    assert not plan.on_later_answer(302, "https://site.example.evil/b", origin)
    assert not plan.on_later_answer(302, "//evil/b", origin)
    assert not plan.on_later_answer(302, "HTTPS://evil/b", origin)
    assert not plan.on_later_answer(302, "\\\\evil/b", origin)


def test_headers_are_true_of_the_rendered_text() -> None:
    """Headers that describe the transferred bytes are removed from the rendered page."""
    sent = [("Content-Type", "text/html; charset=latin-1"), ("Content-Encoding", "gzip")]
    headers = plan.rendered_headers([*sent, ("X-Kept", "1")])
    assert headers == [("X-Kept", "1"), ("content-type", "text/html; charset=utf-8")]
    assert plan.taken_headers(sent) == sent[:1]


def test_the_browser_writes_its_own_headers() -> None:
    """Of the job's, only those that it would not write itself are given to it."""
    headers = {"User-Agent": "me", "Accept": "*/*", "Cookie": "a=1", "X-Job": "1"}
    assert plan.own_headers(headers) == {"x-job": "1"}
    assert plan.user_agent(headers) == "me"


def test_cookies_go_both_ways() -> None:
    """A Cookie header becomes the browser's cookies, and those become Set-Cookie headers."""
    made = plan.cookies_of("a=1; b=x=y; broken", HERE)
    assert [(c["name"], c["value"]) for c in made] == [("a", "1"), ("b", "x=y")]
    cookie = {"name": "a", "value": "1", "domain": ".site.example", "path": "/p", "expires": 160.5}
    header = plan.set_cookie({**cookie, "secure": True}, utc=100.0)
    assert header == "a=1; Path=/p; Domain=site.example; Max-Age=60; Secure"
    session = {"name": "a", "value": "1", "domain": "site.example", "expires": -1}
    assert plan.set_cookie(session, utc=100.0) == "a=1; Path=/"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Page.goto: net::ERR_NAME_NOT_RESOLVED at http://x/", "dns"),
        ("net::ERR_SOCKS_CONNECTION_FAILED", "connect"),
        ("net::ERR_CERT_DATE_INVALID", "tls"),
        ("net::ERR_EMPTY_RESPONSE", "reset"),
        ("net::ERR_CONNECTION_RESET", "reset"),
        ("net::ERR_INVALID_HTTP_RESPONSE", "protocol"),
        ("net::ERR_CONTENT_LENGTH_MISMATCH", "truncated"),
        ("net::ERR_HTTP2_PROTOCOL_ERROR", "http2"),
        ("net::ERR_HTTP2_SERVER_REFUSED_STREAM", "http2"),
        ("net::ERR_HTTP_1_1_REQUIRED", "http2"),
        ("Target page, context or browser has been closed", "browser"),
        ("something new", "engine"),
    ],
)
def test_chromiums_failures_get_our_names(text: str, code: str) -> None:
    """Each of them one that the pipeline knows what to do with."""
    assert plan.code_of(text) == code
    assert code in RETRY_CLASS_OF


def test_a_failed_start_is_told_in_one_line() -> None:
    """The line that has the reason, of the hundred that there are."""
    text = "Target closed\nlogs:\n[err] noise\n[err] FATAL: no socket\n[err] more"
    assert plan.start_failure(text) == "[err] FATAL: no socket"
    assert plan.start_failure("just this\nand that") == "just this"
    assert plan.start_failure("") == ""
