"""Files between the supervising process of a worker's host and its workers.

- The list of masters that a worker's processes connect to. The supervising process, which talks to
  Consul, writes it, and the workers read it. It stays on disk, so a worker that starts while Consul
  is away finds the last known masters.
- The pulse: a worker touches a file of its own every second, so the supervising process sees that
  its event loop works. Only a change of the file's time counts, not its value, so a clock that is
  set does no harm.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from zcrawl.mesh.ports import Endpoints
from zcrawl.runtime.files import replace_durably

FILE: Final = "masters.json"
MOST_REMEMBERED: Final = 16  # masters that left; each costs one connection attempt a second


class MastersFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark: tuple[int, int] | None = None

    def remember(self, masters: list[Endpoints]) -> None:
        """Write the registered masters, followed by some earlier ones."""
        current = {endpoints.master: endpoints for endpoints in masters}
        old = [endpoints for endpoints in self.read() if endpoints.master not in current]
        text = msgspec.json.encode([*current.values(), *old[:MOST_REMEMBERED]])
        with contextlib.suppress(OSError):  # there is none yet
            if self.path.read_bytes() == text:
                return
        replace_durably(self.path, text)

    def read(self) -> list[Endpoints]:
        """Return the masters of the file; empty if it is missing or unreadable."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[Endpoints])
        except (OSError, msgspec.MsgspecError):
            return []

    def changed(self) -> bool:
        """Return whether the file was written since the last call. Cheap enough for each second."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        mark = (status.st_ino, status.st_mtime_ns)
        changed, self._mark = mark != self._mark, mark
        return changed


PULSE_S: Final = 1.0
SILENT_S: Final = 3.5


def touch(folder: Path, id: str) -> None:
    """Touch the pulse file. If it fails, e.g. on a full disk, the worker only appears silent."""
    with contextlib.suppress(OSError):
        (folder / id).touch()


class Pulses:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, tuple[int, float]] = {}  # id → (time of the file, seen when)

    def is_alive(self, id: str, now: float) -> bool:
        """Return whether a worker's loop works; True in the first seconds, without a file."""
        try:
            mark = (self.folder / id).stat().st_mtime_ns
        except OSError:
            mark = 0
        last_pulse = self._seen.get(id)
        if last_pulse is None or last_pulse[0] != mark:
            self._seen[id] = last_pulse = (mark, now)
        return now - last_pulse[1] < SILENT_S
