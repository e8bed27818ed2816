"""Plan which task without a host goes to which worker now.

A part of the planner. Tasks with an id instead of a URL, and starts of spiders, have the host
NO_HOST: no owner is stored for them, and no pace delays them. So only three questions are left:
which run is next, how many tasks its job and its labels may have at a time (`label_limits`), and
which worker has a free task slot.

The run with the highest priority goes first, runs of equal priority take turns. A task goes to the
least loaded worker that may take it. Runs wait in `_queue`. A run that cannot get a task leaves it,
and an event puts it back:

| the run waits for              | event that puts it back                          |
|--------------------------------|--------------------------------------------------|
| rows in memory                 | insert, refill, the due time of a retry          |
| the workers of an old leader   | the moment by which they must have said HELLO    |
| its operator, its max_pages    | resume, a page of max_pages given back           |
| the `concurrency` of its job   | a task of the job leaves its worker              |
| room under its label's limit   | the next plan in which there is room             |
| a slot at a worker that has    | the next plan, as many runs as such workers have |
| what the run needs             | free slots; all of them when the workers change  |

If no worker at all has a free slot, all runs stay in the queue.

Invariant, asserted by `check_awake`: after a plan no run has a task, a free worker that may take
it, and room in its job and its labels. The leader never leases more tasks of a job than its
`concurrency`, and of a label than its limit; tasks that a lost worker may still run, or brings with
its HELLO, can exceed them.

After a takeover, a task of an earlier epoch may still run at a worker that has not said HELLO yet,
and the database does not know where. So tasks that are older than the takeover wait for these
greetings. Newer ones do not, unless they need a label with a limit: nobody knows yet how many tasks
that need it are running.
"""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Callable, Mapping

import msgspec

from zcrawl.dispatch.crash_suspects import Trials
from zcrawl.dispatch.gates import LeaderTables, could_start
from zcrawl.dispatch.label_limits import LabelLimits
from zcrawl.dispatch.placement import preference
from zcrawl.dispatch.roster import QUICK_S, WorkerInfo
from zcrawl.dispatch.runs import ActiveRun
from zcrawl.model.reasons.failure import ATTEMPT_OVERDUE
from zcrawl.model.rows import NO_HOST, QueuedRow


class TaskGate(enum.Enum):
    """The first obstacle to sending a task of a run, in the order in which they are checked."""

    NO_ROWS = enum.auto()  # no row in memory can be sent
    INHERITED = enum.auto()  # a worker of the previous leader may still run it
    RUN = enum.auto()  # it is paused, or its last pages are in flight
    CONCURRENCY = enum.auto()  # its job has as many tasks at a time as it may
    LABEL = enum.auto()  # a label that it needs has as many tasks at a time as it may
    NO_WORKER = enum.auto()  # no worker that takes tasks has what it needs
    SLOTS = enum.auto()  # the task slots of these workers are in use
    OPEN = enum.auto()  # no obstacle: a task can be sent


class TaskRun(msgspec.Struct):
    """A run that has or had tasks."""

    job: int
    turn: int = 0  # the number of its last task
    is_queued: bool = False
    is_inherited: bool = False  # it had tasks when this leader took over


Send = Callable[[WorkerInfo, QueuedRow, float, str], None]


class TaskPlanner:
    """Send tasks to workers with free task slots, by priority."""

    def __init__(
        self,
        tables: LeaderTables,
        trials: Trials,
        may_start: Callable[[int, WorkerInfo], bool],
        overdue: set[int],
        send: Send,
    ) -> None:
        """`may_start` is `could_start` that remembers runs at their page limit; `send` opens the
        lease of a row."""
        self.id = NO_HOST
        self.trials: list[QueuedRow] = []  # crash suspects
        self._tables, self._trials = tables, trials
        self._roster, self._runs = tables.roster, tables.runs
        self._frontier, self._leases = tables.frontier, tables.leases
        self._may_start, self._overdue, self._send = may_start, overdue, send
        self._task_runs: dict[int, TaskRun] = {}
        self._of_job: dict[int, dict[int, None]] = {}  # job → its runs here
        self._queue: list[tuple[int, int, int]] = []  # (-priority, turn, run)
        self._turn = 0
        self._limited: dict[int, dict[int, None]] = {}  # job at its concurrency → runs that wait
        self.labels = LabelLimits(tables)
        self._label_waiting: dict[int, None] = {}  # runs that wait for room under such a limit
        # workers that may take the tasks of a run → runs that wait for their slots
        self._blocked: dict[frozenset[str], dict[int, None]] = {}
        self._held_until: float | None = None  # for inherited runs; None: they go on
        self._ages_at = 0.0  # the end of an interval in which quick tasks are counted
        self._excused: set[int] = set()  # suspects that were leased again without a trial

    # ------------------------------------------------------------ events

    def lane_opened(self, run: int) -> None:
        """Note that the run has tasks in memory."""
        if run not in self._task_runs:
            active = self._runs.get(run)
            if active is None:
                return
            self._task_runs[run] = TaskRun(active.row.job)
            self._of_job.setdefault(active.row.job, {})[run] = None
        self._wake(run)

    def inherit(self) -> None:
        """Hold back the tasks of all runs until `await_greetings`: workers may still have them."""
        self._held_until = math.inf
        for task_run in self._task_runs.values():
            task_run.is_inherited = True

    def await_greetings(self, until: float) -> None:
        """Hold back inherited tasks until then, because workers learn only now who leads."""
        if self._held_until == math.inf:
            self._held_until = until

    def run_ended(self, run: int) -> None:
        """Forget a run."""
        task_run = self._task_runs.pop(run, None)
        self._label_waiting.pop(run, None)
        if task_run is not None:
            del self._of_job[task_run.job][run]
            if not self._of_job[task_run.job]:
                del self._of_job[task_run.job]
                self._limited.pop(task_run.job, None)
        for row in [row for row in self.trials if row.run == run]:
            self._trials.forget(self, row.seq)

    def run_freed(self, run: int) -> None:
        """Note that a run was resumed, has another priority, or may fetch more pages."""
        self._wake(run)

    def lease_left(self, row: QueuedRow) -> None:
        """Note that a worker no longer holds a task."""
        self.labels.left(row.seq)
        task_run = self._task_runs.get(row.run)
        if task_run is not None and task_run.job in self._limited:
            for run in self._limited.pop(task_run.job):
                self._wake(run)

    def workers_changed(self) -> None:
        """Look at all runs again: a worker came, or may take other runs than before."""
        for runs in self._blocked.values():
            for run in runs:
                self._wake(run)
        self._blocked.clear()

    def _wake(self, run: int) -> None:
        task_run = self._task_runs.get(run)
        if task_run is not None and not task_run.is_queued:
            task_run.is_queued = True
            heapq.heappush(self._queue, (-self._priority(run), task_run.turn, run))

    def _priority(self, run: int) -> int:
        active = self._runs.get(run)
        return 0 if active is None else active.spec.priority

    def next_due_at(self) -> float:
        """Return when `plan` has to be called again, if nothing else happens."""
        return math.inf if self._held_until is None else self._held_until

    # ------------------------------------------------------------ suspects (rule `crashes`)

    def put_on_trial(self, row: QueuedRow) -> None:
        """Add a suspect that waits for a worker. Called by `Trials`."""
        self.trials.append(row)

    def end_trial(self, row: QueuedRow) -> None:
        """Remove a suspect that was leased or is settled. Called by `Trials`."""
        self.trials.remove(row)

    def is_open_to(self, worker: WorkerInfo) -> bool:
        """Return whether the worker may get tasks. Called by `Trials`."""
        return worker.usable and worker.vitals.task_slots > 0

    def excuse(self, seq: int) -> bool:
        """Return whether a suspect is leased again without a trial: the first time only.

        Trials run one at a time on a worker. If a machine with hundreds of long tasks goes away,
        that would take days, and such a machine is a more usual cause than a task that kills.
        """
        if seq in self._excused:
            return False
        self._excused.add(seq)
        return True

    def settled(self, seq: int) -> None:
        """Forget the suspicion of a task whose result is stored."""
        self._excused.discard(seq)

    # ------------------------------------------------------------ planning

    def plan(self, now: float) -> None:
        """Send all tasks that can be sent now."""
        if self._held_until is not None and self._held_until <= now:
            self._release()
        self.labels.recount()
        if self.trials:
            self._plan_trials(now)
        self._wake_label_waiting()
        if not self._queue and not self._blocked:
            return
        self._let_quick_tasks_age(now)
        free = self._free_workers()
        if self._blocked and free:
            self._wake_blocked(free)
        while self._queue and free:
            run = self._next_run()
            if run is not None:
                self._dispatch(run, free, now)

    def _release(self) -> None:
        """Let inherited runs go on."""
        self._held_until = None
        for run, task_run in self._task_runs.items():
            if task_run.is_inherited:
                task_run.is_inherited = False
                self._wake(run)

    def _plan_trials(self, now: float) -> None:
        """Give suspects to workers, one at a time each."""
        for worker in self._roster.workers.values():
            if not self.is_open_to(worker) or (worker.task_credit <= 0 and not worker.reserved):
                continue
            full = {row.run for row in self.trials if self._label_gate(row.run) is not None}
            row = self._trials.next_row(self, worker, full)
            if row is not None:
                self._send_row(worker, row, now)

    def _wake_label_waiting(self) -> None:
        """Wake the runs whose labels have room again."""
        for run in list(self._label_waiting):
            if self._label_gate(run) is None:
                del self._label_waiting[run]
                self._wake(run)

    def _label_gate(self, run: int, counts: Mapping[str, int] | None = None) -> TaskGate | None:
        """Return what the limits of its labels say about a run; None: it may have a task."""
        if not self.labels.labels_of(run):
            return None
        if self._held_until is not None:
            return TaskGate.INHERITED
        return TaskGate.LABEL if self.labels.obstacle(run, counts) else None

    def _let_quick_tasks_age(self, now: float) -> None:
        """Forget the quick tasks of intervals that are over; of both after a long pause."""
        if now < self._ages_at:
            return
        for _ in range(1 if now < self._ages_at + QUICK_S else 2):
            for worker in self._roster.workers.values():
                worker.let_quick_tasks_age()
        self._ages_at = now + QUICK_S

    def _free_workers(self) -> list[tuple[float, str, WorkerInfo]]:
        """Return a heap of the workers with free task slots, the least loaded first."""
        free = [
            (_load(worker), worker.id, worker)
            for worker in self._roster.workers.values()
            if worker.vitals.task_slots and worker.usable and worker.task_credit > 0
        ]
        heapq.heapify(free)
        return free

    def _wake_blocked(self, free: list[tuple[float, str, WorkerInfo]]) -> None:
        """Wake as many runs as the workers that they wait for have free slots."""
        for able, runs in list(self._blocked.items()):
            slots = sum(worker.task_credit for _, id, worker in free if id in able)
            if slots <= 0:
                continue
            for run in heapq.nsmallest(slots, runs, key=self._order) if slots < len(runs) else runs:
                self._wake(run)
            self._blocked[able] = left = {
                run: None
                for run in runs
                if (task_run := self._task_runs.get(run)) is not None and not task_run.is_queued
            }
            if not left:
                del self._blocked[able]

    def _order(self, run: int) -> tuple[int, int]:
        task_run = self._task_runs.get(run)
        return -self._priority(run), 0 if task_run is None else task_run.turn

    def _next_run(self) -> int | None:
        """Take the next run off the queue; None if it has ended or has another priority now."""
        rank, turn, run = heapq.heappop(self._queue)
        task_run = self._task_runs.get(run)
        if task_run is None or not task_run.is_queued or turn != task_run.turn:
            return None
        if rank != -self._priority(run):
            heapq.heappush(self._queue, (-self._priority(run), turn, run))
            return None
        task_run.is_queued = False
        return run

    def _dispatch(self, run: int, free: list[tuple[float, str, WorkerInfo]], now: float) -> None:
        """Send one task of a run, and queue the run again; or leave it where it waits."""
        task_run = self._task_runs[run]
        if not self._frontier.has_ready((run, NO_HOST)):
            return
        if task_run.is_inherited:
            return
        if not self._has_room(run):
            self._limited.setdefault(task_run.job, {})[run] = None
            return
        if self._label_gate(run) is not None:
            self._label_waiting[run] = None
            return
        worker = self._take_worker(run, free)
        if worker is None:
            active = self._runs.get(run)
            if active is not None and active.may_start(self._leases.by_run.get(run, 0)):
                self._blocked.setdefault(self._able(run), {})[run] = None
            return  # else a resume, or the end of a page in flight, wakes it
        row = self._frontier.pop((run, NO_HOST))
        assert row is not None, "it has a ready row"
        self._send_row(worker, row, now)
        if worker.task_credit > 0:
            heapq.heappush(free, (_load(worker), worker.id, worker))
        self._turn += 1
        task_run.turn = self._turn
        self._wake(run)

    def _send_row(self, worker: WorkerInfo, row: QueuedRow, now: float) -> None:
        self._send(worker, row, now, ATTEMPT_OVERDUE if row.seq in self._overdue else "")
        self.labels.sent(row.run, row.seq)

    def _take_worker(
        self, run: int, free: list[tuple[float, str, WorkerInfo]]
    ) -> WorkerInfo | None:
        """Take the least loaded worker that may run a task of the run out of the heap."""
        active = self._runs.get(run)
        if active is not None and active.spec.placement.prefer:
            return self._take_preferred(active, free)
        passed = []
        taken = None
        while free:
            entry = heapq.heappop(free)
            if self._may_start(run, entry[2]):
                taken = entry[2]
                break
            passed.append(entry)
        for entry in passed:
            heapq.heappush(free, entry)
        return taken

    def _take_preferred(
        self, active: ActiveRun, free: list[tuple[float, str, WorkerInfo]]
    ) -> WorkerInfo | None:
        """Take the worker that may run the task and has most of the preferred labels."""
        able = [entry for entry in free if self._may_start(active.row.id, entry[2])]
        if not able:
            return None
        best = min(able, key=lambda entry: (-preference([active], entry[2]), *entry[:2]))
        free.remove(best)
        heapq.heapify(free)
        return best[2]

    # ------------------------------------------------------------ looking

    def _has_room(self, run: int) -> bool:
        """Return whether the job of the run may have one more task at a time."""
        active = self._runs.get(run)
        most = 0 if active is None else active.spec.concurrency
        return not most or self.running(self._task_runs[run].job) < most

    def running(self, job: int) -> int:
        """Return how many tasks of a job workers have now."""
        total = 0
        for run in self._of_job.get(job, ()):
            lane = (run, NO_HOST)
            total += self._leases.by_lane.get(lane, 0)
            total -= self._leases.received_by_lane.get(lane, 0)
        return total

    def _able(self, run: int) -> frozenset[str]:
        """Return the workers that may take tasks of a run, even if they cannot at the moment."""
        return frozenset(
            worker.id
            for worker in self._roster.workers.values()
            if worker.vitals.task_slots and could_start(self._tables, run, worker)
        )

    def gate(self, run: int, now: float) -> TaskGate:
        """Return the first obstacle to sending a task of the run now."""
        task_run, active = self._task_runs.get(run), self._runs.get(run)
        if task_run is None or active is None or not self._frontier.has_ready((run, NO_HOST)):
            return TaskGate.NO_ROWS
        if task_run.is_inherited:
            return TaskGate.INHERITED
        if not active.may_start(self._leases.by_run.get(run, 0)):
            return TaskGate.RUN
        if not self._has_room(run):
            return TaskGate.CONCURRENCY
        if (gate := self._label_gate(run, self.labels.running())) is not None:
            return gate
        able = [worker for id in self._able(run) if (worker := self._roster.workers[id]).usable]
        if not able:
            return TaskGate.NO_WORKER
        if all(worker.task_credit <= 0 for worker in able):
            return TaskGate.SLOTS
        return TaskGate.OPEN

    @property
    def runs(self) -> list[int]:
        """The runs that have or had tasks."""
        return list(self._task_runs)

    def check_awake(self, now: float) -> None:
        """Assert after a plan that every task that can be sent was sent."""
        for run in self._task_runs:
            assert self.gate(run, now) is not TaskGate.OPEN, (
                f"run {run} has a task, and a worker is free for it"
            )

    def check(self) -> None:
        queued = {run for _, _, run in self._queue}
        self.labels.check()
        for run, task_run in self._task_runs.items():
            assert run in queued or not task_run.is_queued, "a run that is queued is in the queue"


def _load(worker: WorkerInfo) -> float:
    """Return how much of its task slots a worker uses; above 1 it has tasks in advance."""
    return worker.tasks / max(1, worker.vitals.task_slots)
