"""The clocks that the loops pass to the machines, and the limits of this process.

CLOCK_BOOTTIME also counts while the machine sleeps: a laptop that slept for an hour must not start
requests with an hour-old permission (rule `permission`).
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable
from typing import Final, TypeAlias

FILES_WANTED: Final = 65_536  # libzmq uses a whole core when there is no descriptor left
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

Clock: TypeAlias = Callable[[], float]


def now() -> float:
    """Return the seconds since boot, including sleep."""
    return time.clock_gettime(_CLOCK)


def utc() -> float:
    return time.time()


def rss_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - once a second, cheaply
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


class CpuMeter:
    """Measures what this process takes of one core, all its threads together."""

    def __init__(self, clock: Clock = time.monotonic, cpu: Clock = time.process_time) -> None:
        self._clock, self._cpu = clock, cpu
        self._at, self._used_s = clock(), cpu()

    def percent(self) -> float | None:
        """Return the percentage since the last call; None if no time has passed."""
        at, used_s = self._clock(), self._cpu()
        passed_s, spent_s = at - self._at, used_s - self._used_s
        self._at, self._used_s = at, used_s
        return max(0.0, 100 * spent_s / passed_s) if passed_s > 0 else None


def raise_file_limit() -> int:
    """Raise the limit of open files up to FILES_WANTED; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(OSError, ValueError):  # the old one stays, and is what we tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
