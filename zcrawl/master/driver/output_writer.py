"""One output of one run: its sink, its thread, and what hinders it.

Made by `outputs`, which starts a task for each output that has something to do. Outputs share
nothing, so one that fails or hangs hinders no other:

    idle ──start──▶ following ──all is written──▶ idle
                        │
                        ├─ an error ──▶ closed; told; again after 1 s, 2 s … 30 s
                        ├─ a call beyond its time limit ──▶ the same, and not before it returned
                        ├─ another leader ──▶ closed; opened anew by the stored cursor
                        └─ not allowed here ──▶ closed; told once, not tried again

A call that hangs cannot be ended: its thread is left to it, and as long as it has not returned
nothing else touches what it writes. What it still writes is not committed.
"""

from __future__ import annotations

import asyncio
import errno
import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar, assert_never

import msgspec

from zcrawl.errors import (
    DiskFull,
    Fenced,
    RefusedError,
    StoreError,
    StoreUnavailable,
    ZcrawlError,
)
from zcrawl.master.driver.store_threads import StoreThreads
from zcrawl.model.log_event import OUTPUT_FENCED, OUTPUT_NOT_CLOSED, Log
from zcrawl.model.reasons.failure import INTERNAL_ERROR
from zcrawl.model.reasons.storage import OUTPUT_TIMEOUT
from zcrawl.outputs.files.folder import OutputPlaces
from zcrawl.outputs.files.parts import SinkTools
from zcrawl.outputs.files.sinks import Sink, batch_of, kind_of, open_sink
from zcrawl.outputs.records import GetBody
from zcrawl.outputs.script import Commit, Fence, Open, ReadRows, ScriptEffect, Write, write_output
from zcrawl.runtime.loop import supervised
from zcrawl.runtime.threads import LimitedThread, outcome_of
from zcrawl.store.commands import AdvanceOutput, NoteOutput
from zcrawl.store.output_mark import OutputMark
from zcrawl.store.output_pieces import Writer
from zcrawl.store.queries import Items, OutputRow, ReadItems

TAKE_S: Final = 120.0  # time limit of one batch
SETTLE_S: Final = 1_800.0  # of the end of a part, which may be uploaded whole
CLOSE_S: Final = 10.0
AGAIN_S: Final = 1.0
AGAIN_MOST_S: Final = 30.0
T = TypeVar("T")


class Tools(msgspec.Struct, frozen=True):
    """What all outputs of a master use."""

    store: StoreThreads
    epoch: Callable[[], int]
    note: Log
    places: OutputPlaces
    utc: Callable[[], float]
    body_of: GetBody
    wake: Callable[[], None]  # look at all outputs again
    master: str
    alone: bool  # no other master can write here: the data folder's lock excludes it


class Following:
    def __init__(self, tools: Tools, run: int, path: str) -> None:
        self.run, self.path = run, path
        self.error: ZcrawlError | None = None
        self._tools = tools
        self._sink: Sink | None = None
        self._sink_epoch = 0  # in which it was opened
        self._thread = LimitedThread("zcrawl-output")
        self._task: asyncio.Task[None] | None = None
        self._failures = 0  # in a row
        self._again_at = 0.0
        self.refused = False

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    def is_due(self, now: float) -> bool:
        return not self.running and not self.refused and now >= self._again_at

    def start(self, row: OutputRow, epoch: int) -> asyncio.Task[None]:
        """Write what is committed. `row` was read while nothing of this ran."""
        assert not self.running
        name = f"output of run {self.run}"
        self._task = supervised(self._run(row, epoch), name, self._tools.note)
        return self._task

    async def wait(self) -> None:
        """Until it does not run."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> bool:
        """Stop. False: a call hangs; nothing else may write this output before it returns."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._close_sink()
        if not self._thread.busy:
            self._thread.end()
            return True
        self._note(OUTPUT_NOT_CLOSED, f"{self.path}: a call hangs")
        return False

    async def _run(self, row: OutputRow, epoch: int) -> None:
        try:
            await self._follow(row, epoch)
        except Fenced as error:
            self._note(OUTPUT_FENCED, str(error))
            await self._close_sink()
        except RefusedError as error:  # by its rights, which stay while this master runs
            self.refused = True
            await self._failed(error, row, epoch)
        except Exception as error:  # told, and tried again
            await self._failed(named(self.path, error), row, epoch)
        else:
            self._failures, self.error = 0, None
            if row.problem:
                await self._store_problem("", row, epoch)

    async def _follow(self, row: OutputRow, epoch: int) -> None:
        if self._sink is not None and self._sink_epoch != epoch:
            await self._close_sink()
        if self._thread.busy:
            raise self._hangs("an earlier call has not returned yet")
        tools = self._tools
        script = write_output(row, self._sink, batch_of(row.format), tools.utc)
        outcome: Any = None
        while True:
            try:
                effect = script.send(outcome)
            except StopIteration:
                return
            outcome = await self._perform(effect, row, epoch)

    async def _perform(self, effect: ScriptEffect, row: OutputRow, epoch: int) -> Any:
        tools = self._tools
        match effect:
            case Fence():
                await tools.store.do(NoteOutput(epoch, row.run, row.path, row.problem))
            case Open():
                writer = Writer(tools.master, epoch, tools.alone)
                parts = SinkTools(tools.places, tools.body_of, writer)
                opening = functools.partial(open_sink, row, parts)
                self._sink = await self._call("opening it", opening, TAKE_S)
                self._sink_epoch = epoch
                return self._sink
            case ReadRows(after, limit):
                items = await tools.store.ask(ReadItems(row.run, after, limit, kind_of(row.format)))
                assert isinstance(items, Items)
                return items.rows
            case Write(what, call, is_long):
                self._check_leading(epoch)
                return await self._call(what, call, SETTLE_S if is_long else TAKE_S)
            case Commit(mark):
                await self._commit(row, epoch, mark)
            case _:
                assert_never(effect)
        return None

    async def _call(self, what: str, call: Callable[[], T], limit_s: float) -> T:
        """In the thread of this output. StoreUnavailable `output_timeout`: it hangs."""
        if self._thread.busy:
            raise self._hangs("an earlier call has not returned yet")
        future = self._thread.submit(call)
        try:
            return await outcome_of(future, limit_s)
        except TimeoutError:
            if future.done():
                raise  # of the call itself
            raise self._hangs(f"{what} has not returned for {limit_s:.0f} s") from None

    def _hangs(self, what: str) -> StoreUnavailable:
        text = (
            f"{self.path}: {what}; its items stay in the database, other outputs are still written"
        )
        return StoreUnavailable(text, code=OUTPUT_TIMEOUT)

    async def _close_sink(self) -> None:
        """In the thread that writes, after what it writes. What was put is kept: nothing depends on
        the end of a sink, so an error there, of a plugin most likely, is told and no more."""
        sink, self._sink = self._sink, None
        if sink is None:
            return
        hangs = self._thread.busy
        future: Future[Any] = self._thread.submit(sink.close)
        if hangs:
            return  # it is closed when the call before it returns
        try:
            await outcome_of(future, CLOSE_S)
        except Exception as error:
            self._note(OUTPUT_NOT_CLOSED, f"{self.path}: {type(error).__name__}: {error}")

    def _check_leading(self, epoch: int) -> None:
        if self._tools.epoch() != epoch:
            raise Fenced(f"{self.path}: this master does not lead in epoch {epoch} any more")

    async def _commit(self, row: OutputRow, epoch: int, mark: OutputMark) -> None:
        await self._tools.store.do(
            AdvanceOutput(
                epoch,
                row.run,
                row.path,
                mark.cursor,
                mark.length,
                mark.part,
                mark.part_at,
                mark.progress,
                mark.problem,
            )
        )
        if mark.problem:
            self._note("output_changed", mark.problem)

    async def _failed(self, error: ZcrawlError, row: OutputRow, epoch: int) -> None:
        self.error = error
        wait_s = min(AGAIN_S * 2.0 ** min(self._failures, 10), AGAIN_MOST_S)
        self._failures += 1
        loop = asyncio.get_running_loop()
        self._again_at = loop.time() + wait_s
        loop.call_later(wait_s, self._tools.wake)
        code = f"output_{error.code.removeprefix('output_')}"
        self._note(code, str(error))
        await self._close_sink()
        problem = f"[{error.code}] {error}".encode("utf-8", "replace").decode()
        if problem != row.problem:
            await self._store_problem(problem, row, epoch)

    async def _store_problem(self, problem: str, row: OutputRow, epoch: int) -> None:
        try:
            await self._tools.store.do(NoteOutput(epoch, row.run, row.path, problem))
        except StoreError as error:  # `job` does not show it; the log has both
            self._note("output_problem_not_stored", f"{self.path}: {error}")

    def _note(self, name: str, detail: str) -> None:
        self._tools.note(name, f"run {self.run}: {detail}", run=self.run)


def named(path: str, error: Exception) -> ZcrawlError:
    """Libraries that write raise the system's own errors; anything else is a bug."""
    if isinstance(error, ZcrawlError):
        return error
    if not isinstance(error, OSError):
        text = f"{path}: {type(error).__name__}: {error}"
        return StoreError(text, code=INTERNAL_ERROR)
    text = f"cannot write {path}: {error.strerror or error}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return DiskFull(text) if full else StoreUnavailable(text)
