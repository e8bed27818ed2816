"""Run a run's spider in a child process, one page at a time.

Made by `extensions.extensions` for a run that has a spider, and by `preflight`, which only loads
it; a worker without spiders loads none of it. The child has one page at a time, so if it dies
or hangs, only that page is to blame; the others wait for the next child. Nothing that a spider does
ends the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import Final

import msgspec

from zcrawl.errors import SpiderError
from zcrawl.model.reasons.failure import SPIDER_DIED, SPIDER_LOAD, SPIDER_MEMORY, SPIDER_TIMEOUT
from zcrawl.runtime.child_environment import child_environment
from zcrawl.worker import spider_protocol as wire

CHILD: Final = "zcrawl.worker.extensions.spider_child"
EXIT_S: Final = 1.0
START_S: Final = 60.0  # an interpreter and the spider's own imports, on a busy machine


class SpiderProcess:
    """The spider of one run on one worker."""

    def __init__(self, load: wire.Load, timeout_s: float) -> None:
        self._load = load
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._child: asyncio.subprocess.Process | None = None
        self.started = 0  # children, ever
        self._starts = False  # known once it is loaded

    async def ask(self, question: wire.Start | wire.Handle) -> wire.Yielded:
        """Return what the handler yields. SpiderError: it raised, hung or died.

        `fatal` is set if the child process is gone.
        """
        async with self._lock:
            child = await self._ready()
            answer = await self._exchange(child, question, self._timeout_s)
        if isinstance(answer, wire.Raised):
            raise SpiderError(answer.text)
        if isinstance(answer, wire.SpiderLoaded):
            raise SpiderError("the spider's process answered out of turn", code=SPIDER_DIED)
        return answer

    async def load(self) -> bool:
        """Start the child and load the spider; return whether it has its own `start`."""
        async with self._lock:
            await self._ready()
        return self._starts

    async def close(self) -> None:
        await self._end()

    async def _ready(self) -> asyncio.subprocess.Process:
        child = self._child
        if child is not None and child.returncode is None:
            return child
        self.started += 1
        self._child = child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # do not import modules from the current folder
            "-m",
            CHILD,
            env=child_environment(os.environ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # what it starts itself ends with it
            limit=2**20,
        )
        load = msgspec.structs.replace(self._load, parent=os.getpid())
        answer = await self._exchange(child, load, START_S)
        if isinstance(answer, wire.Raised):
            await self._end()
            raise SpiderError(f"{load.name} cannot be loaded: {answer.text}", code=SPIDER_LOAD)
        self._starts = isinstance(answer, wire.SpiderLoaded) and answer.starts
        return child

    async def _exchange(
        self, child: asyncio.subprocess.Process, question: wire.SpiderQuestion, timeout_s: float
    ) -> wire.SpiderAnswer:
        try:
            async with asyncio.timeout(timeout_s):
                answer = await _ask(child, question)
        except TimeoutError:
            await self._end()
            text = f"no end after {timeout_s:g} s"
            raise SpiderError(text, code=SPIDER_TIMEOUT, fatal=True) from None
        except (OSError, EOFError, msgspec.MsgspecError, ValueError) as error:
            raise await self._died(error) from None
        except asyncio.CancelledError:
            await self._end()  # half an answer would be taken for the next page's
            raise
        if isinstance(answer, wire.Raised) and answer.memory:
            await self._end()
            raise SpiderError(answer.text, code=SPIDER_MEMORY, fatal=True)
        return answer

    async def _died(self, error: Exception) -> SpiderError:
        """Describe why the child is gone, or that it sent invalid data."""
        child = self._child
        await self._end(patient=isinstance(error, EOFError))
        code = None if child is None else child.returncode
        how = (
            str(error) if code is None else f"exit code {code}" if code >= 0 else f"signal {-code}"
        )
        return SpiderError(f"the spider's process ended: {how}", code=SPIDER_DIED, fatal=True)

    async def _end(self, patient: bool = False) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if patient:
            with contextlib.suppress(TimeoutError):  # it is ending: wait for its exit code
                await asyncio.wait_for(child.wait(), EXIT_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # all of them are gone
            os.killpg(child.pid, signal.SIGKILL)
        if child.returncode is None:
            await child.wait()


async def _ask(
    child: asyncio.subprocess.Process, question: wire.SpiderQuestion
) -> wire.SpiderAnswer:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(wire.frame(question))
    await child.stdin.drain()
    (length,) = wire.LENGTH.unpack(await child.stdout.readexactly(wire.LENGTH.size))
    if length > wire.MOST_ANSWER_BYTES:
        raise ValueError(f"an answer of {length} bytes")
    answer: wire.SpiderAnswer = wire.decode_answer(await child.stdout.readexactly(length))
    if isinstance(answer, wire.Yielded):
        wire.check_items(answer.items)
    return answer
