"""Runs a store's commands on one thread in order, and its queries on another.

Called by `loop` and `outputs`; outcomes come back in the event loop. An error without
a name of the port is a bug or the system's: it is told as StoreUnavailable, with its text, so that
whoever asked tries again instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from zcrawl.errors import StoreError, StoreUnavailable
from zcrawl.model.log_event import store_event
from zcrawl.model.reasons.failure import INTERNAL_ERROR
from zcrawl.store.commands import Command, CommandOutcome
from zcrawl.store.ports import Store
from zcrawl.store.queries import Query, QueryOutcome

T = TypeVar("T")
_StoreJob: TypeAlias = Callable[[], None] | None  # None ends the thread
OnError: TypeAlias = Callable[[str, str], None]


class StoreThreads:
    def __init__(self, store: Store, on_error: OnError) -> None:
        self._store = store
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._queues: dict[str, queue.SimpleQueue[_StoreJob]] = {}
        self._threads: list[threading.Thread] = []
        for name in ("writer", "reader"):
            self._queues[name] = queue.SimpleQueue()
            thread = threading.Thread(
                target=_work, args=(self._queues[name],), name=f"zcrawl-{name}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def execute(
        self,
        command: Command,
        then: Callable[[CommandOutcome | StoreError], None],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_wanted` is asked on the thread, when the command's turn has come."""

        def call() -> CommandOutcome:
            if not is_wanted():
                raise StoreUnavailable(f"{type(command).__name__} is not wanted any more")
            return self._store.execute(command)

        self._queues["writer"].put(lambda: self._call(call, then, type(command).__name__))

    def query(self, query: Query, then: Callable[[QueryOutcome | StoreError], None]) -> None:
        self._queues["reader"].put(
            lambda: self._call(lambda: self._store.query(query), then, type(query).__name__)
        )

    async def ask(self, query: Query) -> QueryOutcome:
        future: asyncio.Future[QueryOutcome] = self._loop.create_future()
        self.query(query, lambda outcome: _settle(future, outcome))
        return await future

    async def do(self, command: Command) -> CommandOutcome:
        future: asyncio.Future[CommandOutcome] = self._loop.create_future()
        self.execute(command, lambda outcome: _settle(future, outcome))
        return await future

    async def close(self) -> None:
        """Finish what was begun, then close the store."""
        for jobs in self._queues.values():
            jobs.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        await asyncio.to_thread(self._store.close)

    def _call(
        self,
        call: Callable[[], object],
        then: Callable[..., None],
        name: str,
    ) -> None:
        outcome: object
        try:
            outcome = call()
        except StoreError as error:
            outcome = error
        except Exception as error:
            outcome = StoreUnavailable(f"{name}: {type(error).__name__}: {error}")
            self._tell(self._on_error, store_event(INTERNAL_ERROR), str(outcome))
        self._tell(then, outcome)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
            self._loop.call_soon_threadsafe(callback, *args)


def _work(jobs: queue.SimpleQueue[_StoreJob]) -> None:
    while (job := jobs.get()) is not None:
        job()


def _settle(future: asyncio.Future[T], outcome: T | StoreError) -> None:
    if future.done():
        return
    if isinstance(outcome, StoreError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
