"""End the rows of a run on a host early: the host is down, or gave enough pages.

A part of the planner. A verdict ends all rows that a run has queued for a host. The planner sends
each row with the reason to a worker, and the worker reports it at once without a request, so that
its end is stored like any other result (G2, G3). Verdicts are not stored: a new leader counts the
pages again, and a host that is down fails once more.
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
    """The reasons for which runs are finished with hosts."""

    def __init__(
        self,
        hosts: dict[int, HostState],
        leases: Leases,
        runs: Runs,
        wake: Callable[[int], None],
    ) -> None:
        self._hosts, self._leases, self._runs, self._wake = hosts, leases, runs, wake
        self._limited: set[int] = set()  # runs that reached max_pages_per_host on some host

    def learn_manner(self, host: HostState, manner: Manner) -> None:
        """Store the health of a host; end its rows if it is down."""
        host.learn_manner(manner)
        if is_down(manner.opens):
            host.end_runs_here(HOST_DOWN)
            self._wake(host.id)

    def page_done(self, run: int, host_id: int) -> None:
        """Count a committed page; end the run's rows there if it has enough of the host."""
        host = self._hosts.get(host_id)
        if host is not None and self._limit(run) is not None:
            self.set_pages(run, host, host.pages.get(run, 0) + 1)

    def set_pages(self, run: int, host: HostState, done: int) -> None:
        """Set the pages that a run has of a host; end its rows there if they are enough."""
        most = self._limit(run)
        host.count_pages(run, done)
        if most is not None and done >= most:
            host.end_run_here(run, HOST_PAGE_LIMIT)
            self._wake(host.id)

    def may_reserve_page(self, run: int, host: HostState) -> bool:
        """Return whether the run may fetch one more page; remember runs at their limit.

        Done pages and pages in flight together never exceed `max_pages_per_host`.
        """
        if self.has_room(run, host):
            return True
        if run not in host.verdicts:
            self._limited.add(run)
        return False

    def has_room(self, run: int, host: HostState) -> bool:
        """Return whether the run may fetch one more page of the host."""
        if run in host.verdicts:
            return False
        most = self._limit(run)
        if most is None:
            return True
        return host.pages.get(run, 0) + self._leases.by_lane.get((run, host.id), 0) < most

    def lease_closed(self, run: int, host_id: int) -> None:
        """Wake the host: a page in flight ended, so the run may have room again."""
        if run in self._limited:
            self._wake(host_id)

    def limit_changed(self, run: int) -> None:
        """Go by another `max_pages_per_host`. What was skipped already stays skipped."""
        for host in self._hosts.values():
            if run not in host.runs:
                continue
            if host.verdicts.get(run) == HOST_PAGE_LIMIT:
                host.forgive(run)
            self.set_pages(run, host, host.pages.get(run, 0))
            self._wake(host.id)

    def forgive(self, run: int) -> None:
        """Allow requests to hosts that were down, because a person retries the run."""
        for host in self._hosts.values():
            if host.verdicts.get(run) == HOST_DOWN:
                host.forgive(run)

    def run_ended(self, run: int) -> None:
        self._limited.discard(run)

    def _limit(self, run: int) -> int | None:
        active = self._runs.get(run)
        return None if active is None else active.spec.scope.max_pages_per_host
