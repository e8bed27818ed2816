"""Handle workers that join, report and leave: HELLO, HEARTBEAT, ACCEPT, REJECT, BYE, silence.

Called by `leader` for each message of a worker and on each tick. Messages to a worker use the route
of its HELLO. Leases of a lost worker are given back; requests that may have started go on trial
(rule `crashes`). Requests that a joining worker already holds are adopted, not sent again (rule
`takeover`).
"""

from __future__ import annotations

import msgspec

from zcrawl.dispatch.crash_suspects import suspects
from zcrawl.dispatch.roster import LOSSES_MOST, PATIENCE_S, Greeting, WorkerInfo
from zcrawl.master.events import Execute, MasterEffects, Note, SendToWorker
from zcrawl.master.leader_state import LeaderState, to_worker
from zcrawl.master.overdue import OverdueLeases
from zcrawl.mesh.messages import (
    Accept,
    Bye,
    Header,
    Heartbeat,
    HeldLease,
    Hello,
    MessageKind,
    Rehello,
    Reject,
    Stale,
    Welcome,
)
from zcrawl.mesh.timing import PERMISSION_S
from zcrawl.model.log_event import (
    ASSIGNMENT_LOST,
    CRASH_COUNTED,
    DUPLICATE_WORKER_ID,
    NO_ROUTE,
    WORKER_DEAF,
    WORKER_LOST,
)
from zcrawl.model.process_name import process_name
from zcrawl.model.reasons.cluster import DUPLICATE_ID, LACKS, NO_CODE, UNKNOWN_RUN, lacks
from zcrawl.model.reasons.registry import find_reason
from zcrawl.model.reasons.storage import STORE_BEHIND
from zcrawl.model.reasons.waiting import DRAINING, HOST_WAITS, TASK_WAITS, WITHDRAWN
from zcrawl.model.rows import NO_HOST, QueuedRow
from zcrawl.store.commands import BeginRuns, CountCrash, SetDrain

REJECT_PAUSE_S = 0.1  # a rejected URL is not assigned again at once
QUARANTINE_AFTER = 3  # crashes with the request alone
BY_LINE = (
    MessageKind.ACCEPT,
    MessageKind.REJECT,
    MessageKind.BYE,
)  # a worker publishes no such message


class Membership:
    def __init__(self, state: LeaderState, overdue: OverdueLeases) -> None:
        self._state, self._overdue = state, overdue

    # ------------------------------------------------------------ coming

    def is_from_named_process(self, header: Header, route: bytes) -> bool:
        """Return whether a message came over the connection of the process it names.

        Published messages have no route; their sender was checked when they arrived.
        """
        info = self._state.roster.find(header.source, header.incarnation)
        if info is None or header.kind == MessageKind.HELLO:
            return True
        return route == info.route or (not route and header.kind not in BY_LINE)

    def hello(
        self, header: Header, hello: Hello, route: bytes, now: float, effects: MasterEffects
    ) -> None:
        if not route:
            effects.append(Note(NO_ROUTE, f"{header.source}: its HELLO has no valid route"))
            return
        state = self._state
        state.supervisor_heard(header.source, hello.life)
        worker = state.roster.workers.get(header.source)
        same = worker is not None and worker.incarnation == header.incarnation
        greeting = state.roster.judge(header.source, header.incarnation, hello, route)
        if greeting is Greeting.OLD:
            return
        greets_again = same and greeting is Greeting.WELCOME
        if worker is not None and greets_again and state.roster.hello_reported(worker, hello.heard):
            self._note_deaf(worker, effects)
            greeting = Greeting.DEAF
        if worker is not None and greeting in (Greeting.ANEW, Greeting.DEAF):
            cause = "deaf" if greeting is Greeting.DEAF else "lost since"
            rehello = Rehello(cause, hello.hello)
            number = worker.next_number()
            sent = SendToWorker(header.source, header.incarnation, route, rehello, number)
            effects.append(sent)
            return
        if greeting is Greeting.DUPLICATE:
            first = state.roster.workers[header.source]
            other = f"pid {first.pid} on {first.hostname}"
            text = f"{header.source}: pid {hello.pid} on {hello.hostname} is refused, {other} lives"
            effects.append(Note(DUPLICATE_WORKER_ID, text))
            stale = Stale(DUPLICATE_ID, other)
            effects.append(SendToWorker(header.source, header.incarnation, route, stale))
            return
        stored = state.receiver.stream((header.source, header.incarnation)).committed
        if hello.acked > stored:
            # The database lost acked results (a promoted copy was behind). The gap before the
            # worker's next result can never close, so the worker must restart.
            text = f"{header.source}: {hello.acked} were committed, {stored} are there"
            effects.append(Note("store_behind", text))
            stale = Stale(STORE_BEHIND)
            effects.append(SendToWorker(header.source, header.incarnation, route, stale))
            return
        if greeting is Greeting.WELCOME:
            if worker is not None and not same:
                self._gone(worker, now, effects, blame=worker.present)
            if hello.replaces:
                state.planner.process_gone(process_name(header.source, hello.replaces), now)
            info = state.roster.join(header.source, header.incarnation, hello, route, now)
            self._meet_drained(info, now, effects)
            state.planner.process_joined(info.name, now)
            self._adopt(info, hello, now)
            self._await_results(info, hello, is_new=not same)
            effects.append(
                Note("worker_joined", f"{info.id} joined with {info.vitals.slots} slots")
            )
        else:
            info = state.roster.workers[header.source]
        self._welcome(info, effects, now)

    def _meet_drained(self, info: WorkerInfo, now: float, effects: MasterEffects) -> None:
        """Apply a stored drain to a joining worker, unless a person restarted its node."""
        state = self._state
        life = state.drains.get(info.id)
        info.drained = life is not None
        if life is None or not info.life or info.life == life:
            return
        # The worker was away when it was drained: keep the first life that it reports.
        on = life == 0
        effects.append(
            Execute(SetDrain(state.epoch, info.id, on=on, life=info.life, now=state.utc(now)))
        )

    def _welcome(self, info: WorkerInfo, effects: MasterEffects, now: float) -> None:
        state = self._state
        grants = state.planner.granter.grants_for_welcome(info, now)
        stream = state.receiver.stream((info.id, info.incarnation))
        welcome = Welcome(
            watermark=stream.committed,
            heartbeat_s=state.roster.heartbeat_s,
            hello=info.hello,
            grants=grants,
            keep=[lease.row.seq for lease in state.leases.of_worker(info)],
        )
        effects.append(to_worker(info, welcome))

    def _adopt(self, info: WorkerInfo, hello: Hello, now: float) -> None:
        """Keep the requests that a joining worker holds, unless another worker has them.

        The worker may start them before WELCOME arrives, and gives back those that WELCOME does not
        list.
        """
        state = self._state
        # Results may arrive before HELLO; their requests are settled.
        stream = state.receiver.stream((info.id, info.incarnation))
        settled = stream.received_after(hello.produced)
        by_host: dict[int, list[HeldLease]] = {}
        for held_lease in hello.held:
            if held_lease.assignment.seq in settled:
                continue
            by_host.setdefault(held_lease.assignment.host, []).append(held_lease)
        granted = dict(hello.granted)
        for host, leases in by_host.items():
            if host == NO_HOST:
                for held_lease in leases:
                    self._adopt_lease(info, held_lease, now)
                continue
            running = sum(held_lease.started for held_lease in leases)
            in_use = max(running, min(len(leases), granted.get(host, len(leases))))
            state.planner.granter.adopt(info, host, in_use, now)
            for held_lease in leases:
                self._adopt_lease(info, held_lease, now)

    def _adopt_lease(self, info: WorkerInfo, held_lease: HeldLease, now: float) -> None:
        state, url = self._state, held_lease.assignment
        token = (held_lease.epoch, url.n)
        lease = state.leases.by_seq.get(url.seq)
        if lease is not None:
            if lease.worker is info and not lease.received:
                lease.token = max(lease.token, token)
            return
        if state.runs.get(url.run) is None or url.seq in state.withheld:
            return  # the run has ended, or the result is here already
        if state.is_lost(held_lease.epoch, url.seq):
            return
        host_state = state.planner.hosts.get(url.host)
        if host_state is None and url.host != NO_HOST:
            return  # no request of this host is queued, so this one is settled
        queued_row = state.frontier.remove(url.run, url.host, url.seq)
        state.planner.forget_trial(url.host, url.seq)
        row = queued_row or QueuedRow(
            run=url.run,
            host=url.host,
            prio=url.prio,
            depth=url.depth,
            seq=url.seq,
            url=url.url,
            attempts=url.attempt - 1,
            crashes=url.crashes,
            parent=url.parent,
            block=url.block,
            extra=url.extra,
            known=url.known,
        )
        paced = host_state is not None and host_state.interval_s > 0.0
        ahead = paced and not held_lease.started
        lease = state.leases.open(token, row, info, 0, now, ahead=ahead)
        lease.started_at = now if held_lease.started else None
        state.planner.lease_adopted(info, row)

    def _await_results(self, info: WorkerInfo, hello: Hello, is_new: bool) -> None:
        """Do not fetch again what a living worker has fetched and not delivered yet."""
        state = self._state
        epoch = 0 if is_new else state.epoch  # an unknown worker got them from an earlier leader
        received = state.receiver.stream((info.id, info.incarnation)).received
        for number, run, host, seq in hello.reported:
            if state.is_lost(epoch, seq):
                continue
            if number > received and not state.leases.holds(seq) and state.runs.get(run):
                state.promise(info.name, run, host, seq)

    # ------------------------------------------------------------ speaking

    def heartbeat(
        self, header: Header, beat: Heartbeat, now: float, effects: MasterEffects
    ) -> None:
        state = self._state
        info = state.roster.process(header.source, header.incarnation)
        if info is None:
            return  # no route: the worker says HELLO when BEAT does not list it
        if not info.present or info.deaf or beat.hello > info.hello:
            effects.append(to_worker(info, Rehello("deaf" if info.deaf else "unknown", beat.hello)))
            return
        newest = beat.hello == info.hello and beat.sent_at >= info.echo
        slept_s = state.roster.silence_s(info, now)
        if not newest:
            state.roster.hear(info, now)
            return
        if info.echo == 0.0:
            state.want_beat()
        state.roster.heartbeat(info, beat, now)
        if slept_s:
            state.leases.extend_by_pause(info, slept_s)
        stream = state.receiver.stream((header.source, header.incarnation))
        held = {(epoch, n): started for epoch, n, started in beat.held}
        self._overdue.hear(info, held, now)
        info.unstarted = {token for token, started in held.items() if not started}
        state.withdraw(state.forbidden_leases(info, now), effects)
        state.cancel_again(info, bool(held), now, effects)
        lost = state.leases.lost_on_the_way(
            info,
            held,
            beat.assigned,
            stream.received >= beat.produced,
            now,
            PATIENCE_S,
        )
        for lease in lost:
            if lease.recalled_at is not None:
                self._overdue.take_back(lease, effects)
                continue
            effects.append(
                Note(ASSIGNMENT_LOST, f"request {lease.row.seq} did not reach {info.id}")
            )
            if lease.started_at is None:  # else its pace would run ahead with each lost message
                state.planner.take_back_start(lease.row.host)
            state.give_back(lease)
        if state.roster.heartbeat_reported(info, beat.heard, now):
            self._note_deaf(info, effects)
            effects.append(to_worker(info, Rehello("deaf", beat.hello)))

    def _note_deaf(self, info: WorkerInfo, effects: MasterEffects) -> None:
        text = f"{info.id} sends messages but receives none: {LOSSES_MOST} lost in a row"
        effects.append(Note(WORKER_DEAF, f"{text}; its hosts move to other workers"))

    def accept(self, header: Header, accept: Accept, now: float, effects: MasterEffects) -> None:
        state = self._state
        info = state.roster.find(header.source, header.incarnation)
        if info is None:
            return
        state.roster.hear(info, now)
        for host, revision in accept.grants:
            state.planner.granter.confirm(info.name, host, revision, now)
        if state.runs.pending:
            runs = state.runs.accepted({lease.row.run for lease in state.leases.of_worker(info)})
            if runs:
                effects.append(Execute(BeginRuns(state.epoch, runs, state.utc(now))))

    def reject(self, header: Header, reject: Reject, now: float, effects: MasterEffects) -> None:
        state = self._state
        info = state.roster.find(header.source, header.incarnation)
        if info is None:
            return
        rejections = {
            (rejected_lease.epoch, rejected_lease.n): rejected_lease
            for rejected_lease in reject.leases
        }
        for lease in state.leases.of_worker(info):
            rejection = rejections.get(lease.token)
            if rejection is None or lease.received:
                continue
            reason = rejection.reason
            if reason not in (WITHDRAWN, HOST_WAITS, TASK_WAITS):  # they are usual
                text = lacks(rejection.lacks) if reason == LACKS else _meaning(reason)
                effects.append(Note("rejected", f"{info.id} gave requests back: {text}"))
            if reason in (UNKNOWN_RUN, NO_CODE):
                info.runs.pop(lease.row.run, None)
            elif reason == LACKS:
                info.lacks[lease.row.run] = rejection.lacks
                state.planner.worker_lacks(lease.row.run)
            pause = 0.0 if reason in (DRAINING, WITHDRAWN) else now + REJECT_PAUSE_S
            state.planner.take_back_start(lease.row.host)
            state.give_back(lease, pause)

    # ------------------------------------------------------------ going

    def bye(self, header: Header, bye: Bye, now: float, effects: MasterEffects) -> None:
        info = self._state.roster.find(header.source, header.incarnation)
        if info is not None:
            self._gone(info, now, effects, blame=False)
            self._state.roster.leave(info)
            effects.append(Note("worker_left", f"{info.id} left: {bye.reason}"))

    def tick(self, now: float, effects: MasterEffects) -> None:
        for info in self._state.roster.tick(now):
            effects.append(Note(WORKER_LOST, f"{info.id} is lost: no sign of life"))
            blame = not info.deaf  # a deaf worker has not crashed
            # The planner first: it counts the leases to know what may still run.
            self._state.planner.process_lost(info.name, info.heard_at + PERMISSION_S)
            self._release(info, now, effects, blame)

    def _gone(self, info: WorkerInfo, now: float, effects: MasterEffects, blame: bool) -> None:
        """Free the hosts of a process that is certainly dead."""
        self._state.planner.process_gone(info.name, now)
        self._release(info, now, effects, blame)

    def _release(self, info: WorkerInfo, now: float, effects: MasterEffects, blame: bool) -> None:
        state = self._state
        state.promises_broken(info.name)
        on_trial, alone = info.on_trial, info.reserved
        leases = [
            held_lease for held_lease in state.leases.of_worker(info) if not held_lease.received
        ]
        blamed = suspects(leases, state.planner.hosts, info, now) if blame else set()
        for lease in leases:
            if lease.row.seq not in blamed:
                state.give_back(lease)
                continue
            seq = lease.row.seq
            if lease.row.host == NO_HOST and on_trial != seq and state.planner.tasks.excuse(seq):
                state.give_back(lease)
                continue
            state.planner.close_lease(lease)
            self._put_on_trial(lease.row, seq == on_trial, seq == alone, now, effects)

    def _put_on_trial(
        self, row: QueuedRow, again: bool, was_alone: bool, now: float, effects: MasterEffects
    ) -> None:
        """Put a request on trial; only a crash with this request alone counts against it."""
        state = self._state
        if was_alone:
            row = msgspec.structs.replace(row, crashes=row.crashes + 1)
            quarantine = row.crashes >= QUARANTINE_AFTER
            effects.append(
                Note(
                    CRASH_COUNTED, f"request {row.seq} crashed a worker, {row.crashes} times so far"
                )
            )
            effects.append(
                Execute(CountCrash(state.epoch, row.seq, row.crashes, quarantine, state.utc(now)))
            )
            if quarantine:
                state.quarantine(row.seq)
                return
        if state.runs.get(row.run) is not None:
            state.planner.put_on_trial(row, alone=again or was_alone)


def _meaning(code: str) -> str:
    """Return the sentence of a reason; the code of one that this version does not know."""
    reason = find_reason(code)
    return code if reason is None else reason.meaning
