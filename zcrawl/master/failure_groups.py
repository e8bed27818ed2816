"""Failed requests by run, host and reason: what the errors page shows and a retry queues again.

The counts are those of the database. A new leader reads them once; afterwards commits count. After
a retry or a quarantine the groups of that run are read again, because only the database knows what
became of each request. If requests of a run fail while it is read, the answer may lack them, and
the run is read once more.

A part of the leader's memory for displays. No decision depends on it. Its size is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from zcrawl.master.events import Ask, MasterEffects
from zcrawl.store.queries import FailureGroupRow, FailureGroupRows, ReadFailureGroups

GROUPS_KEPT: Final = 5_000
GROUPS_OF_RUN: Final = 1_000
RUNS_READ: Final = 200
TAG: Final = "failure groups"
AGAIN_S: Final = 5.0  # after an error, and between two reads
MOST_READS: Final = 3  # in a row, of a run whose requests go on to fail

GroupKey: TypeAlias = tuple[int, int, str]  # run, host, reason


class FailureGroup(msgspec.Struct):
    """Failed requests of one run and host with the same reason."""

    count: int = 0
    status: int = 0
    url: str = ""  # the newest
    at: float = 0.0  # 0: before this leader
    detail: str = ""  # what happened to it
    job: int = 0
    name: str = ""  # the job's
    origin: str = ""


class FailureGroups:
    def __init__(self) -> None:
        self.groups: OrderedDict[GroupKey, FailureGroup] = OrderedDict()
        self.complete = False  # the database was read
        self._to_read: dict[int | None, int] = {None: 0}  # run, or all → reads in a row
        self._reading: ReadFailureGroups | None = None
        self._failed_meanwhile: set[int] = set()
        self._next_at = float("-inf")

    def add(self, key: GroupKey, *, status: int, url: str, utc: float, detail: str) -> None:
        """Count a request that failed for good."""
        group = self.groups.pop(key, None) or FailureGroup()
        group.count += 1
        group.status, group.at, group.detail = status, utc, detail
        group.url = url or group.url
        self.groups[key] = group  # the newest at the end
        if self._reading is not None:
            self._failed_meanwhile.add(key[0])
        if len(self.groups) > GROUPS_KEPT:
            self.groups.popitem(last=False)

    def run_changed(self, run: int) -> None:
        """Read a run again: failed requests were queued again, or ended in another way."""
        self._to_read.setdefault(run, 0)

    def forget(self, runs: Iterable[int]) -> None:
        """Remove the groups of deleted runs."""
        gone = set(runs)
        for key in [key for key in self.groups if key[0] in gone]:
            del self.groups[key]

    def tick(self, now: float, effects: MasterEffects) -> None:
        if self._to_read and self._reading is None and now >= self._next_at:
            run = next(iter(self._to_read))
            self._reading = ReadFailureGroups(run, RUNS_READ, GROUPS_OF_RUN)
            self._failed_meanwhile.clear()
            effects.append(Ask(self._reading, TAG))

    def read_done(self, query: ReadFailureGroups, outcome: FailureGroupRows, now: float) -> None:
        if query is not self._reading and query != self._reading:
            return  # of an earlier epoch
        self._reading = None
        reads = self._to_read.pop(query.run, 0) + 1
        if query.run is None:
            self.complete = True
        for key in [key for key in self.groups if query.run in (None, key[0])]:
            if key[0] not in self._failed_meanwhile or query.run is not None:
                self.groups[key].count = 0
        for row in outcome.rows:
            self._put(row)
        for key in [key for key, group in self.groups.items() if not group.count]:
            del self.groups[key]
        if reads < MOST_READS:
            for run in self._failed_meanwhile:
                self._to_read.setdefault(run, reads)
                self._next_at = now + AGAIN_S / 5
        self._failed_meanwhile.clear()

    def read_failed(self, now: float) -> None:
        self._reading = None
        self._next_at = now + AGAIN_S

    def _put(self, row: FailureGroupRow) -> None:
        key = (row.run, row.host, row.reason)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = FailureGroup(status=row.status, url=row.url)
            self.groups.move_to_end(key, last=False)  # older than what this leader has seen
        group.count = row.count
        group.job, group.name, group.origin = row.job, row.name, row.origin
        while len(self.groups) > GROUPS_KEPT:
            self.groups.popitem(last=False)
