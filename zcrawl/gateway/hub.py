"""The events of the cluster for all clients of `GET /v1/events`: one ring, encoded once.

One task hears the leader and puts each event into a ring of fixed size, as the bytes that travel.
A client has only a place in the ring. So a client that does not read costs no memory: when the
ring has gone past its place, it gets an event `gap` and goes on with the oldest event there is.
`cut_off` names the clients whose connection takes nothing for STUCK_S; `routes.events` ends them.

An event's id is `BOOT-NUMBER`. BOOT is random for each gateway process, because another gateway,
or the same one after a restart, does not know what a client has got: it answers with a `gap`, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from zcrawl.errors import RefusedError, UnreachableError
from zcrawl.gateway.changes import RUN, StateChange, StateChanges
from zcrawl.gateway.principals import Principal
from zcrawl.gateway.services import PublishedMessage, Services
from zcrawl.mesh.roles import KeyRole
from zcrawl.model.reasons.cluster import NO_SUCH_RUN
from zcrawl.model.states import RunState

LOG: Final = "log"
GAP: Final = "gap"
EVENTS_KEPT: Final = 5_000
BYTES_KEPT: Final = 8_000_000
HEARTBEAT_S: Final = 15.0
TICK_S: Final = 1.0
GATHER_S: Final = 0.05  # events of this time go to a client in one piece
STUCK_S: Final = 30.0
ASKED_AT_ONCE: Final = 20  # missing runs looked up in a row
HEARTBEAT: Final = b": still here\n\n"
FIRST: Final = b"retry: 1000\n: connected\n\n"
HUB: Final = Principal("gateway", KeyRole.VIEWER, (), "gateway", "")


class EventFrame(msgspec.Struct, frozen=True):
    """An event as it travels, with what clients filter by."""

    number: int
    data: bytes
    kind: str
    job: int
    run: int
    name: str


class Filter(msgspec.Struct, frozen=True):
    """What a client wants to get. Empty: all events."""

    job: str = ""  # id or name
    run: int = 0
    kinds: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        return self == Filter()

    def lets_pass(self, frame: EventFrame) -> bool:
        if frame.kind == GAP:
            return True
        if self.kinds and frame.kind not in self.kinds:
            return False
        if self.run and frame.run != self.run:
            return False
        return not self.job or (frame.job > 0 and self.job in (str(frame.job), frame.name))


class EventReader:
    """A client's place in the ring."""

    def __init__(self, hub: EventHub, wanted_events: Filter, number: int, first: bytes) -> None:
        self._hub, self._filter = hub, wanted_events
        self.number = number  # of the last event that it has passed
        self._first = first
        self._beats = hub.beats
        self.sending_since: float | None = None  # the connection has not taken the last piece
        self.cut: Callable[[], None] = lambda: None

    async def next_piece(self) -> bytes:
        """Return what to send now; empty when it is only time to check the client's rights."""
        if self._first:
            first, self._first = self._first, b""
            return first
        if self.number == self._hub.number:
            await self._hub.moved()
        piece, self.number = self._hub.after(self.number, self._filter)
        if piece:
            self._beats = self._hub.beats
        elif self._beats != self._hub.beats:
            self._beats = self._hub.beats
            return HEARTBEAT
        return piece


class EventHub:
    """The ring, and the task that fills it. The task starts with the first client."""

    def __init__(
        self, services: Services, *, clock: Callable[[], float] = time.monotonic, boot: str = ""
    ) -> None:
        self._services, self._clock = services, clock
        self._boot = boot or secrets.token_hex(6)
        self._ring: deque[EventFrame] = deque()
        self._bytes = 0
        self.number = 0  # of the newest event
        self.beats = 0
        self._changes = StateChanges()
        self._moved = asyncio.Event()
        self._readers: set[EventReader] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._shared: tuple[int, int, bytes] = (0, 0, b"")  # from, to: what most clients get next

    # ------------------------------------------------------------ clients

    @contextlib.asynccontextmanager
    async def reader(self, wanted_events: Filter, last_id: str) -> AsyncIterator[EventReader]:
        """A client's place: after the event that it names, or at the newest."""
        self._start()
        number, first = self._place(last_id)
        reader = EventReader(self, wanted_events, number, first)
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)

    def _place(self, last_id: str) -> tuple[int, bytes]:
        if not last_id:
            return self.number, FIRST
        boot, _, text = last_id.rpartition("-")
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        if boot == self._boot and 0 <= number <= self.number:
            return number, FIRST  # `after` tells a gap
        return self.number, FIRST + self._gap(self.number, None)

    @property
    def _oldest(self) -> int:
        return self._ring[0].number if self._ring else self.number + 1

    def _gap(self, number: int, missed: int | None) -> bytes:
        """Tell a client that events are missing before this number; `missed` if it is known."""
        text = "events are missing here: read the state again (GET /v1/jobs)"
        data = msgspec.json.encode({"missed": missed, "detail": text})
        return _encoded(f"{self._boot}-{number}", GAP, data)

    def after(self, number: int, wanted_events: Filter) -> tuple[bytes, int]:
        """Return the events after a number as bytes, and the number of the newest."""
        newest = self.number
        if number == newest:
            return b"", newest
        if wanted_events.is_open and self._shared[:2] == (number, newest):
            return self._shared[2], newest
        parts = []
        if number < self._oldest - 1:
            parts.append(self._gap(self._oldest - 1, self._oldest - 1 - number))
        first = max(0, number + 1 - self._oldest)
        for index in range(first, len(self._ring)):
            frame = self._ring[index]
            if wanted_events.lets_pass(frame):
                parts.append(frame.data)
        piece = b"".join(parts)
        if wanted_events.is_open:
            self._shared = (number, newest, piece)
        return piece, newest

    async def moved(self) -> None:
        """Wait until there are events, or until the next tick."""
        await self._moved.wait()

    def cut_off(self, now: float) -> list[EventReader]:
        """Return the clients whose connection has taken nothing for too long."""
        return [
            reader
            for reader in self._readers
            if reader.sending_since is not None and now - reader.sending_since >= STUCK_S
        ]

    # ------------------------------------------------------------ the leader

    def _start(self) -> None:
        if not self._tasks:
            if self._services.snapshot is not None:  # what changes from now on is an event
                self._changes.see(self._services.snapshot)
            loop = asyncio.get_running_loop()
            parts = (self._hear(), self._tick(), self._look_up())
            self._tasks = [loop.create_task(part) for part in parts]
            for task in self._tasks:
                task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """No client may wait for a task that has failed: all connect again, and it starts anew."""
        if task.cancelled() or task not in self._tasks:
            return
        others, self._tasks = self._tasks, []
        for other in others:
            other.cancel()
        self._cut_all()
        context = {"message": "the events' task ended", "exception": task.exception()}
        asyncio.get_running_loop().call_exception_handler(context)

    def _cut_all(self) -> None:
        for reader in list(self._readers):
            reader.cut()

    async def close(self) -> None:
        """End all tasks and all streams."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._cut_all()

    async def _tick(self) -> None:
        beat_at = self._clock() + HEARTBEAT_S
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock()
            if now >= beat_at:
                self.beats, beat_at = self.beats + 1, now + HEARTBEAT_S
            for reader in self.cut_off(now):
                reader.cut()
            self.wake()

    async def _hear(self) -> None:
        async with self._services.watch() as heard:
            async for message in heard:
                before = self.number
                self.take(message)
                if self.number != before:
                    asyncio.get_running_loop().call_later(GATHER_S, self.wake)

    def take(self, message: PublishedMessage) -> None:
        """Put what was heard into the ring."""
        if message.missed:
            self.publish(
                StateChange(GAP, {"missed": message.missed, "detail": "this gateway was slow"})
            )
        if message.snapshot is not None:
            for change in self._changes.see(message.snapshot):
                self.publish(change)
        if message.event is not None:
            fields = message.event.fields
            run = fields.get("run", 0)
            seen = self._changes.job_of(run) if isinstance(run, int) and run else None
            if seen is None:
                self.publish(StateChange(LOG, fields, run=run if isinstance(run, int) else 0))
            else:
                about: dict[str, Any] = {"job": seen.job, "job_name": seen.name}
                self.publish(StateChange(LOG, fields | about, seen.job, seen.run, seen.name))

    async def _look_up(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self._look_up_missing()

    async def _look_up_missing(self) -> None:
        for run in list(self._changes.missing)[:ASKED_AT_ONCE]:
            try:
                view = await self._services.ask(HUB, RUN, {"run": run})
            except UnreachableError:
                return  # tried again after a moment
            except RefusedError as error:
                if error.code != NO_SUCH_RUN:
                    return
                state, reason = str(RunState.DELETED), ""
            else:
                state, reason = str(view.get("state", "")), str(view.get("reason") or "")
            for change in self._changes.settle(run, state, reason):
                self.publish(change)

    def publish(self, change: StateChange) -> None:
        """Encode an event once, for all clients."""
        self.number += 1
        name = change.kind
        data = _encoded(f"{self._boot}-{self.number}", name, msgspec.json.encode(change.data))
        frame = EventFrame(self.number, data, name, change.job, change.run, change.name)
        self._ring.append(frame)
        self._bytes += len(data)
        while len(self._ring) > EVENTS_KEPT or self._bytes > BYTES_KEPT:
            self._bytes -= len(self._ring.popleft().data)

    def wake(self) -> None:
        """Let all clients look at the ring."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _encoded(id: str, kind: str, data: bytes) -> bytes:
    """An event of the stream. JSON on one line cannot break out of its line."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id.encode(), kind.encode(), data)
