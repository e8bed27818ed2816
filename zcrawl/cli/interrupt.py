"""Ctrl-C: the first one starts an orderly end, the second ends at once. SIGTERM counts as one.

Ending at once is safe: committed pages stay in the store, and `--resume` fetches the others again.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

from zcrawl.cli import output
from zcrawl.runtime import watchdog

INTERRUPTED: Final = 130


class Interrupt:
    """`with Interrupt(farewell) as interrupt: ...` inside a running loop.

    `farewell` returns the text that the second Ctrl-C prints.
    """

    def __init__(self, farewell: Callable[[], str]) -> None:
        self.requested = asyncio.Event()
        self._farewell = farewell
        self._signals = (signal.SIGINT, signal.SIGTERM)

    def __enter__(self) -> Interrupt:
        watchdog.on_signals(self._signals, self.press)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        watchdog.forget(self._signals)

    def press(self) -> None:
        if not self.requested.is_set():
            self.requested.set()
            return
        # Not an exception: a blocked loop would not see it. The workers end by themselves when
        # their parent is gone.
        output.note(self._farewell())
        os._exit(INTERRUPTED)


def resume_command(data: Path) -> str:
    return f"zcrawl crawl --resume --data {shlex.quote(str(data))}"
