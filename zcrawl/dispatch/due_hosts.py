"""The hosts at which the planner has to look, each at its moment.

A part of the planner. Hosts with work are in a heap, ordered by the moment at which their pace
allows the next request, so that the next host is found in O(log hosts).

A host that cannot get a request leaves the heap, and an event puts it back:

| the host waits for          | event that puts it back                      |
|-----------------------------|----------------------------------------------|
| rows in memory              | insert, refill, the due time of a retry      |
| room at its owner           | a received result, a reject                  |
| credit of its owner         | parked at the worker, see `parking`          |
| an owner that is suspect    | parked at the worker, until it is heard      |
| a grant                     | join, confirmation, loss of a worker         |
| its owners in the database  | `owners_stored`                              |
| a worker for its suspect    | every plan, because such hosts are few       |
| another host's suspect      | parked at the worker that is kept free       |
| its run                     | resume, a page of max_pages given back       |
| the hours of its jobs       | the moment at which they begin               |
| a shared limit              | queued in the group, see `shared_limits.due` |
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from zcrawl.dispatch.host_state import HostState


class DueHosts:
    """A heap of hosts. Of several entries of a host, the one with its `due_at` counts."""

    def __init__(self, hosts: Mapping[int, HostState]) -> None:
        self._hosts = hosts
        self._heap: list[tuple[float, int, int]] = []  # (moment, turn, host)
        self._turn = 0  # of hosts with the same moment, the first one that was put in goes first

    def push(self, host: HostState, moment: float) -> None:
        """Put a host into the heap for `moment`, unless it is there for an earlier one."""
        if host.schedule(moment):
            self._turn += 1
            heapq.heappush(self._heap, (moment, self._turn, host.id))

    def take(self, now: float) -> HostState | None:
        """Take out the first host whose moment has come; None if there is none."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            moment, _, host_id = heapq.heappop(heap)
            host = self._hosts[host_id]
            if host.due_at == moment:  # otherwise an earlier entry of the host was handled
                host.unschedule()
                return host
        return None

    def is_due(self, now: float) -> bool:
        """Return whether the moment of the first entry has come."""
        return bool(self._heap) and self._heap[0][0] <= now

    def next_at(self) -> float:
        """Return the moment of the first entry."""
        return self._heap[0][0] if self._heap else math.inf

    def check(self) -> None:
        entries = {(host_id, moment) for moment, _, host_id in self._heap}
        for host in self._hosts.values():
            assert host.due_at == math.inf or (host.id, host.due_at) in entries, (
                "a host with a moment has an entry for it"
            )
