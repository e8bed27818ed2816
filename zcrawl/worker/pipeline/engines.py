"""Which engine fetches for which run: one of zcrawl's own, shared by all runs, or a plugin's.

Kept by `pipeline`. A plugin's engine is made with its run's options, so it is the run's own
and is closed when the run is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from zcrawl.fetch.ports import Engine
from zcrawl.model.log_event import PLUGIN_NOT_CLOSED, Log
from zcrawl.model.spec import ENGINES, JobSpec
from zcrawl.runtime.loop import supervised

EngineOf = Callable[[JobSpec], Engine]


class EngineBook:
    def __init__(self, engine_of: EngineOf, on_error: Log) -> None:
        """`engine_of` closes what is shared, and nothing else."""
        self._engine_of, self._on_error = engine_of, on_error
        self._own: dict[int, Engine] = {}  # of plugins, by run
        self._endings: set[asyncio.Task[None]] = set()  # of engines whose run has ended
        self.of_run: dict[int, Engine] = {}

    def adopt(self, run: int, spec: JobSpec) -> Engine:
        """JobError, PluginError: this worker does not have it. A newer revision of a run keeps a
        plugin's engine as it keeps its other plugins."""
        if run in self._own:
            return self._own[run]
        engine = self.of_run[run] = self._engine_of(spec)
        if spec.fetch.engine not in ENGINES:
            self._own[run] = engine
        return engine

    def forget(self, run: int) -> None:
        self.of_run.pop(run, None)
        own = self._own.pop(run, None)
        if own is not None:
            ending = supervised(self._closed(run, own), f"end of run {run}", self._on_error)
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)

    async def close(self) -> None:
        for run in [*self._own]:
            self.forget(run)
        await asyncio.gather(*self._endings, return_exceptions=True)  # each task logs its own error

    async def _closed(self, run: int, engine: Engine) -> None:
        try:
            await engine.aclose()
        except Exception as error:  # foreign code: its run has ended, and the worker goes on
            text = f"its fetcher was not closed: {type(error).__name__}: {error}"
            self._on_error(PLUGIN_NOT_CLOSED, text, run=run)
