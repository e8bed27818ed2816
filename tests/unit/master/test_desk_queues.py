"""The queues as the leader sums them up: by job, by tag, by host."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.machine_tools import LeaderStory, result_of, spec, urls
from zcrawl.model.spec import JobSpec, Politeness
from zcrawl.store.commands import ApplyResults
from zcrawl.submit.tags import NO_TAG
from zcrawl.telemetry.history import Trends

FAST = Politeness(robots=False, rate=0, concurrency=3)
SUMS = ("ready", "delayed", "beyond", "queued", "fetching", "waiting", "uncommitted")


def queues(story: LeaderStory, **args: Any) -> list[dict[str, Any]]:
    story.leader.desk._views._kept.clear()  # what was answered before is forgotten
    rows: list[dict[str, Any]] = page(story, **args)["rows"]
    return rows


def page(story: LeaderStory, **args: Any) -> dict[str, Any]:
    reply = story.ask("queues", **args)
    assert reply is not None, reply
    assert reply.ok, reply
    return reply.data


def with_worker(story: LeaderStory) -> LeaderStory:
    """Somebody with room for all of it, who has got what hosts allow."""
    story.join()
    story.beat(slots=100)
    story.tick()
    return story


def by(story: LeaderStory, group: str, name: str, **args: Any) -> dict[str, dict[str, Any]]:
    return {row[name]: row for row in queues(story, by=group, **args)}


def tagged() -> LeaderStory:
    """Job a has 4 URLs on x.test and 2 on y.test, b has 3 on x.test, c has 5 on z.test. No run has
    the number of its host."""
    story = LeaderStory().elect()
    jobs = {"a": ("shop", "daily"), "c": (), "b": ("shop",)}
    seeds = {
        "a": urls(4, "x.test") + urls(2, "y.test"),
        "b": [f"http://x.test/b{n}" for n in range(3)],
        "c": urls(5, "z.test"),
    }
    for name, tags in jobs.items():
        story.submit(*seeds[name], of=JobSpec(name, tags=tags, politeness=FAST))
    return story


def test_a_job_with_two_tags_counts_under_both_and_one_without_has_a_place() -> None:
    """The sums of a tag are those of its jobs."""
    rows = by(tagged(), "tag", "tag")
    assert {tag: row["queued"] for tag, row in rows.items()} == {"shop": 9, "daily": 6, NO_TAG: 5}
    assert {tag: row["jobs"] for tag, row in rows.items()} == {"shop": 2, "daily": 1, NO_TAG: 1}
    assert {tag: row["hosts"] for tag, row in rows.items()} == {"shop": 2, "daily": 2, NO_TAG: 1}


def test_a_host_is_the_sum_of_all_jobs_on_it() -> None:
    """One row for each, whichever job its URLs are of."""
    rows = by(tagged(), "host", "host")
    counted = {host: (row["queued"], row["jobs"]) for host, row in rows.items()}
    assert counted == {"http://x.test": (7, 2), "http://y.test": (2, 1), "http://z.test": (5, 1)}


def test_by_job_there_is_a_row_for_each_run_and_its_tags() -> None:
    """As before there were tags, and without saying by what."""
    rows = {row["name"]: row for row in queues(tagged())}
    assert {name: row["queued"] for name, row in rows.items()} == {"a": 6, "b": 3, "c": 5}
    assert rows["a"]["tags"] == ["shop", "daily"]
    assert rows["c"]["tags"] == []
    assert (rows["a"]["hosts"], rows["a"]["state"]) == (2, "pending")


@pytest.mark.parametrize(
    ("tag", "names"), [("shop", ["a", "b"]), ("daily", ["a"]), (NO_TAG, ["c"]), ("none", [])]
)
def test_the_jobs_of_one_tag_can_be_asked_for(tag: str, names: list[str]) -> None:
    """What enter opens on a tag; hosts can be narrowed down the same way."""
    assert sorted(row["name"] for row in queues(tagged(), tag=tag)) == names


def test_hosts_of_one_tag_count_its_jobs_only() -> None:
    """x.test has 7 URLs, 4 of them are daily."""
    rows = by(tagged(), "host", "host", tag="daily")
    assert {host: row["queued"] for host, row in rows.items()} == {
        "http://x.test": 4,
        "http://y.test": 2,
    }


def test_a_page_is_queued_in_flight_uncommitted_or_committed() -> None:
    """Each URL is in one place at a time: queued, at a worker, uncommitted; the commit queue is a
    part of the last. By job, tag and host it is the same URLs."""
    story = with_worker(tagged())
    story.hold = lambda what: isinstance(what, ApplyResults)
    of_c = [assignment for assignment in story.assigned() if assignment.run == 2]
    for assignment in of_c[:2]:
        story.report(result_of(assignment))  # the first goes into a commit, the second waits for it
    for group, key in (("job", "name"), ("tag", "tag"), ("host", "host")):
        rows = by(story, group, key)
        row = rows[{"job": "c", "tag": NO_TAG, "host": "http://z.test"}[group]]
        assert (row["uncommitted"], row["commit_queue"]) == (2, 1), group
        assert row["queued"] + row["waiting"] + row["uncommitted"] == 5
        assert row["waiting"] >= 1
    story.release()
    story.tick()
    (row,) = queues(story, tag=NO_TAG)
    assert (row["uncommitted"], row["commit_queue"]) == (0, 0)
    assert row["queued"] + row["waiting"] == 3


def test_all_ways_count_the_same_urls() -> None:
    """Of jobs without a second tag the sums agree, column by column."""
    story = LeaderStory().elect()
    for n, tags in enumerate([("a",), ("a",), ("b",), ()]):
        story.submit(*urls(4 + n, f"h{n}.test"), of=JobSpec(f"j{n}", tags=tags, politeness=FAST))
    with_worker(story)
    totals = [
        {name: sum(row[name] for row in queues(story, by=group)) for name in SUMS}
        for group in ("job", "tag", "host")
    ]
    assert totals[0] == totals[1] == totals[2]
    assert totals[0]["waiting"] > 0


def test_groups_are_filtered_sorted_and_cut_at_the_leader() -> None:
    """A tag is found by its name and by those of its jobs."""
    story = LeaderStory().elect()
    for n in range(12):
        made = JobSpec(f"job{n:02}", tags=(f"t{n:02}",), politeness=spec().politeness)
        story.submit(*urls(n + 1, f"h{n:02}.test"), of=made)
    answer = page(story, by="tag", sort="queued", desc=True, limit=2)
    assert [row["tag"] for row in answer["rows"]] == ["t11", "t10"]
    assert answer["total"] == 12
    answer = page(story, by="tag", sort="name", offset=3, limit=1)
    assert [row["tag"] for row in answer["rows"]] == ["t03"]
    assert [row["tag"] for row in page(story, by="tag", filter="JOB07")["rows"]] == ["t07"]
    assert [row["name"] for row in page(story, filter="t07")["rows"]] == ["job07"]
    assert page(story, by="host", filter="h0", inverse=True)["total"] == 2


@pytest.mark.parametrize("args", [{"by": "colour"}, {"by": 5}, {"by": "tag", "sort": "colour"}])
def test_an_unknown_grouping_is_refused_by_name(args: dict[str, Any]) -> None:
    """G7: a console of another version may ask for anything."""
    reply = tagged().ask("queues", **args)
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, "bad_request")


def test_a_run_that_has_ended_has_no_queue() -> None:
    """Its tag goes with it, if no other job has that."""
    story = tagged()
    story.ask("act", ref="a", action="cancel")
    rows = by(story, "tag", "tag")
    assert {tag: row["queued"] for tag, row in rows.items()} == {"shop": 3, NO_TAG: 5}


def test_a_run_in_which_nothing_waits_is_still_shown() -> None:
    """By job and by tag: a zero is an answer."""
    story = tagged()
    story.leader.state.frontier.drop_run(2)
    assert by(story, "job", "name")["c"]["queued"] == 0
    assert by(story, "tag", "tag")[NO_TAG]["queued"] == 0
    assert "http://z.test" not in by(story, "host", "host")


# ---------------------------------------------------------------- trends


def test_the_leader_remembers_how_long_the_queues_were() -> None:
    """Of jobs and tags, whether somebody watches or not; the last point is what waits now."""
    story = tagged()
    story.wait(11.0)
    story.submit("http://x.test/new", of=JobSpec("d", tags=("daily",), politeness=FAST))
    story.wait(5.0)
    tags = by(story, "tag", "tag")
    assert tags["shop"]["trend"] == [9, 9, 9, 9, 9]
    assert tags["daily"]["trend"] == [6, 6, 6, 7, 7], "a job that came later counts since then"
    assert {row["name"]: row["trend"] for row in queues(story)}["d"] == [1, 1]
    assert all("trend" not in row for row in queues(story, by="host"))


def test_a_trend_is_bounded_and_goes_with_its_run() -> None:
    """A minute of points for each run that goes on."""
    trends = Trends()
    for n in range(100):
        trends.sample(float(n), [(1, n), (2, -5)])
    assert trends.of([1]) == [45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95]
    assert set(trends.of([2])) == {0}
    assert trends.of([3]) == [] == trends.of([])
    trends.sample(200.0, [(2, 1)])
    assert trends.of([1]) == []
    assert trends.of([1, 2])[-1] == 1


def test_between_two_points_nothing_is_looked_at() -> None:
    """The leader asks each second, and pays each fifth."""
    trends = Trends()
    trends.sample(0.0, [(1, 1)])
    lengths = iter([(1, 2)])
    trends.sample(4.9, lengths)
    assert next(lengths) == (1, 2)
