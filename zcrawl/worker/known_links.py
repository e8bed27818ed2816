"""Links that a worker may leave out of its results, because they are certainly committed.

Rule `known links`: a link enters only when an ACK with disposition *applied* covered the result
that carried it. "Already sent" is not "committed".
"""

from __future__ import annotations

from collections.abc import Iterable

from zcrawl.mesh.messages import Result
from zcrawl.worker.results.attempt import Attempt

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
        keys.update(key for _, key in result.sitemaps)
        keys.update(key for _, key, _ in result.trapped)
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

    def leave_out(self, attempt: Attempt) -> None:
        """Take the links out of an attempt that are certainly committed."""
        run, links, prios = attempt.assignment.run, attempt.links, attempt.prios
        young, old = self._young.get(run, ()), self._old.get(run, ())
        if prios:
            kept = [at for at, (_, key) in enumerate(links) if key not in young and key not in old]
            attempt.links = [links[at] for at in kept]
            attempt.prios = [prios[at] for at in kept]
        elif links:
            attempt.links = self.unknown(run, links)
        if attempt.trapped:
            attempt.trapped = [
                link for link in attempt.trapped if link[1] not in young and link[1] not in old
            ]

    def forget_run(self, run: int) -> None:
        self._count -= len(self._young.pop(run, ()))
        self._old.pop(run, None)
