"""Output files follow the committed items, at most a moment behind.

A part of the master beside its machine: it reads items by cursor, appends them durably, and only
then commits the cursor with the file's new length, under the leader's epoch. So a file holds each
item once, and a leader that was replaced cannot move a cursor. An error is kept, counted and tried
again; `flush` raises it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from zcrawl.errors import Fenced, ZcrawlError
from zcrawl.master.store_thread import StoreThreads
from zcrawl.store.commands import AdvanceOutput
from zcrawl.store.output_file import OutputFile
from zcrawl.store.queries import Items, OutputRow, Outputs, ReadItems, ReadOutputs

INTERVAL_S: Final = 0.2
BATCH_ITEMS: Final = 2_000

Log = Callable[[str, str], None]


class OutputLoop:
    def __init__(self, store: StoreThreads, epoch: Callable[[], int], note: Log) -> None:
        self.error: ZcrawlError | None = None
        self._store = store
        self._epoch = epoch
        self._note = note
        self._files: dict[tuple[int, str], OutputFile] = {}
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

    async def flush(self) -> None:
        """Write all that is committed; raises what hinders it."""
        self.error = None
        await self._pump()
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        async with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(INTERVAL_S)
            self._changed.clear()
            await self._pump()
            if self.error is not None:
                self._changed.set()
                await asyncio.sleep(1.0)

    async def _pump(self) -> None:
        async with self._lock:
            if self._stale:
                self._stale = False
                for file in self._files.values():
                    file.close()
                self._files.clear()
            if not self._epoch():
                return  # another master leads, and writes
            try:
                outputs = await self._store.ask(ReadOutputs())
                assert isinstance(outputs, Outputs)
            except ZcrawlError as error:
                self._failed(error)
                return
            wanted = {(row.run, row.path) for row in outputs.rows}
            for key in [key for key in self._files if key not in wanted]:
                self._files.pop(key).close()
            failed = False
            for row in outputs.rows:
                try:
                    await self._follow(row)
                except ZcrawlError as error:
                    failed = True
                    self._failed(error)
                    broken = self._files.pop((row.run, row.path), None)
                    if broken is not None:
                        broken.close()
            if not failed:
                self.error = None

    async def _follow(self, row: OutputRow) -> None:
        cursor = row.cursor
        loop = asyncio.get_running_loop()
        file = self._files.get((row.run, row.path))
        if file is None:
            file = OutputFile(Path(row.path), row.format, row.length)
            await loop.run_in_executor(self._thread, file.open)
            self._files[(row.run, row.path)] = file
        while cursor < row.last_item:
            items = await self._store.ask(ReadItems(row.run, cursor, BATCH_ITEMS))
            assert isinstance(items, Items)
            if not items.rows:
                return
            data = [item.data for item in items.rows]
            length = await loop.run_in_executor(self._thread, file.append, data)
            cursor = items.rows[-1].id
            await self._store.do(AdvanceOutput(self._epoch(), row.run, row.path, cursor, length))

    def _failed(self, error: ZcrawlError) -> None:
        if isinstance(error, Fenced):
            self._note("output_fenced", str(error))
            return
        self.error = error
        self._note(f"output_{error.code.removeprefix('output_')}", str(error))
