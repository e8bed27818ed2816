"""End a process that was asked to stop and does not react, because its event loop is stuck.

A handler of the event loop never runs while a callback hangs, so SIGTERM would be ignored. Here the
signal itself, which Python handles also inside a long `re` search, starts a watchdog outside of
Python: it needs neither the loop nor the interpreter's lock. It writes where each thread stands to
standard error and ends the process with code 1. The loop stops the watchdog when it reacts. Ending
so is safe: what was committed stays, and the epoch keeps the rest out (G4).

Used by the masters: `zcrawl master`, and `up` and `crawl`, which have a master inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import signal
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
    """What the signals do without a handler, and no watchdog."""
    faulthandler.cancel_dump_traceback_later()
    for number in numbers:
        default = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
        signal.signal(number, default)
