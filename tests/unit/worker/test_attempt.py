"""What becomes of a page: from what a fetch came to, to the result that is reported."""

from __future__ import annotations

import json

import msgspec
import pytest

from zcrawl.errors import JobError, RetryClass
from zcrawl.fetch.policy import classify_status, fetch_error
from zcrawl.frontier.url import DEFAULT
from zcrawl.mesh.messages import Assignment, ExtractionReport, PageRecord, Result, RunConfig, Traits
from zcrawl.model.host import Manner, RobotsFile
from zcrawl.model.spec import Fetch, JobSpec, Politeness, Scope
from zcrawl.model.states import Outcome
from zcrawl.parse.page import NOTHING_PARSED
from zcrawl.worker.results.attempt import Attempt, unsendable
from zcrawl.worker.results.context import RunContext
from zcrawl.worker.results.link_filter import SortedLinks
from zcrawl.worker.results.pages import MAX_DETAIL

PARENT = "https://x.test/"
UTC = 1_700_000_000.0
ONE = Assignment(4, 9, 2, 3, "https://x.test/a", 1, 1, PARENT)
SEED = Assignment(4, 9, 2, 3, "https://x.test/a", 0, 1, None)
PAGE = PageRecord("https://x.test/b", "A title", "text/html", 1234, 1_700_000_000.25, 12.0)


def context(scope: Scope | None = None, fetch: Fetch | None = None) -> RunContext:
    spec = JobSpec("j", scope=scope or Scope(), fetch=fetch or Fetch())
    return RunContext(RunConfig(2, 1, msgspec.json.encode(spec), ["x.test"]))


def link(url: str) -> tuple[str, bytes]:
    return url, DEFAULT.key(url)


def test_a_page_becomes_a_default_item_with_all_nine_keys() -> None:
    """The item that the README shows."""
    links = SortedLinks([link("https://x.test/c")])
    result = Attempt(ONE, context()).read(PAGE, 200, links, NOTHING_PARSED).result()
    assert result.outcome is Outcome.DONE
    assert result.links == links.followed
    assert (result.seq, result.run, result.host, result.depth, result.status) == (9, 2, 3, 1, 200)
    assert [json.loads(item) for item in result.items] == [
        {
            "url": "https://x.test/a",
            "final_url": "https://x.test/b",
            "status": 200,
            "depth": 1,
            "title": "A title",
            "content_type": "text/html",
            "bytes": 1234,
            "fetched_at": "2023-11-14T22:13:20.250Z",
            "parent": PARENT,
        }
    ]


def test_a_failure_carries_its_name_and_its_retry_class() -> None:
    """The leader decides by them."""
    result = Attempt(ONE).failed_with(fetch_error("dns", "no such host")).result()
    assert (result.outcome, result.reason) == (Outcome.FAILED, "dns")
    assert result.retry is RetryClass.TRANSIENT
    assert result.detail == "no such host"


def test_a_detail_is_short_and_can_be_encoded() -> None:
    """Libraries quote whole pages, and pages hold anything."""
    result = Attempt(ONE).failed("x", RetryClass.PERMANENT, detail="\udcff" * 10_000)
    assert len(result.detail) == MAX_DETAIL
    result.detail.encode()


@pytest.mark.parametrize(
    ("source", "scope", "target", "reason"),
    [
        (ONE, Scope(), "https://y.test/", "redirect_out_of_scope"),
        (SEED, Scope(), "https://y.test/", "redirected"),
        (SEED, Scope(hosts=("x.test",)), "https://y.test/", "redirect_out_of_scope"),
        (ONE, Scope(hosts=("*",)), "https://y.test/", "redirected"),
        (ONE, Scope(), "http://x.test/", "redirected"),
    ],
)
def test_a_redirect_to_another_origin_is_handed_over_if_it_belongs_to_the_crawl(
    source: Assignment, scope: Scope, target: str, reason: str
) -> None:
    """A seed may lead anywhere under the default scope, and nowhere else under a stated one."""
    result = Attempt(source, context(scope)).redirected(target, 301).result()
    assert (result.outcome, result.reason, result.status) == (Outcome.SKIPPED, reason, 301)
    assert result.handover == (link(target) if reason == "redirected" else None)


def test_a_redirect_between_variants_that_collapse_is_handed_over_once() -> None:
    """Both have one key, which the request that redirects has taken: the target gets one of its
    own, that no link can have. Without collapsing it has its usual key."""
    secure = "https://x.test/a"
    plain = msgspec.structs.replace(ONE, url="http://x.test/a")
    both = context(Scope(hosts=("x.test",), collapse_scheme=True))
    result = Attempt(plain, both).redirected(secure, 301)
    assert result.handover is not None
    assert result.handover[0] == secure
    assert result.handover[1] not in (both.rules.key(secure), DEFAULT.key(secure))
    again = Attempt(plain, both).redirected(secure, 301)
    assert again.handover == result.handover, "a second attempt admits nothing new"
    usual = Attempt(plain, context(Scope(hosts=("x.test",)))).redirected(secure, 301)
    assert usual.handover == link(secure)


def test_no_part_of_a_request_is_allowed_longer_than_the_whole() -> None:
    """A timeout of 3 s means 3 s, whatever the defaults of its parts are."""
    limits = context(fetch=Fetch(timeout=3.0)).limits
    assert (limits.total_s, limits.connect_s, limits.read_s) == (3.0, 3.0, 3.0)


def test_rel_nofollow_counts_when_robots_counts() -> None:
    """Both are the site's wishes."""
    assert context().options.follow_nofollow is False
    spec = JobSpec("j", politeness=Politeness(robots=False))
    run = RunContext(RunConfig(2, 1, msgspec.json.encode(spec), []))
    assert run.options.follow_nofollow is True


def test_a_spec_that_cannot_be_read_has_a_name() -> None:
    """A newer leader may know keys that this worker does not."""
    with pytest.raises(JobError) as caught:
        RunContext(RunConfig(2, 1, b'{"name":"j","magic":1}', []))
    assert caught.value.code == "bad_spec"


def test_retry_after_is_read_in_seconds() -> None:
    """None when there is none."""
    busy = classify_status(503)
    assert Attempt(ONE).refused(busy, 503, "7", 0.0).retry_after_s == 7.0
    assert Attempt(ONE).refused(busy, 503, None, 0.0).retry_after_s is None


def test_a_later_end_replaces_an_earlier_one_with_all_that_was_found() -> None:
    """Only what holds for the host stays: the crawl delay."""
    attempt = Attempt(ONE, context(), crawl_delay_s=3.0)
    attempt.read(PAGE, 200, SortedLinks([link("https://x.test/c")]), NOTHING_PARSED)
    attempt.cookies, attempt.extracted = ("x.test", b"c"), ExtractionReport()
    fresh = Attempt(ONE, attempt.context, crawl_delay_s=3.0)
    for made in (attempt, fresh):
        made.failed("middleware_error", RetryClass.PERMANENT, detail="m: ValueError")
    assert attempt == fresh
    assert attempt.result() == fresh.result()


def test_every_field_of_a_result_comes_from_the_attempt() -> None:
    """A field that is added to the message and forgotten here would never be sent."""
    page = msgspec.structs.replace(PAGE, body="f" * 64)
    values = {
        "outcome": Outcome.DONE,
        "reason": "r",
        "status": 200,
        "retry": RetryClass.TRANSIENT,
        "retry_after_s": 1.0,
        "page": page,
        "items": [b"{}"],
        "links": [link("https://x.test/c")],
        "rejected": {"bad_url": 1},
        "handover": link("https://x.test/d"),
        "host_next_in_s": 2.0,
        "crawl_delay_s": 3.0,
        "detail": "d",
        "blocks": [("l", [bytes(16)])],
        "extracted": ExtractionReport(),
        "cookies": ("x.test", b"c"),
        "manner": Manner(1.0),
        "robots": RobotsFile(200, b"", 0.0),
        "trapped": [("https://x.test/e", bytes(16), "trap_shape")],
        "sitemaps": [link("https://x.test/s")],
        "prios": [4],
        "requests": [("https://x.test/r", bytes(16), 0, b"")],
        "traits": Traits(etag="e"),
        "address": "192.0.2.1",
        "dropped": {"too_deep": 1},
        "paging": [bytes(16)],
        "redirected_to": link("https://x.test/b"),
    }
    identity = {"lease_epoch", "lease_n", "seq", "run", "host", "attempt", "depth"}
    assert identity | values.keys() == set(Result.__struct_fields__)
    attempt = Attempt(ONE, **values)  # type: ignore[arg-type]
    attempt.take_lease(7, msgspec.structs.replace(ONE, n=8, attempt=9))
    (result,) = attempt.results()
    assert {name: getattr(result, name) for name in values} == values
    assert (result.lease_epoch, result.lease_n, result.attempt) == (7, 8, 9)
    assert (result.seq, result.run, result.host, result.depth) == (9, 2, 3, 1)


def test_a_result_that_cannot_be_sent_gives_its_lease_to_a_failure() -> None:
    """The failure has the identity of the result that it replaces, and nothing of its page."""
    attempt = Attempt(ONE, context()).read(PAGE, 200, SortedLinks(), NOTHING_PARSED)
    attempt.take_lease(7, ONE)
    before = attempt.result()
    after = unsendable(before, "UnicodeEncodeError: \ud800")
    same = ("lease_epoch", "lease_n", "seq", "run", "host", "attempt", "depth")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert (after.outcome, after.reason) == (Outcome.FAILED, "result_unsendable")
    assert (after.page, after.items, after.detail) == (None, [], "UnicodeEncodeError: \\ud800")
