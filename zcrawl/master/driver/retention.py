"""Remove old runs: write their archives, then delete them by the ordinary request.

A part of the master beside its machine. It looks a minute after it began, then every ten minutes,
and at once when a person asks (`zcrawl prune`). `store.retention` decides which runs go. Each one,
the oldest of a job first:

| a run                                   | then                                                 |
|-----------------------------------------|------------------------------------------------------|
| has outputs that are not complete       | it waits for them                                    |
| has an archive that cannot be written   | kept; logged, stored for `job`, tried again later    |
| is archived, or needs no archive        | deleted, if it has not been reopened since           |

The delete is a request to the leader's machine, by `retention`. Its id follows from the run and its
end, and its answer is stored with it: so a leader that dies between archive and delete is followed
by one that writes the same files again and deletes once. The machine removes rows in chunks, as
after every delete. This master stops in the middle when it does not lead any more.

Three failures in a row at one place, and its other runs wait for the next time, with the same
problem: a storage that does not answer must not delay the others for hours.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zcrawl.errors import Fenced, StoreError, StoreUnavailable, ZcrawlError
from zcrawl.master.driver.output_writer import named
from zcrawl.master.driver.store_threads import StoreThreads
from zcrawl.mesh.messages import ClientRequest, Reply
from zcrawl.model.log_event import ARCHIVE_FAILED, Log
from zcrawl.model.reasons.cluster import NO_SUCH_JOB, NO_SUCH_RUN, RUN_REOPENED
from zcrawl.model.reasons.storage import OUTPUT_TIMEOUT
from zcrawl.model.spec import Retention
from zcrawl.runtime.loop import supervised
from zcrawl.runtime.threads import LimitedThread, outcome_of
from zcrawl.store.commands import NoteArchive, NoteOutput
from zcrawl.store.queries import (
    Query,
    QueryOutcome,
    ReadRemovable,
    RemovableRun,
    RemovableRuns,
)

if TYPE_CHECKING:
    from zcrawl.master.driver.archive import ArchivePlaces

FIRST_S: Final = 60.0
INTERVAL_S: Final = 600.0
LOOK_S: Final = 5.0  # at an archive that is being written
STALLED_S: Final = 1_800.0  # without a read: an upload of a large file takes long
REPLY_S: Final = 60.0
CLOSE_S: Final = 5.0
BATCH: Final = 100  # runs that are read at once
MOST_FAILURES: Final = 3  # in a row, at one place
BY: Final = "retention"
GONE: Final = frozenset((NO_SUCH_RUN, NO_SUCH_JOB, RUN_REOPENED))

T = TypeVar("T")
Request = Callable[[ClientRequest], Awaitable[Reply]]


class _LeaderReader:
    """Reads for the thread that writes an archive, by the store's reader and in this epoch only."""

    def __init__(self, store: StoreThreads, epoch: int, check: Callable[[int], None]) -> None:
        self._store, self._epoch, self._check_leading = store, epoch, check
        self._loop = asyncio.get_running_loop()
        self.read_at = self._loop.time()

    def query(self, query: Query) -> QueryOutcome:
        return self._wait(self._store.ask(query))

    def fence(self) -> None:
        """Raise Fenced if another master leads: a command that changes nothing is refused then."""
        self._wait(self._store.do(NoteOutput(self._epoch, 0, "", "")))

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            self._check_leading(self._epoch)
        except Fenced:
            call.close()
            raise
        outcome = asyncio.run_coroutine_threadsafe(call, self._loop).result(REPLY_S)
        self.read_at = self._loop.time()
        return outcome


class RetentionLoop:
    def __init__(
        self,
        store: StoreThreads,
        request: Request,
        epoch: Callable[[], int],
        note: Log,
        places: Callable[[Retention], ArchivePlaces],
        utc: Callable[[], float],
        *,
        defaults: Retention,
        master: str,
    ) -> None:
        """`request` asks this master's machine; `epoch` is 0 while it does not lead; `defaults`
        are for jobs that say nothing about it, and `places` knows where archives go with them."""
        self._store, self._request, self._epoch = store, request, epoch
        self._note, self._places, self._utc = note, places, utc
        self._defaults, self._master = defaults, master
        self._thread = LimitedThread("zcrawl-archive")
        self._writing: Future[str] | None = None
        self._wanted: set[int | None] = set()  # jobs whose runs a person wants removed; None: all
        self._woken = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = supervised(self._run(), "retention", self._note)

    def configure(self, defaults: Retention) -> None:
        """Use other values of the configuration, from the next run on."""
        self._defaults = defaults

    def prune(self, job: int | None) -> None:
        """Remove the runs of a job, or of all, now."""
        self._wanted.add(job)
        self._woken.set()

    async def close(self) -> None:
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # as we told it to
                await self._task
        if self._writing is not None and not self._writing.done():
            # It ends with its next read; one that hangs is left behind, and has published nothing.
            with contextlib.suppress(Exception):
                await outcome_of(self._writing, CLOSE_S)
        self._thread.end()

    async def _run(self) -> None:
        wait_s = FIRST_S
        while True:
            with contextlib.suppress(TimeoutError):  # the regular time has come
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            self._woken.clear()
            jobs, self._wanted = self._wanted or {None}, set()
            wait_s = INTERVAL_S
            if not self._epoch():
                wait_s = FIRST_S  # this master may lead soon
                continue
            for job in [None] if None in jobs else sorted(job for job in jobs if job is not None):
                try:
                    await self._remove(job, self._epoch())
                except Exception as error:  # the store is away, or a bug: told, and tried again
                    problem = named("retention", error)
                    self._note(f"retention_{problem.code}", str(problem))
                    wait_s = FIRST_S

    async def _remove(self, job: int | None, epoch: int) -> None:
        after, failed = (0, 0), _Failures()
        waiting: list[RemovableRun] = []
        while True:
            query = ReadRemovable(self._utc(), self._defaults, BATCH, job, after)
            outcome = await self._store.ask(query)
            assert isinstance(outcome, RemovableRuns)
            for run in outcome.rows:
                self._check_leading(epoch)
                if run.unwritten:
                    waiting.append(run)
                else:
                    await self._remove_run(run, epoch, failed)
                after = run.job, run.run
            if len(outcome.rows) < BATCH:
                break
        if waiting:
            first, others = waiting[0], len(waiting) - 1
            text = f"run {first.run} waits for its outputs: {', '.join(first.unwritten)}"
            more = f", and {others} more" if others else ""
            self._note("retention_waits", f"{text}{more}", run=first.run)

    async def _remove_run(self, run: RemovableRun, epoch: int, failed: _Failures) -> None:
        if run.archive:
            problem = failed.at(run.archive) or await self._archive(run, epoch)
            failed.count(run.archive, problem)
            if problem == NO_SUCH_RUN:
                return
            if problem:
                await self._store.do(NoteArchive(epoch, run.run, problem))
                return
        await self._delete(run)

    async def _archive(self, run: RemovableRun, epoch: int) -> str:
        """Write the archive; return why it failed, or an empty text."""
        try:
            place = await self._write(run, epoch)
        except Fenced:
            raise
        except Exception as error:
            failure = named(run.archive, error)
            if failure.code in GONE:
                self._note("retention_changed", str(failure), run=run.run)
                return NO_SUCH_RUN
            text = f"[{failure.code}] {failure}".encode("utf-8", "replace").decode()
            self._note(ARCHIVE_FAILED, f"run {run.run} is kept: {text}", run=run.run)
            return text
        self._note("run_archived", f"run {run.run} ({run.why}): {place}", run=run.run)
        return ""

    async def _write(self, run: RemovableRun, epoch: int) -> str:
        if self._thread.busy:
            raise _hangs("an earlier archive has not been written yet")
        reader = _LeaderReader(self._store, epoch, self._check_leading)
        # Loaded with the first archive: most masters write none in their first minutes.
        from zcrawl.master.driver.archive import ArchiveTools, write_archive

        places = self._places(self._defaults)
        tools = ArchiveTools(places, reader, reader.fence, self._utc, self._master)
        writing = self._writing = self._thread.submit(lambda: write_archive(run, tools))
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await outcome_of(writing, LOOK_S)
            except TimeoutError:
                if writing.done():
                    raise  # of the call itself
            if loop.time() - reader.read_at > STALLED_S:
                raise _hangs(f"no progress for {STALLED_S / 60:.0f} minutes")

    async def _delete(self, run: RemovableRun) -> None:
        args = {
            "ref": str(run.job),
            "action": "delete",
            "run": run.run,
            "ended_at": run.ended_at,
        }
        id = f"{BY}-{run.run}-{run.ended_at}"
        async with asyncio.timeout(REPLY_S):
            reply = await self._request(ClientRequest(id, "act", args, by=BY))
        if reply.ok:
            return
        code, message = str(reply.data.get("code")), str(reply.data.get("message"))
        if code not in GONE:
            raise StoreError(f"run {run.run} was not removed: {message}", code=code)
        self._note("retention_changed", message, run=run.run)

    def _check_leading(self, epoch: int) -> None:
        if self._closing or self._epoch() != epoch:
            raise Fenced(f"this master does not lead in epoch {epoch} any more; removing stops")


class _Failures:
    """Failures in a row, by the place of the archive."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._last: dict[str, str] = {}

    def at(self, place: str) -> str:
        """Return the problem of a place that is not tried any more; empty: try it."""
        return self._last[place] if self._counts[place] >= MOST_FAILURES else ""

    def count(self, place: str, problem: str) -> None:
        self._counts[place] = self._counts[place] + 1 if problem else 0
        self._last[place] = problem


def _hangs(what: str) -> ZcrawlError:
    return StoreUnavailable(f"an archive: {what}", code=OUTPUT_TIMEOUT)
