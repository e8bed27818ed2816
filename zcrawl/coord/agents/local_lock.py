"""Leadership of a data folder by a lock on one of its files.

The kernel holds the lock as long as any process has the file open that was locked: the worker
processes inherit it, so a new leader gets it only when the last worker of the old one is gone.
So `alone` is true here.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from zcrawl.coord.ports import Leadership
from zcrawl.errors import RefusedError, UsageError
from zcrawl.model.reasons.cluster import IN_USE
from zcrawl.model.reasons.usage import DATA_UNWRITABLE
from zcrawl.runtime.files import PRIVATE_FILE

LOCK_NAME: Final = "lock"
LOOK_AGAIN_S: Final = 0.02
HOLDER_MAX: Final = 4096
PID_SHOWN: Final = 100  # letters: somebody else may have written the file
PATIENCE_S: Final = 1.0  # with a leader that lives: it may be about to end


class FileLock:
    """The lock of the embedded form, which leads or refuses to start."""

    def __init__(self, data: Path) -> None:
        self._path = data / LOCK_NAME
        self._fd = -1

    @property
    def fd(self) -> int:
        """The locked file, for child processes that must hold it too."""
        return self._fd

    async def acquire(self, timeout_s: float) -> Leadership:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        except OSError as error:
            raise UsageError(
                f"{self._path}: cannot be opened: {error.strerror}", code=DATA_UNWRITABLE
            ) from error
        waited = 0.0
        try:
            while not try_lock(fd, fcntl.LOCK_EX):
                holder = holder_of(fd)[0]
                # A dead leader's workers hold the lock for a moment; a live one keeps it.
                if waited >= (PATIENCE_S if _lives(holder) else timeout_s):
                    raise RefusedError(
                        f"{self._path.parent} is in use by process {holder}. Give it the "
                        "job with `zcrawl submit`, or use another folder with --data OTHER",
                        code=IN_USE,
                    )
                await asyncio.sleep(LOOK_AGAIN_S)
                waited += LOOK_AGAIN_S
        except BaseException:
            os.close(fd)
            raise
        write_holder(fd)
        self._fd = fd
        return Leadership(hint=0, alone=True)

    def release(self) -> None:
        """Close our file; the lock is free when the workers have closed theirs too."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_locked(data: Path) -> bool:
    """Return whether a process leads in this folder."""
    try:
        fd = os.open(data / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _lives(holder: str) -> bool:
    try:
        os.kill(int(holder), 0)
    except PermissionError:
        return True
    except (ValueError, OSError):
        return False
    return True


def write_holder(fd: int, value: bytes = b"") -> None:
    """Write the process id on the first line, and data for others on the second."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode() + value, 0)


def holder_of(fd: int) -> tuple[str, bytes]:
    """Return the last writer; valid only while the file is locked."""
    pid, _, value = os.pread(fd, HOLDER_MAX, 0).partition(b"\n")
    return pid.decode(errors="replace").strip()[:PID_SHOWN] or "unknown", value


def try_lock(fd: int, kind: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        return True
    return False
