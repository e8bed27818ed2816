"""Make a cgroup for each command of a shell job: a limit on its processes and on their memory.

`cgroup_place` is called once by each worker process, and by `zcrawl doctor`. It finds a folder of
cgroup v2 in which this process may make cgroups with the controllers `memory` and `pids`:

- the cgroup of its own systemd unit, if the unit has `Delegate=yes`. A cgroup with controllers for
  others can have no processes itself, so those of the unit move to a cgroup `zcrawl-workers` in it;
- else, for root outside of a unit: the topmost one.

A unit without Delegate belongs to systemd. Its processes are not put anywhere else, because
systemd would not find them any more when it stops the unit.

The other functions are those of one command, for `worker.extensions.shell_child`. All of them raise
OSError.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from pathlib import Path
from typing import Final, NamedTuple

CONTROLLERS: Final = ("memory", "pids")
LEAF: Final = "zcrawl-workers"
PREFIX: Final = "zcrawl-task-"
PROCS: Final = "cgroup.procs"
SUBTREE: Final = "cgroup.subtree_control"
MOST_ROUNDS: Final = 20  # of moving processes that go on to fork
END_S: Final = 2.0
END_EVERY_S: Final = 0.005


class CgroupPlace(NamedTuple):
    folder: str  # in which cgroups of commands are made; empty: there is none
    why: str  # in words, for people


def cgroup_place(proc: Path = Path("/proc/self"), *, prepare: bool = True) -> CgroupPlace:
    """Return the place of cgroups of commands, ready for use if `prepare`."""
    try:
        mount = _mount(proc)
        own = _own_cgroup(proc)
    except OSError as error:
        return CgroupPlace("", f"/proc cannot be read: {error.strerror}")
    if mount is None:
        return CgroupPlace("", "no cgroup v2 is mounted")
    folder = mount / own.lstrip("/")
    if folder.name == LEAF and _is_delegated(folder.parent):
        folder = folder.parent
    elif not _is_delegated(folder):
        if ".service" in own or ".scope" in own:
            return CgroupPlace("", f"the systemd unit {own} has no Delegate=yes")
        folder = mount
    try:
        available = (folder / "cgroup.controllers").read_text().split()
        lacking = [name for name in CONTROLLERS if name not in available]
        if lacking:
            return CgroupPlace("", f"{folder} has no controller {' and '.join(lacking)}")
        if not os.access(folder / SUBTREE, os.W_OK) or not os.access(folder, os.W_OK):
            return CgroupPlace("", f"{folder} cannot be written by this user")
        if prepare:
            _prepare(folder, moves=folder != mount)
    except OSError as error:
        return CgroupPlace("", f"{error.filename or folder}: {error.strerror}")
    return CgroupPlace(str(folder), f"a cgroup for each command, in {folder}")


def _mount(proc: Path) -> Path | None:
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[:1] == ["cgroup2"]:
            return Path(before.split()[4])
    return None


def _own_cgroup(proc: Path) -> str:
    for line in (proc / "cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:]
    return "/"


def _is_delegated(folder: Path) -> bool:
    """Return whether systemd has given this cgroup to its unit."""
    for name in ("trusted.delegate", "user.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _prepare(folder: Path, *, moves: bool) -> None:
    enabled = (folder / SUBTREE).read_text().split()
    if all(name in enabled for name in CONTROLLERS):
        return
    if moves:
        leaf = folder / LEAF
        leaf.mkdir(exist_ok=True)
        for _ in range(MOST_ROUNDS):
            pids = (folder / PROCS).read_text().split()
            if not pids:
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    (leaf / PROCS).write_text(pid)
    (folder / SUBTREE).write_text(" ".join(f"+{name}" for name in CONTROLLERS))


# ---------------------------------------------------------------- of one command


def new_folder(place: str) -> str:
    """Return the folder of a new cgroup; its name says which process it is for."""
    owner = f"{_namespace()}-{os.getpid()}-{_start_of(os.getpid())}"
    return f"{place}/{PREFIX}{owner}-{secrets.token_hex(6)}"


def create(folder: str, limits: dict[str, int]) -> None:
    """Make a cgroup with these limits; nothing is left of it if that fails."""
    Path(folder).mkdir()
    try:
        for name, value in limits.items():
            Path(folder, name).write_text(str(value))
        swap = Path(folder, "memory.swap.max")
        if swap.exists():  # not on a kernel without swap, where opening it would be refused
            swap.write_text("0")
    except OSError:
        Path(folder).rmdir()
        raise


def limits_of(processes: int, memory: int) -> dict[str, int]:
    """Return the limits of a command. If its memory is over, all its processes end together."""
    return {"pids.max": processes, "memory.max": memory, "memory.oom.group": 1}


def enter(folder: str) -> None:
    """Put this process, and what it will start, into the cgroup."""
    Path(folder, PROCS).write_text("0")


def exceeded(folder: str) -> str:
    """Return which limit the kernel has enforced: `pids`, `memory`, or an empty text."""
    if _count(folder, "memory.events", "oom_kill"):
        return "memory"
    return "pids" if _count(folder, "pids.events", "max") else ""


def _count(folder: str, file: str, key: str) -> int:
    for line in Path(folder, file).read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def kill(folder: str) -> None:
    """Kill every process of the cgroup."""
    try:
        descriptor = os.open(f"{folder}/cgroup.kill", os.O_WRONLY)  # Linux 5.14
    except FileNotFoundError:
        for pid in Path(folder, PROCS).read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    else:
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)


def remove(folder: str) -> None:
    """Kill what is in the cgroup, and remove it with those that were made in it. It may be gone."""
    until = time.monotonic() + END_S
    while True:
        try:
            if _count(folder, "cgroup.events", "populated"):
                kill(folder)
            else:
                for path, _, _ in os.walk(folder, topdown=False):
                    Path(path).rmdir()
                return
        except FileNotFoundError:
            return  # somebody else has removed it
        except OSError:
            if time.monotonic() >= until:
                raise
        if time.monotonic() >= until:
            raise TimeoutError(f"processes of {folder} do not end")
        time.sleep(END_EVERY_S)


def remove_leftovers(place: str) -> list[str]:
    """End and remove the cgroups whose worker process does not live any more; return them."""
    begin = f"{PREFIX}{_namespace()}-"
    removed = []
    for entry in os.scandir(place):
        if not entry.name.startswith(begin):
            continue
        pid, start, _ = entry.name[len(begin) :].split("-")
        if _start_of(int(pid)) != int(start):
            remove(entry.path)
            removed.append(entry.path)
    return removed


def _namespace() -> int:
    """Return the number of the PID namespace, in which a process number has its meaning."""
    return Path("/proc/self/ns/pid").stat().st_ino


def _start_of(pid: int) -> int:
    """Return when a process started, in ticks since boot; 0: there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0
