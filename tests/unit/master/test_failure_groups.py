"""Groups of failed requests: the number shown is what a retry queues again, whoever leads."""

from __future__ import annotations

from typing import Any

from tests.unit.desk_tools import FAILED, answer
from tests.unit.machine_tools import LeaderStory, result_of, spec, urls
from zcrawl.errors import RetryClass
from zcrawl.model.spec import Politeness
from zcrawl.store.queries import ReadFailureGroups

FAST = Politeness(robots=False, rate=0, concurrency=4)
GONE: dict[str, Any] = {**FAILED, "retry": RetryClass.PERMANENT}


def failing(pages: int = 3) -> LeaderStory:
    story = LeaderStory().elect()
    story.submit(*urls(pages), "http://other.test/", of=spec(FAST))
    story.join("w1", slots=4)
    story.tick()
    fail_all(story)
    return story


def fail_all(story: LeaderStory, pages: int = 12) -> None:
    """Every request of the first host fails for good, as soon as it is assigned."""
    reported: set[int] = set()
    for _ in range(pages):
        for assignment in story.assigned():
            if assignment.n not in reported and "a.test" in assignment.url:
                reported.add(assignment.n)
                story.report(result_of(assignment, story.master.epoch, **GONE))
        story.beat("w1", produced=story.numbers.get(("w1", 1), 0))
        story.tick()


def shown(story: LeaderStory) -> list[tuple[str, str, int]]:
    story.wait(3.0, story.beat)
    rows = answer(story, "errors")["rows"]
    return [(row["host"], row["reason"], row["count"]) for row in rows]


def test_the_number_shown_is_what_a_retry_queues() -> None:
    """And after the retry the group is gone."""
    story = failing()
    assert shown(story) == [("http://a.test", "dns", 3)]
    (row,) = answer(story, "errors")["rows"]
    reply = answer(
        story, "act", ref="job", action="retry", reason=row["reason"], host=row["host_id"]
    )
    assert reply["changed"] == row["count"] == 3
    assert shown(story) == []


def test_groups_survive_a_failover() -> None:
    """With the name of the job, the host and the newest URL; then commits go on counting."""
    story = failing()
    heir = LeaderStory(story.store, "m2", story.now).elect()
    assert shown(heir) == [("http://a.test", "dns", 3)]
    (row,) = answer(heir, "errors")["rows"]
    assert (row["name"], row["job"], row["run"]) == ("job", 1, 1)
    assert row["url"].startswith("http://a.test/")


def test_requests_that_fail_while_the_database_is_read_are_counted_once() -> None:
    """The read may have seen them or not; it is repeated."""
    story = LeaderStory()
    story.hold = lambda what: isinstance(what, ReadFailureGroups)
    story.elect()
    story.submit(*urls(3), of=spec(FAST))
    story.join("w1", slots=4)
    story.tick()
    fail_all(story)
    assert story.held
    assert answer(story, "errors")["complete"] is False
    story.release()
    assert shown(story) == [("http://a.test", "dns", 3)]
    assert answer(story, "errors")["complete"] is True


def test_a_deleted_job_has_no_errors() -> None:
    """Nothing of it can be retried."""
    story = failing()
    assert shown(story)
    answer(story, "act", ref="job", action="delete")
    assert shown(story) == []


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    """Errors are shown late, not never."""
    story = failing()
    away = True
    story.store.query_faults = lambda query: away and isinstance(query, ReadFailureGroups)
    heir = LeaderStory(story.store, "m2", story.now).elect()
    assert shown(heir) == []
    away = False
    heir.wait(6.0)
    assert shown(heir) == [("http://a.test", "dns", 3)]
