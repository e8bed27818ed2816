"""A master that does not lead: it forwards each client request to the leader, once.

It knows the leader from BEAT messages. While no master leads, or the leader does not answer, the
follower answers reads from the database and the leader's last SNAPSHOT, and says how old they are.
It refuses everything else with `no_leader`; the client repeats its request with the same id, so
that an action is carried out once. From reports of workers it learns only which workers are alive
(rule `followers`).

    ClientAsked ──leader known──▶ waiting ──ReplyCame──▶ replied
         │                          │ no answer in time, or "no leader"
         └──────no leader──────▶ read here (jobs, job, nodes) or refused
"""

from __future__ import annotations

from typing import Any

import msgspec

from zcrawl.errors import UnreachableError
from zcrawl.master.catalogue import Catalogue
from zcrawl.master.crash_guard import Mishaps
from zcrawl.master.desk import reads
from zcrawl.master.desk.operation import FromDatabase, FromMemory
from zcrawl.master.desk.operations import find
from zcrawl.master.desk.replies import Pending, refuse, refuse_error, reply
from zcrawl.master.events import (
    Ask,
    ClientAsked,
    ConfigReloaded,
    Forward,
    LinesLogged,
    MasterEffects,
    MasterEvent,
    MasterTicked,
    Measured,
    MessageCame,
    Publish,
    QueryDone,
    QueryFailed,
    ReloadConfig,
    ReplyCame,
    ReplyTo,
    SendToWorker,
)
from zcrawl.mesh.messages import (
    Beat,
    ClientRequest,
    Hello,
    Message,
    NotLeader,
    Reloaded,
    ReloadNode,
    Reply,
    Snapshot,
)
from zcrawl.model.reasons.cluster import NO_LEADER
from zcrawl.model.snapshot import PublishedSnapshot
from zcrawl.model.spec import ScheduleDefaults
from zcrawl.model.vitals import Vitals
from zcrawl.store.queries import QueryOutcome

LEADER_SILENT_S = 3.5  # without a BEAT for this long, requests are not sent to it
FORGET_EPOCH_S = 60.0  # without a BEAT for this long, a leader of a lower epoch is accepted
FORWARD_PATIENCE_S = 3.0
MOST_WAITING = 10_000


class Follower:
    def __init__(
        self,
        me: str,
        catalogue: Catalogue,
        mishaps: Mishaps | None = None,
        schedule_defaults: ScheduleDefaults | None = None,
    ) -> None:
        self.me = me
        self.schedule_defaults = schedule_defaults or ScheduleDefaults()
        self.leader = ""
        self.epoch = 0
        self.heard_at = float("-inf")  # the leader's last BEAT
        self._catalogue, self._mishaps = catalogue, mishaps or Mishaps()
        self._snapshot = PublishedSnapshot(leader="", epoch=0)
        self._snapshot_at = float("-inf")
        self._waiting: dict[str, Pending] = {}  # for the leader's answer
        self._reading: dict[str, Pending] = {}  # for the database's

    def handle(self, event: MasterEvent, now: float, utc: float) -> MasterEffects:
        effects: MasterEffects = []
        match event:
            case MasterTicked():  # the most frequent one
                self._on_tick(now, effects)
            case MessageCame(Message() as message, route, by_master):
                self._on_message(message, route, by_master, now, effects)
            case ClientAsked(client, request):
                self._on_asked(Pending(client, request), now, effects)
            case ReplyCame(answer):
                self._on_reply(answer, now, effects)
            case QueryDone(_, tag, outcome):
                pending = self._reading.pop(tag, None)
                if pending is not None:
                    self._on_read(pending, outcome, now, utc, effects)
            case QueryFailed(_, tag, error):
                pending = self._reading.pop(tag, None)
                if pending is not None:
                    refuse(pending, error, effects)
            case LinesLogged(lines):
                effects.append(Publish(lines))  # the leader passes them on to consoles
            case Measured(rss_bytes, lag_ms, cpu_percent):
                vitals = Vitals(rss_bytes, lag_ms, cpu_percent)
                self._catalogue.hear(self.me, vitals, now)
                effects.append(Publish(vitals))  # for the displays of the leader
            case ConfigReloaded(request, report):
                effects.append(Publish(Reloaded(request, self.me, report)))
            case _:
                pass  # answers to commands of an ended epoch
        return effects

    def take_waiting(self) -> list[Pending]:
        """Return requests without an answer, because this master leads now."""
        waiting = [*self._waiting.values(), *self._reading.values()]
        self._waiting.clear()
        self._reading.clear()
        return waiting

    def next_wakeup(self) -> float:
        return min((pending.until for pending in self._waiting.values()), default=float("inf"))

    # ------------------------------------------------------------ messages

    def _on_message(
        self, message: Message, route: bytes, by_master: bool, now: float, effects: MasterEffects
    ) -> None:
        header, body = message.header, message.body
        # A restored database may start at a lower epoch. A higher epoch that nobody uses any more
        # must not hide the new leader.
        newest = header.epoch >= self.epoch or now - self.heard_at > FORGET_EPOCH_S
        match body:
            case Beat() if by_master and newest:
                self.leader, self.epoch, self.heard_at = body.leader, header.epoch, now
            case Snapshot() if by_master and newest:
                self._snapshot, self._snapshot_at = body.data, now
            case Vitals():
                self._catalogue.hear(header.source, body, now)
            case ReloadNode(request, masters) if by_master and newest and self.me in masters:
                effects.append(ReloadConfig(request))
            case Hello() if route:
                answer = NotLeader(self.leader if self._leader_lives(now) else None)
                effects.append(SendToWorker(header.source, header.incarnation, route, answer))
            case _:
                pass

    def may_forward(self, request: ClientRequest, now: float) -> bool:
        """Whether a request that its role may not make is the leader's to refuse: it is audited,
        and there is a leader."""
        operation = find(request.op)
        audited = operation is not None and operation.audited
        return audited and not request.forwarded and self._leader_lives(now)

    def _leader_lives(self, now: float) -> bool:
        return (
            bool(self.leader) and self.leader != self.me and now - self.heard_at < LEADER_SILENT_S
        )

    # ------------------------------------------------------------ requests

    def _on_asked(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        request = pending.request
        if request.forwarded:
            self._refuse_no_leader(pending, effects)
        elif self._leader_lives(now) and len(self._waiting) < MOST_WAITING:
            pending.until = now + FORWARD_PATIENCE_S
            self._waiting[request.id] = pending
            onward = msgspec.structs.replace(request, forwarded=True, via=self.me)
            effects.append(Forward(self.leader, onward))
        else:
            self._answer_here(pending, now, effects)

    def _on_reply(self, answer: Reply, now: float, effects: MasterEffects) -> None:
        pending = self._waiting.pop(answer.id, None)
        if pending is None:
            return
        if not answer.ok and answer.data.get("code") == NO_LEADER:
            self._answer_here(pending, now, effects)
        else:
            effects.append(ReplyTo(pending.client, answer))

    def _on_tick(self, now: float, effects: MasterEffects) -> None:
        for pending in [entry for entry in self._waiting.values() if entry.until <= now]:
            del self._waiting[pending.request.id]
            self._answer_here(pending, now, effects)

    # ------------------------------------------------------------ answers of its own

    def _answer_here(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        request = pending.request
        operation = find(request.op)
        try:
            match operation.handler if operation is not None else None:
                case FromMemory(follower=answer):
                    reply(pending, self._mark_stale(answer(self)(now), now), effects)
                case FromDatabase():
                    effects.append(Ask(reads.question(pending), request.id))
                    self._reading[request.id] = pending
                case _:  # only a leader, or a master of another version, knows it
                    self._refuse_no_leader(pending, effects)
        except Exception as error:  # refused by its name, or as a bug of ours
            refuse_error(pending, error, effects)

    def _on_read(
        self,
        pending: Pending,
        outcome: QueryOutcome,
        now: float,
        utc: float,
        effects: MasterEffects,
    ) -> None:
        pending.schedule_defaults = self.schedule_defaults
        try:
            next_step = reads.proceed(pending, outcome, lambda run: None, utc)
        except Exception as error:  # refused by its name, or as a bug of ours
            refuse_error(pending, error, effects)
            return
        if isinstance(next_step, dict):
            reply(pending, self._mark_stale(next_step, now), effects)
        else:
            self._reading[pending.request.id] = pending
            effects.append(Ask(next_step, pending.request.id))

    def nodes(self, now: float) -> dict[str, Any]:
        """Return the nodes that this master has heard of."""
        return {
            "leader": {"id": "", "epoch": self._snapshot.epoch},
            "masters": msgspec.to_builtins(list(self._catalogue.masters_view("", now))),
            "workers": msgspec.to_builtins(list(self._snapshot.workers)),
            "differences": [],
            "catalogue": self._catalogue.away or "ok",
            "mishaps": msgspec.to_builtins(self._mishaps.view(now)),
        }

    def _mark_stale(self, data: dict[str, Any], now: float) -> dict[str, Any]:
        """Add that no leader gave this answer, and how old the leader's last message is."""
        silent = max(self.heard_at, self._snapshot_at)
        age_s = None if silent == float("-inf") else round(now - silent, 1)
        why = self._mishaps.why(now)
        return {**data, "stale": {"answered_by": self.me, "leader_silent_s": age_s, "why": why}}

    def _refuse_no_leader(self, pending: Pending, effects: MasterEffects) -> None:
        error = UnreachableError(
            f"no master leads at the moment ({self.me} is a follower); try again in a few seconds",
            code=NO_LEADER,
        )
        refuse(pending, error, effects)
