"""Which run is done with which host before its rows are: the host is down, or has given enough.

A part of the planner. A verdict ends what a run has queued for a host, row by row: the planner
sends such a row to a worker with the reason, and the worker reports it at once, without a
request, so its end is a result like any other (G2, G3). Verdicts are not stored: a new leader
counts the pages again, and a host that is down fails once more.
"""

from __future__ import annotations

from collections.abc import Callable

from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.runs import Runs
from zcrawl.frontier.breaker import is_down
from zcrawl.model.host import Manner
from zcrawl.model.reasons.failure import HOST_DOWN
from zcrawl.model.reasons.skip import HOST_PAGE_LIMIT


class Verdicts:
    def __init__(
        self,
        hosts: dict[int, HostState],
        leases: Leases,
        runs: Runs,
        wake: Callable[[int], None],
    ) -> None:
        self._hosts, self._leases, self._runs, self._wake = hosts, leases, runs, wake
        self._limited: set[int] = set()  # runs that have reserved all of a host's pages once

    def learn_manner(self, host: HostState, manner: Manner) -> None:
        host.learn_manner(manner)
        if is_down(manner.opens):
            host.end_runs_here(HOST_DOWN)
            self._wake(host.id)

    def page_done(self, run: int, host_id: int) -> None:
        """A page was committed: the run may have all that it wants of this host."""
        host = self._hosts.get(host_id)
        if host is not None and self._limit(run) is not None:
            self.know_pages(run, host, host.pages.get(run, 0) + 1)

    def know_pages(self, run: int, host: HostState, done: int) -> None:
        most = self._limit(run)
        host.count_pages(run, done)
        if most is not None and done >= most:
            host.end_run_here(run, HOST_PAGE_LIMIT)
            self._wake(host.id)

    def may_have_more(self, run: int, host: HostState) -> bool:
        """`max_pages_per_host` reserves like `max_pages`: done + in flight never exceed it."""
        if self.has_room(run, host):
            return True
        if run not in host.verdicts:
            self._limited.add(run)
        return False

    def has_room(self, run: int, host: HostState) -> bool:
        if run in host.verdicts:
            return False
        most = self._limit(run)
        if most is None:
            return True
        return host.pages.get(run, 0) + self._leases.by_lane.get((run, host.id), 0) < most

    def lease_closed(self, run: int, host_id: int) -> None:
        """A reserved page was given back, or counts now."""
        if run in self._limited:
            self._wake(host_id)

    def forgive(self, run: int) -> None:
        """A person wants its failed requests tried again, whatever their hosts did."""
        for host in self._hosts.values():
            if host.verdicts.get(run) == HOST_DOWN:
                host.forgive(run)

    def run_ended(self, run: int) -> None:
        self._limited.discard(run)

    def _limit(self, run: int) -> int | None:
        active = self._runs.get(run)
        return None if active is None else active.spec.scope.max_pages_per_host
