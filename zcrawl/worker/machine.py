"""The worker as a pure machine: messages and finished fetches in, effects out.

Called by `driver.loop` with real sockets and by the simulated world. It decides which leader to
follow (the highest epoch), what may start (rule `permission`), what to report, resend and forget.

State of the link to the leader:

    ALONE ──BEAT──▶ GREETING ──WELCOME──▶ WELCOMED
                       ▲ ▲  STALE, REHELLO     │
                       │ └─ 7 s without answer │
                       └───────────────────────┘ higher epoch, REHELLO, STALE, not in BEAT

What may start, and what the leader counts as in use meanwhile:

| link     | starts                  | under                     | the leader counts          |
|----------|-------------------------|---------------------------|----------------------------|
| ALONE    | nothing                 | –                         | –                          |
| GREETING | what HELLO said it held | the grants of before      | until HELLO comes: stored  |
|          |                         |                           | owners; then: all of HELLO |
| WELCOMED | what it holds           | WELCOME, later ASSIGNs    | its parts; a lowered one   |
|          |                         |                           | until it is confirmed      |

In each state nothing starts later than PERMISSION_S after the worker sent the newest heartbeat that
a BEAT echoed, of whichever epoch. Greeting does not end this permission and does not extend it:
what a worker holds can only become less until WELCOME. A leader moves a host LOST_AFTER (10)
heartbeats after the last one it received; a new leader moves it when its owner's HELLO is here and
the WELCOME that takes it away is confirmed, or when the stored lease, and with it any permission
that an earlier leader gave, is over. So no two owners start requests at the same time, even if
a process was paused in between.

A leader cannot reach a worker that it has forgotten, and a deaf worker does not hear it. BEAT lists
neither of them, and both say HELLO by themselves.

A worker that stays refused ends with the leader's reason. Pure.
"""

from __future__ import annotations

import enum
from typing import assert_never

import msgspec

from zcrawl.mesh.messages import (
    Ack,
    Assign,
    Beat,
    Body,
    Bye,
    Cancel,
    Code,
    Drain,
    Header,
    NotLeader,
    Rehello,
    Reloaded,
    ReloadNode,
    RunConfigs,
    Stale,
    Welcome,
)
from zcrawl.mesh.timing import PERMISSION_S, WINDOW_RESULTS
from zcrawl.model.log_event import TOLD_STALE
from zcrawl.model.reasons.cluster import (
    DUPLICATE_ID,
    KEY_NOT_ALLOWED,
    NAME_NOT_ALLOWED,
    STALE_EPOCH,
)
from zcrawl.model.reasons.storage import STORE_BEHIND
from zcrawl.model.reasons.waiting import DRAINED
from zcrawl.model.rows import NO_HOST
from zcrawl.model.states import Disposition
from zcrawl.worker.assignments import Assignments
from zcrawl.worker.events import (
    AskForReload,
    CancelFetch,
    DrainAsked,
    Exit,
    FetchEnded,
    HopWanted,
    MasterMessageCame,
    NodeReloaded,
    Note,
    PermitHop,
    PublishToAll,
    ResultRefused,
    RunLacks,
    SendToMaster,
    SettingsChanged,
    StartedLate,
    StartFetch,
    WorkerEffects,
    WorkerEvent,
    WorkerTicked,
)
from zcrawl.worker.held_requests import Intake
from zcrawl.worker.known_links import KnownLinks
from zcrawl.worker.outbox import Entry, Outbox
from zcrawl.worker.report import About, Pulse, hello_of
from zcrawl.worker.results.attempt import Attempt, by_verdict, unsendable


def refusal_text(worker: str, stale: Stale) -> str:
    """Return why the worker may not join; empty if this STALE is about something else."""
    if stale.reason == DUPLICATE_ID:
        return f"another live process has the id {worker}: {stale.other}"
    return stale.other if stale.reason in (NAME_NOT_ALLOWED, KEY_NOT_ALLOWED) else ""


def stale_text(worker: str, stale: Stale) -> str:
    """Return a STALE as a sentence."""
    refusal = refusal_text(worker, stale)
    if refusal:
        return f"the leader refused this worker: {refusal}"
    if stale.reason == STORE_BEHIND:
        return "the database has lost results of this worker, which starts anew"
    return "the leader does not know this worker, which joins again"


HELLO_AGAIN_S = 1.0
DUPLICATE_PATIENCE_S = 15.0  # a dead process of the same id is lost after 10 s; lists are edited
UNLISTED_S = 3.0  # after a WELCOME, because an older BEAT may arrive this late
EPOCH_PATIENCE_S = 60.0  # without a BEAT of our epoch; the database that gave it may be lost
LOWER_BEATS = 20  # more than a former leader repeats: only its last BEAT, to subscribers


class LeaderLink(enum.Enum):
    ALONE = "alone"  # no leader known
    GREETING = "greeting"  # HELLO sent, not answered
    WELCOMED = "welcomed"


class WorkerMachine:
    def __init__(
        self,
        worker: str,
        incarnation: int,
        *,
        slots: int,
        task_slots: int = 0,
        version: str = "",
        hostname: str = "",
        pid: int = 0,
        replaces: int = 0,
        life: int = 0,
        labels: tuple[str, ...] = (),
    ) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.slots = slots
        self.intake = Intake(task_slots)
        self.outbox = Outbox()
        self.known_links = KnownLinks()
        self.assignments = Assignments(self.intake, self.known_links)
        self.link = LeaderLink.ALONE
        self.epoch = 0
        self.leader = ""
        self.draining = False
        self.permitted_until = 0.0
        self._about = About(slots, version, hostname, pid, replaces, life, task_slots, labels)
        self._hello_number = 0
        self._hello_at = 0.0
        self._greeted_at = 0.0
        self._welcomed_at = 0.0
        self._beat_at = 0.0  # the last BEAT of our epoch
        self._lower_beats = 0  # of lower epochs, since then
        self._refused_since: float | None = None
        self._pulse = Pulse(self.intake, self.outbox, self.assignments, slots)
        self._said_bye = False

    # ------------------------------------------------------------ the one mutator

    def handle(self, event: WorkerEvent, now: float) -> WorkerEffects:
        effects: WorkerEffects = []
        self.intake.turned(now, self._pulse.interval_s)
        match event:
            case MasterMessageCame(header, body):
                self._on_message(header, body, now, effects)
            case FetchEnded(seq, attempt):
                self._on_fetch_ended(seq, attempt, now, effects)
            case ResultRefused(number, detail):
                entry = self.outbox.replace(number, lambda result: unsendable(result, detail))
                if entry is not None:
                    effects.append(PublishToAll(entry.result, number, entry.result.seq))
            case HopWanted(seq, crawl_delay_s):
                if seq in self.intake.tasks.running:
                    effects.append(PermitHop(seq))  # without a host it has no pace
                elif not self.intake.want_hop(seq, crawl_delay_s):
                    effects.append(CancelFetch(seq))
            case StartedLate(seq):
                self.intake.put_off(seq, now)
            case RunLacks(run, what):
                self.assignments.lack(run, what, self.leader, effects)
            case DrainAsked():
                self._drain(effects)
            case SettingsChanged():
                self._change_settings(event, now, effects)
            case NodeReloaded(request, node, report):
                if self.leader:
                    effects.append(SendToMaster(self.leader, Reloaded(request, node, report)))
            case WorkerTicked(rss_bytes, lag_ms, cpu_percent):
                self._pulse.measured(rss_bytes, lag_ms, cpu_percent)
                self._on_tick(now, effects)
            case _:
                assert_never(event)
        self._start_due(now, effects)
        if self.link is LeaderLink.WELCOMED:
            self.assignments.confirm_grants(self.leader, effects)
        self._leave_if_drained(effects)
        return effects

    def next_wakeup(self, now: float) -> float:
        """Return the next moment at which a tick can do something."""
        if self.link is LeaderLink.ALONE:
            return float("inf")
        if self.link is LeaderLink.GREETING:
            moments = [self._hello_at + HELLO_AGAIN_S]
        else:
            moments = [self._pulse.due_at, self.outbox.next_resend_at()]
        if now <= self.permitted_until:
            moments.append(self.intake.next_hop_at())
            if self.intake.running < self.intake.places(self.slots, now) and self._fetch_room() > 0:
                moments.append(self.intake.next_start_at())
        return min(moments)

    # ------------------------------------------------------------ messages

    def _on_message(self, header: Header, body: Body, now: float, effects: WorkerEffects) -> None:
        if header.epoch < self.epoch:
            effects.append(Note("stale_epoch_dropped"))
            effects.append(SendToMaster(header.source, Stale(STALE_EPOCH)))
            self._lower_beats += isinstance(body, Beat)
            if self._lower_beats > LOWER_BEATS and now - self._beat_at > EPOCH_PATIENCE_S:
                text = (
                    f"{header.source} leads in epoch {header.epoch}; {self.epoch} has no leader now"
                )
                effects.append(Exit(f"{text}: a new process follows it"))
            return
        if header.subject not in (0, self.incarnation):
            effects.append(Note("meant_for_a_predecessor", type(body).__name__))
            return
        if isinstance(body, NotLeader):
            return  # only the leader's own BEAT counts
        if header.epoch > self.epoch:
            if not isinstance(body, Beat):
                return  # a leader announces itself by BEAT before anything else
            self._follow(header.source, header.epoch, now, effects)
        self.assignments.heard = max(self.assignments.heard, header.sequence)
        match body:
            case Beat():
                self._on_beat(body, now, effects)
            case Welcome():
                self._on_welcome(header, body, now, effects)
            case Assign():
                welcomed = self.link is LeaderLink.WELCOMED
                ended = self.assignments.assign(header, body, welcomed, self.draining, now, effects)
                for assignment in ended:
                    self._report(by_verdict(assignment, header.epoch), now, effects)
            case RunConfigs():
                if self.link is LeaderLink.WELCOMED:
                    self.assignments.adopt_runs(body.runs, effects)
            case Code():
                self.assignments.adopt_code(body, effects)
            case Ack():
                self._on_ack(body, now, effects)
            case Cancel():
                self.assignments.cancel(header.source, body, effects)
            case Rehello():
                # A link that stood still brings many together, each an answer to an old heartbeat.
                if body.hello >= self._hello_number:
                    self._greet(now, effects)
            case Stale():
                self._on_stale(body, now, effects)
            case Drain(exit=True):
                self._drain(effects)
            case Drain():
                self.assignments.give_back_queued(self.leader, effects)
            case ReloadNode(request):
                effects.append(AskForReload(request))
            case _:
                effects.append(Note("unexpected_message", type(body).__name__))

    def _follow(self, leader: str, epoch: int, now: float, effects: WorkerEffects) -> None:
        self.epoch, self.leader = epoch, leader
        self.assignments.new_epoch()
        self._greet(now, effects)

    def _greet(self, now: float, effects: WorkerEffects) -> None:
        if not self.leader:
            return
        self.link = LeaderLink.GREETING
        self._hello_number += 1
        self._greeted_at = now
        self._send_hello(now, effects)

    def _send_hello(self, now: float, effects: WorkerEffects) -> None:
        """Send HELLO; a repeat has the same number, because a new number voids an older WELCOME."""
        self._hello_at = now
        number, heard = self._hello_number, self.assignments.heard
        hello = hello_of(self.intake, self.outbox, self._about, number, heard)
        effects.append(SendToMaster(self.leader, hello))

    def _on_beat(self, beat: Beat, now: float, effects: WorkerEffects) -> None:
        self._beat_at, self._lower_beats = now, 0
        self._pulse.adopt_interval(beat.interval_s, now)
        mine = beat.received.get(self.worker)
        if self.link is not LeaderLink.WELCOMED:
            return
        if mine is None or mine[0] != self.incarnation:
            if now - self._welcomed_at > UNLISTED_S:
                self._greet(now, effects)
            return
        self.outbox.note_received(mine[1])
        self.permitted_until = max(self.permitted_until, mine[2] + PERMISSION_S)

    def _on_welcome(
        self, header: Header, welcome: Welcome, now: float, effects: WorkerEffects
    ) -> None:
        if self.link is not LeaderLink.GREETING or welcome.hello != self._hello_number:
            return  # too late: it would undo later grants
        if now - self._greeted_at > PERMISSION_S:
            # It slept over it: the leader may have lost us since, and given to others what this
            # grants.
            self._greet(now, effects)
            return
        self.link = LeaderLink.WELCOMED
        self._welcomed_at = now
        self._refused_since = None
        self._pulse.adopt_interval(welcome.heartbeat_s, now)
        for settled in self.outbox.restart(welcome.watermark, now):
            effects.append(Note("settled_by_welcome", str(settled.result.seq)))
        self.assignments.welcome(header, welcome, now, effects)
        self._heartbeat(now, effects)
        self._resend(now, effects)

    def _on_ack(self, ack: Ack, now: float, effects: WorkerEffects) -> None:
        if self.link is not LeaderLink.WELCOMED:
            return
        for settled in self.outbox.settle(ack.upto, ack):
            if settled.disposition is Disposition.APPLIED:
                self.known_links.add(settled.result)
        self.outbox.note_received(ack.received)
        self._resend_entries(self.outbox.missing(ack.missing, now), effects)

    def _on_stale(self, stale: Stale, now: float, effects: WorkerEffects) -> None:
        effects.append(Note(TOLD_STALE, stale_text(self.worker, stale)))
        refusal = refusal_text(self.worker, stale)
        if refusal and self.link is LeaderLink.GREETING:
            self._refused_since = now if self._refused_since is None else self._refused_since
            if now - self._refused_since > DUPLICATE_PATIENCE_S:
                effects.append(Exit(refusal, refused=True))
            return  # the repeated HELLO gets another answer
        if stale.reason == DUPLICATE_ID:
            return
        if stale.reason == STORE_BEHIND:
            # A new process has no acked results that the database lost.
            effects.append(Exit("the database lost committed results of this worker"))
            return
        self._greet(now, effects)

    # ------------------------------------------------------------ fetches

    def _on_fetch_ended(
        self, seq: int, attempt: Attempt, now: float, effects: WorkerEffects
    ) -> None:
        manner = self.intake.learn(seq, attempt, now)
        next_in_s = self.intake.next_in_s(attempt.assignment.host, now)
        held = self.intake.finish(seq)
        if held is None:
            effects.append(Note("result_of_cancelled"))
            return
        self.known_links.leave_out(attempt)
        attempt.take_lease(held.epoch, held.assignment)
        attempt.host_next_in_s, attempt.manner = next_in_s, manner
        self._report(attempt, now, effects)
        if held.assignment.host != NO_HOST:
            self._pulse.count()

    def _report(self, attempt: Attempt, now: float, effects: WorkerEffects) -> None:
        for result in attempt.results():
            entry = self.outbox.add(result, now)
            effects.append(PublishToAll(result, entry.number, result.seq))

    def _start_due(self, now: float, effects: WorkerEffects) -> None:
        if now > self.permitted_until:
            return
        free = self.intake.places(self.slots, now) - self.intake.running
        started, hops = self.intake.start_due(now, min(free, self._fetch_room()))
        effects.extend(StartFetch(held) for held in started)
        effects.extend(PermitHop(seq) for seq in hops)
        tasks = self.intake.tasks
        if tasks.is_due:
            room = self.outbox.room(self.intake.running + len(tasks.running))
            effects.extend(StartFetch(held) for held in self.intake.start_tasks(now, room))

    def _fetch_room(self) -> int:
        """Return how many places of the outbox fetches may use.

        Each running task will need a place, too, but long tasks must not stop all fetches: as many
        fetches as there are slots always have a place.
        """
        tasks = min(len(self.intake.tasks.running), max(0, WINDOW_RESULTS - self.slots))
        return self.outbox.room(self.intake.running + tasks)

    # ------------------------------------------------------------ time

    def _on_tick(self, now: float, effects: WorkerEffects) -> None:
        if self.link is LeaderLink.GREETING and now - self._greeted_at > PERMISSION_S:
            self._greet(now, effects)
        elif self.link is LeaderLink.GREETING and now - self._hello_at >= HELLO_AGAIN_S:
            self._send_hello(now, effects)
        if self.link is not LeaderLink.WELCOMED:
            return  # the leader would only ask an unknown worker for another HELLO
        if now >= self._pulse.due_at:
            self.assignments.give_back_waiting(self.leader, now, effects)
            self.intake.forget_idle(now)
            self._heartbeat(now, effects)
        self._resend(now, effects)

    def _heartbeat(self, now: float, effects: WorkerEffects) -> None:
        body = self._pulse.beat(now, self._hello_number, self.draining)
        effects.append(PublishToAll(body))

    def _resend(self, now: float, effects: WorkerEffects) -> None:
        self._resend_entries(self.outbox.due(now), effects)

    def _resend_entries(self, entries: list[Entry], effects: WorkerEffects) -> None:
        for entry in entries:
            effects.append(SendToMaster(self.leader, entry.result, entry.number, entry.result.seq))

    # ------------------------------------------------------------ settings

    def _change_settings(
        self, settings: SettingsChanged, now: float, effects: WorkerEffects
    ) -> None:
        """Take over other limits. Fewer slots end no request: fewer are started. A heartbeat tells
        the leader the slots at once; labels are in HELLO."""
        self.slots = settings.slots
        self._pulse.change_slots(settings.slots)
        labels_before = self._about.labels
        self._about = msgspec.structs.replace(
            self._about, slots=settings.slots, labels=settings.labels
        )
        if settings.labels != labels_before and self.link is not LeaderLink.ALONE:
            self._greet(now, effects)

    # ------------------------------------------------------------ leaving

    def _drain(self, effects: WorkerEffects) -> None:
        """Finish what runs; what has not started goes back."""
        if self.draining:
            return
        self.draining = True
        self._pulse.due_at = 0.0
        self.assignments.give_back_queued(self.leader, effects)

    def _leave_if_drained(self, effects: WorkerEffects) -> None:
        if not self.draining or self._said_bye or self.intake.held or len(self.outbox):
            return
        self._said_bye = True
        if self.leader:
            effects.append(SendToMaster(self.leader, Bye(DRAINED)))
        effects.append(Exit(DRAINED))

    def check(self) -> None:
        self.intake.check()
        self.outbox.check()
        assert self.link is not LeaderLink.ALONE or self.permitted_until == 0.0, (
            "a worker without a leader starts nothing"
        )
