"""Calls that may never return, each in a thread of its own that keeps no process alive.

Used by commands for input that nobody writes, and by workers for the code of plugins. A thread
cannot be ended from outside: who calls here decides how long to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def begin(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Done when the call is, whether anybody still waits for it or not."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[], None]) -> None:
        if not future.done():  # else cancelled meanwhile
            how()

    def work() -> None:
        how: Callable[[], None]
        try:
            how = functools.partial(future.set_result, call())
        except (SystemExit, StopIteration) as error:
            # The one would end our loop, which is not its own; the other no future can hold.
            failure = RuntimeError(f"{type(error).__name__}: {error}")
            how = functools.partial(future.set_exception, failure)
        except Exception as error:
            how = functools.partial(future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, how)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


async def in_daemon_thread(call: Callable[[], T], name: str = "zcrawl-reader") -> T:
    """Like asyncio.to_thread, but a call that never returns takes no thread from others, and does
    not keep the process alive."""
    return await begin(call, name)
