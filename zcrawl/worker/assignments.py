"""Handle messages of the leader: grants, assignments, run configurations, cancels.

A part of the worker machine. A refused URL is always reported with its reason, so that the
leader can give it to another worker. Messages may overtake each other: an assignment that was sent
before a revocation and comes after it must not undo it, hence the barrier.
"""

from __future__ import annotations

import hashlib

from zcrawl.mesh.messages import (
    Accept,
    Assign,
    Assignment,
    Cancel,
    Code,
    Grant,
    Header,
    Reject,
    Rejection,
    RunConfig,
    Welcome,
)
from zcrawl.model.log_event import CODE_REFUSED
from zcrawl.model.reasons.cluster import (
    LACKS,
    NO_CODE,
    NO_GRANT,
    NOT_WELCOMED,
    OVERTAKEN,
    UNKNOWN_RUN,
)
from zcrawl.model.reasons.waiting import DRAINING, HOST_WAITS, TASK_WAITS, WITHDRAWN
from zcrawl.model.rows import NO_HOST
from zcrawl.worker.events import (
    AdoptCode,
    AdoptRobots,
    AdoptRun,
    CancelFetch,
    ForgetRun,
    Note,
    SendToMaster,
    WorkerEffects,
)
from zcrawl.worker.held_requests import Intake
from zcrawl.worker.known_links import KnownLinks


class Assignments:
    def __init__(self, intake: Intake, known_links: KnownLinks) -> None:
        self.assigned = 0  # highest ASSIGN sequence taken in
        self.heard = 0  # highest message number from this leader
        self._intake, self._known = intake, known_links
        self._barrier = 0  # assignments numbered below were overtaken by a revocation
        self._runs: dict[int, int] = {}  # run → revision
        self._codes: dict[int, str] = {}  # run → hash of its spider's file
        self._awaited: set[int] = set()  # runs whose spider file has not arrived
        self._lacking: dict[int, str] = {}  # run → what it needs and is not here

    def new_epoch(self) -> None:
        """Start counting the messages of another leader."""
        self.assigned = self.heard = 0
        self._barrier = 0

    def welcome(self, header: Header, welcome: Welcome, now: float, effects: WorkerEffects) -> None:
        """Forget all earlier grants, except what the leader adopted."""
        intake = self._intake
        intake.void_grants()
        self._barrier = header.sequence
        for grant in welcome.grants:
            intake.adopt_grant(header.epoch, grant, now)
            _learn_robots(grant, effects)
        keep = set(welcome.keep)
        for seq in intake.queued():
            if seq not in keep:
                intake.finish(seq)
        for host_id, host in list(intake.hosts.items()):
            if host.queue and host.grant.concurrency == 0:
                self._give_back_host(header.source, host_id, effects)

    def assign(
        self,
        header: Header,
        assign: Assign,
        welcomed: bool,
        draining: bool,
        now: float,
        effects: WorkerEffects,
    ) -> list[Assignment]:
        """Take assignments; return those that must end without a fetch."""
        overtaken = header.sequence < self._barrier
        if not welcomed or overtaken:
            reason = OVERTAKEN if overtaken else NOT_WELCOMED
            rejected = [Rejection(header.epoch, assignment.n, reason) for assignment in assign.urls]
            _reject(header.source, rejected, effects)
            return []
        self._adopt_grants(header, assign.grants, now, effects)
        refused: list[Rejection] = []
        ended: list[Assignment] = []
        for assignment in assign.urls:
            # If it runs already, its own result reports the outcome.
            if assignment.verdict and not draining and self._intake.give_up(assignment.seq):
                ended.append(assignment)
                continue
            refusal = DRAINING if draining else self._take(header.epoch, assignment, now)
            if refusal is not None:
                lacks = self._lacking[assignment.run] if refusal == LACKS else ""
                refused.append(Rejection(header.epoch, assignment.n, refusal, lacks))
        self.assigned = max(self.assigned, header.sequence)
        _reject(header.source, refused, effects)
        effects.append(SendToMaster(header.source, Accept(self.assigned, [])))
        return ended

    def _take(self, epoch: int, assignment: Assignment, now: float) -> str | None:
        """Take one assignment; return None, or why not."""
        if assignment.run not in self._runs:
            return UNKNOWN_RUN
        if assignment.run in self._lacking:
            return LACKS
        if assignment.run in self._awaited:
            return NO_CODE
        return self._intake.take(epoch, assignment, now)

    def adopt_runs(self, runs: list[RunConfig], effects: WorkerEffects) -> None:
        for config in runs:
            if self._runs.get(config.run, -1) < config.revision:
                if config.code and config.run not in self._runs:
                    self._codes[config.run] = config.code
                    self._awaited.add(config.run)
                self._runs[config.run] = config.revision
                self._intake.set_priority(config.run, config.priority)
                effects.append(AdoptRun(config))

    def adopt_code(self, code: Code, effects: WorkerEffects) -> None:
        """Keep a spider's file, only if a CONFIG announced its hash."""
        runs = [run for run, sha256 in self._codes.items() if sha256 == code.sha256]
        if hashlib.sha256(code.source).hexdigest() != code.sha256:
            effects.append(Note(CODE_REFUSED, f"not what its hash {code.sha256[:12]} says"))
        elif not runs:
            effects.append(Note(CODE_REFUSED, f"{code.sha256[:12]} was not announced"))
        else:
            effects.append(AdoptCode(code))
            self._awaited.difference_update(runs)

    def lack(self, run: int, what: str, leader: str, effects: WorkerEffects) -> None:
        """Give back what has not started of a run that needs something missing here."""
        self._lacking[run] = what = what[:1_000]
        refused: list[Rejection] = []
        for seq in self._intake.queued():
            if self._intake.held[seq].assignment.run == run:
                held = self._intake.finish(seq)
                if held is not None:
                    refused.append(Rejection(held.epoch, held.assignment.n, LACKS, what))
        if leader:
            _reject(leader, refused, effects)

    def _adopt_grants(
        self, header: Header, grants: list[Grant], now: float, effects: WorkerEffects
    ) -> None:
        for grant in grants:
            self._intake.adopt_grant(header.epoch, grant, now)
            _learn_robots(grant, effects)
            if grant.concurrency == 0:
                self._barrier = max(self._barrier, header.sequence)
                self._give_back_host(header.source, grant.host, effects)

    def _give_back_host(self, leader: str, host: int, effects: WorkerEffects) -> None:
        """Give back what has not started of a revoked host; running requests finish."""
        refused: list[Rejection] = []
        for seq in self._intake.queued():
            held = self._intake.held[seq]
            if held.assignment.host == host:
                self._intake.finish(seq)
                refused.append(Rejection(held.epoch, held.assignment.n, NO_GRANT))
        _reject(leader, refused, effects)

    def give_back_queued(self, leader: str, effects: WorkerEffects) -> None:
        """Give back everything that has not started, because this worker drains."""
        refused: list[Rejection] = []
        for seq in self._intake.queued():
            held = self._intake.finish(seq)
            if held is not None:
                refused.append(Rejection(held.epoch, held.assignment.n, DRAINING))
        if leader:
            _reject(leader, refused, effects)

    def give_back_waiting(self, leader: str, now: float, effects: WorkerEffects) -> None:
        """Give back the URLs of hosts with a long wait, which would use up the credit, and tasks
        that wait for a slot."""
        refused: list[Rejection] = []
        for seq in self._intake.waiting_long(now):
            held = self._intake.finish(seq)
            if held is not None:
                reason = TASK_WAITS if held.assignment.host == NO_HOST else HOST_WAITS
                refused.append(Rejection(held.epoch, held.assignment.n, reason))
        _reject(leader, refused, effects)

    def confirm_grants(self, leader: str, effects: WorkerEffects) -> None:
        """Confirm lowered grants that are in force now."""
        confirmed = self._intake.confirmations()
        if confirmed:
            effects.append(SendToMaster(leader, Accept(self.assigned, confirmed)))

    def withdraw(self, leader: str, tokens: list[tuple[int, int]], effects: WorkerEffects) -> None:
        """Give back those of these requests that have not started."""
        withdrawn_tokens = set(tokens)
        refused: list[Rejection] = []
        for seq in self._intake.queued():
            held = self._intake.held[seq]
            if (held.epoch, held.assignment.n) in withdrawn_tokens:
                self._intake.finish(seq)
                refused.append(Rejection(held.epoch, held.assignment.n, WITHDRAWN))
        _reject(leader, refused, effects)

    def cancel(self, leader: str, cancel: Cancel, effects: WorkerEffects) -> None:
        if cancel.withdrawn:
            self.withdraw(leader, cancel.withdrawn, effects)
        runs, leases = set(cancel.runs), set(cancel.leases)
        for seq, held in list(self._intake.held.items()):
            if held.assignment.run in runs or (held.epoch, held.assignment.n) in leases:
                if held.started:
                    effects.append(CancelFetch(seq))
                self._intake.finish(seq)
        for run in runs:
            self._known.forget_run(run)
            self._intake.set_priority(run, 0)
            for by_run in (self._runs, self._codes, self._lacking):
                by_run.pop(run, None)
            self._awaited.discard(run)
            effects.append(ForgetRun(run))


def _learn_robots(grant: Grant, effects: WorkerEffects) -> None:
    if grant.robots is not None:
        effects.append(AdoptRobots(grant.origin, grant.robots))


def _reject(leader: str, refused: list[Rejection], effects: WorkerEffects) -> None:
    if refused:
        effects.append(SendToMaster(leader, Reject(refused)))
