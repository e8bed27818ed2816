"""Start runs by the schedules of jobs: when their due times come, and when their parents end.

A part of the leader. What to do is decided by the pure functions of `zcrawl.schedule`; this module
knows which jobs have a schedule and what is under way. The store remembers what is dealt with, and
`FireJob` stores it together with the run it starts. So each due time and each run of a parent is
used exactly once, whoever leads (G10), and this module may forget everything.

One job at a time does one thing:

| job is | event | it does | and is then |
|---|---|---|---|
| idle | its next moment comes | looks at its due times: `FireJob`, or nothing | firing, or idle |
| idle | a run of a parent ended, or a new leader | asks for unused runs of its parents | asking |
| idle | one of its own runs ended | looks again: something may wait for it | as above |
| idle | a submission is held | `FireJob` when no run of the job is alive | firing |
| asking | the answer | `FireJob` if its parents let it, else nothing | firing, or idle |
| asking | the query failed | nothing; asks again after half a second | idle |
| firing | fired, or dealt with before | keeps the job as it is now; looks again | idle |
| firing | the job was changed | keeps the job as it is now; looks again | idle |
| firing | the job is gone | forgets it | – |
| firing | the store has a run that memory has not | nothing before the reload | idle |
| firing | the data cannot be stored | stores that it starts no run, and why | firing |
| any | the store is away | the leader repeats the command; a repeat is harmless | as before |
| any | a client changed the job | keeps the new definition; looks when it is idle | as before |

A late due time (one that is caught up) waits until no run of the job is alive, unless its overlap
is `allow`. Otherwise `skip` would leave out what `catch_up = "all"` asks for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from zcrawl.errors import JobError, StoreDataError, StoreError
from zcrawl.master.events import Ask, Execute, MasterEffects, Note
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.run_plan import planned_run
from zcrawl.model.reasons.cluster import RUN_IS_ALIVE
from zcrawl.model.rows import DefinitionRow, HeldSubmission
from zcrawl.model.spec import Schedule
from zcrawl.model.states import JobState, RunCause
from zcrawl.schedule.defaults import filled
from zcrawl.schedule.dependencies import END, OUTCOMES, FinishedRun, firings
from zcrawl.schedule.durations import parse_duration
from zcrawl.schedule.jitter import start_of
from zcrawl.schedule.overlap import (
    ALLOW,
    DEFAULT_FOR_DUE_TIMES,
    DEFAULT_FOR_PARENTS,
    Overlap,
    overlap,
)
from zcrawl.store.commands import DueMark, FireJob, JobFired, StartFacts
from zcrawl.store.queries import ParentRuns, ReadParents
from zcrawl.store.rules import schedule_of, seeds_from_of

if TYPE_CHECKING:  # they load cronsim and the zones, 5 ms of the start of a crawl
    from zcrawl.schedule.catch_up import CatchUp
    from zcrawl.schedule.timetable import Timetable

NEVER: Final = math.inf
AGAIN_S: Final = 0.5  # after a failed query
LOOK_S: Final = 3_600.0  # the clock of this machine may be set: no longer without a look
MOST_PARENT_RUNS: Final = 200  # of one parent, read at once


class ScheduledJob(msgspec.Struct):
    """A job with a schedule. `busy` says whether something is under way for it."""

    row: DefinitionRow
    schedule: Schedule
    times: Timetable
    jitter_s: int
    look_at: float  # monotonic; NEVER: an event brings it back
    asks: bool  # runs of its parents may have ended that it has not used
    busy: bool = False

    def start_of(self, due: float) -> float:
        return start_of(self.row.id, due, self.jitter_s)

    @property
    def handled(self) -> float:
        return max(self.row.due_done, self.row.schedule_from)


class Firing:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._jobs: dict[int, ScheduledJob] = {}
        self._children: defaultdict[str, set[int]] = defaultdict(set)  # parent's name → jobs
        self._look_at = NEVER  # the earliest of all jobs; may be too early
        self._is_behind = False  # a reload is under way, because the store has more runs

    # ------------------------------------------------------------ which jobs there are

    def load(self, rows: Iterable[DefinitionRow], now: float, effects: MasterEffects) -> None:
        """Follow the database, at takeover and reload."""
        rows, self._is_behind = list(rows), False
        for job in self._jobs.keys() - {row.id for row in rows}:
            self._forget(job)
        for row in rows:
            self.put(row, now, effects)

    def put(self, row: DefinitionRow, now: float, effects: MasterEffects) -> None:
        """Follow one job, as it is stored now."""
        before = self._jobs.get(row.id)
        if row.state is not JobState.ACTIVE or not row.schedule_from:
            self._forget(row.id)
            return
        from zcrawl.schedule.timetable import timetable

        try:
            schedule = filled(schedule_of(row.spec), self._state.schedule_defaults)
            times = timetable(schedule, row.created_at)
            jitter = parse_duration("schedule.jitter", schedule.jitter) if schedule.jitter else 0
        except JobError as error:  # another version accepted it
            self._forget(row.id)
            effects.append(Note("schedule_refused", f"{row.name}: {error}"))
            return
        self._forget(row.id)
        busy = before is not None and before.busy
        asks = bool(schedule.after)
        self._jobs[row.id] = ScheduledJob(row, schedule, times, jitter, now, asks, busy)
        for parent in schedule.after:
            self._children[parent.job].add(row.id)
        self._look_at = now

    def defaults_changed(self, now: float, effects: MasterEffects) -> None:
        """Compute all due times anew, by other defaults."""
        for job in list(self._jobs.values()):
            self.put(job.row, now, effects)

    def _forget(self, id: int) -> None:
        job = self._jobs.pop(id, None)
        for parent in job.schedule.after if job is not None else ():
            self._children[parent.job].discard(id)
            if not self._children[parent.job]:
                del self._children[parent.job]

    # ------------------------------------------------------------ time

    def next_wakeup(self) -> float:
        return NEVER if self._is_behind or not self._state.fires else self._look_at

    def tick(self, now: float, effects: MasterEffects) -> None:
        ends = self._state.take_run_ends()
        if not self._state.fires:
            return  # a crawl, or a command that leads for a moment
        for ended in ends:
            for id in self._children.get(ended.name, ()):
                self._jobs[id].asks = True
                self._look_soon(self._jobs[id], now)
            if ended.job in self._jobs:
                # Its parents may have waited for this end.
                self._jobs[ended.job].asks |= bool(self._jobs[ended.job].schedule.after)
                self._look_soon(self._jobs[ended.job], now)
        if now < self._look_at or self._is_behind:
            return
        for job in list(self._jobs.values()):
            if not job.busy and job.look_at <= now:
                self._look(job, now, effects)
        waiting = (job.look_at for job in self._jobs.values() if not job.busy)
        self._look_at = min(waiting, default=NEVER)

    def _look_soon(self, job: ScheduledJob, now: float) -> None:
        job.look_at = now
        self._look_at = now

    def _look(self, job: ScheduledJob, now: float, effects: MasterEffects) -> None:
        """Start what can start, and note when to look next. What is held comes first."""
        if job.row.holds and not self._live(job):
            self._start_held(job, now, effects)
            return
        if job.asks:
            job.asks, job.busy = False, True
            parents = tuple(
                (parent.job, OUTCOMES if parent.on == END else (parent.on,))
                for parent in job.schedule.after
            )
            query = ReadParents(job.row.id, parents, job.row.schedule_from, MOST_PARENT_RUNS)
            effects.append(Ask(query, self._tag(job.row.id)))
            return
        utc = self._state.utc(now)
        job.look_at = NEVER
        if job.times.has_times:
            from zcrawl.schedule.catch_up import catch_up
            from zcrawl.schedule.timetable import due_after

            result = catch_up(job.times, job.handled, utc, job.schedule.catch_up, job.start_of)
            self._look_at_due_times(job, result, now, effects)
            if not job.busy:
                due = result.waiting or due_after(job.times, utc)
                if due is not None:
                    start = job.start_of(due) - self._state.clock_offset
                    job.look_at = min(start, now + LOOK_S)

    def _start_held(self, job: ScheduledJob, now: float, effects: MasterEffects) -> None:
        """Start what waited for the end of a run: a submission, or a due time."""
        row, held = job.row, job.row.held
        if held is None:
            facts = StartFacts(RunCause.CRON, row.due_held)
            command = self._command(job, now, facts, due=DueMark(row.due_done))
        else:
            values = msgspec.json.decode(held.params, type=dict[str, str]) if held.params else {}
            facts = StartFacts(params=held.params)
            command = self._command(job, now, facts, values, held=held)
        self._execute(job, command, effects)

    def _look_at_due_times(
        self, job: ScheduledJob, result: CatchUp, now: float, effects: MasterEffects
    ) -> None:
        row, missed = job.row, result.missed
        if not result.due:
            if missed:
                mark = DueMark(result.until, row.due_held)
                text = f"{missed} due times passed without a run while nobody led"
                self._execute(job, self._no_start(job, now, text, mark), effects)
            return
        due = result.due[0]
        late, live = due in result.late, self._live(job)
        policy = job.schedule.overlap or DEFAULT_FOR_DUE_TIMES
        if late and policy != ALLOW:
            if live or row.holds:
                return  # it waits for the end of that run
            decision = Overlap.START
        else:
            decision = overlap(policy, len(live), int(row.holds))
        mark = DueMark(due, row.due_held)
        if decision in (Overlap.START, Overlap.CANCEL_AND_START):
            cause = RunCause.CATCH_UP if late else RunCause.CRON
            cancels = tuple(live) if decision is Overlap.CANCEL_AND_START else ()
            facts = StartFacts(cause, due)
            self._execute(job, self._command(job, now, facts, due=mark, cancels=cancels), effects)
            return
        if decision is Overlap.WAIT:
            mark = DueMark(due, due)
            text = f"the run due at {_clock(due)} waits for the end of run {live[0]}"
        else:
            text = _skipped(f"the run due at {_clock(due)}", live, decision)
        self._execute(job, self._no_start(job, now, text, mark), effects)

    def _live(self, job: ScheduledJob) -> list[int]:
        """Return the runs of the job that have not ended."""
        runs = self._state.runs.active.values()
        return sorted(active.row.id for active in runs if active.row.job == job.row.id)

    # ------------------------------------------------------------ parents

    def _tag(self, id: int) -> str:
        """Return a tag that no earlier epoch of this process used."""
        return f"parents.{self._state.epoch}.{id}"

    def parents_read(
        self, query: ReadParents, tag: str, outcome: ParentRuns, now: float, effects: MasterEffects
    ) -> None:
        job = self._jobs.get(query.job)
        if job is None or tag != self._tag(query.job):
            return
        job.busy = False
        self._look_soon(job, now)
        due = firings(job.schedule.after, job.schedule.after_mode, outcome.rows)
        if not due:
            return
        firing, live = due[0], self._live(job)
        runs = [run for run in outcome.rows if run.run in firing.parents]
        policy = job.schedule.overlap or DEFAULT_FOR_PARENTS
        match overlap(policy, len(live), 0):
            case Overlap.WAIT:
                return  # the end of the run asks again
            case Overlap.SKIP | Overlap.SKIP_QUEUED as decision:
                names = " and ".join(f"run {run.run} of {run.job}" for run in runs)
                text = _skipped(f"the run after {names}", live, decision)
                command = self._no_start(job, now, text, None, used=firing.used)
                self._execute(job, command, effects)
            case decision:
                cancels = tuple(live) if decision is Overlap.CANCEL_AND_START else ()
                self._start_after(job, runs, firing.used, cancels, now, effects)

    def _start_after(
        self,
        job: ScheduledJob,
        runs: list[FinishedRun],
        used: tuple[int, ...],
        cancels: tuple[int, ...],
        now: float,
        effects: MasterEffects,
    ) -> None:
        """Start a run that follows these runs of its parents, the last of which ended last."""
        values: dict[str, str] = {}
        for run in runs:
            values |= msgspec.json.decode(run.params, type=dict[str, str]) if run.params else {}
        source = seeds_from_of(job.row.spec).job
        feed_run = next((run.run for run in runs if run.job == source), 0)
        chain = runs[-1].chain or runs[-1].run
        params = msgspec.json.encode(values) if values else b""
        facts = StartFacts(RunCause.DEPENDENCY, None, params, chain)
        command = self._command(job, now, facts, values, cancels=cancels)
        command = msgspec.structs.replace(command, used=used, feed_run=feed_run)
        self._execute(job, command, effects)

    def parents_failed(self, query: ReadParents, tag: str, now: float) -> None:
        job = self._jobs.get(query.job)
        if job is not None and tag == self._tag(query.job):
            job.busy, job.asks = False, True
            job.look_at = now + AGAIN_S
            self._look_at = min(self._look_at, job.look_at)

    # ------------------------------------------------------------ commands

    def _command(
        self,
        job: ScheduledJob,
        now: float,
        facts: StartFacts,
        values: dict[str, str] | None = None,
        due: DueMark | None = None,
        cancels: tuple[int, ...] = (),
        held: HeldSubmission | None = None,
    ) -> FireJob:
        row, state = job.row, self._state
        plan = planned_run(state, row.spec, values or {}, held.seeds if held is not None else ())
        return FireJob(
            epoch=state.epoch,
            job=row.id,
            version=row.version,
            now=state.utc(now),
            name=row.name,
            spec=plan.spec,
            seeds=state.own(plan.seeds, plan.spec, plan.canonical),
            seed_hosts=plan.seed_hosts,
            canonical=plan.canonical,
            start_facts=facts,
            cancels=cancels,
            beside=None if job.schedule.overlap == ALLOW else tuple(self._live(job)),
            due=due,
            output=held.output if held is not None else None,
            held_run=held.run if held is not None else 0,
            failure=plan.failure,
        )

    def _no_start(
        self,
        job: ScheduledJob,
        now: float,
        why: str,
        due: DueMark | None,
        used: tuple[int, ...] = (),
    ) -> FireJob:
        state, row = self._state, job.row
        note = f"{_clock(state.utc(now))}: {why}"
        return FireJob(
            state.epoch, row.id, row.version, state.utc(now), False, row.name,
            due=due, used=used, note=note,
        )  # fmt: skip

    def _execute(self, job: ScheduledJob, command: FireJob, effects: MasterEffects) -> None:
        job.busy = True
        effects.append(Execute(command))

    def fired(
        self, command: FireJob, outcome: JobFired, now: float, effects: MasterEffects
    ) -> bool:
        """Follow what was stored; return True if memory must be reloaded."""
        state, job = self._state, self._jobs.get(command.job)
        for cancelled in outcome.cancelled:
            state.put_run(cancelled, now, effects)
        if outcome.row is not None:
            state.put_run(outcome.row, now, effects)
            if not outcome.row.state.ended:
                state.admit(outcome.admitted, outcome.hosts, now)
            text = _started(command, outcome.row.id)
            effects.append(Note("run_due", text, outcome.row.id))
        elif command.note and not outcome.refused and not outcome.repeated:
            effects.append(Note("run_not_due", f"{command.name}: {command.note}"))
        if job is not None:
            job.busy = False
            self._look_soon(job, now)
        if outcome.definition is None:
            self._forget(command.job)
        else:
            self.put(outcome.definition, now, effects)
        # Memory does not know a run that is stored. Until it does, nothing can be decided.
        self._is_behind |= outcome.repeated or outcome.refused == RUN_IS_ALIVE
        return self._is_behind

    def failed(
        self, command: FireJob, error: StoreError, now: float, effects: MasterEffects
    ) -> bool:
        """Return whether the command is repeated. What cannot be stored starts no run."""
        if not isinstance(error, StoreDataError) or not command.start:
            return True
        note = f"{_clock(self._state.utc(now))}: the run cannot be stored: {error}"
        effects.append(
            Execute(
                FireJob(
                    command.epoch,
                    command.job,
                    command.version,
                    command.now,
                    False,
                    command.name,
                    due=command.due,
                    used=command.used,
                    held_run=command.held_run,
                    note=note,
                )
            )
        )
        return False

    def check(self) -> None:
        for id, job in self._jobs.items():
            assert job.row.id == id and job.row.schedule_from, "only jobs with a schedule are kept"
            assert job.row.state is JobState.ACTIVE, "a paused job starts nothing"
            for parent in job.schedule.after:
                assert id in self._children[parent.job], "a child hears of each of its parents"
            awake = job.busy or job.look_at >= self._look_at or self._is_behind
            assert awake, "no job sleeps beyond its next moment"
        names = {parent.job for job in self._jobs.values() for parent in job.schedule.after}
        assert names == self._children.keys(), "only parents of jobs that are kept are watched"


def _clock(utc: float) -> str:
    return f"{datetime.fromtimestamp(utc, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _skipped(what: str, live: list[int], decision: Overlap) -> str:
    if decision is Overlap.SKIP_QUEUED:
        return f"{what} was skipped: another one waits already"
    return f"{what} was skipped: run {live[0]} is still running"


def _started(command: FireJob, run: int) -> str:
    due_at = command.start_facts.due_at
    if command.failure:
        return f"{command.name}: run {run} failed at once: {command.failure}"
    if due_at is not None:
        return f"{command.name}: run {run} starts, due at {_clock(due_at)}"
    if command.held_run:
        return f"{command.name}: run {run} starts, which was submitted beside an earlier run"
    parents = ", ".join(map(str, command.used))
    return f"{command.name}: run {run} starts after {parents}"
