"""How a supervising process sees that a worker's event loop turns: the worker touches a file of its
own every second. What counts is that the time of the file changes, not what time it is, so a
stepped clock means nothing.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

PULSE_S: Final = 1.0
SILENT_S: Final = 3.5


def touch(folder: Path, id: str) -> None:
    """One that cannot be left, on a full disk for one, shows as a silent worker and ends none."""
    with contextlib.suppress(OSError):
        (folder / id).touch()


class Pulses:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, tuple[int, float]] = {}  # id → (time of the file, seen when)

    def is_alive(self, id: str, now: float) -> bool:
        """Also for the first seconds, before the file is there."""
        try:
            mark = (self.folder / id).stat().st_mtime_ns
        except OSError:
            mark = 0
        known = self._seen.get(id)
        if known is None or known[0] != mark:
            self._seen[id] = known = (mark, now)
        return now - known[1] < SILENT_S
