"""Which incarnation each worker of this node had last, for the node's next life.

A node that is killed takes its workers with it, but the leader cannot know that: the hosts that
they owned rest until the longest request must be over, half a minute. A node that comes back can
tell, because the workers share the lock on this file: whoever gets it knows that they are dead.
A copy of the file, or one of before a reboot, proves nothing and is taken for empty.

Used by the worker's role; the supervisor tells the leader (`replaces`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec

from zcrawl.runtime.private_files_os import PRIVATE_FILE

FILE: Final = "lives.json"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class _Kept(msgspec.Struct):
    boot: str
    inode: tuple[int, int]
    lives: dict[str, int]  # worker → incarnation


class Lives:
    """`with`; `fd` has to be passed on to every worker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fd = -1
        self.before: dict[str, int] = {}  # those that are certainly dead
        self._lives: dict[str, int] = {}
        self._locked = False

    def __enter__(self) -> Lives:
        self.fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        if self._lock():
            self.before = self._read()
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.fd)

    def began(self, worker: str, incarnation: int) -> None:
        """Told before its process starts. What cannot be written is not known to the next life."""
        self._lives[worker] = incarnation
        if not self._lock():
            return
        text = msgspec.json.encode(_Kept(_boot(), self._inode(), self._lives))
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, 0)
            os.pwrite(self.fd, text, 0)

    def _lock(self) -> bool:
        """False while some of the last life still live, or another node has our folder."""
        if not self._locked:
            with contextlib.suppress(OSError):
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._locked = True
        return self._locked

    def _read(self) -> dict[str, int]:
        try:
            kept = msgspec.json.decode(os.pread(self.fd, 1_000_000, 0), type=_Kept)
        except msgspec.MsgspecError:  # new, or half written
            return {}
        same = kept.boot == _boot() != "" and kept.inode == self._inode()
        return kept.lives if same else {}

    def _inode(self) -> tuple[int, int]:
        status = os.fstat(self.fd)
        return (status.st_dev, status.st_ino)


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # not Linux: nothing is proved
        return ""
