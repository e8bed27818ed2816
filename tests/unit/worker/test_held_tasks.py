"""The tasks of a worker: slots of their own, by priority, and back if they wait too long."""

from __future__ import annotations

from zcrawl.mesh.messages import Assignment
from zcrawl.model.reasons.cluster import OVER_CAPACITY
from zcrawl.worker.held_requests import Intake
from zcrawl.worker.held_tasks import PATIENCE_S, HeldTasks


def assignment(seq: int, run: int = 1) -> Assignment:
    return Assignment(seq, seq, run, 0, f"task {seq}", 0, 1, None)


def test_as_many_tasks_run_as_there_are_slots() -> None:
    """The others wait, first come first served."""
    tasks = HeldTasks(2)
    for seq in (1, 2, 3):
        tasks.take(seq, 0, 0.0)
    assert list(tasks.start_due(9)) == [1, 2]
    assert list(tasks.start_due(9)) == []
    tasks.finish(1)
    assert tasks.is_due
    assert list(tasks.start_due(9)) == [3]
    tasks.check()


def test_a_higher_priority_goes_first() -> None:
    """Also if it came later."""
    tasks = HeldTasks(1)
    for seq, priority in ((1, 0), (2, -5), (3, 10), (4, 10)):
        tasks.take(seq, priority, 0.0)
    order: list[int] = []
    while tasks.is_due:
        order += tasks.start_due(1)
        tasks.finish(order[-1])
    assert order == [3, 4, 1, 2]


def test_a_task_that_waits_too_long_for_a_slot_goes_back() -> None:
    """The running ones stay, however long they take."""
    intake = Intake(1)
    for seq in (1, 2):
        assert intake.take(5, assignment(seq), 100.0) is None
    assert [held.assignment.seq for held in intake.start_tasks(100.0, 9)] == [1]
    assert intake.waiting_long(100.0 + PATIENCE_S) == []
    assert intake.waiting_long(100.1 + PATIENCE_S) == [2]
    intake.check()


def test_tasks_need_no_grant_and_use_no_slot_of_requests() -> None:
    """`running` counts requests to hosts only."""
    intake = Intake(2)
    assert intake.take(5, assignment(1), 100.0) is None
    intake.start_tasks(100.0, 9)
    assert (intake.running, len(intake.tasks.running), intake.queued()) == (0, 1, [])
    assert intake.finish(1) is not None
    assert not intake.held
    assert not intake.tasks.running
    assert Intake(0).take(5, assignment(1), 100.0) == OVER_CAPACITY


def test_the_rate_follows_the_tasks_that_ended() -> None:
    """By it the leader sends tasks in advance."""
    tasks = HeldTasks(4)
    for seq in range(8):
        tasks.take(seq, 0, 0.0)
    for _ in range(2):
        for seq in list(tasks.start_due(4)):
            tasks.finish(seq)
    tasks.measure(2.0)
    assert tasks.rate == 2.0  # half of the way from 0 to 4 a second
