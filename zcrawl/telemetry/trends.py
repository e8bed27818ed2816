"""How long the queue of each run was lately: what a trend is drawn of.

Kept by the leader for all who watch, so that it is there when somebody begins to. Of hosts there
are too many: whoever looks at one remembers its trend himself. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

POINTS: Final = 11  # kept of each run; what waits now is the twelfth
STEP_S: Final = 5.0


class Trends:
    def __init__(self) -> None:
        self._points: dict[int, deque[int]] = {}  # run → the newest at the end
        self._due_at = float("-inf")

    def sample(self, now: float, waiting: Iterable[tuple[int, int]]) -> None:
        """(run, what waits) of all that go on, read when a point is due; others are forgotten."""
        if now < self._due_at:
            return
        self._due_at = now + STEP_S
        before, self._points = self._points, {}
        for run, length in waiting:
            points = self._points[run] = before.get(run) or deque(maxlen=POINTS)
            points.append(max(0, length))

    def of(self, runs: Collection[int]) -> list[int]:
        """The sum of some runs, oldest first; one that began later adds to the newer points."""
        columns = [self._points[run] for run in runs if run in self._points]
        most = max(map(len, columns), default=0)
        return [
            sum(points[len(points) - back] for points in columns if len(points) >= back)
            for back in range(most, 0, -1)
        ]
