"""Parse costly pages in child processes, which are killed when a page takes too long.

Created by `pipeline.reading` for the first such page. A child reads one page at a time, so its end
is always due to that page. There are up to `MOST_CHILDREN`, so that other large pages do not wait
for a slow one. An unused child is ended after a while.

How a page can fail, each as a FetchError with its code:

    parse_timeout   it took longer than 10 s; never tried again
    parse_memory    it needs more memory than a child may have; never tried again
    parse_died      the child crashed or was killed; tried again as often as the job allows

States of a child: idle (in `_idle`), busy (its page's task holds it), ended. A child that has not
answered completely never becomes idle again: the rest of its answer would be mistaken for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from zcrawl.errors import FetchError, ParseError, RetryClass
from zcrawl.model.reasons.failure import PARSE_DIED, PARSE_MEMORY, PARSE_TIMEOUT
from zcrawl.parse import page_protocol as wire
from zcrawl.parse.page import ParsedPage
from zcrawl.parse.sitemap import Sitemap
from zcrawl.runtime.child_environment import child_environment

if TYPE_CHECKING:
    from zcrawl.parse.extract.page_facts import PageContext

CHILD: Final = "zcrawl.parse.children.page_child"
TIMEOUT_S: Final = 10.0
MOST_CHILDREN: Final = 3
PATIENCE_S: Final = 1.0  # wait for a busy child before another one is started (80 ms of CPU)
IDLE_S: Final = 30.0
START_S: Final = 60.0  # a new interpreter, on a busy machine
MOST_SETUPS: Final = 100  # runs that a child knows


class PageBug(Exception):
    """Reading a page raised an unexpected error, which is in the text."""


class _Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.setups: set[int] = set()  # that it has received


class PageChildren:
    def __init__(self, timeout_s: float = TIMEOUT_S, module: str = CHILD) -> None:
        self._timeout_s = timeout_s
        self._module = module
        self._numbers: dict[wire.PageSetup, int] = {}
        self._next_number = 1
        self._idle: list[_Child] = []
        self._freed = asyncio.Condition()
        self._children: set[_Child] = set()
        self._starting = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self.started = 0  # children, ever

    @property
    def pids(self) -> list[int]:
        return [child.process.pid for child in self._children]

    async def read(
        self,
        setup: wire.PageSetup,
        body: bytes,
        content_type: str,
        url: str,
        facts: PageContext | None,
    ) -> ParsedPage:
        """Return the page as `read_page` does. Raises ParseError, or FetchError (see above)."""
        number = self._number(setup)
        child = await self._take()
        requests: list[wire.PageQuestion] = []
        if number not in child.setups:
            child.setups.add(number)
            requests.append(wire.Prepare(number, setup))
        wire_facts = None
        if facts is not None:
            main = None if facts.main is None else dict(facts.main)
            wire_facts = wire.Facts(facts.url, facts.block, dict(facts.values), main)
        requests.append(wire.ReadPage(number, body, content_type, url, wire_facts))
        links, answer = await self._request(child, requests, self._timeout_s)
        await self._give_back(child)
        if not isinstance(answer, wire.PageParsed):
            raise PageBug(f"answer {type(answer).__name__}")
        return wire.as_page(answer, links)

    async def read_sitemap(self, body: bytes, utc: float) -> Sitemap:
        child = await self._take()
        _, answer = await self._request(child, [wire.ReadSitemap(body, utc)], self._timeout_s)
        await self._give_back(child)
        if not isinstance(answer, wire.Listed):
            raise PageBug(f"answer {type(answer).__name__}")
        return Sitemap(answer.entries, answer.children, answer.error, answer.lost, answer.repaired)

    async def close(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle.clear()
        await asyncio.gather(*(self._end(child) for child in list(self._children)))
        await asyncio.gather(*self._ending)

    def _number(self, setup: wire.PageSetup) -> int:
        number = self._numbers.get(setup)
        if number is None:
            if len(self._numbers) >= MOST_SETUPS:  # most of them are of runs that have ended
                self._numbers.clear()
                self._end_idle()
            number = self._numbers[setup] = self._next_number
            self._next_number += 1
        return number

    # ------------------------------------------------------------ children

    async def _take(self) -> _Child:
        """Return an idle child or a new one; wait while there are as many as allowed."""
        while True:
            while self._idle:
                child = self._idle.pop()
                if child.process.returncode is None:
                    return child
                self._children.discard(child)
            count = len(self._children) + self._starting
            if count == 0:
                return await self._start()
            patience = PATIENCE_S if count < MOST_CHILDREN else None
            try:
                async with asyncio.timeout(patience), self._freed:
                    if not self._idle:
                        await self._freed.wait()
            except TimeoutError:
                if not self._idle and len(self._children) + self._starting < MOST_CHILDREN:
                    return await self._start()

    async def _start(self) -> _Child:
        self.started += 1
        self._starting += 1
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # do not import modules from the worker's current folder
                "-m",
                self._module,
                str(os.getpid()),
                env=child_environment(os.environ),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=2**20,
            )
        except OSError as error:  # no memory, processes or file descriptors left
            text = f"cannot start a process to parse the page: {error}"
            raise FetchError(text, code=PARSE_DIED, retry=RetryClass.TRANSIENT) from error
        else:
            child = _Child(process)
            self._children.add(child)
        finally:
            self._starting -= 1
        await self._request(child, [], START_S)  # wait for Ready
        return child

    async def _give_back(self, child: _Child) -> None:
        self._idle.append(child)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)
        await self._notify_waiting()

    async def _notify_waiting(self) -> None:
        async with self._freed:
            self._freed.notify_all()

    def _end_idle(self) -> None:
        idle, self._idle = self._idle, []
        for child in idle:
            task = asyncio.get_running_loop().create_task(self._end(child), name="end page child")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end(self, child: _Child) -> None:
        self._children.discard(child)
        if child.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                child.process.kill()
            await child.process.wait()
        await self._notify_waiting()

    # ------------------------------------------------------------ one page

    async def _request(
        self, child: _Child, requests: list[wire.PageQuestion], timeout_s: float
    ) -> tuple[list[wire.Link], wire.Ready | wire.PageParsed | wire.Listed]:
        """Return the complete answer; after every failure the child is ended."""
        try:
            async with asyncio.timeout(timeout_s):
                links, answer = await _exchange(child.process, requests)
        except TimeoutError:
            await self._end(child)
            text = f"not parsed within {timeout_s:g} s"
            raise FetchError(text, code=PARSE_TIMEOUT, retry=RetryClass.PERMANENT) from None
        except (OSError, EOFError, msgspec.MsgspecError, ValueError) as error:
            raise await self._died(child, error) from None
        except BaseException:  # cancelled: its answer would be mistaken for the next one
            await self._end(child)
            raise
        if isinstance(answer, wire.Failed):
            if answer.kind == "memory" or answer.code == PARSE_MEMORY:
                await self._end(child)
                text = "the page needs more memory than it may have"
                raise FetchError(text, code=PARSE_MEMORY, retry=RetryClass.PERMANENT)
            await self._give_back(child)
            if answer.kind == "unreadable":
                raise ParseError(answer.text, code=answer.code)
            raise PageBug(answer.text)
        return links, answer

    async def _died(self, child: _Child, error: Exception) -> FetchError:
        """Return the failure for a child that has ended or sent an invalid answer."""
        if isinstance(error, EOFError | ConnectionError):
            with contextlib.suppress(TimeoutError):  # it is ending: its exit code says why
                await asyncio.wait_for(child.process.wait(), 1.0)
        code = child.process.returncode
        await self._end(child)
        how = f"{error}" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"
        text = f"the process that parsed the page ended: {how}"
        return FetchError(text, code=PARSE_DIED, retry=RetryClass.TRANSIENT)


async def _exchange(
    process: asyncio.subprocess.Process, requests: list[wire.PageQuestion]
) -> tuple[list[wire.Link], wire.Ready | wire.PageParsed | wire.Listed | wire.Failed]:
    assert process.stdin is not None and process.stdout is not None
    for request in requests:
        process.stdin.write(wire.frame(request))
    await process.stdin.drain()
    links: list[wire.Link] = []
    while True:
        (length,) = wire.LENGTH.unpack(await process.stdout.readexactly(wire.LENGTH.size))
        if length > wire.MOST_FRAME_BYTES:
            raise ValueError(f"an answer of {length} bytes")
        answer = wire.decode_answer(await process.stdout.readexactly(length))
        if not isinstance(answer, wire.Links):
            return links, answer
        links += answer.links
