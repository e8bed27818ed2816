"""Runs a coroutine on uvloop where it exists, else on asyncio's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(work)


def _factory() -> Any:
    try:
        import uvloop
    except ImportError:  # Windows: slower, and as good
        return None
    return uvloop.new_event_loop
