"""Recall leases that last far longer than an attempt can take.

A part of the leader. A worker that lost an attempt by a bug would hold the request forever,
because its heartbeats say that it runs. The states of such a lease:

| state       | event                                         | next                               |
|-------------|-----------------------------------------------|------------------------------------|
| open        | a heartbeat says that it has started          | started                            |
| started     | no heartbeat for three intervals              | started, its clock goes on later   |
| started     | its newest heartbeat is not fresh             | started, looked at 5 s later       |
| started     | the leader itself slept                       | started, looked at 5 s later       |
| started     | its host is told to wait (Retry-After)        | started, its clock begins after it |
| started     | older than `longest_attempt_s`                | overdue: noted, CANCEL to worker   |
| overdue     | its result comes after all                    | committed like any other           |
| overdue     | a heartbeat still has it, 10 s later          | overdue: CANCEL once more          |
| overdue     | a heartbeat has it no more, all results here  | taken back: one attempt is counted |
| taken back  | the job has retries left                      | queued                             |
| taken back  | it has none                                   | ends dead: `attempt_overdue`       |
| any         | its worker is gone, its run ends              | as every other lease               |

A *stray* is an attempt that a worker runs although the leader has no lease for it: the worker was
lost and came back, and another worker got the request meanwhile. Usually it ends by itself. An old
stray is cancelled, because it uses a slot and its host's concurrency.

A request is leased again only after the worker reported that it gave it up, so that no host gets it
twice. A late result counts unless a newer attempt exists (rule `leases`). A new leader measures
from its takeover.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from zcrawl.dispatch.crash_suspects import longest_attempt_s
from zcrawl.dispatch.leases import Lease, Token
from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.master.events import MasterEffects, Note
from zcrawl.master.leader_state import LeaderState, to_worker
from zcrawl.mesh.messages import Cancel
from zcrawl.model.spec import JobSpec

LOOK_S = 5.0
AGAIN_S = 10.0
FRESH_S = 2.5  # the longest interval of heartbeats, and their way


class OverdueLeases:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._look_at = 0.0

    def tick(self, now: float, effects: MasterEffects) -> None:
        if now < self._look_at:
            return
        slept = self._look_at and now - self._look_at > LOOK_S
        self._look_at = now + LOOK_S
        if slept:
            return  # this master was paused: first handle the heartbeats that wait
        for lease in self._state.leases.by_seq.values():
            if lease.started_at is not None and not lease.received and self._is_due(lease, now):
                self._recall(lease, now, effects)
        for worker in self._state.roster.workers.values():
            if worker.strays and worker.present:
                self._recall_strays(worker, now, effects)

    def hear(self, worker: WorkerInfo, held: Mapping[Token, bool], now: float) -> None:
        """Note strays: requests that a worker runs without a lease."""
        leases = self._state.leases.by_worker.get(worker.name, {}).values()
        tokens = {lease.token for lease in leases}
        strays = [token for token, started in held.items() if started and token not in tokens]
        if strays or worker.strays:
            worker.strays = {token: worker.strays.get(token, now) for token in strays}

    def _recall_strays(self, worker: WorkerInfo, now: float, effects: MasterEffects) -> None:
        runs = self._state.runs.active.values()
        patience_s = max(
            (longest_attempt_s(active.spec, None, worker.vitals.slots) for active in runs),
            default=longest_attempt_s(JobSpec(""), None, worker.vitals.slots),
        )
        due = [token for token, since in worker.strays.items() if now - since > patience_s]
        if due:
            text = f"{worker.id}: cancelled {len(due)} requests without a lease"
            effects.append(Note("stray_attempt", f"{text}, running for {patience_s:.0f} s"))
            effects.append(to_worker(worker, Cancel([], due)))
            again = dict.fromkeys(due, now - patience_s + AGAIN_S)
            worker.strays = {**worker.strays, **again}

    def _is_due(self, lease: Lease, now: float) -> bool:
        if lease.recalled_at is not None:
            return now - lease.recalled_at >= AGAIN_S
        state, row = self._state, lease.row
        active, host = state.runs.get(row.run), state.planner.hosts.get(row.host)
        if active is None or lease.started_at is None:
            return False
        if now - lease.worker.heard_at > FRESH_S:
            return False  # its last heartbeat is old: wait for the next one
        since = lease.started_at if host is None else max(lease.started_at, host.waits_until)
        return now - since > longest_attempt_s(active.spec, host, lease.worker.vitals.slots)

    def _recall(self, lease: Lease, now: float, effects: MasterEffects) -> None:
        state = self._state
        if lease.recalled_at is None:
            state.count("leases_overdue")
            age_s = now - (lease.started_at or now)
            text = (
                f"{lease.worker.id} has been fetching {lease.row.url} for {age_s:.0f} s; cancelled"
            )
            run = lease.row.run
            effects.append(Note("lease_overdue", f"run {run}: {text}", run))
        lease.recalled_at = now
        effects.append(to_worker(lease.worker, Cancel([], [lease.token])))

    def take_back(self, lease: Lease, effects: MasterEffects) -> None:
        """Count a failed attempt, because its worker gave the request up."""
        state, row = self._state, lease.row
        active = state.runs.get(row.run)
        lease.row = msgspec.structs.replace(row, attempts=row.attempts + 1)
        if active is not None and lease.row.attempts > active.spec.fetch.retries:
            state.planner.overdue.add(row.seq)
        effects.append(Note("lease_taken_back", f"{row.seq}: attempt {lease.row.attempts}"))
        state.give_back(lease)
