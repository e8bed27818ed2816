"""Links that a worker may leave out of its results, because they are certainly committed.

Rule 2: a link enters only when an ACK with disposition *applied* covered the result that
carried it. "Already sent" is not "committed".
"""

from __future__ import annotations

from collections.abc import Iterable

from zcrawl.mesh.messages import Result

MOST_KEYS = 200_000


class KnownLinks:
    """(run, key) pairs in two generations: when the young one is full, the old one goes."""

    def __init__(self, most: int = MOST_KEYS) -> None:
        self._most = most // 2
        self._young: dict[int, set[bytes]] = {}
        self._old: dict[int, set[bytes]] = {}
        self._count = 0

    def add(self, result: Result) -> None:
        keys = {key for _, key in result.links}
        if result.handover is not None:
            keys.add(result.handover[1])
        if not keys:
            return
        young = self._young.setdefault(result.run, set())
        before = len(young)
        young |= keys
        self._count += len(young) - before
        if self._count > self._most:
            self._old, self._young, self._count = self._young, {}, 0

    def unknown(self, run: int, links: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        young = self._young.get(run, ())
        old = self._old.get(run, ())
        return [link for link in links if link[1] not in young and link[1] not in old]

    def forget_run(self, run: int) -> None:
        self._count -= len(self._young.pop(run, ()))
        self._old.pop(run, None)
