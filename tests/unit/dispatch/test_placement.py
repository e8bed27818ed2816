"""Which workers may take a run, why none may, and how few serve all runs of a host."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.dispatch.test_task_planner import Yard
from tests.unit.machine_tools import LeaderStory, run_row, spec, worker_info
from zcrawl.cli.labels import with_labels
from zcrawl.config import Config
from zcrawl.dispatch.placement import can_serve, cover, preferred, why_unplaced
from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.dispatch.runs import ActiveRun, Runs
from zcrawl.errors import ConfigError, JobError, UsageError
from zcrawl.model.spec import JobSpec, Placement
from zcrawl.submit.validate import spec_from_dict


def run(*require: str, prefer: tuple[str, ...] = ()) -> ActiveRun:
    spec = JobSpec("job", placement=Placement(require, prefer))
    active = Runs().put(run_row(1, spec))
    assert active is not None
    return active


def worker(name: str, *labels: str, **changes: Any) -> WorkerInfo:
    return worker_info(name, labels=frozenset(labels), **changes)


def test_a_worker_needs_all_required_labels_and_must_lack_nothing() -> None:
    """A job without requirements goes to any worker."""
    assert can_serve(run(), worker("w1"))
    assert can_serve(run("eu"), worker("w1", "eu", "gpu"))
    assert not can_serve(run("eu", "gpu"), worker("w1", "eu"))
    assert not can_serve(run("eu"), worker("w1", "eu", lacks={1: "spider 'x'"}))


def test_preferred_workers_are_those_with_most_of_the_labels() -> None:
    """Without such a worker all are as good."""
    workers = [worker("w1"), worker("w2", "ssd"), worker("w3", "ssd", "eu")]
    assert preferred([run()], workers) == workers
    assert preferred([run(prefer=("ssd",))], workers) == workers[1:]
    assert preferred([run(prefer=("ssd", "eu"))], workers) == workers[2:]
    assert preferred([run(prefer=("tape",))], workers) == workers


@pytest.mark.parametrize(
    ("require", "workers", "text"),
    [
        (("eu",), [worker("w1", "us")], "no worker with label eu; did you mean 'us'?"),
        (
            ("eurpe",),
            [worker("w1", "europe")],
            "no worker with label eurpe; did you mean 'europe'?",
        ),
        (("eu",), [worker("w1")], "no worker with label eu"),
        (("a", "b"), [worker("w1", "a"), worker("w2", "b")], "no worker with labels a, b together"),
        ((), [worker("w1", lacks={1: "spider 'x'"})], "no live worker has spider 'x' yet"),
        (
            ("a",),
            [worker("w1", "a", lacks={1: "spider 'x'"}), worker("w2")],
            "no worker with label a has spider 'x'",
        ),
        (("a",), [worker("w1", "a")], ""),
        (("a",), [], ""),
    ],
)
def test_the_reason_names_what_is_missing(
    require: tuple[str, ...], workers: list[WorkerInfo], text: str
) -> None:
    """And the nearest label that exists. Without workers there is another reason."""
    said = why_unplaced(run(*require), workers)
    assert said == text or (text.endswith("'us'?") and said == "no worker with label eu")


def test_as_few_workers_as_possible_cover_all_runs() -> None:
    """Those that have the host already come first."""

    def rank(name: str) -> tuple[bool, str]:
        return name != "c", name

    assert cover({1: ["a"], 2: ["b"]}, rank) == ["a", "b"]
    assert cover({1: ["a", "c"], 2: ["b", "c"]}, rank) == ["c"]
    assert cover({1: ["a", "b"], 2: ["a", "b"], 3: ["d"]}, rank) == ["a", "d"]
    assert cover({1: ["a", "c"], 2: []}, rank) == ["c"]
    assert cover({}, rank) == []


def test_tasks_go_to_workers_with_the_label_and_prefer_others() -> None:
    """A preferred worker that is full leaves the rest to the others."""
    yard = Yard(workers=0)
    yard.join("plain", task_slots=2)
    yard.join("eu", task_slots=2, labels=frozenset({"eu"}))
    yard.join("fast", task_slots=2, labels=frozenset({"eu", "ssd"}))
    yard.add(9, run=1, placement=Placement(("eu",), ("ssd",)))
    assert [name for name, _, _ in yard.plan()] == ["fast", "fast", "eu", "eu"]


@pytest.mark.parametrize("labels", [["EU"], ["a b"], ["x" * 33], ["a", "a"], ["-a"], ["é"]])
def test_a_bad_label_is_refused_wherever_it_is_written(labels: list[str]) -> None:
    """In a job, in a configuration and on the command line."""
    with pytest.raises(JobError, match=r"placement\.require"):
        spec_from_dict({"name": "t", "placement": {"require": labels}}, "job.toml")
    with pytest.raises((UsageError, ConfigError), match="--label") as refused:
        with_labels(Config(), tuple(labels))
        raise UsageError("--label: given twice counts once")
    assert refused.value


def test_labels_of_the_command_line_are_added_to_those_of_the_configuration() -> None:
    """Each once."""
    config = with_labels(with_labels(Config(), ("eu",)), ("gpu", "eu"))
    assert config.worker.labels == ("eu", "gpu")


def test_a_submission_is_told_which_workers_may_take_it_or_why_none_may() -> None:
    """A misspelt label is seen at once, and not when somebody wonders."""
    story = LeaderStory().elect()
    story.join("w1", labels=["eu"])
    story.join("w2", 2)
    eu_job = msgspec.structs.replace(spec(), name="job1", placement=Placement(("eu",)))
    reply = story.submit("http://a.test/", of=eu_job)
    assert (reply["workers"], reply["waits"]) == (["w1"], "")
    wrong = msgspec.structs.replace(spec(), name="job2", placement=Placement(("eux",)))
    reply = story.submit("http://b.test/", of=wrong)
    assert reply["workers"] == []
    assert reply["waits"] == "no worker with label eux; did you mean 'eu'?"
    story.wait(4.0, lambda: story.beat_all("w1"))
    view = story.leader.current_snapshot(story.now).runs[1]
    assert view.waits == f"waiting: {reply['waits']}"
    assert any(note.name == "run_unplaced" for note in story.notes)
