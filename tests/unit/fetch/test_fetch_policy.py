"""What an answer means: status, Retry-After and redirects."""

from __future__ import annotations

import email.utils

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.errors import FetchError, RetryClass
from zcrawl.fetch.policy import (
    RETRY_CLASS_OF,
    FollowRedirect,
    HandOver,
    Meaning,
    RedirectChain,
    classify_status,
    fetch_error,
    parse_retry_after,
)
from zcrawl.frontier.url import CanonicalRules

NOW = 1_700_000_000.0
RULES = CanonicalRules()


def code_of(error: pytest.ExceptionInfo[FetchError]) -> str:
    assert error.value.retry is RETRY_CLASS_OF[error.value.code]
    return error.value.code


# ---------------------------------------------------------------- status


@pytest.mark.parametrize("status", [200, 201, 204, 206, 299])
def test_2xx_is_done(status: int) -> None:
    """A 2xx answer is the page."""
    assert classify_status(status).meaning is Meaning.DONE


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_five_statuses_redirect(status: int) -> None:
    """These have a Location; other 3xx do not."""
    assert classify_status(status).meaning is Meaning.REDIRECT


@pytest.mark.parametrize(
    ("status", "retry"),
    [
        (408, RetryClass.TRANSIENT),
        (425, RetryClass.TRANSIENT),
        (429, RetryClass.THROTTLED),
        (500, RetryClass.TRANSIENT),
        (502, RetryClass.TRANSIENT),
        (503, RetryClass.THROTTLED),
        (504, RetryClass.TRANSIENT),
        (599, RetryClass.TRANSIENT),
        (300, RetryClass.PERMANENT),
        (304, RetryClass.PERMANENT),
        (400, RetryClass.PERMANENT),
        (401, RetryClass.PERMANENT),
        (403, RetryClass.PERMANENT),
        (404, RetryClass.PERMANENT),
        (410, RetryClass.PERMANENT),
        (999, RetryClass.PERMANENT),
        (101, RetryClass.PERMANENT),
    ],
)
def test_the_rest_has_failed_with_its_reason(status: int, retry: RetryClass) -> None:
    """The reason names the status; the retry class says whether to ask again."""
    verdict = classify_status(status)
    assert (verdict.meaning, verdict.retry) == (Meaning.FAILED, retry)
    assert verdict.reason == f"http_{status}"


@given(st.integers())
def test_every_number_has_a_verdict(status: int) -> None:
    """A failed verdict has reason and retry class; the others have neither."""
    verdict = classify_status(status)
    failed = verdict.meaning is Meaning.FAILED
    assert (verdict.retry is not None) == failed == bool(verdict.reason)


def test_every_code_has_a_retry_class() -> None:
    """`fetch_error` takes the class from the table."""
    for code, retry in RETRY_CLASS_OF.items():
        error = fetch_error(code, "why")
        assert (error.code, error.retry, str(error)) == (code, retry, "why")


# ---------------------------------------------------------------- Retry-After


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("7200", 3600.0),
        ("9" * 400, 3600.0),
        (email.utils.formatdate(NOW + 90, usegmt=True), 90.0),
        (email.utils.formatdate(NOW - 90, usegmt=True), 0.0),
        (email.utils.formatdate(NOW + 10**6, usegmt=True), 3600.0),
        (email.utils.formatdate(NOW + 60), 60.0),  # "-0000" instead of GMT
        ("Tue, 14 Nov 2023 22:14:20", 60.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1e3", None),
        ("inf", None),
        ("nan", None),
        ("٣", None),
        ("Tue, 99 Nov 2023 22:14:20 GMT", None),
        ("Tue, 14 Nov 99999 22:14:20 GMT", None),
    ],
)
def test_both_forms_of_retry_after(value: str, seconds: float | None) -> None:
    """Seconds or a date, within an hour; anything else is as if it were not there."""
    assert parse_retry_after(value, NOW) == seconds


@given(st.text(), st.floats(0, 4e9))
def test_no_retry_after_raises(value: str, now: float) -> None:
    """Any string gives None or something between 0 and an hour."""
    seconds = parse_retry_after(value, now)
    assert seconds is None or 0 <= seconds <= 3600


# ---------------------------------------------------------------- redirects

START = "https://example.com/a/start"


def chain(max_redirects: int = 10) -> RedirectChain:
    return RedirectChain(START, max_redirects, RULES)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "https://example.com/b"),
        ("next?x=1#top", "https://example.com/a/next?x=1"),
        ("https://EXAMPLE.com:443/c", "https://example.com/c"),
        ("//example.com/d", "https://example.com/d"),
    ],
)
def test_the_same_origin_is_followed(location: str, url: str) -> None:
    """Relative or absolute, the next hop has its canonical form."""
    assert chain().next_hop(START, location) == FollowRedirect(url)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("http://example.com/b", "http://example.com/b"),
        ("https://www.example.com/b", "https://www.example.com/b"),
        ("https://example.com:8443/b", "https://example.com:8443/b"),
    ],
)
def test_another_origin_is_handed_over(location: str, url: str) -> None:
    """Another scheme, name or port is another host, with another pace."""
    assert chain().next_hop(START, location) == HandOver(url)


@pytest.mark.parametrize(
    "location",
    [None, "", "  ", "file:///etc/passwd", "javascript:alert(1)", "mailto:a@b", "http://[::1"],
)
def test_a_location_that_leads_nowhere(location: str | None) -> None:
    """No Location, no URL or no web address: the request has failed."""
    with pytest.raises(FetchError) as error:
        chain().next_hop(START, location)
    assert code_of(error) == "bad_redirect"


def test_a_loop_is_seen_when_it_closes() -> None:
    """Coming back to any earlier hop is a loop, however it is spelled."""
    hops = chain()
    assert hops.next_hop(START, "/b") == FollowRedirect("https://example.com/b")
    assert hops.next_hop("https://example.com/b", "/c") == FollowRedirect("https://example.com/c")
    with pytest.raises(FetchError) as error:
        hops.next_hop("https://example.com/c", "/a/./start#again")
    assert code_of(error) == "redirect_loop"
    with pytest.raises(FetchError) as error:
        chain().next_hop(START, START)
    assert code_of(error) == "redirect_loop"


def test_hops_are_limited() -> None:
    """As many hops as allowed are followed; the next one fails. 0 follows none."""
    hops, url = chain(3), START
    for n in range(3):
        step = hops.next_hop(url, f"/{n}")
        assert isinstance(step, FollowRedirect)
        url = step.url
    assert hops.hops == 3
    with pytest.raises(FetchError) as error:
        hops.next_hop(url, "/4")
    assert code_of(error) == "too_many_redirects"
    with pytest.raises(FetchError) as error:
        chain(0).next_hop(START, "/x")
    assert code_of(error) == "too_many_redirects"
