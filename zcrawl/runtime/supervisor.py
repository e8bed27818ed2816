"""Worker processes: started, watched, started again when they die, and never left behind.

A worker is one of those that wait in a nursery, as long as there are any, else a new interpreter.
Either ends with its parent (`parent`). The supervisor chooses incarnations, so it can tell the
leader which one it saw die (`replaces`): the leader then gives the dead process's work away at once
instead of after ten silent seconds. The next process also gets how the last one ended (`after`),
and reports it, because the supervisor itself is not part of the mesh.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from zcrawl.model.log_event import WORKER_DIED, WORKER_NOT_STARTED
from zcrawl.runtime.lives import Lives
from zcrawl.runtime.loop import supervised
from zcrawl.runtime.nursery import Forked, Nursery
from zcrawl.runtime.parent import DRAINED, REFUSED
from zcrawl.runtime.watchdog import STUCK

BACKOFF_LEAST_S: Final = 0.1
BACKOFF_MOST_S: Final = 5.0
STEADY_S: Final = 10.0  # a process that lived this long starts its backoff anew
# In a row, of every worker: nothing will come of it. A page that kills whoever takes it needs five
# deaths to be quarantined: two before it is known to have been alone, three that count.
FALSE_STARTS: Final = 7
TERM_PATIENCE_S: Final = 0.5
POLL_S: Final = 0.05

Log = Callable[[str, str], None]
Process = subprocess.Popen[bytes] | Forked


def new_incarnation() -> int:
    """Return a random number per process start; 53 bits, which JSON readers can represent."""
    return secrets.randbits(53) | 1


class Child(msgspec.Struct):
    """One worker id. Its process can be replaced, the id stays."""

    id: str
    process: Process | None = None
    incarnation: int = 0
    died: int = 0  # the incarnation that was seen dying, or that the last life left behind
    ended: str = ""  # how that one ended, if it was not asked to
    started_at: float = 0.0
    backoff_s: float = BACKOFF_LEAST_S
    restarts: int = 0
    false_starts: int = 0  # deaths in a row soon after the start
    left: bool = False  # it was drained
    renewing: bool = False  # it was asked to leave, and shall be started again
    renewed: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    refused: bool = False


class Supervisor:
    """`async with`; `spec` is what every worker is told besides its id and incarnation.

    A spec that names a descriptor by its number is for new interpreters, not for a nursery's
    processes: they hold `pass_fds` under numbers of their own.
    """

    def __init__(
        self,
        module: str,
        ids: Sequence[str],
        spec: dict[str, Any],
        *,
        pass_fds: Sequence[int] = (),
        stderr: Path | None = None,
        log: Log = lambda name, detail: None,
        nursery: Nursery | None = None,
        lives: Lives | None = None,
    ) -> None:
        before = lives.before if lives is not None else {}
        self.children = [Child(id, died=before.get(id, 0)) for id in ids]
        self._lives = lives
        # A person who starts the node anew ends its drain; a worker that is started again does not.
        self.life = lives.life if lives is not None else new_incarnation()
        self._module = module
        self._spec = spec
        self._pass_fds = tuple(pass_fds)
        self._stderr = stderr
        self._log = log
        self._nursery = nursery
        self._pipe: tuple[int, int] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._not_started = ""  # why the last process was not started

    async def __aenter__(self) -> Supervisor:
        self._pipe = os.pipe()  # both ends are closed on exec, but for the child's reading end
        for child in self.children:
            self._spawn(child)
            watching = self._watch(child)
            self._tasks.append(supervised(watching, f"watch {child.id}", self._log))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def restarts(self) -> int:
        return sum(child.restarts for child in self.children)

    def is_alive(self, id: str) -> bool:
        return any(child.id == id and not _is_gone(child) for child in self.children)

    @property
    def all_left(self) -> bool:
        """Return whether every worker was drained by request and will not be started again."""
        return bool(self.children) and all(child.left for child in self.children)

    def complaint(self) -> str | None:
        """Return the problem if all workers die at their start, or masters refuse one; or None."""
        if any(child.refused for child in self.children):
            return self._last_words()
        if not self.children or any(c.false_starts < FALSE_STARTS for c in self.children):
            return None
        return f"the worker processes die at their start: {self._last_words()}"

    def _last_words(self) -> str:
        last = ""
        if self._stderr is not None:
            with contextlib.suppress(OSError):  # none were written down
                text = self._stderr.read_bytes()[-2_000:].decode(errors="replace").strip()
                last = text.rpartition("\n")[2]
        return self._not_started or last or "no message"

    def ask_to_leave(self) -> None:
        """Let the workers finish their requests and end; none is started again."""
        self._stopping = True
        for child in self.children:
            _signal(child, signal.SIGTERM)

    def use(self, spec: dict[str, Any]) -> None:
        """Give this spec to processes that are started from now on."""
        self._spec = spec

    async def renew(self, spec: dict[str, Any]) -> None:
        """Start the workers again with another spec, one after the other, each drained before."""
        self.use(spec)
        for child in self.children:
            if self._stopping or child.left:
                continue
            child.renewed.clear()
            child.renewing = True
            _signal(child, signal.SIGTERM)
            await child.renewed.wait()

    async def wait_gone(self, timeout_s: float) -> bool:
        """Wait until all processes have ended; return whether they did in time."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        return all(_is_gone(child) for child in self.children)

    async def stop(self) -> None:
        """Ask the workers to end, wait, then kill them. Unreported requests are fetched again."""
        self.ask_to_leave()
        if not await self.wait_gone(TERM_PATIENCE_S):
            for child in self.children:
                _signal(child, signal.SIGKILL)
            await self.wait_gone(5.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._pipe is not None:
            for fd in self._pipe:
                os.close(fd)
            self._pipe = None

    def _spawn(self, child: Child) -> None:
        """Start a process. After an OSError nothing has changed."""
        assert self._pipe is not None
        incarnation = new_incarnation()
        last = child.incarnation or child.died
        if self._lives is not None:
            self._lives.began(child.id, incarnation)
        spec = {
            **self._spec,
            "id": child.id,
            "incarnation": incarnation,
            "replaces": child.died,
            "life": self.life,
            "after": child.ended,
            "parent_pipe": self._pipe[0],
            "parent": os.getpid(),
        }
        try:
            with (self._stderr or Path(os.devnull)).open("ab") as errors:
                child.process = self._start(spec, errors.fileno())
        except OSError:
            if self._lives is not None:
                self._lives.began(child.id, last)
            raise
        child.incarnation = incarnation
        child.started_at = asyncio.get_running_loop().time()
        self._log("worker_started", f"{child.id}: pid {child.process.pid}")

    def _start(self, spec: dict[str, Any], errors: int) -> Process:
        assert self._pipe is not None
        waiting = self._nursery.take() if self._nursery is not None else None
        if waiting is not None:
            waiting.tell(spec, errors, self._pass_fds)
            return waiting
        return subprocess.Popen(
            [sys.executable, "-m", self._module, msgspec.json.encode(spec).decode()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=(*self._pass_fds, self._pipe[0]),
        )

    async def _watch(self, child: Child) -> None:
        while True:
            assert child.process is not None
            code = await _ended(child.process)
            child.died, child.ended = child.incarnation, ""
            if code == DRAINED and child.renewing and not self._stopping:
                child.renewing = False
                started = await self._start_again(child)
                child.renewed.set()
                if started:
                    continue
                return
            child.renewed.set()
            if code == DRAINED:
                child.left = True
            if child.left or self._stopping:
                self._log("worker_ended", f"{child.id}: exit {code}")
                return
            lived_s = asyncio.get_running_loop().time() - child.started_at
            child.ended = f"pid {child.process.pid} {how_it_ended(code)} after {lived_s:.0f} s"
            self._log(WORKER_DIED, f"{child.id}: {child.ended}")
            if code == REFUSED:
                child.refused = True
                return
            child.false_starts += 1
            if lived_s > STEADY_S:
                child.backoff_s = BACKOFF_LEAST_S
                child.false_starts = 0
            await self._back_off(child)
            if not await self._start_again(child):
                return

    async def _back_off(self, child: Child) -> None:
        await asyncio.sleep(child.backoff_s)
        child.backoff_s = min(child.backoff_s * 2, BACKOFF_MOST_S)

    async def _start_again(self, child: Child) -> bool:
        """Try until a process is started. False: the supervisor stops."""
        while not self._stopping:
            child.restarts += 1
            try:
                self._spawn(child)
                self._not_started = ""
                return True
            except OSError as error:  # no memory, no process: it is tried again
                self._not_started = f"cannot start a process: {error}"
                self._log(WORKER_NOT_STARTED, f"{child.id}: {error}")
                child.false_starts += 1
                await self._back_off(child)
        return False


def how_it_ended(code: int) -> str:
    """Return an exit code in words; codes of signals are negative."""
    if code == STUCK or code == -signal.SIGPROF:
        kind = "computed" if code < 0 else "waited"
        return f"was ended by its watchdog: it {kind}, and its event loop stood still"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-code}"


def _is_gone(child: Child) -> bool:
    return child.process is None or child.process.poll() is not None


def _signal(child: Child, number: int) -> None:
    if child.process is not None and child.process.poll() is None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            child.process.send_signal(number)


async def _ended(process: Process) -> int:
    """Wait for the exit code of a process, without a thread and without SIGCHLD."""
    if process.poll() is not None:  # reaped: its pid may be another process's by now
        return process.wait()
    loop = asyncio.get_running_loop()
    try:
        pidfd = os.pidfd_open(process.pid)
    except (OSError, AttributeError):  # an old kernel, or it was reaped already
        while process.poll() is None:  # noqa: ASYNC110 - nothing there would set an event
            await asyncio.sleep(POLL_S)
        return process.wait()
    gone = asyncio.Event()
    try:
        loop.add_reader(pidfd, gone.set)
        await gone.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    return process.wait()
