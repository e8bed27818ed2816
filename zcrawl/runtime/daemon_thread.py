"""Calls that may never return, each in a thread of its own that keeps no process alive.

Used by commands for input that nobody writes, and by workers for the code of plugins. A thread
cannot be ended from outside: who calls here decides how long to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def begin(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Done when the call is, whether anybody still waits for it or not."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():  # cancelled meanwhile
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        failure: Exception | None = None
        try:
            result = call()
        except (SystemExit, StopIteration) as error:
            # The one would end our loop, which is not its own; the other no future can hold.
            failure = RuntimeError(f"{type(error).__name__}: {error}")
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


async def in_daemon_thread(call: Callable[[], T], name: str = "zcrawl-reader") -> T:
    """Like asyncio.to_thread, but a call that never returns takes no thread from others, and does
    not keep the process alive."""
    return await begin(call, name)
