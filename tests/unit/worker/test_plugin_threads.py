"""Calls of plugins in threads that nobody can end."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from tests.unit.machine_tools import assignment
from zcrawl.errors import FetchError
from zcrawl.fetch.ports import HopLimits
from zcrawl.frontier.url import DEFAULT
from zcrawl.model.spec import JobSpec
from zcrawl.plugins import Middleware, Outgoing
from zcrawl.runtime.threads import in_daemon_thread
from zcrawl.submit.validate import advice
from zcrawl.worker.extensions.threads import MOST_STUCK, Aside
from zcrawl.worker.pipeline.outgoing import Sending


async def test_a_call_gives_what_it_gives_or_raises() -> None:
    """Also what no future can hold, and what would end the loop of the caller."""
    aside = Aside()
    assert await aside.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await aside.call(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await aside.call(lambda: next(iter(())))
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await aside.call(lambda: sys.exit(3))
    assert aside.stuck == 0


async def test_calls_that_do_not_return_are_counted_until_they_do() -> None:
    """A run that has left too many behind gets no more; when they return it does."""
    aside, go = Aside(), threading.Event()
    for number in range(1, MOST_STUCK + 1):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await aside.call(go.wait)
        assert aside.stuck == number
    with pytest.raises(FetchError) as refused:
        await aside.call(lambda: 7)
    assert refused.value.code == "plugin_stuck"
    go.set()
    async with asyncio.timeout(60):
        while aside.stuck:
            await in_daemon_thread(lambda: None)
    assert await aside.call(lambda: 7) == 7


async def test_a_call_that_never_returns_takes_no_thread_from_others() -> None:
    """More of them than the pool of the loop has threads; the pool is free all the same."""
    go = threading.Event()
    hanging = [asyncio.ensure_future(in_daemon_thread(go.wait)) for _ in range(50)]
    async with asyncio.timeout(60):
        assert await asyncio.to_thread(lambda: 7) == 7
    go.set()
    await asyncio.gather(*hanging)


class Bad(Middleware):
    def __init__(self, how: str) -> None:
        self.how = how

    def before_request(self, request: Outgoing) -> Any:
        return sys.exit(5) if self.how == "exits" else asyncio.Event().wait()


@pytest.mark.parametrize("how", ["exits", "waits"])
async def test_a_middleware_that_exits_or_waits_for_ever_fails_its_page(how: str) -> None:
    """The worker goes on."""
    sending = Sending(assignment(1, 1), {}, DEFAULT, [("bad", Bad(how))], most_s=0.05)
    engine: Any = None
    with pytest.raises(FetchError) as caught:
        await sending.send(engine, "http://a.test/", HopLimits(), {})
    assert caught.value.code == "middleware_error"
    assert ("SystemExit" if how == "exits" else "TimeoutError") in str(caught.value)


def test_a_job_with_code_inside_the_workers_says_so() -> None:
    """Spiders run in a process of their own; a plain crawl needs no advice."""
    assert advice(JobSpec("x")) == advice(JobSpec("x", spider="package:Spider")) == ""
    assert "executor 'count' runs inside the workers" in advice(JobSpec("x", kind="count"))
    both = advice(JobSpec("x", middlewares=("a",), parsers=("b",)))
    assert "middleware 'a', parser 'b' run inside" in both
