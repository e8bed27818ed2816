"""The executor plugins of `make bench-dispatch`: tasks that do nothing, tell when they start, or
stay for a while.

`dispatch_zcrawl` installs them for its workers. What they tell is one line each in the file that
TOLD names. The monotonic clock is the same for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from tests.bench.dispatch_shared import STAY_S
from zcrawl.plugins import Task

TOLD: Final = "ZCRAWL_BENCH_TOLD"


class Noop:
    """A task that does nothing."""

    async def execute(self, task: Task) -> None:
        return None


class Stamp:
    """A task that tells how long it waited. Its id begins with the moment of its submission."""

    def __init__(self) -> None:
        self._file = _append(os.environ[TOLD])

    async def execute(self, task: Task) -> None:
        assert task.url is not None
        submitted_at, _, number = task.url.partition("-")
        waited_s = time.monotonic() - float(submitted_at)
        os.write(self._file, f"{number} {waited_s:f}\n".encode())


class Stay:
    """A task that stays, and tells from when to when."""

    def __init__(self) -> None:
        self._file = _append(os.environ[TOLD])

    async def execute(self, task: Task) -> None:
        begin = time.monotonic()
        await asyncio.sleep(STAY_S)
        os.write(self._file, f"{begin:f} {time.monotonic():f}\n".encode())


def _append(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
