"""What is to become of one result: planned, not yet done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.machine_tools import (
    UTC,
    header,
    link,
    result,
    row,
    run_row,
    spec,
    worker_info,
)
from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.runs import Runs
from zcrawl.errors import RetryClass
from zcrawl.frontier.extra import REDIRECT, decode, encode
from zcrawl.frontier.seen import SeenTable
from zcrawl.mesh.messages import BadBody, ExtractionReport, MessageKind, Result
from zcrawl.model.reasons.failure import BAD_RESULT
from zcrawl.model.reasons.skip import REDIRECTED
from zcrawl.model.spec import Fetch, JobSpec, Scope
from zcrawl.model.states import Kept, Outcome, RequestState, RunState
from zcrawl.result.plan import MOST_REASON, SAMPLE_EVERY, ResultPlanner
from zcrawl.result.receive import Received
from zcrawl.store.commands import Change
from zcrawl.store.rules import MOST_DETAIL

NOW = 50.0
FAILURE: dict[str, Any] = {"outcome": Outcome.FAILED, "reason": "http_503", "status": 503}


class Desk:
    """A planner with one active run, and what it reads."""

    def __init__(self, scope: Scope | None = None, retries: int = 2) -> None:
        self.leases, self.runs, self.seen = Leases(), Runs(), SeenTable(64)
        self.runs.put(run_row(1, spec(scope=scope, retries=retries)))
        self.planner = ResultPlanner(self.leases, self.runs, self.seen)

    def plan(self, body: Result | BadBody, seq: int = 1) -> Change:
        return self.planner.plan(Received(("w1", 7), 3, seq, body, NOW), UTC, NOW)


def test_a_done_page_is_committed_whole() -> None:
    """State, page, items, links and the host's pace go into one change (G3)."""
    body = result(5, links=[link("http://h1.test/a")], host_next_in_s=2.0, crawl_delay_s=9.0)
    change = Desk().plan(body, 5)
    assert (change.worker, change.incarnation, change.number, change.seq) == ("w1", 7, 3, 5)
    assert change.state is RequestState.DONE
    assert not change.dropped
    assert change.page == body.page
    assert change.items == tuple(body.items)
    assert [(new_link.url, new_link.depth, new_link.origin) for new_link in change.links] == [
        ("http://h1.test/a", 1, "http://h1.test")
    ]
    assert (change.host_next_at, change.crawl_delay_s) == (NOW + UTC + 2.0, 9.0)


def test_a_skip_keeps_its_reason_and_stores_no_page() -> None:
    """Also when a confused worker sent a page with it."""
    page = result().page
    change = Desk().plan(result(1, Outcome.SKIPPED, reason="robots", page=page, items=[b"{}"]))
    assert (change.state, change.reason) == (RequestState.SKIPPED, "robots")
    assert change.page is None
    assert change.items == ()


def test_a_part_admits_links_and_leaves_the_request_alone() -> None:
    """Rule `many links`: the page itself follows."""
    change = Desk().plan(result(1, Outcome.PART, links=[link("http://h1.test/a")]))
    assert change.state is None
    assert not change.dropped
    assert len(change.links) == 1
    assert change.page is None


def test_links_that_are_certainly_seen_are_left_out() -> None:
    """A hit in the seen-table is certain; another run's hit is none."""
    desk = Desk()
    old, new = link("http://h1.test/old"), link("http://h1.test/new")
    desk.seen.add(1, old[1])
    desk.seen.add(2, new[1])
    change = desk.plan(result(links=[old, new], handover=old))
    assert [new_link.url for new_link in change.links] == ["http://h1.test/new"]


def test_a_paging_link_is_as_deep_as_its_page() -> None:
    """Others are a step deeper; in a part of a result, too."""
    following, other = link("http://h1.test/list?p=2"), link("http://h1.test/book")
    for outcome in (Outcome.DONE, Outcome.PART):
        body = result(1, outcome, depth=3, links=[following, other], paging=[following[1]])
        assert [(new_link.url, new_link.depth) for new_link in Desk().plan(body).links] == [
            ("http://h1.test/list?p=2", 3),
            ("http://h1.test/book", 4),
        ]


def test_where_a_redirect_led_is_verified_and_planned() -> None:
    """By the run's own rules. A worker that tells another key is not believed, and a job that does
    not want it collapses nothing."""
    url = "http://h1.test/landing"
    change = Desk().plan(result(1, depth=2, redirected_to=link(url)))
    assert change.final is not None
    assert (change.final.url, change.final.key, change.final.depth) == (*link(url), 2)
    assert change.final.origin == "http://h1.test"
    for wrong in ((url, b"x" * 16), ("http://H1.test:80/landing", link(url)[1])):
        assert Desk().plan(result(1, redirected_to=wrong)).reason == BAD_RESULT
    assert (
        Desk(Scope(collapse_redirects=False)).plan(result(1, redirected_to=link(url))).final is None
    )
    assert Desk().plan(result(1, Outcome.SKIPPED, redirected_to=link(url))).final is None


def test_what_the_scope_dropped_is_counted_within_bounds() -> None:
    """With the page, once: a part brings no counts. A worker's word for a reason is cut."""
    body = result(1, dropped={"too_deep": 38, "x" * 500: 2**40})
    assert Desk().plan(body).links_dropped == (("too_deep", 38), ("x" * MOST_REASON, 1_000_000))
    assert Desk().plan(result(1, Outcome.PART, dropped={"too_deep": 1})).links_dropped == ()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_result_with_a_newer_lease_elsewhere_is_dropped(outcome: Outcome) -> None:
    """Rule `leases`: a newer attempt is known; only the watermark moves."""
    desk = Desk()
    desk.leases.open((1, 2), row(1), worker_info(), 1, NOW)
    change = desk.plan(result(1, outcome, links=[link("http://h1.test/a")]))
    assert change.dropped
    assert change.state is None
    assert change.links == ()


@pytest.mark.parametrize("token", [None, (1, 1), (0, 9)])
def test_a_result_of_an_unknown_or_older_lease_applies(token: tuple[int, int] | None) -> None:
    """Rule `leases`: a result for an unknown lease is not stale."""
    desk = Desk()
    if token is not None:
        desk.leases.open(token, row(1), worker_info(), 1, NOW)
    assert desk.plan(result(1)).state is RequestState.DONE


def test_a_result_of_an_ended_run_is_dropped() -> None:
    """Cancel: what was in flight is dropped, with that disposition."""
    desk = Desk()
    desk.runs.put(run_row(1, state=RunState.CANCELLED))
    assert desk.plan(result(1)).dropped
    assert desk.plan(result(1, run=99)).dropped


def test_an_unreadable_result_ends_its_request_dead() -> None:
    """Rule `bad results`: its run is known by the lease."""
    desk = Desk()
    desk.leases.open((1, 2), row(9), worker_info(), 1, NOW)
    change = desk.plan(BadBody(header(MessageKind.RESULT, subject=9), "spoilt"), 9)
    assert (change.state, change.reason) == (RequestState.DEAD, BAD_RESULT)
    assert (change.seq, change.run, change.number) == (9, 1, 3)


@pytest.mark.parametrize(
    "lie",
    [
        ("http://h1.test/a", b"k" * 16),
        ("HTTP://H1.test/a", link("http://h1.test/a")[1]),
        ("no url", b"k" * 16),
    ],
    ids=["wrong-key", "not-canonical", "no-url"],
)
def test_a_lying_worker_is_found_by_a_sample(lie: tuple[str, bytes]) -> None:
    """One link in 64 is looked at again; a result with a lie in it is not used."""
    desk = Desk()
    honest = [link(f"http://h1.test/{n}") for n in range(SAMPLE_EVERY - 1)]
    assert desk.plan(result(1, links=honest)).state is RequestState.DONE
    change = desk.plan(result(1, links=[lie]))
    assert (change.state, change.reason, change.links) == (RequestState.DEAD, BAD_RESULT, ())
    assert desk.planner.bad_samples == 1
    assert desk.plan(result(1, links=honest)).state is RequestState.DONE, "the count began anew"


def test_a_failure_waits_and_the_wait_is_the_same_when_planned_again() -> None:
    """Exponential backoff; a batch that is planned twice asks for the same moment."""
    desk = Desk()
    body = result(1, retry=RetryClass.TRANSIENT, **FAILURE)
    change = desk.plan(body)
    assert (change.state, change.attempts) == (RequestState.QUEUED, 1)
    assert 0.5 <= change.due_at - (NOW + UTC) <= 1.0
    assert desk.plan(body) == change
    second = desk.plan(result(1, attempt=2, retry=RetryClass.TRANSIENT, **FAILURE))
    assert 1.0 <= second.due_at - (NOW + UTC) <= 2.0


def test_a_retry_after_is_honoured() -> None:
    """The server's word is a lower bound."""
    body = result(1, retry=RetryClass.THROTTLED, retry_after_s=120.0, **FAILURE)
    assert Desk().plan(body).due_at == NOW + UTC + 120.0


@pytest.mark.parametrize(
    ("attempt", "retry"),
    [(1, RetryClass.PERMANENT), (1, None), (3, RetryClass.TRANSIENT)],
    ids=["permanent", "no-class", "tries-used-up"],
)
def test_a_failure_without_another_try_is_dead(attempt: int, retry: RetryClass | None) -> None:
    """With the reason of its last attempt."""
    change = Desk(retries=2).plan(result(1, attempt=attempt, retry=retry, **FAILURE))
    assert (change.state, change.reason, change.status) == (RequestState.DEAD, "http_503", 503)
    assert change.links == ()


def test_archives_get_the_answer_that_a_request_ended_with_and_no_earlier_one() -> None:
    """An attempt that is tried again leaves nothing: each request is archived once."""
    report = ExtractionReport(capture=b"{}")
    again = Desk().plan(result(1, **FAILURE, retry=RetryClass.TRANSIENT, extracted=report))
    assert (again.state, again.others) == (RequestState.QUEUED, ())
    last = Desk(retries=0).plan(result(1, **FAILURE, retry=RetryClass.TRANSIENT, extracted=report))
    assert (last.state, last.others) == (RequestState.DEAD, ((Kept.CAPTURE, b"{}"),))


def test_what_happened_is_kept_of_what_ended_and_of_no_attempt_before() -> None:
    """Of failures and skips as the worker told it, cut; a page that is done has nothing to tell."""
    detail = "x" * 10_000
    again = Desk().plan(result(1, **FAILURE, retry=RetryClass.TRANSIENT, detail=detail))
    assert (again.state, again.detail) == (RequestState.QUEUED, "")
    last = Desk(retries=0).plan(result(1, **FAILURE, retry=RetryClass.TRANSIENT, detail=detail))
    assert (last.state, last.detail) == (RequestState.DEAD, "x" * MOST_DETAIL)
    skipped = Desk().plan(result(1, Outcome.SKIPPED, reason="robots", detail=detail))
    assert skipped.detail == "x" * MOST_DETAIL
    assert Desk().plan(result(1, detail=detail)).detail == ""


def test_items_that_were_set_aside_have_an_example_if_the_page_is_done() -> None:
    """A page that failed after all has set nothing aside: nothing of it is counted."""
    report = ExtractionReport(reasons={"schema: n": 1}, examples={"schema: n": "n is 3: why"})
    assert Desk().plan(result(1, extracted=report)).examples == (("schema: n", "n is 3: why"),)
    assert Desk(retries=0).plan(result(1, **FAILURE, extracted=report)).examples == ()


def test_a_long_reason_is_cut() -> None:
    """A worker's text cannot grow the tallies without bound."""
    change = Desk().plan(result(1, Outcome.SKIPPED, reason="x" * 10_000))
    assert len(change.reason) == MOST_REASON


def test_a_redirect_to_another_host_is_a_new_request_of_the_same_depth() -> None:
    """Rule `many links`; deeper pages vouch for nobody."""
    body = result(1, Outcome.SKIPPED, depth=3, handover=link("http://other.test:81/x"))
    change = Desk().plan(body)
    assert [(new_link.origin, new_link.depth) for new_link in change.links] == [
        ("http://other.test:81", 3)
    ]
    assert change.seed_hosts == ()


def test_a_seed_that_redirects_vouches_for_its_target() -> None:
    """Under the default scope the target's host belongs to the crawl; under a stated one not."""
    body = result(1, Outcome.SKIPPED, handover=link("http://other.test:81/x"))
    assert Desk().plan(body).seed_hosts == ("other.test:81",)
    assert Desk(Scope(hosts=("h1.test",))).plan(body).seed_hosts == ()


def test_a_postponed_request_keeps_its_attempts() -> None:
    """The page was not asked: it is queued again, as often as it takes, with no attempt counted."""
    postponed = result(
        1, Outcome.FAILED, reason="proxies_down", retry=RetryClass.POSTPONED, attempt=4
    )
    change = Desk().plan(postponed)
    assert (change.state, change.attempts) == (RequestState.QUEUED, 3)
    assert change.due_at > 0


def test_a_bad_result_that_a_hello_promised_ends_its_request() -> None:
    """A new leader has no lease for it, but the HELLO told run and host. Without them the store
    dropped it, the row was in nobody's window any more, and the run never ended."""
    spoilt = BadBody(header(MessageKind.RESULT, subject=9), "spoilt")
    delivery = Received(("w1", 7), 3, 9, spoilt, NOW, promised=(1, 4))
    change = Desk().planner.plan(delivery, UTC, NOW)
    assert (change.run, change.host, change.state) == (1, 4, RequestState.DEAD)


def test_the_target_of_a_redirect_is_marked_in_jobs_that_send_secrets() -> None:
    """Workers keep the secrets of a job from hosts that only a redirect has named. Links and pages
    that give way are no redirects, and other jobs pay nothing."""
    headers = {"X-Key": "${KEY}"}
    target = link("http://other.test:81/x")
    moved = result(1, Outcome.SKIPPED, depth=3, reason=REDIRECTED, handover=target)
    sitemap = result(1, Outcome.SKIPPED, depth=3, reason=REDIRECTED, sitemaps=[target])
    gave_way = result(1, Outcome.SKIPPED, depth=3, reason="canonical", handover=target)
    page = result(1, links=[target])
    marks = []
    for body in (moved, sitemap, gave_way, page):
        desk = Desk()
        desk.runs.put(run_row(1, JobSpec("job", fetch=Fetch(headers=headers))))
        (new,) = desk.plan(body).links
        marks.append(decode(new.extra).redirected)
        assert not new.extra or new.extra == encode(REDIRECT)
    assert marks == [True, True, False, False]
    assert [new_link.extra for new_link in Desk().plan(moved).links] == [b""]
