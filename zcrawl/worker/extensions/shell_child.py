"""The process that watches one command: `python -m zcrawl.worker.extensions.shell_child`.

Started by `shell`, which says through stdin what to run. `command_life` decides how the command
ends. These processes take part:

    worker ── guard ── watcher ── the command ── whatever it starts

- The **watcher** starts the command in a session of its own, reads its output, and ends it: when
  its time is over, when the worker says so, when the pipe from the worker ends (the worker is gone,
  in whatever way). It is a subreaper, so it can find and kill all that the command started.
- The **guard** only waits for the watcher. It is a subreaper too: if somebody kills the watcher,
  the command's processes become the guard's children, and it kills them. If somebody kills the
  guard, the kernel tells the watcher (PR_SET_PDEATHSIG), which ends the command.

A command may have so many processes and so much memory. If it has a cgroup (`runtime.cgroups`),
the kernel keeps these limits, and the watcher learns of it. Else the watcher counts its processes
every 0.1 s (`runtime.descendants`). Both ways a command beyond its limits is ended as a whole.

So no single SIGKILL leaves a process of the command behind. The command cannot get other rights
(PR_SET_NO_NEW_PRIVS), because a process with other rights could not be killed. So `sudo` does not
work.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Final, Never

import msgspec

from zcrawl.runtime import cgroups
from zcrawl.runtime.confine import close_inherited, confine
from zcrawl.runtime.descendants import children_of, kill_descendants, usage
from zcrawl.worker.command_life import KILL_EVERY_S, CommandLife, LifeEffect, LifeEvent, LifePhase
from zcrawl.worker.shell_protocol import (
    BROKEN,
    CANCEL,
    LENGTH,
    MOST_FRAME_BYTES,
    RING_BYTES,
    ShellAnswer,
    ShellOrder,
    StreamSizes,
    frame,
)

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
PIECE: Final = 65_536
PIPE_BYTES: Final = 1_048_576
LOOK_EVERY_S: Final = 0.1  # at the processes of a command
DRAIN_S: Final = 1.0  # for output that is still in the pipes when all processes are dead
OOM_SCORE: Final = "500"  # if memory runs out, the kernel takes the command and not the worker
NOT_STARTED: Final = 127


def main() -> None:
    order = _read_order()
    if order is None:
        return  # the worker has gone, or changed its mind
    close_inherited()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    order, problem = _with_cgroup(order)
    guard = os.getpid()
    watcher = os.fork()
    if watcher == 0:
        _run_watcher(order, guard, problem)
    os.close(0)  # so that the worker notices if the watcher is gone
    os.close(1)
    while os.waitpid(-1, 0)[0] != watcher:
        pass
    _end_orphans()
    _remove_cgroup(order)
    _remove(order.folder)


def _with_cgroup(order: ShellOrder) -> tuple[ShellOrder, str]:
    """Make the cgroup of the command. If that fails, return the order without it, and why."""
    if not order.cgroup:
        return order, ""
    try:
        cgroups.create(order.cgroup, cgroups.limits_of(order.max_processes, order.memory))
    except OSError as error:
        problem = f"{error.filename or order.cgroup}: {error.strerror}"
        return msgspec.structs.replace(order, cgroup=""), problem
    return order, ""


def _remove_cgroup(order: ShellOrder) -> None:
    if order.cgroup:
        with contextlib.suppress(OSError):  # the next worker that starts removes it
            cgroups.remove(order.cgroup)


def _run_watcher(order: ShellOrder, guard: int, problem: str) -> Never:
    try:
        Watcher(order, guard, problem).run()
    except BaseException as error:  # the guard ends the command
        _answer(ShellAnswer(cause=BROKEN, error=f"{type(error).__name__}: {error}"))
    finally:
        os._exit(0)


def _read_order() -> ShellOrder | None:
    head = _read_exactly(LENGTH.size)
    if not head:
        return None
    (length,) = LENGTH.unpack(head)
    data = _read_exactly(min(length, MOST_FRAME_BYTES))
    return msgspec.msgpack.decode(data, type=ShellOrder) if data else None


def _read_exactly(count: int) -> bytes:
    """Return so many bytes of stdin, without reading further; empty if it ends before."""
    data = b""
    while len(data) < count:
        piece = os.read(0, count - len(data))
        if not piece:
            return b""
        data += piece
    return data


class OutputStream:
    """One stream of the command: what is kept from its beginning, and its end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.total = 0
        self._kept = bytearray()
        self._tail = b""
        self.source, self.target = os.pipe()  # both closed on exec
        os.set_blocking(self.source, False)
        with contextlib.suppress(OSError, ImportError, AttributeError):  # it is only faster
            import fcntl

            fcntl.fcntl(self.source, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def read(self) -> bool:
        """Read what is there; return whether the stream goes on."""
        try:
            piece = os.read(self.source, PIECE)
        except BlockingIOError:
            return True
        self.total += len(piece)
        room = self._most - len(self._kept)
        if room > 0:
            self._kept += piece[:room]
        self._tail = (self._tail + piece)[-RING_BYTES:]
        return bool(piece)

    def sizes(self) -> StreamSizes:
        tail = len(self._tail) if self.total > len(self._kept) else 0
        return StreamSizes(self.total, len(self._kept), tail)

    def pieces(self) -> tuple[bytes | bytearray, ...]:
        return self._kept, self._tail if self.total > len(self._kept) else b""


class Watcher:
    def __init__(self, order: ShellOrder, guard: int, problem: str = "") -> None:
        """`problem`: why the command has no cgroup although one was ordered."""
        self._order, self._guard, self._problem = order, guard, problem
        self._out, self._err = OutputStream(order.max_output), OutputStream(order.max_output)
        self._command = 0
        self._status: int | None = None  # of the command, once it has exited
        self._cpu_s, self._max_rss = 0.0, 0
        self._guard_is_gone = False
        self._began = time.monotonic()
        self._life = CommandLife(order.timeout_s, self._began)
        self._look_at = self._began + LOOK_EVERY_S  # at the limits
        self._poll = select.poll()

    def run(self) -> None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        wakeups, target = os.pipe()
        os.set_blocking(wakeups, False)
        os.set_blocking(target, False)
        signal.set_wakeup_fd(target, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, where: None)
        signal.signal(signal.SIGTERM, self._on_term)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != self._guard:
            return
        Path(self._order.folder).mkdir(0o700)
        error = self._start()
        if error:
            _answer(ShellAnswer(error=error))
        else:
            self._watch(wakeups)
            _answer(self._report(), *self._out.pieces(), *self._err.pieces())
        _remove_cgroup(self._order)  # the guard may be gone
        _remove(self._order.folder)

    def _on_term(self, number: int, where: object) -> None:
        self._guard_is_gone = True

    def _start(self) -> str:
        """Start the command; return why it was not started, or an empty text."""
        source, target = os.pipe()
        watcher = os.getpid()
        self._command = os.fork()
        if self._command == 0:
            _become_command(self._order, watcher, self._out.target, self._err.target, target)
        for descriptor in (target, self._out.target, self._err.target):
            os.close(descriptor)
        error = b""
        while piece := os.read(source, PIECE):
            error += piece
        os.close(source)
        if error:
            os.waitpid(self._command, 0)
        return error.decode("utf-8", "replace")

    def _watch(self, wakeups: int) -> None:
        streams = {self._out.source: self._out, self._err.source: self._err}
        for descriptor in (0, wakeups, *streams):
            self._poll.register(descriptor, select.POLLIN)
        while self._life.phase is not LifePhase.OVER:
            now = time.monotonic()
            wait_s = max(0.0, min(self._life.next_wakeup(now), self._look_at) - now)
            for descriptor, _ in self._poll.poll(min(wait_s, 3600.0) * 1000):
                if descriptor == wakeups:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wakeups, PIECE)
                elif descriptor == 0:
                    self._hear_worker()
                elif not streams[descriptor].read():
                    self._poll.unregister(descriptor)
                    del streams[descriptor]
            if self._guard_is_gone:
                self._guard_is_gone = False
                self._handle(LifeEvent.WORKER_GONE)
            if time.monotonic() >= self._look_at:
                self._check_limits()
            self._reap()
            self._handle(LifeEvent.TICKED)
        until = time.monotonic() + DRAIN_S
        for stream in streams.values():  # nobody writes any more: read what is left
            while time.monotonic() < until and stream.read() and self._has_more(stream):
                pass

    def _check_limits(self) -> None:
        """End the command if it is beyond its limits."""
        order = self._order
        if self._life.phase is not LifePhase.RUNNING:
            self._look_at = math.inf
            return
        if order.cgroup:
            limit = cgroups.exceeded(order.cgroup)
        else:
            used = usage(order.max_processes, order.memory)
            over = used.tasks > order.max_processes
            limit = "pids" if over else "memory" if used.memory > order.memory else ""
        self._look_at = time.monotonic() + LOOK_EVERY_S
        if limit:
            event = LifeEvent.MEMORY if limit == "memory" else LifeEvent.TOO_MANY_PROCESSES
            self._handle(event)

    def _has_more(self, stream: OutputStream) -> bool:
        readable, _, _ = select.select([stream.source], [], [], 0)
        return bool(readable)

    def _hear_worker(self) -> None:
        try:
            said = os.read(0, 1)
        except OSError:
            said = b""
        if not said:
            self._poll.unregister(0)
        self._handle(LifeEvent.CANCELLED if said == CANCEL else LifeEvent.WORKER_GONE)

    def _handle(self, event: LifeEvent) -> None:
        for effect in self._life.handle(event, time.monotonic()):
            match effect:
                case LifeEffect.TERM:
                    if self._status is None:  # not waited for: the number is still its own
                        _signal_group(self._command, signal.SIGTERM)
                    for pid in children_of(os.getpid()):
                        _signal(pid, signal.SIGTERM)
                case LifeEffect.KILL:
                    if self._order.cgroup:
                        with contextlib.suppress(OSError):  # the guard removes it
                            cgroups.kill(self._order.cgroup)
                    kill_descendants()

    def _reap(self) -> None:
        """Wait for children that have ended: the command, and what it left behind."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._handle(LifeEvent.NO_CHILDREN)
                return
            if pid == 0:
                return
            self._cpu_s += usage.ru_utime + usage.ru_stime
            self._max_rss = max(self._max_rss, usage.ru_maxrss * 1024)
            if pid == self._command:
                self._status = status
                if self._order.cgroup:  # the kernel may have ended it
                    self._check_limits()
                self._handle(LifeEvent.EXITED)

    def _report(self) -> ShellAnswer:
        code = os.waitstatus_to_exitcode(self._status or 0)
        return ShellAnswer(
            cause=self._life.cause,
            exit_code=code,
            signal=_name_of(-code) if code < 0 else "",
            elapsed_ms=(time.monotonic() - self._began) * 1000,
            cpu_s=self._cpu_s,
            max_rss=self._max_rss,
            stdout=self._out.sizes(),
            stderr=self._err.sizes(),
            cgroup=self._problem,
        )


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _become_command(order: ShellOrder, watcher: int, out: int, err: int, errors: int) -> Never:
    """Become the command. `errors` is closed when that succeeds; else it gets the reason."""
    what = order.argv[0]
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != watcher:
            os._exit(NOT_STARTED)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if order.cgroup:
            what = "the cgroup"
            cgroups.enter(order.cgroup)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
        what = f"the folder {order.cwd or order.folder}"
        os.chdir(order.cwd or order.folder)
        what = order.argv[0]
        os.umask(0o077)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (out, 1), (err, 2)):
            os.dup2(descriptor, place)
        confine(order.closed)  # `doctor` reports systems that cannot do this
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, _bounded(resource.RLIMIT_CPU, order.cpu_s))
        memory = _bounded(resource.RLIMIT_AS, order.memory)
        resource.setrlimit(resource.RLIMIT_AS, memory)
        os.execve(order.argv[0], order.argv, order.env)
    except MemoryError:
        os.write(errors, b"the limit of memory is too low to start a program")
    except OSError as error:
        os.write(errors, f"{what}: {error.strerror}".encode())
    except BaseException as error:
        os.write(errors, f"{what}: {type(error).__name__}: {error}".encode())
    finally:
        os._exit(NOT_STARTED)


def _bounded(kind: int, limit: int) -> tuple[int, int]:
    """Return soft and hard limit, not above the present hard limit."""
    hard = resource.getrlimit(kind)[1]
    most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    return most, most


def _answer(answer: ShellAnswer, *pieces: bytes | bytearray) -> None:
    with contextlib.suppress(OSError):  # the worker is gone, or does not want it any more
        for piece in (frame(answer), *pieces):
            view = memoryview(piece)
            while view:
                view = view[os.write(1, view) :]


def _end_orphans() -> None:
    """Kill what a watcher left behind, until there is no child any more. Usually there is none."""
    while True:
        kill_descendants()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(KILL_EVERY_S)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has just ended
        os.kill(pid, number)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, number)


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
