"""What charts show is stored every ten seconds, and is there after the leader is gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.desk_tools import FAILED, answer
from tests.unit.machine_tools import UTC, LeaderStory, result_of, spec, urls
from zcrawl.errors import CommitUnknown, RetryClass, StoreError, StoreUnavailable
from zcrawl.master import events as m
from zcrawl.mesh.messages import Assignment
from zcrawl.model.spec import Politeness
from zcrawl.store.commands import SaveHistory
from zcrawl.telemetry.history import BOUNDS_MS, percentile
from zcrawl.testing.store.store import FakeStore

FAST = Politeness(robots=False, rate=0, concurrency=4)


def leading(store: FakeStore | None = None, me: str = "m1", now: float = 100.0) -> LeaderStory:
    return LeaderStory(store, me, now).elect()


def crawled(pages: int = 3) -> LeaderStory:
    """A leader that has just committed some pages and one failure."""
    story = leading()
    story.submit(*urls(pages + 1), of=spec(FAST))
    story.join("w1", slots=4)
    story.tick()
    failed: Assignment | None = None
    for _ in range(3 * pages):
        done = story.store.tables.runs[1].done
        for assignment in story.assigned():
            if story.store.tables.requests[assignment.seq].state != 0:
                continue
            if failed in (None, assignment) and done == pages:
                failed = assignment
                gone = {**FAILED, "status": 404, "retry": RetryClass.PERMANENT}
                story.report(result_of(assignment, **gone))
            elif done < pages:
                story.report(result_of(assignment))
            break
        story.beat("w1", produced=story.numbers[("w1", 1)])
        story.tick()
    return story


def points(story: LeaderStory, name: str, **args: Any) -> list[float]:
    return [value for value in answer(story, "history", **args)[name] if value is not None]


def saves(story: LeaderStory) -> int:
    return sum(kind is SaveHistory for _, kind in story.store.history)


def test_pages_failures_bytes_queue_and_latency_are_in_the_row_of_their_ten_seconds() -> None:
    """For the cluster, the run and the host; all columns have the same length."""
    story = crawled()
    story.wait(11.0, story.beat)
    history = answer(story, "history", span_s=900)
    assert history["step_s"] == 10
    assert len({len(column) for name, column in history.items() if name != "step_s"}) == 1
    assert len(history["at"]) == 90
    for series in ({}, {"run": 1}, {"host": 1}):
        assert sum(points(story, "pages_s", **series)) * 10 == pytest.approx(3.0, rel=0.35), series
        assert sum(points(story, "failed_s", **series)) * 10 == pytest.approx(1.0, rel=0.35)
        assert max(points(story, "p95", **series)) == BOUNDS_MS[0]
    assert points(story, "pages_s", run=2) == []


def test_one_write_in_ten_seconds() -> None:
    """Not one a result, and none within the transaction of results."""
    story = crawled()
    before = saves(story)
    story.wait(60.0, story.beat)
    assert saves(story) - before == 6


def test_a_new_leader_shows_what_the_old_one_stored() -> None:
    """Also a follower that nobody leads: it reads the same rows."""
    story = crawled()
    story.wait(11.0, story.beat)
    shown = sum(points(story, "pages_s"))
    assert shown > 0
    heir = leading(story.store, "m2", story.now)
    assert sum(points(heir, "pages_s")) == pytest.approx(shown)
    follower = LeaderStory(story.store, "m3", story.now)
    reply = follower.ask("history")
    follower.wait(6.0)
    reply = reply or follower.replies[-1]
    assert reply.ok, reply
    assert sum(value or 0 for value in reply.data["pages_s"]) == pytest.approx(shown)


def test_time_without_a_leader_is_a_gap_and_not_a_zero() -> None:
    """Nobody counted, so nobody can say that nothing happened."""
    story = crawled()
    story.wait(11.0, story.beat)
    heir = leading(story.store, "m2", story.now + 100.0)
    heir.wait(21.0)
    values = answer(heir, "history", span_s=900)["pages_s"]
    first = next(n for n, value in enumerate(values) if value is not None)
    last = max(n for n, value in enumerate(values) if value is not None)
    assert None in values[first:last]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), CommitUnknown("who knows")])
def test_what_could_not_be_stored_is_stored_later_unless_it_may_be_there(error: StoreError) -> None:
    """The rate stays right, because the row says how many seconds it has; nothing counts twice."""
    story = crawled()
    story.hold = lambda what: isinstance(what, SaveHistory)
    story.wait(11.0, story.beat)
    (command,) = story.held
    assert isinstance(command, SaveHistory)
    assert command.entry.cluster.pages == 3
    story.held.clear()
    story.hold = lambda what: False
    story.handle(m.CommandFailed(command, error))
    story.wait(11.0, story.beat)
    stored = [entry for (step, _), entry in story.store.tables.history.items() if step == 10]
    pages = sum(entry.cluster.pages for entry in stored)
    assert pages == (0 if isinstance(error, CommitUnknown) else 3)


def test_one_write_at_a_time() -> None:
    """A slow database does not get a queue of them."""
    story = crawled()
    story.hold = lambda what: isinstance(what, SaveHistory)
    story.wait(40.0, story.beat)
    assert len(story.held) == 1


def test_rows_begin_at_round_times() -> None:
    """So that two leaders write the same row."""
    story = crawled()
    story.wait(25.0, story.beat)
    starts = {at for step, at in story.store.tables.history if step == 10}
    assert all(at % 10 == 0 and at >= UTC for at in starts)


def test_a_percentile_is_the_bound_of_a_class() -> None:
    """None without answers; a bound even for answers above the last one."""
    assert percentile({}, 50) is None
    assert percentile({0: 99, 20: 1}, 50) == BOUNDS_MS[0]
    assert percentile({0: 1, 20: 99}, 95) == BOUNDS_MS[20]
    assert percentile({len(BOUNDS_MS): 1}, 99) == BOUNDS_MS[-1]
