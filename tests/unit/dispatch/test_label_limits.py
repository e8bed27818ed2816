"""How many tasks that need a label run at a time, over all jobs and workers."""

from __future__ import annotations

from unittest import mock

import pytest

from tests.unit.dispatch.test_task_planner import Yard
from zcrawl.dispatch.label_limits import LabelLimits
from zcrawl.dispatch.task_planner import TaskGate
from zcrawl.dispatch.why import task_why
from zcrawl.model.reasons.waiting import INHERITED, TASK_LABEL_FULL
from zcrawl.model.rows import NO_HOST, QueuedRow
from zcrawl.model.spec import Placement
from zcrawl.model.states import RunState

GPU = Placement(("gpu",))


def labelled(workers: int = 2, task_slots: int = 9, **limits: int) -> Yard:
    yard = Yard(workers=0)
    for n in range(1, workers + 1):
        yard.join(f"w{n}", task_slots, labels=frozenset({"gpu", "licence"}))
    yard.tasks.labels.change(limits)
    return yard


def test_a_label_has_at_most_its_limit_of_tasks_over_all_jobs_and_workers() -> None:
    """Jobs that do not need it use the other slots. The next task goes when one ends."""
    yard = labelled(gpu=3)
    yard.add(5, run=1, placement=GPU)
    yard.add(5, run=2, placement=GPU)
    yard.add(4, run=3)
    sent = yard.plan()
    assert sorted(run for _, run, _ in sent) == [1, 1, 2, 3, 3, 3, 3]
    why = task_why(1, yard.planner, yard.now)
    assert (why.code, why.text) == (TASK_LABEL_FULL, "label gpu: 3 of 3 tasks are running")
    yard.end(next(seq for _, run, seq in sent if run == 1))
    assert len(yard.plan()) == 1
    assert yard.plan() == []


def test_a_job_with_two_limited_labels_needs_room_under_both() -> None:
    """The reason names the one that is full. A preferred label counts nothing."""
    yard = labelled(gpu=4, licence=1)
    yard.add(2, run=1, placement=Placement(("licence", "gpu")))
    yard.add(5, run=2, placement=GPU)
    yard.add(3, run=3, placement=Placement((), ("gpu",)))
    sent = yard.plan()
    assert sorted(run for _, run, _ in sent) == [1, 2, 2, 2, 3, 3, 3]
    assert task_why(1, yard.planner, yard.now).text.startswith("label gpu: 4 of 4")
    for seq in [seq for _, run, seq in sent if run == 2]:
        yard.end(seq)
    assert sorted(run for _, run, _ in yard.plan()) == [2, 2]
    why = "label licence: 1 of 1 tasks are running"
    assert task_why(1, yard.planner, yard.now).text == why


def test_the_higher_priority_gets_the_room() -> None:
    """Also if it came later."""
    yard = labelled(gpu=1)
    yard.add(3, run=1, placement=GPU)
    ((_, _, first),) = yard.plan()
    yard.add(1, run=2, placement=GPU, priority=5)
    assert yard.plan() == []
    yard.end(first)
    assert [run for _, run, _ in yard.plan()] == [2]


def test_a_raised_limit_counts_at_once_and_a_lowered_one_for_what_follows() -> None:
    """What runs goes on; without a limit all go."""
    yard = labelled(gpu=2)
    yard.add(9, run=1, placement=GPU)
    sent = yard.plan()
    yard.tasks.labels.change({"gpu": 4})
    sent += yard.plan()
    assert len(sent) == 4
    yard.tasks.labels.change({"gpu": 1})
    for _, _, seq in sent[:3]:
        yard.end(seq)
        assert yard.plan() == []
    yard.end(sent[3][2])
    assert len(yard.plan()) == 1
    yard.tasks.labels.change({})
    assert len(yard.plan()) == 4


def test_tasks_that_workers_bring_with_their_hello_are_counted() -> None:
    """After a takeover, tasks that need a limited label wait until the workers have said HELLO,
    those of new jobs too, because nobody knows how many run."""
    yard = labelled(gpu=2)
    yard.add(3, run=1, placement=GPU)
    yard.tasks.inherit()
    yard.add(2, run=2, placement=GPU)
    yard.add(1, run=3)
    assert [run for _, run, _ in yard.plan()] == [3]
    assert task_why(2, yard.planner, yard.now).code == INHERITED
    yard.tasks.await_greetings(yard.now + 3)
    worker = yard.roster.workers["w1"]
    for seq in (1, 2):
        row = yard.frontier.remove(1, NO_HOST, seq)
        assert isinstance(row, QueuedRow)
        yard.leases.open((1, 1000 + seq), row, worker, 0, yard.now)
    assert yard.plan() == []
    assert yard.plan(after_s=4) == []
    assert yard.tasks.gate(2, yard.now) is TaskGate.LABEL
    yard.end(1)
    assert len(yard.plan()) == 1


def test_a_crash_suspect_waits_for_room_too() -> None:
    """It is tried when a task of the label has ended."""
    yard = labelled(gpu=1)
    (row,) = yard.add(1, run=1, placement=GPU)
    yard.frontier.remove(1, NO_HOST, row.seq)
    yard.add(1, run=2, placement=GPU)
    ((_, _, first),) = yard.plan()
    yard.planner.put_on_trial(row, False)
    assert yard.plan() == []
    yard.end(first)
    assert [seq for _, _, seq in yard.plan()] == [row.seq]


def test_a_run_that_ends_or_is_paused_gives_its_room_to_others() -> None:
    """Its leases are closed, and it waits for nothing any more."""
    yard = labelled(gpu=1)
    yard.add(2, run=1, placement=GPU)
    yard.add(1, run=2, placement=GPU)
    (sent,) = yard.plan()
    assert sent[1] == 1
    yard.set_state(1, RunState.PAUSED)
    yard.end(sent[2])
    assert [run for _, run, _ in yard.plan()] == [2]


def test_the_invariant_finds_one_task_too_many() -> None:
    """`check` counts the leases themselves."""
    yard = labelled(gpu=1)
    yard.add(2, run=1, placement=GPU)
    with (
        mock.patch.object(LabelLimits, "obstacle", lambda self, run, counts=None: ""),
        pytest.raises(AssertionError, match="label gpu: 2 tasks were sent"),
    ):
        yard.plan()
