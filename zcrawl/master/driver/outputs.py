"""Output files follow the committed items, at most a moment behind.

A part of the master beside its machine: it reads items by cursor, appends them durably, and only
then commits the cursor with the file's new length, under the leader's epoch (`outputs.script`). So
a file holds each item once, and a leader that was replaced can neither move a cursor nor touch what
the next one writes (`store.output_pieces`).

Each output is followed by itself (`output_writer`): an error is counted, told, stored for
`job` and tried again, and hinders no other output. `flush` raises what hinders the given runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from zcrawl.errors import ZcrawlError
from zcrawl.master.driver.output_writer import Following, Tools, named
from zcrawl.master.driver.store_threads import StoreThreads
from zcrawl.model.log_event import Log
from zcrawl.outputs.files.folder import OutputPlaces
from zcrawl.outputs.records import GetBody
from zcrawl.runtime.loop import supervised
from zcrawl.store.queries import OutputRow, Outputs, ReadOutputs

INTERVAL_S: Final = 0.2
ROTATION_S: Final = 5.0  # how often parts are looked at that may have become too old
AGAIN_S: Final = 1.0  # after the store could not be read
OutputKey: TypeAlias = tuple[int, str]  # run, path


class OutputLoop:
    def __init__(
        self,
        store: StoreThreads,
        epoch: Callable[[], int],
        note: Log,
        places: OutputPlaces,
        utc: Callable[[], float],
        body_of: GetBody,
        *,
        master: str,
        alone: bool,
    ) -> None:
        """`places` opens what this master may write; `body_of` finds kept bodies; `alone`: the lock
        of the data folder excludes every other master."""
        self._tools = Tools(store, epoch, note, places, utc, body_of, self.committed, master, alone)
        self._followings: dict[OutputKey, Following] = {}
        self._error: ZcrawlError | None = None  # of all together: the store is away, or a bug
        self._stale = False
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = supervised(self._run(), "outputs", self._tools.note)
        self._changed.set()  # what an earlier process left behind

    def committed(self) -> None:
        """Items may have been added."""
        self._changed.set()

    def forget(self) -> None:
        """Another master may write now: files are opened anew, by the stored cursor, if this one
        leads again.
        """
        self._stale = True

    def troubles(self) -> dict[OutputKey, ZcrawlError]:
        """What hinders which output at the moment."""
        followings = self._followings.items()
        return {key: output.error for key, output in followings if output.error is not None}

    async def flush(self, runs: Collection[int] = ()) -> None:
        """Write all that is committed, of `runs` or of all; raise what hinders it. Of `runs` there
        is a file also if they ended without an item before anybody looked."""
        async with self._lock:
            epoch = await self._begin()
            if not epoch:
                return  # another master leads, and writes
            outputs = self._followings.values()
            await asyncio.gather(
                *(output.wait() for output in outputs if not runs or output.run in runs)
            )
            rows = await self._read((None, *runs))
            chosen = {self._following(row): row for row in rows if not runs or row.run in runs}
            # What is not allowed here stays so; it was told once.
            free = {output: row for output, row in chosen.items() if not output.refused}
            await asyncio.gather(*(output.start(row, epoch) for output, row in free.items()))
        for output in chosen:
            if output.error is not None and not output.refused:
                raise output.error

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # as we told it to
                await self._task
        async with self._lock:
            await self._close([*self._followings])

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):  # files may rotate without new items
                async with asyncio.timeout(self._patience_s()):
                    await self._changed.wait()
            await asyncio.sleep(INTERVAL_S)
            self._changed.clear()
            try:
                await self._pump()
                self._error = None
            except Exception as error:  # the store is away, or a bug: told, and tried again
                self._error = named("outputs", error)
                code = self._error.code.removeprefix("output_")
                self._tools.note(f"output_{code}", str(self._error))

    def _patience_s(self) -> float | None:
        """How long nothing has to be looked at without new items."""
        if self._error is not None:
            return AGAIN_S
        return ROTATION_S if self._followings else None

    async def _pump(self) -> None:
        """Start what has something to do, and wait for none of it."""
        async with self._lock:
            epoch = await self._begin()
            if not epoch:
                return
            now = asyncio.get_running_loop().time()
            # A row that is read while its output is being written is old when it is used.
            busy = {key for key, output in self._followings.items() if not output.is_due(now)}
            rows = {(row.run, row.path): row for row in await self._read((None,))}
            await self._close([key for key in self._followings if key not in {*rows, *busy}])
            for key, row in rows.items():
                if key not in busy:
                    self._following(row).start(row, epoch)

    async def _begin(self) -> int:
        """The epoch to write in; 0: this master does not lead."""
        if self._stale:
            self._stale = False
            await self._close([*self._followings])
        return self._tools.epoch()

    async def _read(self, runs: Collection[int | None]) -> list[OutputRow]:
        rows: dict[OutputKey, OutputRow] = {}
        for run in runs:
            outputs = await self._tools.store.ask(ReadOutputs(run))
            assert isinstance(outputs, Outputs)
            rows |= {(row.run, row.path): row for row in outputs.rows}
        return list(rows.values())

    def _following(self, row: OutputRow) -> Following:
        key = (row.run, row.path)
        if key not in self._followings:
            self._followings[key] = Following(self._tools, row.run, row.path)
        return self._followings[key]

    async def _close(self, keys: list[OutputKey]) -> None:
        """All at once. What hangs stays known, so that nobody else writes beside it."""
        closed = await asyncio.gather(*(self._followings[key].close() for key in keys))
        for key, gone in zip(keys, closed, strict=True):
            if gone:
                del self._followings[key]
