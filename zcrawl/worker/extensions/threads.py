"""Plain code of a run's plugins, in threads: it may block, and it may never return.

Kept by `extensions` for its parsers and its executor. A call that was given up goes on in its
thread, for nothing can end a thread. So each call has one of its own, which no other run waits for
and which does not keep a worker from leaving; and a run that has left a few behind on this worker
gets no more of them here: the worker's other runs need its core.
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
