"""Runs a coroutine on uvloop where it exists, else on asyncio's own loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from zcrawl.runtime.allocator import keep_freed_memory
from zcrawl.runtime.confine import hide_memory
from zcrawl.text.terminal import shown

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
