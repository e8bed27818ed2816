"""The desk: what clients ask of the leader, and what they are told.

A part of the leader. Reads become queries, actions become commands; the reply goes out after the
commit (G1). A request id that was answered before is answered again, without a second effect
(`idempotency`). `submissions` and `run_actions` carry out what clients do to jobs and runs.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from zcrawl.errors import RefusedError, StoreError, UnreachableError
from zcrawl.master.desk import actions, idempotency, reads
from zcrawl.master.desk.actions import Intents, NodeUnknown
from zcrawl.master.desk.audit import AuditLog
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
from zcrawl.master.desk.replies import OpenRequests, Pending
from zcrawl.master.desk.run_actions import RunActions
from zcrawl.master.desk.submissions import Submissions
from zcrawl.master.desk.views import DeskViews, balance_view
from zcrawl.master.events import Ask, Execute, MasterEffects, Note, StepDown
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.snapshot import live_run, nodes_view
from zcrawl.mesh.messages import ClientRequest
from zcrawl.model.process_name import worker_of
from zcrawl.model.reasons.cluster import (
    NO_LEADER,
    UNKNOWN_OP,
)
from zcrawl.store.commands import (
    AddSeeds,
    ChangeJob,
    ChangePeople,
    ChangeRun,
    ChangeSecrets,
    Command,
    CommandOutcome,
    DrainSet,
    JobChanged,
    Loaded,
    PeopleChanged,
    Retried,
    RetryDead,
    RunChanged,
    SecretsChanged,
    SetDrain,
    SetWish,
    SubmitJob,
    Submitted,
    TuneRun,
    WishSet,
    WriteAudit,
)
from zcrawl.store.queries import (
    FindReply,
    FoundReply,
    JobList,
    Query,
    QueryOutcome,
    RemovableRuns,
    TokenChecked,
)

if TYPE_CHECKING:
    from zcrawl.master.desk.people import People
    from zcrawl.master.desk.secret_actions import SecretActions


class Desk:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self.audit: AuditLog = AuditLog(state)
        self._requests = OpenRequests(self.audit)
        self._intents = Intents(state)
        self._waiting: dict[str, Pending] = {}  # for a worker that may still say HELLO
        self._views = DeskViews(state)
        self.submissions: Submissions = Submissions(state, self._requests)
        self.run_actions: RunActions = RunActions(state, self._intents, self._requests)

    @functools.cached_property
    def secrets(self) -> SecretActions:
        from zcrawl.master.desk.secret_actions import SecretActions  # few leaders need it

        return SecretActions(self._state, self._requests)

    @functools.cached_property
    def people(self) -> People:
        from zcrawl.master.desk.people import People  # likewise

        return People(self._state, self._requests, self.audit)

    def ask(
        self, client: bytes, request: ClientRequest, now: float, effects: MasterEffects
    ) -> None:
        self.audit.at(now)
        earlier_request = self._requests.get(request.id)
        if (
            earlier_request is not None
        ):  # asked again, maybe through another master: it is under way
            earlier_request.client = client
            return
        pending = Pending(client, request)
        operation = find(request.op)
        if operation is None or isinstance(operation.handler, EveryMaster):
            error = RefusedError(f"unknown request {request.op!r}", code=UNKNOWN_OP)
            self._requests.refuse(pending, error, effects)
            return
        self._requests.add(pending)
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
                self._requests.refuse(pending, error, effects)
        except Exception as error:  # refused by its name, or as a bug of ours
            self._requests.fail(pending, error, effects)

    def _handle(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        op, handler = pending.request.op, _operation(pending).handler
        match handler:
            case LeaderAction(begin):
                begin(self)(pending, now, effects)
            case FromDatabase():
                effects.append(Ask(reads.question(pending), pending.request.id))
            case FromMemory(leader):
                self._requests.reply(pending, leader(self)(now), effects)
            case LeaderView(show):
                views = self._views
                self._requests.reply(
                    pending, views.answer(op, show(views), pending.args, now), effects
                )
            case EveryMaster():
                raise AssertionError(f"{op} is answered before it comes here")
            case _:
                assert_never(handler)

    def inherit(self, loaded: Loaded) -> None:
        """What the last leader was asked for and had not finished."""
        self._intents.inherit(loaded)

    def tick(self, now: float, effects: MasterEffects) -> None:
        self._intents.tick(now, effects)
        self.audit.tick(now, effects)
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for id, pending in waiting.items():
                if id in self._requests:
                    self._do(pending, now, effects)

    # ------------------------------------------------------------ workers and hosts

    def reassign(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        client_action = idempotency.client_action(self._state, pending, now)
        effects.append(Execute(self._intents.reassign(pending.args, client_action)))

    def drain(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        self._set_drain(True, pending, now, effects)

    def undrain(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        self._set_drain(False, pending, now, effects)

    def _set_drain(self, on: bool, pending: Pending, now: float, effects: MasterEffects) -> None:
        client_action = idempotency.client_action(self._state, pending, now)
        effects.append(Execute(self._intents.drain(pending.args, on, client_action)))

    def reload(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        """Let nodes read their configuration again. `reloaded` shows who has answered."""
        request = actions.begin_reload(self._state, pending.args, now)
        self._requests.reply(pending, self._state.reloads.view(request), effects)

    def reloaded(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        view = self._state.reloads.view(pending.args.text("reload"))
        self._requests.reply(pending, view, effects)

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
        self._requests.reply(pending, data, effects)

    def step_down(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        data = actions.step_down(self._state, pending.args)
        self._requests.reply(pending, data, effects)
        if data["epoch"] == data["now"]:
            self.audit.flush(effects)  # the last moment at which this leader may write
            effects.append(StepDown("an operator forced a failover"))

    # ------------------------------------------------------------ reads

    def nodes(self, now: float) -> dict[str, Any]:
        view = nodes_view(self._state, now)
        if self._state.shares is not None:
            view["standalone"] = msgspec.to_builtins(self._state.shares.view)
        return view

    # ------------------------------------------------------------ the store's answers

    def answer(
        self, query: Query, tag: str, outcome: QueryOutcome, now: float, effects: MasterEffects
    ) -> None:
        pending = self._requests.get(tag)
        if pending is None:
            return
        if isinstance(outcome, FoundReply):
            if outcome.reply is None:
                self._begin(pending, now, effects)
            else:
                self._requests.reply(pending, msgspec.json.decode(outcome.reply), effects)
            return
        if isinstance(outcome, RemovableRuns):
            self.run_actions.pruned(pending, outcome, effects)
            return
        if isinstance(outcome, TokenChecked):
            self.people.checked(pending, outcome, now, effects)
        try:
            handler = _operation(pending).handler
            if isinstance(handler, LeaderAction):
                assert handler.continue_with is not None and isinstance(outcome, JobList)
                handler.continue_with(self)(pending, outcome, now, effects)
                return
            live = functools.partial(live_run, self._state, now=now)
            pending.schedule_defaults = self._state.schedule_defaults
            next_step = reads.proceed(pending, outcome, live, self._state.utc(now))
            if isinstance(next_step, dict):
                self._requests.reply(pending, next_step, effects)
            else:
                effects.append(Ask(next_step, tag))
        except Exception as error:  # refused by its name, or as a bug of ours
            self._requests.fail(pending, error, effects)

    def answer_failed(self, tag: str, error: StoreError, effects: MasterEffects) -> None:
        pending = self._requests.get(tag)
        if pending is not None:
            self._requests.refuse(pending, error, effects)

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
                return self.submissions.submitted(pending, outcome, now, effects)
            case ChangeRun() | TuneRun(), RunChanged():
                self.run_actions.changed(pending, outcome, now, effects)
            case ChangeJob(), JobChanged():
                self.run_actions.job_changed(pending, outcome, now, effects)
            case RetryDead(), Retried():
                self.run_actions.retried(pending, command, outcome, now, effects)
            case SetDrain(), DrainSet():
                self._state.set_drain(outcome.worker, outcome.row, effects)
                if outcome.reply:
                    self._requests.reply(pending, msgspec.json.decode(outcome.reply), effects)
            case ChangeSecrets(), SecretsChanged():
                self.secrets.changed(pending, outcome, effects)
            case SetWish(), WishSet():
                self._state.set_wishes(outcome.wishes)
                data = msgspec.json.decode(outcome.reply)
                effects.append(Note("host_reassigned", f"{data['host']} goes to {data['node']}"))
                self._requests.reply(pending, data, effects)
            case ChangePeople(), PeopleChanged():
                self.people.done(command, pending, outcome, effects)
            case WriteAudit(), _:
                self.audit.written()
            case _:
                effects.append(Note("unexpected_outcome", type(outcome).__name__))
        return False

    def goes_on(self, command: Command) -> bool:
        """Whether a command that failed must be repeated: a part of what it does is stored."""
        return isinstance(command, RetryDead) and self._intents.is_begun(command)

    def failed(self, command: Command, error: StoreError, effects: MasterEffects) -> None:
        pending = self._of(command)
        if pending is not None:
            self._requests.refuse(pending, error, effects)

    def _of(self, command: Command) -> Pending | None:
        return self._requests.get(request_of(command))

    def withdraw(self, tag: str) -> Pending | None:
        """A request that somebody else answers."""
        return self._requests.withdraw(tag)

    def abandon(self, effects: MasterEffects) -> None:
        """Nobody leads here any more: who waits asks again, whoever leads then."""
        error = UnreachableError("the leader stepped down", code=NO_LEADER)
        self._requests.refuse_all(error, effects)
        self._waiting.clear()


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
