"""Run plain code of a run's plugins in threads: it may block, and it may never return.

Kept by `extensions` for its parsers and its executor. A call that timed out goes on in its thread,
because a thread cannot be ended. So each call has its own thread, no other run waits for it, and it
does not keep a worker from exiting. A run that left a few such threads behind gets no more on this
worker, because its other runs need the CPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from zcrawl.errors import FetchError, RetryClass
from zcrawl.model.reasons.failure import PLUGIN_STUCK
from zcrawl.runtime.threads import begin

T = TypeVar("T")
MOST_STUCK: Final = 4


class Aside:
    def __init__(self) -> None:
        self.stuck = 0  # given up, and still running

    async def call(self, call: Callable[[], T]) -> T:
        """FetchError instead of a call when too many do not return."""
        if self.stuck >= MOST_STUCK:
            raise FetchError(
                f"{self.stuck} calls that were given up still run on this worker",
                code=PLUGIN_STUCK,
                retry=RetryClass.TRANSIENT,
            )
        future = begin(call, "zcrawl-plugin")
        try:
            return await asyncio.shield(future)
        finally:
            if not future.done():
                self.stuck += 1
                future.add_done_callback(self._returned)

    def _returned(self, future: asyncio.Future[T]) -> None:
        self.stuck -= 1
