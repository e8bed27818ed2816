"""A master: follower or leader, as the lock and the database say.

    follower ──Elected──▶ taking over ──Loaded──▶ leader
        ▲                     │ failed: try again     │ Deposed, Fenced, a higher stored epoch
        └─────────────────────┴──────────────────────-┘

Called by `driver.loop` and by the simulated world. The epoch that the database gave at takeover
stamps every message; a leader that lost the lock in its sleep is stopped by the store (G4).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from zcrawl.dispatch.secret_book import Vault
from zcrawl.errors import CommitUnknown, RefusedError, StoreError
from zcrawl.frontier.seen import SeenTable
from zcrawl.master.catalogue import Catalogue
from zcrawl.master.crash_guard import Mishaps
from zcrawl.master.desk import rights
from zcrawl.master.desk.operation import EveryMaster
from zcrawl.master.desk.operations import find
from zcrawl.master.desk.replies import Pending, refuse
from zcrawl.master.events import (
    CatalogueSeen,
    ClientAsked,
    CommandDone,
    CommandFailed,
    Deposed,
    Elected,
    Execute,
    LabelLimitsChanged,
    LeadershipBegan,
    MasterEffects,
    MasterEvent,
    MasterTicked,
    MessageCame,
    Note,
    QueryDone,
    QueryFailed,
    ReplyTo,
    RetentionChanged,
    RightsChanged,
    ScheduleDefaultsChanged,
    StepDown,
    TakeoverFailed,
    VaultChanged,
)
from zcrawl.master.follower import Follower
from zcrawl.master.leader import Leader
from zcrawl.mesh.messages import ClientRequest, Reply
from zcrawl.model.log_event import MESSAGE_IGNORED, TAKEOVER_FAILED
from zcrawl.model.reasons.failure import INTERNAL_ERROR
from zcrawl.model.spec import Retention, ScheduleDefaults
from zcrawl.standalone.shares import Shares
from zcrawl.store.commands import CancelOffline, Command, Loaded, TakeOver
from zcrawl.submit.output_rights import OutputRights
from zcrawl.submit.shell_rights import NO_COMMANDS, ShellRights

TAKEOVER_AGAIN_S = 0.5
TAKEOVER_PATIENCE_S = (
    10.0  # then another master may try: maybe only this one cannot reach the database
)


class MasterState(enum.Enum):
    FOLLOWER = "follower"
    TAKING_OVER = "taking over"
    LEADER = "leader"


class Master:
    def __init__(
        self,
        me: str,
        seen_slots: int = 1 << 20,
        *,
        allow_private: bool = False,
        allow_code: bool = False,
        shell: ShellRights = NO_COMMANDS,
        vouches: bool = False,
        fires: bool = True,
        outputs: OutputRights | None = None,
        retention: Retention | None = None,
        label_limits: Mapping[str, int] | None = None,
        schedule_defaults: ScheduleDefaults | None = None,
        shares: Shares | None = None,
        vault: Vault | None = None,
    ) -> None:
        """Without `outputs`, jobs may write to the outputs folder only; without `retention`, jobs
        that say nothing about it keep all their runs. `shares`: of a standalone node."""
        self._shares = shares
        self._vault = vault or Vault()
        self.me = me
        self._vouches = vouches  # typed URLs open their own hosts (submit.private)
        self._fires = fires  # schedules start runs (master.firing)
        self._outputs = outputs or OutputRights()
        self._retention = retention or Retention()
        self._label_limits = dict(label_limits or {})
        self._schedule_defaults = schedule_defaults or ScheduleDefaults()
        self._allow_code = allow_code  # jobs may bring a spider's file (submit.code)
        self._shell = shell  # commands that jobs may run
        self._allow_private = allow_private  # jobs may reach private addresses (submit.private)
        self.role = MasterState.FOLLOWER
        self.leader: Leader | None = None
        self.catalogue: Catalogue = Catalogue()
        self.mishaps = Mishaps()
        self.follower = Follower(me, self.catalogue, self.mishaps, self._schedule_defaults)
        self._seen_slots = seen_slots
        self._elected: Elected | None = None
        self._takeover: TakeOver | None = (
            None  # the current takeover; answers to others are ignored
        )
        self._takeover_at = float("inf")
        self._takeover_since = 0.0
        self._clock_offset = 0.0

    @property
    def epoch(self) -> int:
        return self.leader.state.epoch if self.leader is not None else 0

    def handle(self, event: MasterEvent, now: float, utc: float) -> MasterEffects:
        """Handle an event. `utc` is used only if the database has no clock of its own."""
        if self.mishaps.marked:
            filtered_event = self.mishaps.filter_event(event, now)
            if filtered_event is None:
                return [
                    Note(MESSAGE_IGNORED, "this request causes an error in the leader; see its log")
                ]
            event = filtered_event
        match event:
            case MasterTicked() | MessageCame():  # by far the most frequent ones
                pass
            case Elected():
                return self._on_elected(event, now, utc)
            case Deposed(reason):
                return self._step_down(reason)
            case CommandDone(TakeOver(), Loaded()):
                return self._on_loaded(event, now)
            case CommandFailed(TakeOver(), error):
                return self._on_takeover_failed(event, error, now)
            case CatalogueSeen():
                self.catalogue.see(event)
                return []
            case RightsChanged(private, code, shell):
                self._allow_private, self._allow_code = private, code
                self._shell = shell
            case VaultChanged(vault):
                self._vault = vault
            case RetentionChanged(retention):
                self._retention = retention
                if self.leader is not None:
                    self.leader.state.keep_runs(retention)
                return []
            case LabelLimitsChanged(limits):
                self._label_limits = limits
                if self.leader is not None:
                    self.leader.state.limit_labels(limits)
                return []
            case ScheduleDefaultsChanged(defaults):
                self._schedule_defaults = self.follower.schedule_defaults = defaults
                if self.leader is not None:
                    return self.leader.schedule_by(defaults, now)
                return []
            case ClientAsked() if (refused := rights.refusal(event)) is not None:
                if self.leader is not None:
                    self.leader.desk.audit.refused(event.request, rights.error_of(event.request))
                    return refused
                if not self.follower.may_forward(event.request, now):
                    return refused
                # The leader refuses it, too, and writes it into the audit.
            case ClientAsked(client, request) if (data := self._own_answer(request)) is not None:
                return [ReplyTo(client, Reply(request.id, True, data))]
            case _:
                pass
        if self.leader is None:
            return self._as_follower(event, now, utc)
        if isinstance(event, CommandDone | CommandFailed):
            command = event.command
            if isinstance(command, TakeOver | CancelOffline) or command.epoch != self.epoch:
                return []  # an answer for an earlier epoch of this process
        effects = self.leader.handle(event, now)
        for effect in effects:
            if isinstance(effect, StepDown):
                return [*effects, *self._step_down(effect.reason)]
        return effects

    def _own_answer(self, request: ClientRequest) -> dict[str, Any] | None:
        """Return the answer that every master gives by itself; None: the leader answers."""
        operation = find(request.op)
        if operation is None or not isinstance(operation.handler, EveryMaster):
            return None
        return operation.handler.answer(self, request)

    def failed(self, event: MasterEvent, text: str, now: float) -> MasterEffects:
        """Drop the leader after an error: its memory may be half changed.

        The waiting client gets `internal_error` and does not retry.
        """
        self.mishaps.happened(event, text, now)
        effects: MasterEffects = []
        pending, desk = None, None if self.leader is None else self.leader.desk
        if isinstance(event, ClientAsked):
            pending = Pending(event.client, event.request)
            if desk is not None:
                desk.withdraw(event.request.id)
        elif isinstance(event, QueryDone | QueryFailed) and desk is not None:
            pending = desk.withdraw(event.tag)
        if pending is not None:
            error = RefusedError(f"the leader failed: {text}", code=INTERNAL_ERROR)
            refuse(pending, error, effects)
        return effects + self._step_down("an error of its own")

    def is_wanted(self, command: Command) -> bool:
        """Return whether a queued command may still run.

        A master that was deposed before its takeover must not fence the new leader.
        """
        return not isinstance(command, TakeOver) or command is self._takeover

    def next_wakeup(self, now: float) -> float:
        if self.leader is not None:
            return self.leader.next_wakeup(now)
        return min(self._takeover_at, self.follower.next_wakeup(), now + 0.5)

    # ------------------------------------------------------------ roles

    def _on_elected(self, elected: Elected, now: float, utc: float) -> MasterEffects:
        self._elected = elected
        self.leader = None
        self.role = MasterState.TAKING_OVER
        self._takeover_since = now
        return self._take_over(now, utc)

    def _take_over(self, now: float, utc: float) -> MasterEffects:
        assert self._elected is not None
        self._takeover_at = float("inf")
        self._clock_offset = utc - now
        self._takeover = TakeOver(self.me, self._elected.hint, utc)
        return [Execute(self._takeover)]

    def _on_loaded(self, event: CommandDone, now: float) -> MasterEffects:
        if event.command is not self._takeover or self._elected is None:
            return []
        assert isinstance(event.outcome, Loaded)
        self._takeover = None
        if event.outcome.utc:
            # Stored times use the database's clock, because clocks of masters may differ.
            self._clock_offset = event.outcome.utc - now
        self.role = MasterState.LEADER
        self.leader = Leader(
            self.me,
            event.outcome,
            now + self._clock_offset,
            now,
            alone=self._elected.alone,
            seen=SeenTable(self._seen_slots),
            catalogue=self.catalogue,
            allow_private=self._allow_private,
            allow_code=self._allow_code,
            shell=self._shell,
            vault=self._vault,
        )
        self.leader.state.join_master(
            self.mishaps,
            self._outputs,
            self._retention,
            self._schedule_defaults,
            self._label_limits,
            vouches=self._vouches,
            fires=self._fires,
            shares=self._shares,
        )
        self.mishaps.led(now)
        text = f"{self.me} leads in epoch {self.epoch}"
        effects: MasterEffects = [LeadershipBegan(), Note("leader", text)]
        for pending in self.follower.take_waiting():
            effects += self.leader.handle(ClientAsked(pending.client, pending.request), now)
        return effects

    def _on_takeover_failed(
        self, event: CommandFailed, error: StoreError, now: float
    ) -> MasterEffects:
        if event.command is not self._takeover:
            return []
        self._takeover = None
        if now - self._takeover_since > TAKEOVER_PATIENCE_S and not self._is_alone():
            reason = f"no takeover for {now - self._takeover_since:.0f} s: {error}"
            return [StepDown(reason), *self._step_down(reason)]
        unknown = isinstance(error, CommitUnknown)  # a second try only raises the epoch once more
        self._takeover_at = now if unknown else now + TAKEOVER_AGAIN_S
        text = f"{error.code}: {error}"
        return [TakeoverFailed(text), Note(TAKEOVER_FAILED, text)]

    def _is_alone(self) -> bool:
        return self._elected is not None and self._elected.alone

    def _step_down(self, reason: str) -> MasterEffects:
        effects: MasterEffects = [Note("step_down", reason)]
        if self.leader is not None:
            self.leader.desk.abandon(effects)
        self.leader = None
        self._elected = None
        self._takeover = None
        self._takeover_at = float("inf")
        self.role = MasterState.FOLLOWER
        return effects

    # ------------------------------------------------------------ as a follower

    def _as_follower(self, event: MasterEvent, now: float, utc: float) -> MasterEffects:
        effects: MasterEffects = []
        if (
            self.role is MasterState.TAKING_OVER
            and self._takeover is None
            and now >= self._takeover_at
        ):
            effects = self._take_over(now, utc)
        return effects + self.follower.handle(event, now, utc)

    def check(self, now: float) -> None:
        assert (self.leader is None) == (self.role is not MasterState.LEADER), (
            "a leader has its state"
        )
        if self.leader is not None:
            self.leader.check(now)
