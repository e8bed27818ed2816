"""The console as a user runs it, on the leader of `console_master`, for `bench_console`.

It tells over a pipe when a key came in, when the picture for it was drawn and when Textual handed
the frame to the terminal, how long the snapshots took and the garbage collector stopped all of it.
The clock is the machine's, so the other end can compare.
"""

from __future__ import annotations

import contextlib
import gc
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from console import main
from tests.bench.console_master import endpoints
from zcrawl.config import ConsoleConfig
from zcrawl.mesh.ports import Endpoints
from zcrawl.roles.watching import WatchTarget

MARK = struct.Struct("cdd")  # what, when it began, when it ended


def instrument(pipe: int) -> None:
    os.set_blocking(pipe, False)
    from textual import events

    from console.app import ConsoleApp
    from console.state import SnapshotCame

    def tell(what: bytes, began: float) -> None:
        with contextlib.suppress(BlockingIOError):  # nobody reads: nobody wants to know
            os.write(pipe, MARK.pack(what, began, time.perf_counter()))

    def timed(what: bytes, method: str, of: Callable[..., bool] = lambda *args: True) -> None:
        original = getattr(ConsoleApp, method)

        def wrapped(self: ConsoleApp, *args: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(self, *args)
            finally:
                if of(*args):
                    tell(what, began)

        setattr(ConsoleApp, method, wrapped)

    timed(b"s", "feed_event", lambda event: isinstance(event, SnapshotCame))
    timed(b"d", "draw")
    timed(b"p", "post_display_hook")
    on_event = ConsoleApp.on_event

    async def on_key(self: ConsoleApp, event: events.Event) -> None:
        if isinstance(event, events.Key):
            tell(b"k", time.perf_counter())
        await on_event(self, event)

    setattr(ConsoleApp, "on_event", on_key)  # noqa: B010 - a method cannot be assigned
    began = 0.0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.perf_counter()
        else:
            tell(b"g", began)

    gc.callbacks.append(collected)


def target(folder: str) -> WatchTarget:
    async def find() -> list[Endpoints]:
        return [endpoints(folder)]

    return WatchTarget("bench", find, "nobody is here")


if __name__ == "__main__":
    instrument(int(sys.argv[2]))
    main.run({"bench": target(sys.argv[1])}, ConsoleConfig(), readonly=False)
