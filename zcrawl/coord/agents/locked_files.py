"""The coordinator on locked files of one data folder: several masters on one host, no server.

Who holds `lock` leads; each member holds a lock on a file of its own in `members`, so that the
kernel tells who lives: it knows better than any heartbeat, and a paused leader stays leader. The
lock is inherited by the worker processes that are given `fd`: a new leader is alone.

Files are looked at twenty times a second; all of it is a few system calls on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from zcrawl.coord.agents.local_lock import LOCK_NAME, holder_of, try_lock, write_holder
from zcrawl.coord.calls import LockEntry
from zcrawl.coord.ports import (
    Condition,
    CoordAway,
    CoordBack,
    CoordEvent,
    Deposed,
    Elected,
    Health,
    MastersChanged,
    Member,
    OnEvent,
    Role,
    Sighting,
    WorkersChanged,
)
from zcrawl.coord.records import read_lock, service_id, write_lock_value
from zcrawl.runtime.files import PRIVATE_FILE, make_private_folder

MEMBERS: Final = "members"
LOOK_EVERY_S: Final = 0.05
STAND_BACK_S: Final = 1.0
NO_FD: Final = -1
OURS: Final = "ours"
OTHERS: Final = "others"


class _Entry(msgspec.Struct, frozen=True):
    """What a member's file says."""

    member: Member
    leads: bool
    condition: Condition


class FileCoordinator:
    """Implements `coord.ports.Coordinator`."""

    def __init__(self, data: Path) -> None:
        self._lock_path = data / LOCK_NAME
        self._folder = data / MEMBERS
        self._me: Member | None = None
        self._on_event: OnEvent | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.Handle | None = None
        self._lock_fd = NO_FD
        self._member_fd = NO_FD
        self._leads = False
        self._stand_at = 0.0
        self._condition = Condition()
        self._written: _Entry | None = None
        self._told: dict[type, CoordEvent] = {}
        self._away = False

    @property
    def fd(self) -> int:
        """The locked file, for the processes that shall hold it too."""
        return self._lock_fd if self._leads else NO_FD

    # ------------------------------------------------------------ the port

    def start(self, me: Member, on_event: OnEvent) -> None:
        self._me, self._on_event = me, on_event
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_soon(self._turn)

    def loop_alive(self) -> None:
        """The kernel knows who lives."""

    def update(self, condition: Condition) -> None:
        self._condition = condition

    def resign(self) -> None:
        if not self._leads or self._loop is None:
            return
        self._leads = False
        self._loop.call_soon(self._tell, Deposed("resigned"))  # never within the caller
        self._stand_at = self._loop.time() + STAND_BACK_S
        self._close_lock()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._on_event = None
        self._leads = False
        self._close_lock()
        if self._member_fd != NO_FD:
            with contextlib.suppress(OSError):  # the folder may be gone with us
                self._member_path().unlink()
            os.close(self._member_fd)
            self._member_fd = NO_FD

    # ------------------------------------------------------------ looking

    def _turn(self) -> None:
        assert self._loop is not None and self._me is not None
        try:
            self._enter()
            if self._me.role is Role.MASTER and not self._leads:
                self._stand()
            self._see_leader()
            self._see_members(Role.MASTER)
            if self._me.role is Role.MASTER:
                self._see_members(Role.WORKER)
        except OSError as error:
            # The folder is not there, or not ours: looked at again, for ever.
            if not self._away:
                self._away = True
                self._tell(CoordAway(f"{error.filename or self._folder}: {error.strerror}"))
        else:
            if self._away:
                self._away = False
                self._tell(CoordBack())
        if self._on_event is not None:
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._turn)

    def _stand(self) -> None:
        assert self._loop is not None and self._me is not None
        if self._loop.time() < self._stand_at:
            return
        if self._lock_fd == NO_FD:
            self._lock_fd = _open(self._lock_path)
        if try_lock(self._lock_fd, fcntl.LOCK_EX):
            write_holder(self._lock_fd, write_lock_value(self._me, ""))
            self._leads = True
            self._tell(Elected(0, alone=True))

    def _see_leader(self) -> None:
        assert self._me is not None
        if self._leads:
            entry: LockEntry | None = LockEntry(OURS, 0, b"")
        else:
            entry = None
            with contextlib.suppress(FileNotFoundError), _opened(self._lock_path) as fd:
                if not try_lock(fd, fcntl.LOCK_SH):
                    entry = LockEntry(OTHERS, 0, holder_of(fd)[1])
        self._tell_new(read_lock(self._me, OURS, entry))

    def _enter(self) -> None:
        """Our own file: there, locked by us, up to date."""
        assert self._me is not None
        path = self._member_path()
        if self._member_fd == NO_FD:
            make_private_folder(self._folder)
            self._member_fd = _open(path)
            self._written = None
        if not try_lock(self._member_fd, fcntl.LOCK_EX) or not _is_same(self._member_fd, path):
            os.close(self._member_fd)  # somebody looks at it, or removed it as that of our old life
            self._member_fd = NO_FD
            return
        entry = _Entry(self._me, self._leads, self._condition)
        if entry != self._written:
            text = msgspec.json.encode(entry)
            os.ftruncate(self._member_fd, 0)
            os.pwrite(self._member_fd, text, 0)
            self._written = entry

    def _see_members(self, role: Role) -> None:
        assert self._me is not None
        seen: list[Sighting] = []
        for path in sorted(self._folder.glob(f"zcrawl%3A{role.value}%3A*")):
            with contextlib.suppress(FileNotFoundError):  # it has left meanwhile
                seen += self._sighting(path, role)
        kind = MastersChanged if role is Role.MASTER else WorkersChanged
        self._tell_new(kind(tuple(sorted(seen, key=lambda one: one.member.id))))

    def _sighting(self, path: Path, role: Role) -> list[Sighting]:
        assert self._me is not None
        own = path == self._member_path()
        with _opened(path) as fd:
            lives = own or not try_lock(fd, fcntl.LOCK_SH)
            text = os.pread(fd, 1 << 16, 0)
            if not lives and self._leads:
                path.unlink()  # dead: the leader tidies up
        try:
            entry = msgspec.json.decode(text, type=_Entry)
        except msgspec.MsgspecError:
            return []  # being written, or somebody else's file
        if entry.member.cluster != self._me.cluster or entry.member.role is not role:
            return []
        health = Health.PASSING if lives else Health.CRITICAL
        return [Sighting(entry.member, health, entry.leads, entry.condition)]

    # ------------------------------------------------------------ small parts

    def _member_path(self) -> Path:
        assert self._me is not None
        return self._folder / quote(service_id(self._me), safe="")

    def _close_lock(self) -> None:
        """The lock is free when copies in worker processes are closed too."""
        if self._lock_fd != NO_FD:
            os.close(self._lock_fd)
            self._lock_fd = NO_FD

    def _tell(self, event: CoordEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def _tell_new(self, event: CoordEvent) -> None:
        if self._told.get(type(event)) != event:
            self._told[type(event)] = event
            self._tell(event)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _is_same(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
