"""Find all processes below this one, count them, sum their memory, and end them.

Used by `worker.extensions.shell_child`, where the system has no cgroup for a command. The calling
process must be a subreaper: then whatever its descendants start is below it, also daemons.

RLIMIT_NPROC was rejected: it counts all processes of the user, so it could stop other programs.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
HAS_LISTS: Final = Path("/proc/thread-self/children").exists()  # not every kernel has them


class Usage(NamedTuple):
    tasks: int  # processes and threads
    memory: int  # bytes


def descendants() -> Iterator[tuple[int, int]]:
    """Yield (number, threads) of every process below this one. A zombie counts, too."""
    parents = [os.getpid()]
    while parents:
        parent = parents.pop()
        for pid in children_of(parent):
            parents.append(pid)
            yield pid, _threads(pid)


def usage(most_tasks: int, most_memory: int) -> Usage:
    """Return what all processes below this one use.

    Counting ends beyond `most_tasks`. Pages that processes share are counted once (PSS), but that
    is slow, so it is only looked at if the memory would be too much otherwise."""
    tasks, pids = 0, []
    for pid, threads in descendants():
        tasks += threads
        pids.append(pid)
        if tasks > most_tasks:
            return Usage(tasks, 0)
    memory = sum(map(_resident, pids))
    if memory > most_memory:
        memory = sum(map(_proportional, pids))
    return Usage(tasks, memory)


def kill_descendants() -> None:
    """Send SIGKILL to every process below this one."""
    for pid, _ in descendants():
        start = _stat(pid)[1]
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue  # it has just ended
        try:
            # Its number may belong to another process by now: then it has another start.
            if start and _stat(pid)[1] == start:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def children_of(parent: int) -> list[int]:
    """Return the children of a process, of all its threads."""
    pids: list[int] = []
    try:
        threads = [entry.name for entry in Path(f"/proc/{parent}/task").iterdir()]
    except OSError:
        return []
    for thread in threads:
        try:
            pids += map(int, Path(f"/proc/{parent}/task/{thread}/children").read_text().split())
        except OSError:
            if not HAS_LISTS:
                return [pid for pid in _all_pids() if _stat(pid)[0] == parent]
    return pids


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> tuple[int, int]:
    """Return the parent and the start of a process; zeros if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[1]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0, 0


def _threads(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return 0


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    """Return the memory of a process with its share of the pages that others have, too."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return _resident(pid)
    sizes = [line.split() for line in lines if line.startswith(("Pss:", "SwapPss:"))]
    return sum(int(fields[1]) for fields in sizes) * 1024
