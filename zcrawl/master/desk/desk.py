"""The desk: what clients ask of the leader, and what they are told.

A part of the leader. Reads become queries, actions become commands; the reply goes out after the
commit (G1). A request id that was answered before is answered again, without a second effect
(`idempotency`).
"""

from __future__ import annotations

import functools
from typing import Any, assert_never

import msgspec

from zcrawl.dispatch.placement import can_serve, why_unplaced
from zcrawl.errors import RefusedError, StoreError, UnreachableError, ZcrawlError
from zcrawl.master.desk import actions, idempotency, reads, replies
from zcrawl.master.desk.actions import Intents, NodeUnknown
from zcrawl.master.desk.operation import (
    OPERATIONS,
    EveryMaster,
    FromDatabase,
    FromMemory,
    LeaderAction,
    LeaderView,
    Operation,
    Repeat,
)
from zcrawl.master.desk.operations import find
from zcrawl.master.desk.replies import Pending, refuse, refuse_error, reply
from zcrawl.master.desk.submissions import Submissions
from zcrawl.master.desk.views import DeskViews, balance_view
from zcrawl.master.events import Ask, Execute, MasterEffects, Note, RemoveOldRuns, StepDown
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.snapshot import live_run, nodes_view
from zcrawl.mesh.messages import ClientRequest
from zcrawl.model.process_name import worker_of
from zcrawl.model.reasons.cluster import (
    BAD_REQUEST,
    NO_LEADER,
    NO_SUCH_RUN,
    UNKNOWN_OP,
    UNSEEN_RUNS,
)
from zcrawl.model.reasons.skip import CANCELLED, DELETED
from zcrawl.model.reasons.waiting import PAUSED_BY_REQUEST
from zcrawl.model.states import JobState, RunState
from zcrawl.store.commands import (
    AddSeeds,
    ChangeJob,
    ChangeRun,
    ClientAction,
    Command,
    CommandOutcome,
    DrainSet,
    JobChanged,
    Loaded,
    Retried,
    RetryDead,
    RunChanged,
    SetDrain,
    SetWish,
    SubmitJob,
    Submitted,
    TuneRun,
    WishSet,
)
from zcrawl.store.queries import (
    FindJob,
    FindReply,
    FoundReply,
    JobList,
    JobNames,
    JobRow,
    Query,
    QueryOutcome,
    ReadRemovable,
    RemovableRuns,
)
from zcrawl.store.rules import run_reply
from zcrawl.submit.stored import check_right
from zcrawl.telemetry.views import (
    MOST_REMOVABLE,
    chosen_run,
    live_runs,
    present_runs,
    removable_view,
    would_change,
)

ACTIONS = {
    "pause": (RunState.PAUSED, PAUSED_BY_REQUEST),
    "resume": (RunState.RUNNING, ""),
    "cancel": (RunState.CANCELLED, CANCELLED),
    "delete": (RunState.DELETED, DELETED),
}
JOB_STATES = {"active": JobState.ACTIVE, "paused": JobState.PAUSED, "archived": JobState.ARCHIVED}


class Desk:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._pending: dict[str, Pending] = {}
        self._intents = Intents(state)
        self._waiting: dict[str, Pending] = {}  # for a worker that may still say HELLO
        self._views = DeskViews(state)
        self.submissions: Submissions = Submissions(state)

    def ask(
        self, client: bytes, request: ClientRequest, now: float, effects: MasterEffects
    ) -> None:
        earlier_request = self._pending.get(request.id)
        if (
            earlier_request is not None
        ):  # asked again, maybe through another master: it is under way
            earlier_request.client = client
            return
        pending = Pending(client, request)
        operation = find(request.op)
        if operation is None or isinstance(operation.handler, EveryMaster):
            error = RefusedError(f"unknown request {request.op!r}", code=UNKNOWN_OP)
            self._refuse(pending, error, effects)
            return
        self._pending[request.id] = pending
        if operation.repeat is Repeat.ANSWER_STORED:
            effects.append(Ask(FindReply(request.id), request.id))
        else:
            self._begin(pending, now, effects)

    def _begin(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        looks_only = bool(pending.request.args.get("dry_run"))
        audited = _operation(pending).audited and not looks_only
        self._do(pending, now, effects, audited=audited)

    def _do(
        self, pending: Pending, now: float, effects: MasterEffects, *, audited: bool = False
    ) -> None:
        request = pending.request
        try:
            if audited:
                run = request.args.get("run")
                about = run if isinstance(run, int) else 0
                text = idempotency.audit_line(request, self._state.me)
                effects.append(Note("asked", text, about))
            self._handle(pending, now, effects)
        except NodeUnknown as error:
            if now < self._state.settled_at:
                self._waiting[request.id] = pending
            else:
                self._refuse(pending, error, effects)
        except Exception as error:  # refused by its name, or as a bug of ours
            self._fail(pending, error, effects)

    def _handle(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        op, handler = pending.request.op, _operation(pending).handler
        match handler:
            case LeaderAction(begin):
                begin(self)(pending, now, effects)
            case FromDatabase():
                effects.append(Ask(reads.question(pending), pending.request.id))
            case FromMemory(leader):
                self._reply(pending, leader(self)(now), effects)
            case LeaderView(show):
                views = self._views
                self._reply(pending, views.answer(op, show(views), pending.args, now), effects)
            case EveryMaster():
                raise AssertionError(f"{op} is answered before it comes here")
            case _:
                assert_never(handler)

    def inherit(self, loaded: Loaded) -> None:
        """What the last leader was asked for and had not finished."""
        self._intents.inherit(loaded)

    def tick(self, now: float, effects: MasterEffects) -> None:
        self._intents.tick(now, effects)
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for id, pending in waiting.items():
                if id in self._pending:
                    self._do(pending, now, effects)

    # ------------------------------------------------------------ submissions

    def _submitted(
        self, pending: Pending, done: Submitted, now: float, effects: MasterEffects
    ) -> bool:
        """True when the stored answer says more than memory knows: reload."""
        if done.refused:
            self._refuse(pending, replies.refusal(done.refused, done.job, done.run), effects)
            return False
        for changed in (*done.cancelled, *done.changed):
            self._state.put_run(changed, now, effects)
        if done.row is not None and not (done.repeated and done.row.state.ended):
            # Also a repeated one: its client may add seeds before the reload has read the run.
            self._state.put_run(done.row, now, effects)
            if not done.repeated and not done.row.state.ended:
                self._state.admit(done.admitted, done.hosts, now)
        data: dict[str, Any] = {"job": done.job, "run": done.run, "admitted": len(done.admitted)}
        if done.changed:
            data["changed"] = len(done.changed)
        active = self._state.runs.get(done.run)
        if active is not None:
            usable = [info for info in self._state.roster.workers.values() if info.usable]
            data["workers"] = sorted(info.id for info in usable if can_serve(active, info))
            data["waits"] = why_unplaced(active, usable)
        self._reply(pending, data, effects)
        return done.repeated  # its rows were admitted by a commit whose answer was lost

    # ------------------------------------------------------------ actions on runs

    def find_job(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        """Ask for the job that an action is about."""
        effects.append(Ask(FindJob(pending.args.text("ref")), pending.request.id))

    def act(self, pending: Pending, job_list: JobList, now: float, effects: MasterEffects) -> None:
        job = reads.the_job(job_list, pending.request)
        action = pending.args.text("action")
        run_number = reads.wanted_run(pending.args)
        seen = actions.seen_runs(pending.args)
        if action == "delete" and run_number is None:
            pending.count = len(present_runs(job)) or 1
            self._change_job(pending, job, JobState.DELETED, now, effects, seen)
            return
        run = chosen_run(job, run_number)
        if action in ("retry", "resume"):
            check_right(run.spec, self._state.allow_code, self._state.shell)
        if action == "retry":
            client_action = self._client_action(pending, now)
            retry = self._intents.retry(run.id, pending.args, client_action)
            if retry is not None:
                effects.append(Execute(retry))
        elif action in ACTIONS:
            state, reason = ACTIONS[action]
            runs = live_runs(job) if run_number is None else [run]
            run = runs[0] if runs else run  # none is live: the store refuses, or has nothing to do
            pending.count = sum(would_change(row, state) for row in runs or [run])
            others = tuple(row.id for row in runs if row is not run)
            client_action = self._client_action(pending, now)
            deletes = state is RunState.DELETED and pending.args.get("ended_at") is not None
            change = ChangeRun(
                epoch=self._state.epoch,
                request=pending.request.id,
                run=run.id,
                state=state,
                reason=reason,
                now=client_action.at,
                client_action=client_action,
                others=others,
                only_ended_at=pending.args.number("ended_at") if deletes else None,
            )
            effects.append(Execute(change))
        else:
            raise RefusedError(f"unknown action {action!r}", code=BAD_REQUEST)

    def change_job(
        self, pending: Pending, job_list: JobList, now: float, effects: MasterEffects
    ) -> None:
        """Pause, activate or archive a job; its runs go on."""
        job, name = reads.the_job(job_list, pending.request), pending.args.text("state")
        if name not in JOB_STATES:
            raise RefusedError(f"unknown state {name!r}", code=BAD_REQUEST)
        pending.count = int(job.state is not JOB_STATES[name])
        self._change_job(pending, job, JOB_STATES[name], now, effects)

    def _change_job(
        self,
        pending: Pending,
        job: JobRow,
        state: JobState,
        now: float,
        effects: MasterEffects,
        seen: tuple[int, ...] | None = None,
    ) -> None:
        client_action = self._client_action(pending, now)
        effects.append(
            Execute(
                ChangeJob(
                    self._state.epoch,
                    pending.request.id,
                    job.id,
                    state,
                    client_action.at,
                    client_action,
                    seen,
                )
            )
        )

    def _job_changed(
        self, pending: Pending, done: JobChanged, now: float, effects: MasterEffects
    ) -> None:
        if done.refused == UNSEEN_RUNS:
            self._refuse(pending, actions.unseen_runs(done), effects)
            return
        if done.row is None:
            self._refuse(pending, replies.refusal(done.refused, 0, 0), effects)
            return
        for changed in done.runs:
            self._state.put_run(changed, now, effects)
        sentence = idempotency.deed(pending.request, done.row.name)
        state = done.row.state
        effects.append(Note(f"job_{state}", sentence))
        self._reply(pending, msgspec.json.decode(done.reply), effects)

    def _changed(
        self, pending: Pending, done: RunChanged, now: float, effects: MasterEffects
    ) -> None:
        for changed in (done.row, *done.others):
            if changed is not None:
                self._state.put_run(changed, now, effects)
        if done.reply:
            self._reply(pending, msgspec.json.decode(done.reply), effects)
        elif done.refused:
            error = replies.refusal(done.refused, 0, 0)
            self._refuse(pending, error, effects)
        elif done.row is not None:
            row = done.row
            what = "tuned" if pending.request.op == "tune" else row.state
            sentence = idempotency.deed(pending.request, row.name)
            effects.append(Note(f"run_{what}", f"{sentence} (run {row.id})", row.id))
            self._reply(pending, run_reply(row, pending.count), effects)

    # ------------------------------------------------------------ retention

    def prune(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        """Begin with the job, if one is named."""
        if pending.args.text("ref"):
            self.find_job(pending, now, effects)
        else:
            self._find_removable(pending, now, effects)

    def prune_job(
        self, pending: Pending, job_list: JobList, now: float, effects: MasterEffects
    ) -> None:
        pending.job = reads.the_job(job_list, pending.request)
        self._find_removable(pending, now, effects)

    def _find_removable(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        job = None if pending.job is None else pending.job.id
        utc, defaults = self._state.utc(now), self._state.retention
        effects.append(Ask(ReadRemovable(utc, defaults, MOST_REMOVABLE, job), pending.request.id))

    def _pruned(self, pending: Pending, found: RemovableRuns, effects: MasterEffects) -> None:
        """The driver removes them: it writes archives, and then deletes each run by a request."""
        if not pending.args.get("dry_run"):
            effects.append(RemoveOldRuns(None if pending.job is None else pending.job.id))
        self._reply(pending, {"runs": [removable_view(row) for row in found.rows]}, effects)

    def tune(self, pending: Pending, job_list: JobList, now: float, effects: MasterEffects) -> None:
        job = reads.the_job(job_list, pending.request)
        run, spec = actions.tuned_spec(job, pending.args)
        pending.count = int(run.spec != spec)
        client_action = self._client_action(pending, now)
        effects.append(
            Execute(
                TuneRun(
                    self._state.epoch,
                    client_action.request,
                    run.id,
                    spec,
                    client_action,
                    client_action.at,
                )
            )
        )

    def _client_action(self, pending: Pending, now: float) -> ClientAction:
        return idempotency.client_action(
            pending.request, self._state.me, self._state.utc(now), pending.count
        )

    def reassign(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        client_action = self._client_action(pending, now)
        effects.append(Execute(self._intents.reassign(pending.args, client_action)))

    def drain(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        self._set_drain(True, pending, now, effects)

    def undrain(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        self._set_drain(False, pending, now, effects)

    def _set_drain(self, on: bool, pending: Pending, now: float, effects: MasterEffects) -> None:
        client_action = self._client_action(pending, now)
        effects.append(Execute(self._intents.drain(pending.args, on, client_action)))

    def reload(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        """Let nodes read their configuration again. `reloaded` shows who has answered."""
        request = actions.begin_reload(self._state, pending.args, now)
        self._reply(pending, self._state.reloads.view(request), effects)

    def reloaded(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        view = self._state.reloads.view(pending.args.text("reload"))
        self._reply(pending, view, effects)

    def rebalance(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        """Move the hosts that `balance` shows. A repeat finds nothing more to move."""
        state = self._state
        epoch = pending.args.integer("epoch")
        moves = state.planner.balancer.moves(now) if epoch == state.epoch else []
        data = balance_view(state.planner.balancer, moves, now) | {
            "epoch": epoch,
            "now": state.epoch,
        }
        state.planner.balancer.move_hosts(moves, now)
        for move in moves:
            text = f"{move.origin} goes to {worker_of(move.target)}: {move.why}"
            effects.append(Note("host_moves", text))
        self._reply(pending, data, effects)

    def step_down(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        data = actions.step_down(self._state, pending.args)
        self._reply(pending, data, effects)
        if data["epoch"] == data["now"]:
            effects.append(StepDown("an operator forced a failover"))

    def _retried(
        self,
        pending: Pending,
        command: RetryDead,
        done: Retried,
        now: float,
        effects: MasterEffects,
    ) -> None:
        if done.reply:
            self._intents.retried(command, False, now, effects)
            self._reply(pending, msgspec.json.decode(done.reply), effects)
            return
        self._intents.retried(command, done.more, now, effects)
        if done.refused or done.row is None:
            error = replies.refusal(done.refused or NO_SUCH_RUN, 0, command.run)
            self._refuse(pending, error, effects)
            return
        self._state.put_run(done.row, now, effects)
        self._state.planner.verdicts.forgive(done.row.id)
        self._state.admit(done.rows, done.hosts, now)
        if not done.more:
            self._reply(pending, run_reply(done.row, done.changed), effects)

    # ------------------------------------------------------------ reads

    def nodes(self, now: float) -> dict[str, Any]:
        view = nodes_view(self._state, now)
        if self._state.shares is not None:
            view["standalone"] = self._state.shares.view
        return view

    # ------------------------------------------------------------ the store's answers

    def answer(
        self, query: Query, tag: str, outcome: QueryOutcome, now: float, effects: MasterEffects
    ) -> None:
        pending = self._pending.get(tag)
        if pending is None:
            return
        if isinstance(outcome, FoundReply):
            if outcome.reply is None:
                self._begin(pending, now, effects)
            else:
                self._reply(pending, msgspec.json.decode(outcome.reply), effects)
            return
        if isinstance(outcome, RemovableRuns):
            self._pruned(pending, outcome, effects)
            return
        try:
            handler = _operation(pending).handler
            if isinstance(outcome, JobNames):
                self.submissions.submit_child(pending, outcome, now, effects)
                return
            if isinstance(handler, LeaderAction):
                assert handler.continue_with is not None and isinstance(outcome, JobList)
                handler.continue_with(self)(pending, outcome, now, effects)
                return
            live = functools.partial(live_run, self._state, now=now)
            next_step = reads.proceed(pending, outcome, live, self._state.utc(now))
            if isinstance(next_step, dict):
                self._reply(pending, next_step, effects)
            else:
                effects.append(Ask(next_step, tag))
        except Exception as error:  # refused by its name, or as a bug of ours
            self._fail(pending, error, effects)

    def answer_failed(self, tag: str, error: StoreError, effects: MasterEffects) -> None:
        pending = self._pending.get(tag)
        if pending is not None:
            self._refuse(pending, error, effects)

    def done(
        self, command: Command, outcome: CommandOutcome, now: float, effects: MasterEffects
    ) -> bool:
        """A client's command was committed; True asks for a reload."""
        pending = self._of(command)
        if pending is None:
            # Its client was served by an earlier try, or is gone; memory still has to follow.
            pending = Pending(b"", ClientRequest("", "", {}))
        match command, outcome:
            case SubmitJob() | AddSeeds(), Submitted():
                return self._submitted(pending, outcome, now, effects)
            case ChangeRun() | TuneRun(), RunChanged():
                self._changed(pending, outcome, now, effects)
            case ChangeJob(), JobChanged():
                self._job_changed(pending, outcome, now, effects)
            case RetryDead(), Retried():
                self._retried(pending, command, outcome, now, effects)
            case SetDrain(), DrainSet():
                self._state.set_drain(outcome.worker, outcome.row, effects)
                if outcome.reply:
                    self._reply(pending, msgspec.json.decode(outcome.reply), effects)
            case SetWish(), WishSet():
                self._state.set_wishes(outcome.wishes)
                data = msgspec.json.decode(outcome.reply)
                effects.append(Note("host_reassigned", f"{data['host']} goes to {data['node']}"))
                self._reply(pending, data, effects)
            case _:
                effects.append(Note("unexpected_outcome", type(outcome).__name__))
        return False

    def goes_on(self, command: Command) -> bool:
        """Whether a command that failed must be repeated: a part of what it does is stored."""
        return isinstance(command, RetryDead) and self._intents.is_begun(command)

    def failed(self, command: Command, error: StoreError, effects: MasterEffects) -> None:
        pending = self._of(command)
        if pending is not None:
            self._refuse(pending, error, effects)

    def _of(self, command: Command) -> Pending | None:
        return self._pending.get(request_of(command))

    def withdraw(self, tag: str) -> Pending | None:
        """A request that somebody else answers."""
        return self._pending.pop(tag, None)

    def abandon(self, effects: MasterEffects) -> None:
        """Nobody leads here any more: who waits asks again, whoever leads then."""
        for pending in self._pending.values():
            refuse(pending, UnreachableError("the leader stepped down", code=NO_LEADER), effects)
        self._pending.clear()
        self._waiting.clear()

    # ------------------------------------------------------------ replies

    def _reply(self, pending: Pending, data: dict[str, Any], effects: MasterEffects) -> None:
        self._pending.pop(pending.request.id, None)
        reply(pending, data, effects)

    def _refuse(self, pending: Pending, error: ZcrawlError, effects: MasterEffects) -> None:
        self._pending.pop(pending.request.id, None)
        refuse(pending, error, effects)

    def _fail(self, pending: Pending, error: Exception, effects: MasterEffects) -> None:
        self._pending.pop(pending.request.id, None)
        refuse_error(pending, error, effects)


def _operation(pending: Pending) -> Operation:
    """The operation of a request that was taken: its name is known."""
    return OPERATIONS[pending.request.op]


def request_of(command: Command) -> str:
    """The id of the client's request that a command carries out; empty: it is nobody's."""
    client_action = getattr(command, "client_action", None)
    request: str = (
        getattr(command, "request", "") if client_action is None else client_action.request
    )
    return request
