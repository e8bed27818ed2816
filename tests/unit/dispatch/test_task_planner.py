"""The planner of tasks without a host: which run, which worker, and what each waits for."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec
import pytest

from tests.unit.machine_tools import run_row, worker_info
from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.planner import Planner
from zcrawl.dispatch.roster import PREFETCH_S, QUICK_S, Roster
from zcrawl.dispatch.runs import Runs
from zcrawl.dispatch.task_planner import TaskGate
from zcrawl.dispatch.why import task_why
from zcrawl.frontier.frontier import Frontier
from zcrawl.mesh.timing import WINDOW_RESULTS
from zcrawl.model.process_name import ProcessName
from zcrawl.model.reasons.waiting import NO_WORKER, TASK_CONCURRENCY, TASK_SLOTS_FULL
from zcrawl.model.rows import NO_HOST, QueuedRow
from zcrawl.model.spec import JobSpec, Scope
from zcrawl.model.states import RunState


class Yard:
    """A planner with workers and runs of tasks; what it sends is returned by `plan`."""

    def __init__(self, workers: int = 1, task_slots: int = 2) -> None:
        self.roster, self.leases = Roster(), Leases()
        self.frontier, self.runs = Frontier(), Runs()
        self.planner = Planner(1, self.roster, self.leases, self.frontier, self.runs)
        self.tasks = self.planner.tasks
        self.now = 100.0
        self._seqs = itertools.count(1)
        for n in range(1, workers + 1):
            self.join(f"w{n}", task_slots)

    def join(self, name: str, task_slots: int = 2, **options: Any) -> None:
        self.roster.workers[name] = worker_info(name, task_slots=task_slots, **options)
        self.planner.process_joined(ProcessName(f"{name}#1"), self.now)

    def add(self, tasks: int, run: int = 1, job: int = 0, **options: Any) -> list[QueuedRow]:
        if self.runs.get(run) is None:
            self.runs.put(run_row(run, JobSpec(f"job{run}", kind="x", **options), job=job or run))
        rows = []
        for _ in range(tasks):
            seq = next(self._seqs)
            rows.append(QueuedRow(run, NO_HOST, 0, 0, seq, f"task {seq}"))
            self.frontier.insert(rows[-1])
            self.planner.lane_opened(run, NO_HOST)
        return rows

    def plan(self, after_s: float = 0.0) -> list[tuple[str, int, int]]:
        """Return (worker, run, seq) of what is sent, in order within each worker."""
        self.now += after_s
        plan = self.planner.plan(self.now)
        self.planner.check()
        self.planner.check_awake(self.now)
        self.leases.check()
        assert not plan.owners
        return [
            (sending.worker.id, url.run, url.seq)
            for sending in plan.sendings.values()
            for url in sending.urls
        ]

    def end(self, seq: int, took_s: float = math.inf) -> None:
        """The result of a task is here and committed."""
        lease = self.leases.by_seq[seq]
        self.leases.receive(lease, lease.sent_at + took_s)
        self.planner.lease_left(lease.worker, lease.row)
        self.planner.close_lease(lease)

    def set_state(self, run: int, state: RunState) -> None:
        active = self.runs.get(run)
        assert active is not None
        self.runs.put(msgspec.structs.replace(active.row, state=state))
        self.planner.run_freed(run)


def test_tasks_go_to_the_least_loaded_worker_up_to_its_slots() -> None:
    """No owner is stored and no pace waits; the rest stays queued."""
    yard = Yard(workers=3)
    yard.join("big", task_slots=6)
    yard.add(20)
    sent = yard.plan()
    shares = {name: sum(worker == name for worker, _, _ in sent) for name in yard.roster.workers}
    assert shares == {"w1": 2, "w2": 2, "w3": 2, "big": 6}
    assert yard.plan() == []
    yard.end(sent[0][2])
    assert [worker for worker, _, _ in yard.plan()] == [sent[0][0]]


def test_runs_of_equal_priority_take_turns_and_a_higher_one_goes_first() -> None:
    """Whichever was there first."""
    yard = Yard(task_slots=4)
    yard.add(9, run=1)
    yard.add(9, run=2)
    assert sorted(run for _, run, _ in yard.plan()) == [1, 1, 2, 2]
    yard = Yard(task_slots=4)
    yard.add(9, run=1)
    yard.add(3, run=2, priority=5)
    assert [run for _, run, _ in yard.plan()] == [2, 2, 2, 1]


def test_a_job_has_at_most_its_concurrency_of_tasks_over_all_its_runs() -> None:
    """The next one goes when one ends; other jobs use the other slots."""
    yard = Yard(task_slots=9)
    first = yard.add(4, run=1, job=1, concurrency=3)
    yard.add(4, run=2, job=1, concurrency=3)
    yard.add(2, run=3)
    sent = yard.plan()
    assert [run in (1, 2) for _, run, _ in sent].count(True) == 3
    assert [run for _, run, _ in sent].count(3) == 2
    assert task_why(1, yard.planner, yard.now).code == TASK_CONCURRENCY
    yard.end(next(seq for _, run, seq in sent if run in (1, 2)))
    assert len(yard.plan()) == 1
    assert first[0].seq not in yard.frontier.lanes[(1, NO_HOST)].ready


def test_a_run_waits_for_a_worker_that_has_what_it_needs() -> None:
    """Others pass it; it starts when such a worker has a slot, or joins."""
    yard = Yard(workers=2, task_slots=1)
    for name in ("w1", "w2"):
        yard.roster.workers[name].lacks[1] = "executor 'x'"
    yard.add(2, run=1)
    yard.add(1, run=2)
    assert [run for _, run, _ in yard.plan()] == [2]
    assert yard.tasks.gate(1, yard.now) is TaskGate.NO_WORKER
    assert task_why(1, yard.planner, yard.now).code == NO_WORKER
    yard.join("w3", task_slots=1)
    ((worker, run, seq),) = yard.plan()
    assert (worker, run) == ("w3", 1)
    assert yard.tasks.gate(1, yard.now) is TaskGate.SLOTS
    assert task_why(1, yard.planner, yard.now).code == TASK_SLOTS_FULL
    yard.end(seq)
    assert [worker for worker, _, _ in yard.plan()] == ["w3"]


def test_a_suspect_worker_gets_nothing_until_it_is_heard() -> None:
    """The tasks of a run that waits for it are not forgotten."""
    yard = Yard(workers=2, task_slots=1)
    yard.roster.workers["w2"].lacks[1] = "executor 'x'"
    yard.roster.workers["w1"].draining = True
    yard.add(1)
    assert yard.plan() == []
    yard.roster.workers["w1"].draining = False  # heard again: no other event
    assert [worker for worker, _, _ in yard.plan()] == ["w1"]


def test_old_workers_without_task_slots_get_no_tasks() -> None:
    """They would refuse them for ever."""
    yard = Yard(workers=1, task_slots=0)
    yard.add(1)
    assert yard.plan() == []
    assert "older version" in task_why(1, yard.planner, yard.now).text


def test_fast_tasks_are_sent_in_advance_and_slow_ones_are_not() -> None:
    """As many as the worker ends in a quarter of a second, and no more than its outbox holds."""
    yard = Yard(task_slots=2)
    info = yard.roster.workers["w1"]
    info.vitals = msgspec.structs.replace(info.vitals, task_rate=40.0)
    yard.add(900)
    assert len(yard.plan()) == 2 + 10
    info.vitals = msgspec.structs.replace(info.vitals, task_rate=1e6)
    assert len(yard.plan()) == WINDOW_RESULTS - 12


def test_a_worker_that_ends_tasks_at_once_gets_twice_as_many_next_time() -> None:
    """Without waiting for its heartbeat: a thousand short tasks take no second."""
    yard = Yard(task_slots=4)
    yard.add(2_000)
    sizes = []
    for _ in range(8):
        sent = yard.plan(0.01)
        sizes.append(len(sent))
        for _, _, seq in sent:
            yard.end(seq, 0.01)
    assert sizes == [4, 8, 16, 32, 64, 128, 256, WINDOW_RESULTS]


def test_tasks_that_take_long_bring_no_task_in_advance() -> None:
    """One must not wait for another one."""
    yard = Yard(task_slots=2)
    yard.add(90)
    for took_s in (5.0, PREFETCH_S, 0.01):
        sent = yard.plan(took_s)
        assert len(sent) == 2
        for _, _, seq in sent:
            yard.end(seq, took_s)
    assert len(yard.plan()) == 4


@pytest.mark.parametrize("pauses", [(PREFETCH_S,), (QUICK_S, QUICK_S), (3_600.0,)])
def test_short_tasks_of_some_time_ago_bring_no_task_in_advance(pauses: tuple[float, ...]) -> None:
    """Whether plans were made since then or not."""
    yard = Yard(task_slots=2)
    yard.add(2)
    for _, _, seq in yard.plan():
        yard.end(seq, 0.01)
    for pause_s in pauses[:-1]:
        yard.add(1, run=2)
        ((_, _, seq),) = yard.plan(pause_s)
        yard.end(seq)
    yard.add(90)
    assert len(yard.plan(pauses[-1])) == 2


def test_a_thousand_tasks_run_at_once_on_two_workers() -> None:
    """As many as their outboxes hold."""
    yard = Yard(workers=2, task_slots=500)
    yard.add(1_100)
    assert len(yard.plan()) == 1_000


def test_a_paused_run_goes_on_where_it_was() -> None:
    """Its turn comes when it is resumed."""
    yard = Yard(task_slots=1)
    yard.add(2)
    (sent,) = yard.plan()
    yard.set_state(1, RunState.PAUSED)
    yard.end(sent[2])
    assert yard.plan() == []
    yard.set_state(1, RunState.RUNNING)
    assert len(yard.plan()) == 1


def test_pages_in_flight_keep_the_page_limit() -> None:
    """`max_pages` counts tasks, too."""
    yard = Yard(task_slots=9)
    yard.add(5, scope=Scope(max_pages=2))
    sent = yard.plan()
    assert len(sent) == 2
    yard.end(sent[0][2])  # failed: it does not count as done
    assert len(yard.plan()) == 1


def test_tasks_of_an_earlier_epoch_wait_for_the_greetings_and_new_ones_do_not() -> None:
    """A living worker may have them."""
    yard = Yard(task_slots=9)
    yard.add(1, run=1)
    yard.tasks.inherit()
    yard.add(1, run=2)
    assert [run for _, run, _ in yard.plan()] == [2]
    yard.tasks.await_greetings(yard.now + 3.0)
    assert yard.planner.next_due_at() == yard.now + 3.0
    assert yard.plan(2.9) == []
    assert yard.tasks.gate(1, yard.now) is TaskGate.INHERITED
    assert [run for _, run, _ in yard.plan(0.2)] == [1]


def test_a_suspect_is_excused_once_and_then_tried_one_at_a_time() -> None:
    """A worker that has a suspect gets no second one."""
    yard = Yard(workers=1, task_slots=4)
    rows = yard.add(2)
    assert yard.tasks.excuse(rows[0].seq)
    assert not yard.tasks.excuse(rows[0].seq)
    yard.tasks.settled(rows[0].seq)
    assert yard.tasks.excuse(rows[0].seq)
    for row in rows:
        yard.frontier.remove(1, NO_HOST, row.seq)
        yard.planner.put_on_trial(row, alone=False)
    ((_, _, seq),) = yard.plan()
    yard.end(seq)
    assert len(yard.plan()) == 1
    assert not yard.planner.trials


def test_a_run_that_ended_leaves_nothing_behind() -> None:
    """Its suspects and its place in the queue are gone."""
    yard = Yard(task_slots=1)
    rows = yard.add(3)
    yard.frontier.remove(1, NO_HOST, rows[0].seq)
    yard.planner.put_on_trial(rows[0], alone=True)
    yard.frontier.drop_run(1)
    yard.planner.run_ended(1)
    yard.runs.forget(1)
    assert yard.plan() == []
    assert not yard.planner.trials
    assert not yard.tasks.runs
