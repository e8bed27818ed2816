"""Hosts that wait at a worker, because it accepts no more requests or is suspect.

A part of the planner. A free credit wakes one host: the one with the highest priority, and of these
the one that has waited longest. Waking all of them for every result would be slow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from zcrawl.dispatch.roster import Roster
from zcrawl.model.process_name import ProcessName, worker_of


class Parking:
    def __init__(self) -> None:
        # process → priority → its hosts, in order
        self._hosts: dict[ProcessName, dict[int, dict[int, None]]] = {}

    def park(self, name: ProcessName, host_id: int, rank: int) -> None:
        """Let a host wait for a process. `rank` is the highest priority of its runs."""
        ranks = self._hosts.get(name)
        if ranks is None:
            ranks = self._hosts[name] = {}
        if len(ranks) > 1 or (ranks and rank not in ranks):
            for other, hosts in ranks.items():
                if other != rank:
                    hosts.pop(host_id, None)
        ranks.setdefault(rank, {})[host_id] = None

    def take_for_credit(self, roster: Roster) -> list[int]:
        """Take one host for each request that the processes accept now."""
        taken: list[int] = []
        for name in list(self._hosts):
            worker = roster.workers.get(worker_of(name))
            if worker is None or worker.name != name or not worker.usable:
                continue
            if (credit := worker.credit) > 0:
                taken += self._take(name, credit)
        return taken

    def _take(self, name: ProcessName, most: int) -> list[int]:
        """Take up to `most` hosts that wait for a process, the highest priority first."""
        taken: list[int] = []
        ranks = self._hosts[name]
        for rank in sorted(ranks, reverse=True) if len(ranks) > 1 else list(ranks):
            hosts = ranks[rank]
            for host_id in list(itertools.islice(hosts, max(0, most - len(taken)))):
                del hosts[host_id]
                taken.append(host_id)
            if not hosts:
                del ranks[rank]
        if not ranks:
            del self._hosts[name]
        return taken

    def take_all(self, name: ProcessName) -> Iterator[int]:
        """Take all hosts that wait for a process."""
        return itertools.chain.from_iterable(self._hosts.pop(name, {}).values())

    def has(self, host_id: int) -> bool:
        """Return whether a host waits for a process. Slow, for checks."""
        return any(host_id in hosts for ranks in self._hosts.values() for hosts in ranks.values())
