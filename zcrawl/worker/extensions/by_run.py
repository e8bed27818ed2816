"""Keep the extensions of each run, and the files of spiders, for the pipeline.

Kept by `pipeline.pipeline`. The parts that do the work are loaded when the first such run comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zcrawl.mesh.messages import Code
from zcrawl.model.spec import CRAWL, HTTP
from zcrawl.runtime.loop import Tell, supervised

if TYPE_CHECKING:
    from zcrawl.worker.extensions.extensions import RunExtras
    from zcrawl.worker.pipeline.fetching import BlobWriter
    from zcrawl.worker.results.context import RunContext


class ExtrasBook:
    def __init__(self, closed: Sequence[str], tell: Tell, blobs: BlobWriter | None = None) -> None:
        self._closed = closed  # files of the worker that no spider and no command may read
        self._blobs = blobs  # where large output of commands is kept
        self._tell = tell
        self._runs: dict[int, RunExtras] = {}
        self._codes: dict[str, bytes] = {}  # hash → a spider's file
        self._endings: set[asyncio.Task[None]] = set()  # of spiders whose run has ended
        self.get = self._runs.get

    def adopt(self, run: int, context: RunContext) -> None:
        """Load the extensions of a run. PluginError: this worker lacks some of them."""
        spec = context.spec
        executes = spec.kind not in (CRAWL, HTTP)  # HTTP tasks are calls of the pipeline
        needs_extras = spec.spider or spec.middlewares or spec.parsers or executes
        if needs_extras and run not in self._runs:  # a newer revision keeps its spider's process
            from zcrawl.worker.extensions.extensions import RunExtras

            self._runs[run] = RunExtras(
                context, self._codes.get, self._closed, self._blobs, self._tell
            )

    def adopt_code(self, code: Code) -> None:
        self._codes[code.sha256] = code.source

    def forget(self, run: int) -> None:
        extras = self._runs.pop(run, None)
        if extras is None:
            return
        if not self._runs:
            self._codes.clear()
        ending = supervised(extras.close(), f"end of run {run}", self._tell)
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    def leave(self) -> None:
        """End the commands of jobs soon, because this worker leaves."""
        for extras in self._runs.values():
            extras.leave()

    async def close(self) -> None:
        for run in [*self._runs]:
            self.forget(run)
        await asyncio.gather(*self._endings, return_exceptions=True)  # each task logs its own error
