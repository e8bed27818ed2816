"""The requests in flight in three numbers: fetching, waiting at a worker, uncommitted.

Every display uses these numbers, so that a run, its hosts and its workers agree. How many requests
a worker had started comes from its last heartbeat; all other figures are those of the leases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.roster import Roster
from zcrawl.frontier.frontier import LaneKey
from zcrawl.model.rows import QueuedRow


class InFlight(NamedTuple):
    """The requests of a run, a host or a lane that are not queued and not final."""

    fetching: int = 0  # started by a worker
    waiting: int = 0  # held by a worker, not started
    uncommitted: int = 0  # the result is here and not committed

    @property
    def total(self) -> int:
        return self.fetching + self.waiting + self.uncommitted

    def plus(self, other: InFlight) -> InFlight:
        return InFlight(
            self.fetching + other.fetching,
            self.waiting + other.waiting,
            self.uncommitted + other.uncommitted,
        )


NONE = InFlight()


def in_flight_by_lane(
    leases: Leases, roster: Roster, withheld: Iterable[QueuedRow | None] = ()
) -> dict[LaneKey, InFlight]:
    """Return the three numbers of each lane with requests in flight.

    `withheld` are rows whose result came without a lease: uncommitted, too. Since its heartbeat a
    worker may have finished requests, so no lane fetches more than it has open leases.
    """
    started: dict[LaneKey, int] = {}
    for worker in roster.workers.values():
        if worker.present:
            for lane, requests in worker.fetching.items():
                started[lane] = started.get(lane, 0) + requests
    lanes: dict[LaneKey, InFlight] = {}
    for lane, number in leases.by_lane.items():
        received = leases.received_by_lane.get(lane, 0)
        fetching = min(started.get(lane, 0), number - received)
        lanes[lane] = InFlight(fetching, number - received - fetching, received)
    for row in withheld:
        if row is not None:
            lane = (row.run, row.host)
            lanes[lane] = lanes.get(lane, NONE).plus(InFlight(uncommitted=1))
    return lanes


def grouped(lanes: dict[LaneKey, InFlight], key: Callable[[LaneKey], int]) -> dict[int, InFlight]:
    """Return the sums of lanes with the same key: of runs or of hosts."""
    sums: dict[int, InFlight] = {}
    for lane, numbers in lanes.items():
        group = key(lane)
        sums[group] = sums.get(group, NONE).plus(numbers)
    return sums


def by_run(lane: LaneKey) -> int:
    return lane[0]


def by_host(lane: LaneKey) -> int:
    return lane[1]
