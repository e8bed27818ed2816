"""End a process whose event loop is stuck.

**Workers** (`Watchdog`), whatever holds the loop. Started by `roles.worker_main`; the loop feeds it
once a second. Two guards, because neither sees all: code that computes may hold the GIL (a regular
expression, a library in C), and then no Python code runs, in no thread; code that waits uses no CPU
time.

- CPU: a timer of the kernel (ITIMER_PROF) that runs only while this process computes. When it has
  run down, SIGPROF ends the process; nothing of Python is needed for that. faulthandler, which is C
  and needs no GIL either, writes down where each thread is before.
- Waiting: a thread that sleeps in short steps and counts them. It needs the GIL, which whoever
  waits has given away.

Neither uses a clock: a process that was stopped (SIGSTOP, Ctrl-Z), a laptop that slept and a
machine that is too busy use no CPU time and make no steps. As after any crash, the supervisor
starts a new process and reports it to the leader, whose crash guard finds the URL that caused it
(rule `crashes`). Feeding costs a system call, 0.4 us a
second.

Not seen: C code that waits and keeps the GIL. The leader misses such a worker after 10 s and gives
its work to others.

**Masters** that were asked to stop and do not react: `zcrawl master`, and `up` and `crawl`, which
have a master inside. A handler of the event loop never runs while a callback hangs, so SIGTERM
would be ignored. Here the signal itself, which Python handles also inside a long `re` search,
starts a watchdog outside of Python: it needs neither the loop nor the interpreter's lock. It writes
where each thread stands to standard error and ends the process with code 1. The loop stops the
watchdog when it reacts. Ending so is safe: what was committed stays, and the epoch keeps the rest
out (G4).
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Final

GRACE_S: Final = 5.0  # from the signal to the loop's reaction
STDERR: Final = 2  # the descriptor: `sys.stderr` may be something else by then


def on_signals(numbers: Iterable[signal.Signals], react: Callable[[], None]) -> None:
    """Call `react` in the running loop at each of the signals; end the process if that takes
    longer than GRACE_S. For the main thread."""
    loop = asyncio.get_running_loop()

    def reacted() -> None:
        faulthandler.cancel_dump_traceback_later()
        react()

    def handle(number: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback_later(GRACE_S, exit=True, file=STDERR)
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the process does too
            loop.call_soon_threadsafe(reacted)

    for number in numbers:
        signal.signal(number, handle)


def forget(numbers: Iterable[signal.Signals]) -> None:
    """Restore the default action of the signals, and stop the watchdog."""
    faulthandler.cancel_dump_traceback_later()
    for number in numbers:
        default = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
        signal.signal(number, default)


STUCK_CPU_S: Final = 30.0
STUCK_STEPS: Final = 24
STEP_S: Final = 5.0
STUCK: Final = 4  # exit code of a process that waited too long


class Watchdog:
    def __init__(
        self, cpu_s: float = STUCK_CPU_S, steps: int = STUCK_STEPS, step_s: float = STEP_S
    ) -> None:
        self._cpu_s = cpu_s
        self._steps, self._step_s = steps, step_s
        self._waited = 0  # steps since it was fed; the loop and the thread both write it

    def start(self) -> None:
        """Start the guards. Call this once, from the main thread."""
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        # `chain` does what SIGPROF does by itself: it ends the process.
        faulthandler.register(signal.SIGPROF, file=STDERR, chain=True)
        self.feed()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def feed(self) -> None:
        """Report that the loop works."""
        self._waited = 0
        signal.setitimer(signal.ITIMER_PROF, self._cpu_s)

    def _watch(self) -> None:
        while self._waited < self._steps:
            time.sleep(self._step_s)
            self._waited += 1
        faulthandler.dump_traceback(file=STDERR)
        os._exit(STUCK)
