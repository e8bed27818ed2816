"""Send seeds and print items while a crawl runs, without blocking its event loop.

Reading stdin and writing stdout may block for any time, so threads do both. Memory holds one chunk
of each. Called by `crawl_session`, and by `submit` for its seeds.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from zcrawl.cli import output
from zcrawl.cli.connect import Ask
from zcrawl.cli.specs import Submission
from zcrawl.errors import RefusedError
from zcrawl.model.formats import JSONL
from zcrawl.model.reasons.cluster import RUN_ENDED
from zcrawl.outputs.render import render_jsonl
from zcrawl.runtime.threads import in_daemon_thread
from zcrawl.store.ports import Store
from zcrawl.store.queries import Items, ReadItems

BATCH: Final = 500  # items per read


async def send_seeds(ask: Ask, run: int, submission: Submission) -> None:
    """Send the remaining seeds, and close the list. Stops when the run has ended."""
    while True:
        chunk = await in_daemon_thread(lambda: next(submission.rest, None))
        try:
            await ask("add_seeds", {"run": run, "seeds": chunk or [], "last": chunk is None})
        except RefusedError as error:
            if error.code == RUN_ENDED:  # e.g. max_pages is reached: more seeds are useless
                return
            raise
        if chunk is None:
            return
        submission.sent += len(chunk)


async def close_seeds(ask: Ask, run: int) -> None:
    """Tell the leader that no more seeds come, so that the run can complete without them."""
    with contextlib.suppress(RefusedError):  # the run has ended, or its list is already closed
        await ask("add_seeds", {"run": run, "seeds": [], "last": True})


class ItemStream:
    """Write the items of a run to stdout as they are committed, for `--out -`."""

    def __init__(self, data: Path, run: int) -> None:
        self._data = data
        self._run = run
        self._cursor = 0
        self._store: Store | None = None
        # One thread for all calls: a database connection belongs to the thread that made it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="zcrawl-items")

    async def pump(self) -> None:
        """Write the items that were committed since the last call. Raises BrokenPipeError."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._pump)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _pump(self) -> None:
        if self._store is None:
            from zcrawl.roles.offline import open_readonly

            self._store = open_readonly(self._data)
        while True:
            read = self._store.query(ReadItems(self._run, self._cursor, BATCH))
            assert isinstance(read, Items)
            if not read.rows:
                return
            output.write_items(render_jsonl(row.data for row in read.rows), JSONL)
            self._cursor = read.rows[-1].id

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
