"""The event loop of a process: how it runs, and tasks that somebody looks after.

What a task or a callback raises is logged, with its traceback. Used wherever a task is created that
nobody awaits. asyncio itself tells of a dead task when it is collected as garbage, on a stderr that
nobody reads; until then its work is just not done.
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
    """What nobody else catches (callbacks, tasks of libraries) is told like any other error."""

    def handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        detail = in_full(error) if isinstance(error, BaseException) else ""
        tell("unhandled_error", f"{context.get('message', '')}\n{detail}".rstrip())

    asyncio.get_running_loop().set_exception_handler(handler)


def in_full(error: BaseException) -> str:
    """An error with its traceback, for the log."""
    return "".join(traceback.format_exception(error)).rstrip()


T = TypeVar("T")


class _ShownFormatter(logging.Formatter):
    """What libraries log reaches stderr where nobody configured logging: asyncio quotes errors,
    and errors quote pages."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record), keep="\n")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end. From now on this process's memory is closed to what it starts."""
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
