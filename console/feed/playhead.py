"""Where a replay is: position, speed, pause, seek. Pure; the time comes in as an argument.

Positions are seconds of the replay from its beginning. A recording may have slept for hours:
silences are shortened to a few seconds.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import Final

from console.state import ReplayState

LONGEST_SILENCE_S: Final = 5.0
SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


class Playhead:
    """Moves over the moments of a recording."""

    def __init__(self, moments: Sequence[float], now: float) -> None:
        gaps = (
            min(LONGEST_SILENCE_S, max(0.0, later - earlier))
            for earlier, later in itertools.pairwise(moments)
        )
        self.offsets = list(itertools.accumulate(gaps, initial=0.0)) if moments else []
        self._base = 0.0  # the position at `_since`
        self._since = now
        self._speed = 1.0
        self._paused = False

    @property
    def length_s(self) -> float:
        """How long the replay is, at its own speed."""
        return self.offsets[-1] if self.offsets else 0.0

    def position(self, now: float) -> float:
        """Return where it is; never behind the end."""
        passed = 0.0 if self._paused else (now - self._since) * self._speed
        return min(self.length_s, self._base + passed)

    def state(self, now: float) -> ReplayState:
        """Return what the console shows of it."""
        return ReplayState(self.position(now), self.length_s, self._speed, self._paused)

    def due(self, now: float) -> int:
        """Return how many events should have been shown by now."""
        return bisect.bisect_right(self.offsets, self.position(now))

    def wait_s(self, now: float) -> float | None:
        """Return the time until the next event; None when none comes by itself."""
        following = self.due(now)
        if self._paused or following >= len(self.offsets):
            return None
        return (self.offsets[following] - self.position(now)) / self._speed

    # ------------------------------------------------------------ controls

    def toggle_pause(self, now: float) -> None:
        """Pause, or go on; at the end, begin again."""
        if self.position(now) >= self.length_s and not self._paused:
            self.seek(0.0, now)
            return
        self._move(self.position(now), now)
        self._paused = not self._paused

    def change_speed(self, steps: int, now: float) -> None:
        """Take the next faster or slower speed."""
        self._move(self.position(now), now)
        index = SPEEDS.index(self._speed) + steps
        self._speed = SPEEDS[max(0, min(len(SPEEDS) - 1, index))]

    def seek(self, position: float, now: float) -> None:
        """Go to a position, not beyond the ends."""
        self._move(max(0.0, min(self.length_s, position)), now)

    def _move(self, position: float, now: float) -> None:
        self._base, self._since = position, now
