"""Output files follow the committed items, at most a moment behind.

A part of the master beside its machine: it reads items by cursor, appends them durably, and only
then commits the cursor with the file's new length, under the leader's epoch. So a file holds each
item once, and a leader that was replaced cannot move a cursor. It also asks, before it opens a file
and before it writes, whether it still leads in the epoch in which it read: the next leader may be
writing. An error is kept, counted and tried again; `flush` raises it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from zcrawl.errors import (
    DiskFull,
    Fenced,
    RefusedError,
    StoreError,
    StoreUnavailable,
    ZcrawlError,
)
from zcrawl.master.store_thread import StoreThreads
from zcrawl.store.commands import AdvanceOutput
from zcrawl.store.output_folder_file import OutputPlaces
from zcrawl.store.output_mark import Mark
from zcrawl.store.output_sinks_file import Sink, batch_of, kind_of, open_sink
from zcrawl.store.queries import Items, OutputRow, Outputs, ReadItems, ReadOutputs
from zcrawl.store.warc import GetBody

INTERVAL_S: Final = 0.2
CLOSE_S: Final = 10.0  # a plugin may hang
ROTATION_S: Final = 5.0  # how often parts are looked at that may have become too old

Log = Callable[[str, str], None]


class OutputLoop:
    def __init__(
        self,
        store: StoreThreads,
        epoch: Callable[[], int],
        note: Log,
        places: OutputPlaces,
        utc: Callable[[], float],
        body_of: GetBody,
    ) -> None:
        """`places` opens what this master may write; `body_of` finds kept bodies."""
        self.error: ZcrawlError | None = None
        self._places, self._utc, self._body_of = places, utc, body_of
        self._store = store
        self._epoch = epoch
        self._note = note
        self._sinks: dict[tuple[int, str], Sink] = {}
        self._refused: set[tuple[int, str]] = set()  # told once, and not tried again
        self._stale = False
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="zcrawl-output")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="outputs")
        self._changed.set()  # what an earlier process left behind

    def committed(self) -> None:
        """Items may have been added."""
        self._changed.set()

    def forget(self) -> None:
        """Another master may write now: files are opened anew, by the stored cursor, if this one
        leads again.
        """
        self._stale = True

    async def flush(self, runs: Collection[int] = ()) -> None:
        """Write all that is committed; raises what hinders it. Of `runs` there is a file also if
        they ended without an item before anybody looked."""
        self.error = None
        await self._pump(runs)
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # as we told it to
                await self._task
        async with self._lock:
            await self._close_all()
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):  # files may rotate without new items
                async with asyncio.timeout(ROTATION_S if self._sinks else None):
                    await self._changed.wait()
            await asyncio.sleep(INTERVAL_S)
            self._changed.clear()
            try:
                await self._pump()
            except Exception as error:  # a bug: told, and tried again
                self._failed(_named("outputs", error))
            if self.error is not None:
                self._changed.set()
                await asyncio.sleep(1.0)

    async def _pump(self, runs: Collection[int] = ()) -> None:
        async with self._lock:
            if self._stale:
                self._stale = False
                await self._close_all()
            epoch = self._epoch()
            if not epoch:
                return  # another master leads, and writes
            try:
                rows: dict[tuple[int, str], OutputRow] = {}
                for run in (None, *runs):
                    outputs = await self._store.ask(ReadOutputs(run))
                    assert isinstance(outputs, Outputs)
                    rows |= {(row.run, row.path): row for row in outputs.rows}
            except ZcrawlError as error:
                self._failed(error)
                return
            for key in [key for key in self._sinks if key not in rows]:
                await self._close(key)
            failed = False
            for row in rows.values():
                if (row.run, row.path) in self._refused:
                    continue
                try:
                    await self._follow(row, epoch)
                except RefusedError as error:  # by its rights, which stay while it runs
                    self._refused.add((row.run, row.path))
                    self._note(f"output_{error.code}", f"run {row.run}: {error}")
                    await self._close((row.run, row.path))
                except Exception as error:  # told, and the other outputs are not given up
                    failed = True
                    self._failed(_named(row.path, error))
                    await self._close((row.run, row.path))
            if not failed:
                self.error = None

    async def _follow(self, row: OutputRow, epoch: int) -> None:
        loop, key = asyncio.get_running_loop(), (row.run, row.path)
        sink = self._sinks.get(key)
        if sink is None:
            # Opening cuts the file. The fence of a commit that changes nothing comes first.
            await self._commit(row, epoch, Mark(row.cursor, row.length, row.part, row.part_at))
            sink = await loop.run_in_executor(
                self._thread, open_sink, row, self._places, self._body_of
            )
            self._sinks[key] = sink
        kind, batch = kind_of(row.format), batch_of(row.format)
        while sink.cursor < row.last_item:
            items = await self._store.ask(ReadItems(row.run, sink.cursor, batch, kind))
            assert isinstance(items, Items)
            if not items.rows:
                return
            self._check_leading(row, epoch)
            taken = await loop.run_in_executor(self._thread, sink.take, items.rows, self._utc())
            await self._commit(row, epoch, taken)
        self._check_leading(row, epoch)
        settled = await loop.run_in_executor(self._thread, sink.settle, row.ended, self._utc())
        await self._commit(row, epoch, settled)

    async def _close_all(self) -> None:
        for key in [*self._sinks]:
            await self._close(key)

    async def _close(self, key: tuple[int, str]) -> None:
        """In the thread that writes, after what it writes. What was put is kept: nothing depends on
        the end of a sink, so an error there, of a plugin most likely, is told and no more."""
        sink = self._sinks.pop(key, None)
        if sink is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.get_running_loop().run_in_executor(self._thread, sink.close)
        except Exception as error:
            self._note("output_not_closed", f"{key[1]}: {type(error).__name__}: {error}")

    def _check_leading(self, row: OutputRow, epoch: int) -> None:
        if self._epoch() != epoch:
            raise Fenced(f"{row.path}: this master does not lead in epoch {epoch} any more")

    async def _commit(self, row: OutputRow, epoch: int, mark: Mark | None) -> None:
        if mark is not None:
            command = AdvanceOutput(
                epoch,
                row.run,
                row.path,
                mark.cursor,
                mark.length,
                mark.part,
                mark.part_at,
            )
            await self._store.do(command)

    def _failed(self, error: ZcrawlError) -> None:
        if isinstance(error, Fenced):
            self._note("output_fenced", str(error))
            return
        self.error = error
        self._note(f"output_{error.code.removeprefix('output_')}", str(error))


def _named(path: str, error: Exception) -> ZcrawlError:
    """Libraries that write raise the system's own errors; anything else is a bug."""
    if isinstance(error, ZcrawlError):
        return error
    if not isinstance(error, OSError):
        text = f"{path}: {type(error).__name__}: {error}"
        return StoreError(text, code="internal_error")
    text = f"cannot write {path}: {error.strerror or error}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return DiskFull(text) if full else StoreUnavailable(text)
