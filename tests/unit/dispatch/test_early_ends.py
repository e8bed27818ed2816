"""Runs that are done with a host before their rows are."""

from __future__ import annotations

from tests.unit.dispatch.test_planner import Office
from tests.unit.machine_tools import (
    LeaderStory,
    assignment,
    grant,
    result_of,
    run_row,
    spec,
    urls,
)
from tests.unit.worker.test_worker_machine import Worker, sent, started
from zcrawl.errors import RetryClass
from zcrawl.frontier.breaker import DOWN_AFTER
from zcrawl.mesh.messages import Assign, Reject, Result
from zcrawl.model.host import Manner
from zcrawl.model.spec import Politeness, Scope
from zcrawl.model.states import Outcome
from zcrawl.worker.events import HopWanted, PermitHop

DOWN = Manner(0.0, 50, DOWN_AFTER)
SLOW = Politeness(robots=False, rate=1.0, concurrency=2)


def test_rows_of_a_host_that_is_down_end_at_no_pace() -> None:
    """They go out with their reason, many at once, though the host's pace allows none."""
    office = Office(SLOW)
    office.add(40)
    first, *ahead = [url for _, url in office.plan()]
    office.planner.learn_pace(1, office.now + 500.0, 0.0, DOWN)
    office.receive(first.seq)
    ended = 0
    for _ in range(40):
        sent_now = office.plan()
        assert all(url.verdict == "host_down" for _, url in sent_now)
        ended += len(sent_now)
        for _, url in sent_now:
            office.receive(url.seq)
    assert ended == 39 - len(ahead), "its worker gives back what waits there"


def test_another_run_gives_a_host_that_was_down_another_chance() -> None:
    """The verdict is of the runs that were there."""
    office = Office(SLOW)
    office.add(1)
    office.planner.learn_pace(1, office.now, 0.0, DOWN)
    office.runs.put(run_row(2, spec(SLOW)))
    office.add(1, run=2)
    verdicts = {url.run: url.verdict for _, url in office.plan(5.0)}
    assert verdicts == {1: "host_down", 2: ""}


def test_the_pages_of_a_host_are_limited_exactly() -> None:
    """Three pages, and everything else of the host ends with its reason; nothing is lost."""
    story = LeaderStory().elect()
    story.join(slots=8)
    job = story.submit(*urls(10), of=spec(scope=Scope(max_pages_per_host=3)))
    answered: set[int] = set()
    for _ in range(30):
        for request in story.assigned():
            if request.seq not in answered:
                answered.add(request.seq)
                story.report(
                    result_of(
                        request,
                        outcome=Outcome.SKIPPED,
                        reason=request.verdict,
                        page=None,
                        items=[],
                    )
                    if request.verdict
                    else result_of(request)
                )
        story.tick(0.1)
    states = sorted(story.states(job["run"]).values())
    assert len(answered) == 10
    assert states.count("DONE") == 3, states
    assert len(states) == 10, states


def test_a_verdict_is_reported_at_once_and_without_a_request() -> None:
    """As failed for a host that is down, else as skipped; with the lease that it came with."""
    worker = Worker()
    worker.welcome(grant())
    ends = [
        assignment(1, 1, verdict="host_down"),
        assignment(2, 2, verdict="host_page_limit"),
    ]
    effects = worker.say(Assign([], ends))
    assert started(effects) == []
    down, limited = sent(effects, Result)
    assert (down.outcome, down.reason, down.retry) == (
        Outcome.FAILED,
        "host_down",
        RetryClass.PERMANENT,
    )
    assert (limited.outcome, limited.reason, limited.lease_n) == (
        Outcome.SKIPPED,
        "host_page_limit",
        2,
    )


def test_urls_of_a_host_that_has_to_wait_go_back() -> None:
    """A 429 with a long Retry-After: what was queued uses up no credit meanwhile."""
    worker = Worker()
    worker.welcome(grant(concurrency=1, interval_s=0.1))
    worker.assign(1, 2, 3)
    worker.end(
        1,
        outcome=Outcome.FAILED,
        reason="http_429",
        status=429,
        retry=RetryClass.THROTTLED,
        retry_after_s=60.0,
    )
    (result,) = sent(worker.effects, Result)
    assert result.manner == Manner(0.5, 0, 0)
    assert result.host_next_in_s >= 60.0
    worker.beat()
    rejected = [rejection for body in sent(worker.tick(1.0), Reject) for rejection in body.leases]
    assert [(rejection.n, rejection.reason) for rejection in rejected] == [
        (2, "host_waits"),
        (3, "host_waits"),
    ]


def test_crawl_delay_counts_from_the_robots_txt_request_on() -> None:
    """The hop that follows robots.txt waits for it already."""
    worker = Worker()
    worker.welcome(grant(concurrency=1, interval_s=0.2))
    worker.assign(1)
    worker.handle(HopWanted(1, 2.0))
    assert not [effect for effect in worker.tick(1.9) if isinstance(effect, PermitHop)]
    worker.beat()
    assert [effect for effect in worker.tick(0.2) if isinstance(effect, PermitHop)]
