"""Threads for calls that may never return.

A thread cannot be ended from outside, so the caller decides how long to wait, and no process waits
for one of these. Two ways:

- a thread for each call: commands use it for input that nobody writes, workers for code of plugins
- one thread for many calls, one at a time (`LimitedThread`): one for each output, and one for the
  guard of blobs. While a call has not returned `busy` is true, and the caller decides whether to
  queue more behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


def begin(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run a call in a new thread; return a future for its result."""
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


_Job: TypeAlias = tuple[Callable[[], Any], Future[Any]] | None  # None ends the thread


class LimitedThread:
    """Started by its first call. A daemon: a call that hangs does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Future[Any] | None = None

    @property
    def busy(self) -> bool:
        """Return whether a call has not returned yet."""
        return self._last is not None and not self._last.done()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run it after the calls before it."""
        future: Future[T] = Future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._last = future
        self._jobs.put((call, future))
        return future

    def end(self) -> None:
        """Let the thread end after the calls that it has."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future = job
            try:
                outcome = call()
            except (SystemExit, StopIteration) as error:
                # The one would end this thread in silence, the other no future can hold.
                future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(outcome)
            del call, future, job


async def outcome_of(future: Future[T], limit_s: float) -> T:
    """Wait for a call in the event loop; TimeoutError after `limit_s`. The call itself goes on."""
    loop = asyncio.get_running_loop()
    returned = asyncio.Event()

    def tell(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(returned.set)

    future.add_done_callback(tell)
    async with asyncio.timeout(limit_s):
        await returned.wait()
    return future.result()
