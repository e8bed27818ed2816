"""The operation `prune`: what it shows, and what it begins."""

from __future__ import annotations

from typing import Any

from tests.unit.desk_tools import answer
from tests.unit.machine_tools import LeaderStory, urls
from zcrawl.master.master import Master
from zcrawl.model.spec import Retention


def with_runs(**retention: Any) -> LeaderStory:
    """A leader with two jobs, `a` and `b`, of three ended runs each."""
    story = LeaderStory()
    story.master = Master("m1", seen_slots=64, retention=Retention(keep_runs=2, archive="old"))
    story.elect()
    for name in ("a", "b"):
        spec = {"name": name, "retention": retention}
        for _ in range(3):
            reply = story.submit(*urls(1), spec=spec, mode="update")
            answer(story, "act", ref=name, action="cancel", run=reply["run"])
    return story


def runs(story: LeaderStory, **args: Any) -> list[int]:
    return [view["run"] for view in answer(story, "prune", **args)["runs"]]


def audits(story: LeaderStory) -> list[str]:
    return [note.detail for note in story.notes if note.detail.startswith("prune by")]


def test_a_dry_run_only_shows_what_would_be_removed() -> None:
    """With the masters' values, of all jobs or of one; nothing is begun, and no line is logged."""
    story = with_runs()
    (first, second) = answer(story, "prune", dry_run=True)["runs"]
    assert (first["run"], first["name"], first["archive"]) == (1, "a", "old")
    assert first["why"] == "number 3 of the newest; keep_runs is 2"
    assert second["run"] == 4
    assert runs(story, ref="b", dry_run=True) == [4]
    assert story.prunes == []
    assert audits(story) == []


def test_pruning_is_begun_for_all_jobs_or_for_one() -> None:
    """The reply names the runs; the driver removes them. Who asked is logged."""
    story = with_runs()
    assert runs(story) == [1, 4]
    assert runs(story, ref="b") == [4]
    assert story.prunes == [None, 2]
    assert len(audits(story)) == 2


def test_a_job_that_keeps_all_runs_has_none_to_remove() -> None:
    """0 is no limit, whatever the masters say."""
    assert runs(with_runs(keep_runs=0)) == []


def test_an_unknown_job_is_refused() -> None:
    """And nothing is begun."""
    story = with_runs()
    reply = story.ask("prune", ref="c")
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, "no_such_job")
    assert story.prunes == []


def test_a_delete_that_names_another_end_is_refused() -> None:
    """The run was reopened since it was chosen; the reply says so."""
    story = with_runs()
    reply = story.ask("act", ref="a", action="delete", run=1, ended_at=5.0)
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, "run_reopened")
    assert "a retry has reopened" in reply.data["message"]
    assert runs(story, ref="a", dry_run=True) == [1]
