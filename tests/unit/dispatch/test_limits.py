"""What limits the crawl: shares, advice that helps, and the gain to expect."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.desk_tools import answer
from tests.unit.machine_tools import LeaderStory, spec, urls
from zcrawl.model.spec import Politeness

SLOW = Politeness(robots=False, rate=0.5, concurrency=1)
FAST = Politeness(robots=False, rate=0, concurrency=100)
SPREAD = Politeness(robots=False, rate=0, concurrency=100, spread=True)


def limits(story: LeaderStory) -> dict[str, dict[str, Any]]:
    return {row["code"]: row for row in answer(story, "overview")["limits"]}


def crawl(politeness: Politeness, *seeds: str, workers: int = 1, **vitals: Any) -> LeaderStory:
    story = LeaderStory().elect()
    story.submit(*seeds, of=spec(politeness))
    names = [f"w{n}" for n in range(1, workers + 1)]
    for name in names:
        story.join(name, slots=4)
    for _ in range(8):
        for name in names:
            story.beat(name, **vitals)
        story.tick(0.25)
    return story


def test_a_rate_limit_says_which_and_how_much_faster_the_crawl_would_be() -> None:
    """One host makes all the pages: twice the limit is twice the speed."""
    story = crawl(SLOW, *urls(20), rate=0.5)
    row = limits(story)["pace"]
    assert row["host"] == "http://a.test"
    assert row["text"].startswith("rate limit: 0.5/s")
    assert (row["share"], row["hosts"]) == (1.0, 1)
    assert (row["advice"], row["gain"]) == ("raise 0.5/s", 2.0)


def test_the_gain_is_that_of_the_whole_crawl() -> None:
    """The host makes a quarter of the pages: twice its limit is a quarter more."""
    story = crawl(SLOW, *urls(20), rate=2.0)
    assert limits(story)["pace"]["gain"] == 1.25


def test_the_gain_is_bounded_by_free_slots() -> None:
    """Workers that fetch all they can are not twice as fast because a limit is raised."""
    story = crawl(SLOW, *urls(20), rate=0.5)
    story.leader.state.roster.workers["w1"].fetching = {(1, 1): 3}
    assert limits(story)["pace"]["gain"] == pytest.approx(4 / 3, abs=0.01)


def test_shares_are_of_the_queue() -> None:
    """The largest first."""
    story = crawl(SLOW, *urls(30), *urls(10, "b.test"), rate=1.0)
    rows = answer(story, "overview")["limits"]
    assert sum(row["share"] for row in rows) == pytest.approx(1.0, abs=0.001)
    assert rows == sorted(rows, key=lambda row: -row["share"])


def test_no_advice_to_add_workers_for_a_host_that_no_second_worker_may_share() -> None:
    """The one worker that may fetch it has no room: its slots help, more workers do not."""
    story = crawl(FAST, *urls(200))
    row = limits(story)["worker_full"]
    assert row["advice"] == "raise the slots of its worker: no second worker may share this host"
    assert row["gain"] is None
    assert row["text"] == "worker full"


@pytest.mark.parametrize(
    ("politeness", "seeds"),
    [(SPREAD, urls(200)), (FAST, [f"http://h{n}.test/{m}" for n in range(20) for m in range(9)])],
    ids=["a host that may be shared", "many hosts"],
)
def test_more_workers_are_advised_where_they_help(politeness: Politeness, seeds: list[str]) -> None:
    """With the gain of one more."""
    row = limits(crawl(politeness, *seeds))["worker_full"]
    assert (row["advice"], row["gain"]) == ("add workers or slots", 2.0)


def test_start_workers_is_advised_only_without_workers() -> None:
    """Not while three live."""
    story = LeaderStory().elect()
    story.submit(*urls(5), of=spec(FAST))
    story.wait(8.0)
    assert limits(story)["no_worker"]["advice"] == "start workers"
    story.join("w1")
    story.join("w2")
    story.tick(1.1)  # answers are kept for a second
    for row in answer(story, "overview")["limits"]:
        assert row["advice"] != "start workers"


def test_a_job_says_why_it_is_not_faster() -> None:
    """In the snapshot, for the list of jobs and the display of `crawl`."""
    story = crawl(SLOW, *urls(20), rate=0.5)
    story.wait(6.0, lambda: story.beat("w1", rate=0.5))  # reasons are kept for some seconds
    (run,) = story.leader.current_snapshot(story.now).runs
    assert run.why.startswith("http://a.test: rate limit: 0.5/s")
