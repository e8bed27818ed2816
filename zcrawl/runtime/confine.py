"""Keep foreign code in a child process from reading the secrets of its parent. Needs no root.

Two means of Linux, each of which works where the other may not:

- `hide_memory`, in the parent: PR_SET_DUMPABLE 0. The kernel then refuses other processes of the
  same user its memory, its environment (`/proc/PID/environ`, `mem`) and ptrace. Also no core dump
  is written. Root with CAP_SYS_PTRACE is not refused.
- `confine`, in the child, before it loads foreign code: Landlock (Linux 5.13). The child, and
  whatever it starts, cannot read the files that are closed to it, and can trace no process outside.
  Of root it also takes the capabilities that lead around that.

Landlock can only list what is allowed. So everything is allowed except the path to a closed file:
for each folder on that path, its present entries are allowed one by one. The child cannot read a
file that is created directly in such a folder later. So put secrets into a folder of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
# The numbers are the same on every architecture.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1
_READ_FILE: Final = 1 << 2
_REFER: Final = 1 << 13  # move or link to another folder; from version 2 on
_PR_CAPBSET_DROP: Final = 24
_CAPABILITIES_VERSION: Final = 0x20080522
# Those that read other processes, devices and the kernel: MODULE, RAWIO, PTRACE, ADMIN, MKNOD,
# PERFMON, BPF, CHECKPOINT_RESTORE. The others stay: a spider of root may write where root may.
_DROPPED: Final = (16, 17, 19, 21, 27, 38, 39, 40)
_MOST_ENTRIES: Final = 20_000  # of the folders on the way to closed files
_MAX_FD: Final = 1 << 20
_O_PATH: Final = getattr(os, "O_PATH", 0)


def hide_memory() -> None:
    """Close this process's memory and environment to other processes of the same user, if the
    system can do that."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def close_inherited(*kept: int) -> None:
    """Close all descriptors but the standard ones and `kept`. Not every event loop does it for a
    child that it starts (uvloop leaves open what is inheritable)."""
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = max(first, descriptor + 1)
    os.closerange(first, _MAX_FD)


def landlock_version() -> int:
    """Return the version of Landlock; 0 if this system has none or it is switched off."""
    try:
        version: int = _libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
        return max(0, version)
    except (OSError, AttributeError):  # not Linux
        return 0


def confine(closed: Iterable[str] = ()) -> str:
    """Close these files and folders to this process for ever; return why it failed, or ''.

    To be called while the process has one thread, before foreign code is loaded.
    """
    version = landlock_version()
    if not version:
        return "this system has no Landlock (Linux 5.13 or newer)"
    rights = _READ_FILE | (_REFER if version >= 2 else 0)
    libc = _libc()
    attribute = struct.pack("=Q", rights)
    ruleset = libc.syscall(_CREATE_RULESET, attribute, len(attribute), 0)
    if ruleset < 0:
        return f"Landlock: {os.strerror(ctypes.get_errno())}"
    try:
        for path in _allowed([Path(name).resolve() for name in closed]):
            _allow(libc, ruleset, path, rights)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(_RESTRICT_SELF, ruleset, 0):
            return f"Landlock: {os.strerror(ctypes.get_errno())}"
        _drop_capabilities(libc)
    except OSError as error:
        return f"Landlock: {error}"
    finally:
        os.close(ruleset)
    return ""


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Drop capabilities with which root could read other processes in spite of Landlock."""
    if os.geteuid() != 0:
        return
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITIES_VERSION, 0))
    sets = ctypes.create_string_buffer(24)  # effective, permitted, inheritable: low, then high
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    words = list(struct.unpack("=6I", sets.raw[:24]))
    for number in _DROPPED:
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # fails where it is dropped, or unknown
        high, bit = divmod(number, 32)
        for index in range(3 * high, 3 * high + 3):
            words[index] &= ~(1 << bit)
    if libc.capset(header, struct.pack("=6I", *words)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _allowed(closed: list[Path], folder: Path = Path("/")) -> Iterator[Path]:
    """Yield paths that cover all of `folder` except the closed paths, as few as possible."""
    if folder in closed:
        return
    if not any(path.is_relative_to(folder) for path in closed):
        yield folder
        return
    entries = []
    with contextlib.suppress(OSError), os.scandir(folder) as scanned:  # not ours to list
        for number, entry in enumerate(scanned):
            if number >= _MOST_ENTRIES:
                raise OSError(f"{folder} has too many entries to close one of them")
            if not entry.is_symlink():  # what it leads to has a path of its own
                entries.append(Path(entry.path))
    for entry_path in entries:
        yield from _allowed(closed, entry_path)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, _O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # it is gone, or not ours to reach: nothing to allow
        return
    try:
        # Of a file, only what can be done with files may be allowed.
        own = rights if path.is_dir() else _READ_FILE
        attribute = struct.pack("=Qi", own, descriptor)
        if libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, attribute, 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    finally:
        os.close(descriptor)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
