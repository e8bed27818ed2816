"""The masters that a worker's processes connect to, in a file: written by the supervising process,
which talks to Consul, read by the workers. It outlives both, so a worker that starts while Consul
is away finds the masters of yesterday.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from zcrawl.mesh.ports import Endpoints
from zcrawl.runtime.durable_files import replace_durably

FILE: Final = "masters.json"
MOST_REMEMBERED: Final = 16  # masters that left; a dead address costs a try a second


class MastersFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark: tuple[int, int] | None = None

    def remember(self, masters: list[Endpoints]) -> None:
        """These are registered now; those of before are kept behind them, for a while."""
        current = {one.master: one for one in masters}
        old = [one for one in self.read() if one.master not in current]
        text = msgspec.json.encode([*current.values(), *old[:MOST_REMEMBERED]])
        with contextlib.suppress(OSError):  # there is none yet
            if self.path.read_bytes() == text:
                return
        replace_durably(self.path, text)

    def read(self) -> list[Endpoints]:
        """Nothing while there is no file, or none that can be read."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[Endpoints])
        except (OSError, msgspec.MsgspecError):
            return []

    def changed(self) -> bool:
        """Whether it was written since the last call; cheap, for whoever looks every second."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        mark = (status.st_ino, status.st_mtime_ns)
        changed, self._mark = mark != self._mark, mark
        return changed
