"""The last incarnation of each worker of this node, and the number of this life.

When a node is killed, its workers die too, but the leader cannot know that: their hosts stay closed
until the longest request must be over, half a minute. A restarted node can report it, because the
workers hold a shared lock on this file: if the node gets the lock, they are dead. A copy of the
file, or a file from before a reboot, proves nothing and counts as empty.

A life is the time from a person's start of the node to its stop. A node that crashed, or lost its
power, and is started again by systemd is in the same life: only a node that was stopped in an
orderly way begins another one. A drain ends with its life (`master.desk.actions`).

Used by the worker's role; the supervisor tells the leader (`replaces`, `life`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

from zcrawl.runtime.files import PRIVATE_FILE

FILE: Final = "lives.json"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class _Kept(msgspec.Struct):
    boot: str
    inode: tuple[int, int]
    lives: dict[str, int]  # worker → incarnation
    life: int = 0
    stopped: bool = False  # in an orderly way


class Lives:
    """The file of lives, used by `with`; `fd` must be passed to every worker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fd = -1
        self.before: dict[str, int] = {}  # those that are certainly dead
        self.life = secrets.randbits(53) | 1
        self._lives: dict[str, int] = {}
        self._locked = False

    def __enter__(self) -> Lives:
        self.fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        if self._lock():
            self._read()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._write(stopped=True)
        os.close(self.fd)

    def began(self, worker: str, incarnation: int) -> None:
        """Write a worker's incarnation before its process starts. Write errors are ignored."""
        self._lives[worker] = incarnation
        self._write(stopped=False)

    def _write(self, *, stopped: bool) -> None:
        if not self._lock():
            return
        kept = _Kept(_boot(), self._inode(), self._lives, self.life, stopped)
        text = msgspec.json.encode(kept)
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, 0)
            os.pwrite(self.fd, text, 0)

    def _lock(self) -> bool:
        """Take the lock; False if old workers are still alive or another node uses the folder."""
        if not self._locked:
            with contextlib.suppress(OSError):
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._locked = True
        return self._locked

    def _read(self) -> None:
        try:
            kept = msgspec.json.decode(os.pread(self.fd, 1_000_000, 0), type=_Kept)
        except msgspec.MsgspecError:  # new, or half written
            return
        if kept.inode != self._inode():
            return
        if kept.boot == _boot() != "":
            self.before = kept.lives
        if kept.life and not kept.stopped:
            self.life = kept.life

    def _inode(self) -> tuple[int, int]:
        status = os.fstat(self.fd)
        return (status.st_dev, status.st_ino)


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # not Linux: nothing is proved
        return ""
