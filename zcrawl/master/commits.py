"""Turn received results into commits and acks, one batch at a time.

A part of the leader. It plans a batch, sends it to the store, and changes the leader's memory only
when the store answers `Applied` (rule `plan, then commit`):

    idle ──batch──▶ committing ──Applied──▶ idle            acks are sent
                        │ unavailable ──▶ waiting ──▶ committing   the same batch again
                        │ bad data ──▶ halves; a single bad result ends dead: bad_result
                        └ unknown ──▶ reloading ──Loaded──▶ idle   the stored watermark decides
"""

from __future__ import annotations

import msgspec

from zcrawl.errors import CommitUnknown, RetryClass, StoreDataError, StoreError
from zcrawl.master.events import Execute, MasterEffects, Note, SendToWorker
from zcrawl.master.leader_state import LeaderState
from zcrawl.mesh.messages import Ack, BadBody, Header, Result
from zcrawl.model.host import RobotsFile
from zcrawl.model.log_event import PLAN_ERROR, commit_event
from zcrawl.model.process_name import process_name
from zcrawl.model.reasons.failure import BAD_RESULT
from zcrawl.model.rows import NO_HOST, StoredRobots
from zcrawl.model.states import Disposition, Outcome, RequestState
from zcrawl.result.plan import ResultPlanner
from zcrawl.result.receive import Received, StreamKey
from zcrawl.store.commands import Applied, ApplyResults, Change, Loaded, Reload

BATCH_RESULTS = 200
BATCH_WAIT_S = 0.010
GAP_AGAIN_S = 0.1
RETRY_LEAST_S = 0.1
RETRY_MOST_S = 5.0


class Batch(msgspec.Struct):
    results: list[Received]
    changes: list[Change]


class Commits:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._results = ResultPlanner(state.leases, state.runs, state.seen, state.is_lost)
        self._batch: Batch | None = None  # being committed
        self._unknown: Batch | None = None  # maybe committed: a reload finds out
        self._halves: list[list[Received]] = []  # parts of a batch that had bad data
        self._acks: dict[StreamKey, None] = {}  # streams that need an ack
        self._retry_s = RETRY_LEAST_S
        self._retry_at = 0.0
        self._reloads = 0  # reloads without an answer yet
        self.failing: StoreError | None = None
        self.failing_since = 0.0

    # ------------------------------------------------------------ receiving

    def receive(self, header: Header, result: Result | BadBody, now: float) -> None:
        state = self._state
        key = (header.source, header.incarnation)
        fresh = state.receiver.take(header, result, now)
        stream = state.receiver.stream(key)
        if not fresh:
            gap_is_old = now - stream.gap_told_at > GAP_AGAIN_S
            if header.sequence <= stream.committed or (stream.early and gap_is_old):
                stream.gap_told_at = now
                self._acks[key] = None
        for received in fresh:
            self._note_arrival(received, now)

    def _note_arrival(self, received: Received, now: float) -> None:
        """Return the worker's credit, and keep the request from being leased again."""
        state, result = self._state, received.result
        received.promised = state.promise_kept(process_name(*received.stream), received.seq)
        lease = state.leases.by_seq.get(received.seq)
        if isinstance(result, Result):
            next_at = now + result.host_next_in_s
            state.planner.learn_pace(result.host, next_at, result.crawl_delay_s, result.manner)
            state.planner.learn_wait(result.host, now, result.host_next_in_s)
            if result.address:
                state.planner.granter.learn_address(result.host, result.address)
            if result.robots is not None:
                self._learn_robots(received.stream, result, result.robots, state.utc(now))
            if result.outcome is Outcome.PART:
                return
            if lease is None and not state.is_lost(result.lease_epoch, received.seq):
                state.withhold(result.run, result.host, received.seq)
        if lease is not None and not lease.received and not _is_newer(lease.token, received):
            state.leases.receive(lease, now)
            state.planner.lease_left(lease.worker, lease.row)

    def _learn_robots(
        self, stream: StreamKey, result: Result, file: RobotsFile, utc: float
    ) -> None:
        host = self._state.planner.hosts.get(result.host)
        if host is not None:
            stored = StoredRobots(file.status, file.body, utc + file.lasts_s)
            self._state.planner.granter.learn_robots(host, stored)
            part = host.parts.get(process_name(*stream))
            if part is not None:
                part.robots_known()  # this worker fetched the file

    # ------------------------------------------------------------ committing

    def tick(self, now: float, effects: MasterEffects) -> None:
        self._send_acks(effects)
        if self._batch is not None or self.reloading or now < self._retry_at:
            return
        if self._halves:
            self._commit(self._halves.pop(0), now, effects)
            return
        queue = self._state.receiver.queue
        full = len(queue) >= BATCH_RESULTS
        if queue and (
            full or now - queue[0].received_at >= BATCH_WAIT_S or self._is_no_result_coming()
        ):
            self._commit(self._state.receiver.next_batch(BATCH_RESULTS), now, effects)

    def _is_no_result_coming(self) -> bool:
        """Return whether no other result can join the batch soon.

        On a site where each page links to one other page, waiting for more results would only cost
        time.
        """
        return not any(info.leases for info in self._state.roster.workers.values())

    def next_wakeup(self) -> float:
        if self._batch is not None or self.reloading:
            return float("inf")
        queue = self._state.receiver.queue
        if self._halves:
            return self._retry_at
        return max(queue[0].received_at + BATCH_WAIT_S, self._retry_at) if queue else float("inf")

    def _commit(self, results: list[Received], now: float, effects: MasterEffects) -> None:
        offset = self._state.clock_offset
        changes = [self._plan(received, offset, now, effects) for received in results]
        for change in changes:
            if change.reason == BAD_RESULT:
                effects.append(Note(BAD_RESULT, f"result of request {change.seq} is not usable"))
        self._execute(Batch(results, changes), now, effects)

    def _plan(
        self, received: Received, offset: float, now: float, effects: MasterEffects
    ) -> Change:
        """Plan one result; a result on which planning fails becomes a bad result.

        Planning changes nothing, and the worker would send the same result to every later leader.
        """
        try:
            change = self._results.plan(received, offset, now)
            active = self._state.runs.get(change.run) if change.links else None
            if active is None:  # nothing is admitted to a run that has ended
                return change
            links = self._state.own(change.links, active.row.spec, active.row.canonical)
            return msgspec.structs.replace(change, links=links)
        except Exception as error:
            effects.append(
                Note(PLAN_ERROR, f"result {received.number} of {received.stream[0]}: {error!r}")
            )
            return self._results.bury(received)

    def _execute(self, batch: Batch, now: float, effects: MasterEffects) -> None:
        state = self._state
        self._batch = batch
        effects.append(Execute(ApplyResults(state.epoch, batch.changes, state.utc(now))))

    def applied(self, applied: Applied, now: float, effects: MasterEffects) -> None:
        state, batch = self._state, self._batch
        if batch is None:
            return
        self._batch = None
        self._retry_s, self.failing = RETRY_LEAST_S, None
        state.receiver.commit(batch.results, state.utc(now))
        for received, change, disposition in zip(
            batch.results, batch.changes, applied.dispositions, strict=True
        ):
            if change.seq in applied.skipped:  # the store skipped it
                change = msgspec.structs.replace(change, state=RequestState.SKIPPED, page=None)
            self._settle(received, change, disposition, now)
            state.count(f"results_{disposition.name.lower()}")
        for run, key in applied.seen:
            state.seen.add(run, key)
        for row in applied.runs:
            state.put_run(row, now, effects)
        admitted = [row for row in applied.admitted if state.runs.get(row.run) is not None]
        state.admit(admitted, applied.hosts, now)
        self._ack_batch(batch, applied.dispositions, effects)

    def _settle(
        self, received: Received, change: Change, disposition: Disposition, now: float
    ) -> None:
        """Update the request in memory after its result was stored."""
        state = self._state
        if disposition is Disposition.APPLIED and change.state is not None:
            self._tally(received, change, now)
            self._note_postponed(received, change)
            if change.state is RequestState.DONE:
                state.planner.verdicts.page_done(change.run, change.host)
        lease = state.leases.by_seq.get(change.seq)
        if disposition is Disposition.DROPPED:
            if lease is not None and not _is_newer(lease.token, received):
                state.give_back(lease)
            state.release(change.run, change.host, change.seq)
            return
        if change.state is None and disposition is Disposition.APPLIED:
            return  # only a part of the links: the page follows
        host = change.host or (lease.row.host if lease else 0)
        queued_row = state.frontier.remove(change.run, host, change.seq)
        on_trial = state.planner.forget_trial(host, change.seq)
        closed = state.close_lease(change.seq)
        state.planner.overdue.discard(change.seq)
        if host == NO_HOST:
            state.planner.tasks.settled(change.seq)
        row = state.forget_withheld(change.seq) or queued_row or on_trial
        row = closed.row if closed is not None else row
        if disposition is not Disposition.APPLIED or change.state is not RequestState.QUEUED:
            return
        if row is None:
            retry = (change.attempts, change.due_at)
            state.frontier.reconsider(change.run, host, change.seq, retry)
        else:
            row = msgspec.structs.replace(row, attempts=change.attempts, due_at=change.due_at)
            state.frontier.insert(row, max(now, change.due_at - state.clock_offset))
            state.planner.lane_opened(row.run, row.host)

    def _tally(self, received: Received, change: Change, now: float) -> None:
        tally = self._state.tally(change.run)
        if change.status:
            tally.count_status(change.status)
        if change.state is RequestState.DEAD:
            tally.count_failure(change.reason)
            lease = self._state.leases.by_seq.get(change.seq)
            self._state.watch.failure(
                change.run,
                change.host,
                change.reason,
                status=change.status,
                url=lease.row.url if lease is not None else "",
                utc=self._state.utc(now),
                detail=change.detail,
            )
        elif change.page is not None and isinstance(received.result, Result):
            result = received.result
            self._state.watch.page(change.run, result.host, change.page, result.depth)

    def _note_postponed(self, received: Received, change: Change) -> None:
        """Keep the reason of a postponed page for people, because it may repeat for long."""
        result = received.result
        if isinstance(result, Result):
            postponed = change.state is RequestState.QUEUED and result.retry is RetryClass.POSTPONED
            self._state.tally(change.run).note_postponed(result.detail if postponed else "")

    # ------------------------------------------------------------ failing

    def failed(self, error: StoreError, now: float, effects: MasterEffects) -> None:
        batch = self._batch
        if batch is None:
            return
        self._batch = None
        effects.append(Note(commit_event(error.code), str(error)))
        if isinstance(error, StoreDataError):
            self._bisect(batch, now, effects)
            return
        if isinstance(error, CommitUnknown):
            self._unknown = batch
            self._note_failing(error, now)
            self.reload(now, effects)
            return
        self._note_failing(error, now)
        self._halves.insert(0, batch.results)

    def _note_failing(self, error: StoreError, now: float) -> None:
        if self.failing is None:
            self.failing_since = now
        self.failing = error
        self._retry_at = now + self._retry_s
        self._retry_s = min(self._retry_s * 2, RETRY_MOST_S)

    def _bisect(self, batch: Batch, now: float, effects: MasterEffects) -> None:
        if len(batch.results) > 1:
            middle = len(batch.results) // 2
            self._halves[:0] = [batch.results[:middle], batch.results[middle:]]
            return
        culprit, change = batch.results[0], batch.changes[0]
        buried = self._results.bury(culprit)
        if change.dropped:  # the store is the problem, not this result
            self._note_failing(StoreDataError("a dropped result cannot be stored"), now)
            self._halves.insert(0, batch.results)
            return
        if change == buried:  # its end cannot be stored either: only advance the watermark
            buried = msgspec.structs.replace(buried, state=None, dropped=True)
        effects.append(Note(BAD_RESULT, f"result of request {culprit.seq} cannot be stored"))
        self._execute(Batch([culprit], [buried]), now, effects)

    def reload(self, now: float, effects: MasterEffects) -> None:
        """Read the state from the database again; commit nothing until then."""
        self._reloads += 1
        effects.append(Execute(Reload(self._state.epoch, self._state.utc(now))))

    def reload_failed(self, error: StoreError, now: float) -> None:
        """Note the error; the leader repeats the query."""
        self._note_failing(error, now)

    @property
    def reloading(self) -> bool:
        return self._reloads > 0

    def reloaded(self, loaded: Loaded, now: float) -> None:
        """Settle an uncertain batch: it was applied if its watermarks are stored."""
        self._reloads -= 1
        if self._reloads:
            return  # wait for the answer to the last reload
        batch, self._unknown = self._unknown, None
        if batch is None:
            return
        state = self._state
        first = batch.results[0]
        if loaded.watermarks.get(first.stream, 0) < first.number:
            self._halves.insert(0, batch.results)
            return
        state.receiver.commit(batch.results, state.utc(now))
        for received, change in zip(batch.results, batch.changes, strict=True):
            lease = state.leases.by_seq.get(change.seq)
            if (
                lease is not None
                and change.state is not None
                and not _is_newer(lease.token, received)
            ):
                state.close_lease(change.seq)  # if it was a retry, its row is read again
            if change.state is not None or change.dropped:
                state.forget_withheld(change.seq)
            self._acks[received.stream] = None
        self._retry_s, self.failing = RETRY_LEAST_S, None  # it was applied

    # ------------------------------------------------------------ acks

    def _ack_batch(
        self, batch: Batch, dispositions: list[Disposition], effects: MasterEffects
    ) -> None:
        firsts: dict[StreamKey, int] = {}
        fates: dict[StreamKey, bytearray] = {}
        for received, change, disposition in zip(
            batch.results, batch.changes, dispositions, strict=True
        ):
            # The links of a bad result were not admitted, so its worker must send them again.
            fate = Disposition.DROPPED if change.reason == BAD_RESULT else disposition
            firsts.setdefault(received.stream, received.number)
            fates.setdefault(received.stream, bytearray()).append(int(fate))
        for key, first in firsts.items():
            self._ack(key, first, bytes(fates[key]), effects)
            self._acks.pop(key, None)

    def _send_acks(self, effects: MasterEffects) -> None:
        for key in self._acks:
            self._ack(key, self._state.receiver.stream(key).committed + 1, b"", effects)
        self._acks.clear()

    def _ack(self, key: StreamKey, first: int, fates: bytes, effects: MasterEffects) -> None:
        stream = self._state.receiver.stream(key)
        ack = Ack(stream.committed, first, fates, stream.received, stream.missing())
        info = self._state.roster.process(*key)
        if info is not None:  # otherwise its WELCOME has the number
            effects.append(SendToWorker(*key, info.route, ack))


def _is_newer(token: tuple[int, int], received: Received) -> bool:
    result = received.result
    if isinstance(result, BadBody):
        return False
    return token > (result.lease_epoch, result.lease_n)
