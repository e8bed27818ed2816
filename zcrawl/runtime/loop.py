"""The event loop of a process, and supervised tasks.

Exceptions of tasks and callbacks are logged with their traceback. Used for every task that no code
awaits. asyncio itself reports a failed task only when it is garbage-collected, and only on stderr.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from zcrawl.runtime.allocator import keep_freed_memory
from zcrawl.runtime.confine import hide_memory
from zcrawl.text.terminal import shown

Tell = Callable[[str, str], object]
TASK_FAILED = "task_failed"


def supervised(
    work: Coroutine[Any, Any, None],
    name: str,
    tell: Tell,
    on_failure: Callable[[str], None] | None = None,
) -> asyncio.Task[None]:
    """Start `work` as a task. If it raises, `tell` gets the traceback, and `on_failure` is called
    with the error in words. Being cancelled is not a failure."""
    task = asyncio.get_running_loop().create_task(work, name=name)

    def ended(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        tell(TASK_FAILED, f"{name}: {in_full(error)}")
        if on_failure is not None:
            on_failure(f"{name}: {type(error).__name__}: {error}")

    task.add_done_callback(ended)
    return task


def tell_unhandled(tell: Tell) -> None:
    """Log exceptions that no other code catches (callbacks, tasks of libraries)."""

    def handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        detail = in_full(error) if isinstance(error, BaseException) else ""
        tell("unhandled_error", f"{context.get('message', '')}\n{detail}".rstrip())

    asyncio.get_running_loop().set_exception_handler(handler)


def in_full(error: BaseException) -> str:
    """Return an error with its traceback, for the log."""
    return "".join(traceback.format_exception(error)).rstrip()


T = TypeVar("T")


class _ShownFormatter(logging.Formatter):
    """Clean log lines of libraries for the terminal: asyncio quotes errors, which quote pages."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record), keep="\n")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine to its end. Hides this process's memory from child processes first."""
    hide_memory()
    keep_freed_memory()
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_ShownFormatter())
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(work)


def _factory() -> Any:
    try:
        import uvloop
    except ImportError:  # Windows: slower, and as good
        return None
    return uvloop.new_event_loop
