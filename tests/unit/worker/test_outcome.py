"""From what a fetch came to, to the result that is reported."""

from __future__ import annotations

import json

import msgspec
import pytest

from zcrawl.errors import JobError, RetryClass
from zcrawl.fetch.policy import fetch_error
from zcrawl.frontier.url import DEFAULT
from zcrawl.mesh.messages import Assignment, Page, RunConfig
from zcrawl.model.spec import Fetch, JobSpec, Politeness, Scope
from zcrawl.model.states import Outcome
from zcrawl.worker.results import outcome
from zcrawl.worker.results.outcome import RunContext

PARENT = "https://x.test/"
UTC = 1_700_000_000.0
ONE = Assignment(4, 9, 2, 3, "https://x.test/a", 1, 1, PARENT)
SEED = Assignment(4, 9, 2, 3, "https://x.test/a", 0, 1, None)
PAGE = Page("https://x.test/b", "A title", "text/html", 1234, 1_700_000_000.25, 12.0)


def context(scope: Scope | None = None, fetch: Fetch | None = None) -> RunContext:
    spec = JobSpec("j", scope=scope or Scope(), fetch=fetch or Fetch())
    return RunContext(RunConfig(2, 1, msgspec.json.encode(spec), ["x.test"]))


def link(url: str) -> tuple[str, bytes]:
    return url, DEFAULT.key(url)


def test_a_page_becomes_a_default_item_with_all_nine_keys() -> None:
    """The item that the README shows."""
    result = outcome.done(ONE, PAGE, 200, [link("https://x.test/c")], 0.0)
    assert result.outcome is Outcome.DONE
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
    result = outcome.failed_with(ONE, fetch_error("dns", "no such host"))
    assert (result.outcome, result.reason) == (Outcome.FAILED, "dns")
    assert result.retry is RetryClass.TRANSIENT
    assert result.detail == "no such host"


def test_a_detail_is_short_and_can_be_encoded() -> None:
    """Libraries quote whole pages, and pages hold anything."""
    result = outcome.failed(ONE, "x", RetryClass.PERMANENT, detail="\udcff" * 10_000)
    assert len(result.detail) == outcome.MAX_DETAIL
    result.detail.encode()


@pytest.mark.parametrize(
    ("one", "scope", "target", "reason"),
    [
        (ONE, Scope(), "https://y.test/", "redirect_out_of_scope"),
        (SEED, Scope(), "https://y.test/", "redirected"),
        (SEED, Scope(hosts=("x.test",)), "https://y.test/", "redirect_out_of_scope"),
        (ONE, Scope(hosts=("*",)), "https://y.test/", "redirected"),
        (ONE, Scope(), "http://x.test/", "redirected"),
    ],
)
def test_a_redirect_to_another_origin_is_handed_over_if_it_belongs_to_the_crawl(
    one: Assignment, scope: Scope, target: str, reason: str
) -> None:
    """A seed may lead anywhere under the default scope, and nowhere else under a stated one."""
    result = outcome.redirected(one, context(scope), target, 301, 0.0)
    assert (result.outcome, result.reason, result.status) == (Outcome.SKIPPED, reason, 301)
    assert result.handover == (link(target) if reason == "redirected" else None)


def test_a_redirect_between_variants_that_collapse_is_handed_over_once() -> None:
    """Both have one key, which the request that redirects has taken: the target gets one of its
    own, that no link can have. Without collapsing it has its usual key."""
    secure = "https://x.test/a"
    plain = msgspec.structs.replace(ONE, url="http://x.test/a")
    both = context(Scope(hosts=("x.test",), collapse_scheme=True))
    result = outcome.redirected(plain, both, secure, 301, 0.0)
    assert result.handover is not None and result.handover[0] == secure
    assert result.handover[1] not in (both.rules.key(secure), DEFAULT.key(secure))
    again = outcome.redirected(plain, both, secure, 301, 0.0)
    assert again.handover == result.handover, "a second attempt admits nothing new"
    usual = outcome.redirected(plain, context(Scope(hosts=("x.test",))), secure, 301, 0.0)
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
    assert outcome.wait_asked_for("7", 0.0) == 7.0
    assert outcome.wait_asked_for(None, 0.0) is None
