"""Fork worker processes before they are needed: the first ones of a command that crawls at once.

A fork has all that its parent has loaded, for a few milliseconds; a new interpreter loads it again
for a quarter of a second of CPU, in every worker. Only a process without threads, sockets and an
event loop can be forked safely, so a command forks its first workers before it has any of these
(`with Nursery(...)`), and a supervisor later tells each one who it is. Workers that come after them
are new interpreters.

A waiting process has only one end of a socket from its parent. It receives its orders and open
files through it, and the end of the socket means that the parent is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Never

import msgspec

from zcrawl.runtime.parent import die_with_parent

MAX_ORDERS_BYTES: Final = 65_536
MAX_FDS: Final = 16
_MAX_FD: Final = 65_536

Entry = Callable[[bytes], object]


class Forked:
    """A forked process, with those methods of `subprocess.Popen` that a supervisor needs."""

    def __init__(self, pid: int, orders: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._orders = orders  # open as long as it lives: its end would end the process

    def tell(self, spec: dict[str, Any], errors: int, fds: Sequence[int]) -> None:
        """Send the start parameters; `errors` becomes its stderr, `fds` are only kept open."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # It was killed while it waited: whoever watches it will see that.
            socket.send_fds(self._orders, [msgspec.json.encode(spec)], [errors, *fds])

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        code = self._wait(0)
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def close(self) -> None:
        """Close the socket, which ends the process if it is still waiting or running."""
        self._orders.close()
        self.wait()

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                self._orders.close()
        return self.returncode


class Nursery:
    """`with Nursery(entry, count)`; `entry` is called in each process with its orders."""

    def __init__(self, entry: Entry, count: int) -> None:
        self._entry = entry
        self._count = count
        self._waiting: list[Forked] = []

    def __enter__(self) -> Nursery:
        if threading.active_count() > 1:
            return self  # somebody's thread may hold a lock, which no fork could ever release
        # No memory, or no process left: the supervisor tries in its own way, and tells.
        with contextlib.suppress(OSError):
            for _ in range(self._count):
                self._waiting.append(_fork(self._entry))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._waiting:
            self._waiting.pop().close()

    def take(self) -> Forked | None:
        """Return a waiting process; None if there is none left."""
        return self._waiting.pop() if self._waiting else None


def _fork(entry: Entry) -> Forked:
    # Messages, not a stream, so that orders arrive completely or not at all.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _wait_for_orders(entry, parent, theirs.fileno())
    theirs.close()
    return Forked(pid, ours)


def _wait_for_orders(entry: Entry, parent: int, pipe: int) -> Never:
    """Wait for orders in the child. It never returns to the parent's code, so the parent's file
    objects stay referenced, and none of them closes a descriptor that was reused."""
    try:
        die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
        # Above the standard files, whose numbers it has if the parent was started without them.
        orders = socket.socket(fileno=fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, 3))
        _let_go(orders.fileno())
        message, fds, _, _ = socket.recv_fds(
            orders, MAX_ORDERS_BYTES, MAX_FDS, socket.MSG_CMSG_CLOEXEC
        )
        if message:  # else the parent has no need of it, or is gone
            os.dup2(fds[0], 2)
            os.close(fds[0])
            spec = {**msgspec.json.decode(message), "parent_pipe": orders.fileno()}
            entry(msgspec.json.encode(spec))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _let_go(kept: int) -> None:
    """Close all descriptors of the parent: terminal, pipes, sockets of other children."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nowhere, fd)
    os.closerange(3, kept)
    os.closerange(kept + 1, _MAX_FD)
