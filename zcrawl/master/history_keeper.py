"""Store what charts show, every ten seconds, so that it survives the leader.

A part of the leader. The counting is `telemetry.history`; this module decides when an entry is
written. At most one write is under way. While the database does not answer, counting goes on, and
the next entry has the counts of all the time since the last one. After a commit with an unknown
outcome the entry is dropped: it may be stored, and a second write would count it twice.

The write is a command of its own, never a part of the transaction that saves results.
"""

from __future__ import annotations

from typing import Final

from zcrawl.dispatch.in_flight import NONE, InFlight, by_host, by_run, grouped
from zcrawl.dispatch.why import queued
from zcrawl.errors import CommitUnknown, StoreError
from zcrawl.frontier.frontier import LaneKey
from zcrawl.master.events import Execute, MasterEffects
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.snapshot import flights
from zcrawl.model.history import STEPS, HistoryEntry
from zcrawl.store.commands import SaveHistory
from zcrawl.telemetry.history import Gauge

STEP_S: Final = STEPS[0][0]


class HistoryKeeper:
    def __init__(self, state: LeaderState, now: float) -> None:
        self._state = state
        self._since = now
        self._slot = self._slot_of(now)
        self._saving = False
        self._left: HistoryEntry | None = None  # could not be stored yet

    def tick(self, now: float, effects: MasterEffects) -> None:
        slot = self._slot_of(now)
        if slot == self._slot or self._saving:
            return
        entry = self._take(now)
        if self._left is not None:
            entry, self._left = self._left.followed_by(entry), None
        at = self._slot * STEP_S
        self._slot, self._saving = slot, True
        effects.append(Execute(SaveHistory(self._state.epoch, at, entry)))

    def saved(self) -> None:
        self._saving = False

    def failed(self, command: SaveHistory, error: StoreError) -> None:
        self._saving = False
        if not isinstance(error, CommitUnknown):
            self._left = command.entry

    def _slot_of(self, now: float) -> int:
        return int(self._state.utc(now) // STEP_S)

    def _take(self, now: float) -> HistoryEntry:
        state = self._state
        seconds, self._since = now - self._since, now
        lanes = flights(state)
        runs, hosts = grouped(lanes, by_run), grouped(lanes, by_host)
        run_gauges = {
            run: Gauge(max(0, active.row.counters.pending - flight.total), flight)
            for run, active in state.runs.active.items()
            for flight in (runs.get(run, NONE),)
        }

        def of_host(host: int) -> Gauge:
            host_state = state.planner.hosts.get(host)
            length = queued(host_state, state.frontier) if host_state is not None else 0
            return Gauge(length, hosts.get(host, NONE))

        cluster = Gauge(sum(gauge.queued for gauge in run_gauges.values()), _sum(lanes))
        return state.watch.recorder.take(seconds, cluster, run_gauges, of_host)


def _sum(lanes: dict[LaneKey, InFlight]) -> InFlight:
    return grouped(lanes, lambda lane: 0).get(0, NONE)
