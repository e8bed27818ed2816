"""Limits that several hosts share, kept by the worker that owns all these hosts.

A part of the intake, empty until a grant names a group (a registered domain, an address). The
leader makes sure that no other process starts requests to a host of the group
(`dispatch.shared_limits`). A group is paced and counted like a host. A running request counts in
the groups under which it was started, even if its host has left them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from zcrawl.frontier.pace import Pace
from zcrawl.model.host import GroupShare

Keys = tuple[str, ...]


class GroupWork(msgspec.Struct):
    pace: Pace
    concurrency: int  # 0: unlimited
    version: tuple[int, int]  # (epoch, revision) of what is in force
    running: int = 0
    waiting: set[int] = msgspec.field(default_factory=set)  # hosts that found no room

    @property
    def is_full(self) -> bool:
        return 0 < self.concurrency <= self.running


class GroupBook:
    def __init__(self) -> None:
        self.groups: dict[str, GroupWork] = {}

    def adopt(self, epoch: int, shares: list[GroupShare], now: float) -> Keys:
        """Apply the groups of a grant: the newest wins, and the next start never moves earlier."""
        for share in shares:
            group = self.groups.get(share.key)
            first_at = now + share.next_in_s
            version = (epoch, share.revision)
            if group is None:
                pace = Pace(share.interval_s, 1, first_at)
                self.groups[share.key] = GroupWork(pace, share.concurrency, version)
                continue
            if version >= group.version:
                group.version, group.concurrency = version, share.concurrency
                group.pace.next_at += max(0.0, share.interval_s - group.pace.interval_s)
                group.pace.interval_s = share.interval_s
            group.pace.next_at = max(group.pace.next_at, first_at)
        return tuple(share.key for share in shares)

    def ready_at(self, keys: Keys) -> float:
        return max(self.groups[key].pace.ready_at() for key in keys)

    def has_room(self, keys: Keys, host: int) -> bool:
        """Whether one more request may run; if not, the host is called when one has ended."""
        for key in keys:
            group = self.groups[key]
            if group.is_full:
                group.waiting.add(host)
                return False
        return True

    def start(self, keys: Keys, now: float) -> None:
        for key in keys:
            group = self.groups[key]
            group.pace.take(now)
            group.running += 1

    def hop(self, keys: Keys, now: float) -> None:
        """Count one more request of a running fetch."""
        for key in keys:
            self.groups[key].pace.take(now)

    def put_off(self, keys: Keys, now: float) -> None:
        """Count the pace from now, because a permitted request starts only now."""
        for key in keys:
            pace = self.groups[key].pace
            if pace.interval_s:
                pace.next_at = max(pace.next_at, now + pace.interval_s)

    def end(self, keys: Keys) -> set[int]:
        """Count an ended request; return the hosts that waited for it."""
        called: set[int] = set()
        for key in keys:
            group = self.groups[key]
            group.running -= 1
            called |= group.waiting
            group.waiting.clear()
        return called

    def forget_idle(self, used: Iterable[Keys], now: float) -> None:
        """Forget groups without hosts of this worker, once their pace has passed."""
        if not self.groups:
            return
        keep = {key for keys in used for key in keys}
        for key, group in list(self.groups.items()):
            if key not in keep and not group.running and group.pace.next_at <= now:
                del self.groups[key]
