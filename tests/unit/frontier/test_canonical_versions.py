"""A run goes on by the version of the canonical form that its keys were made by, or it waits."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from tests.unit.machine_tools import LeaderStory, result, result_of, run_row, spec, urls
from tests.unit.worker.test_pipeline import Owner
from zcrawl.dispatch import runs as runs_module
from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.runs import Runs
from zcrawl.errors import PluginError
from zcrawl.frontier import url as url_module
from zcrawl.frontier.seen import SeenTable
from zcrawl.frontier.url import CANONICAL_VERSION, CANONICAL_VERSIONS
from zcrawl.mesh.messages import RunConfig, RunConfigs
from zcrawl.model.reasons.waiting import CANONICAL_VERSION as CANONICAL_CODE
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import RequestState
from zcrawl.result.plan import ResultPlanner
from zcrawl.result.receive import Received
from zcrawl.worker.pipeline.pipeline import Pipeline
from zcrawl.worker.results.context import RunContext

NEWER = max(CANONICAL_VERSIONS) + 1


def stored(version: int) -> LeaderStory:
    """A leader that takes over a run with keys of this version."""
    first = LeaderStory().elect()
    first.submit(*urls(2), of=spec())
    (run,) = first.store.tables.runs.values()
    run.canonical = version
    story = LeaderStory(first.store, me="m2", now=first.now).elect()
    story.join()
    story.tick()
    return story


def test_a_new_run_stores_the_version_of_its_keys() -> None:
    """And workers are told it with the run."""
    story = LeaderStory().elect()
    story.submit(*urls(1))
    story.join()
    story.tick()
    (row,) = story.store.runs()
    assert row.canonical == CANONICAL_VERSION
    (config,) = (run for body in story.bodies(RunConfigs) for run in body.runs)
    assert config.canonical == CANONICAL_VERSION


def test_a_run_of_an_older_version_goes_on_by_its_own_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its keys stay what they are; the log says so once. New runs have the new version."""
    for module in (runs_module, url_module):
        monkeypatch.setattr(module, "CANONICAL_VERSION", NEWER)
        monkeypatch.setattr(module, "CANONICAL_VERSIONS", CANONICAL_VERSIONS | {NEWER})
    story = stored(CANONICAL_VERSION)
    assert len(story.assigned()) == 2
    active = story.leader.state.runs.active[1]
    assert active.rules.version == active.config().canonical == CANONICAL_VERSION
    (note,) = [entry for entry in story.notes if entry.name == "run_of_another_version"]
    assert f"continues with version {CANONICAL_VERSION}" in note.detail


def test_a_run_of_an_unknown_version_waits_by_name() -> None:
    """Nothing of it is sent to anybody, no seed is keyed for it, nothing of it is lost."""
    story = stored(NEWER)
    assert not story.assigned()
    active = story.leader.state.runs.active[1]
    assert active.waits.startswith(f"{CANONICAL_CODE}: ")
    assert str(NEWER) in active.waits
    (note,) = [entry for entry in story.notes if entry.name == "run_of_another_version"]
    assert note.detail == active.waits
    reply = story.ask("add_seeds", run=1, seeds=urls(1), last=True)
    assert reply is not None
    assert reply.data["code"] == CANONICAL_CODE
    assert set(story.states().values()) == {"QUEUED"}


def test_results_of_a_run_that_waits_are_committed() -> None:
    """Its workers know how to make its keys: what they have fetched is not buried by a sample."""
    runs = Runs()
    runs.put(run_row(1, spec(), canonical=NEWER))
    planner = ResultPlanner(Leases(), runs, SeenTable(64))
    planner._links_until_sample = 1
    body = result(1, links=[("http://h1.test/a", bytes(16))])
    change = planner.plan(Received(("w1", 7), 1, 1, body, 0.0), 0.0, 0.0)
    assert change.state is RequestState.DONE
    assert len(change.links) == 1


def test_a_worker_that_does_not_know_the_version_leaves_the_run_to_others() -> None:
    """It lacks what the run needs, like a plugin: no page fails for it."""
    config = RunConfig(1, 1, msgspec.json.encode(JobSpec("j")), [], canonical=NEWER)
    with pytest.raises(PluginError) as refused:
        RunContext(config)
    assert refused.value.code == PluginError.MISSING
    owner, engines = Owner(), cast(Any, None)
    Pipeline(owner, engines, lambda: 0.0, lambda: 0.0).adopt(config)
    ((run, what),) = owner.lacks
    assert run == 1
    assert "canonical form" in what


def test_a_run_is_finished_by_the_version_that_began_it() -> None:
    """The known version simply goes on after a takeover."""
    story = stored(CANONICAL_VERSION)
    for assignment in story.assigned():
        story.report(result_of(assignment, epoch=story.master.epoch))
    assert set(story.states().values()) == {"DONE"}
    assert not [note for note in story.notes if note.name == "run_of_another_version"]
