"""`--replay FILE`: a recording instead of a cluster, with pause, speed and seek.

The file is read once for the moments in it; the events themselves are read when they are due, so a
recording of a day needs no day of memory. After a seek the last minutes before the new position
are shown at once: rates need them, and of every question the newest answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from console.feed.playhead import Playhead
from console.feed.ports import Emit
from console.feed.recorder import Recorded
from console.state import Answered, ReplayMoved, Rewound
from zcrawl.errors import RefusedError, UsageError
from zcrawl.model.reasons.cluster import REPLAY

BEFORE_S: Final = 300.0  # what is shown at once after a seek
SHOW_EVERY_S: Final = 0.5  # the position, while nothing else comes
AT_ONCE: Final = 50  # events, before keys get their turn


class _Stamp(msgspec.Struct):
    """What the index needs of a line."""

    type: str
    at: float
    slot: str = ""


class _IndexEntry(NamedTuple):
    offset: int  # in the file
    at: float
    slot: str  # of an answer


class ReplayFeed:
    """Implements `feed.Feed` from a recording."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        if not path.is_file():
            raise UsageError(f"{path}: no such recording")
        self._path, self._clock = path, clock
        self._entries = list(_index(path))
        self._playhead = Playhead([entry.at for entry in self._entries], clock())
        self._shown = 0  # events that the console has
        self._sought = False
        self._changed = asyncio.Event()

    # ------------------------------------------------------------ feed

    async def watch(self, emit: Emit) -> None:
        """Hand over what was recorded when it is due, until cancelled."""
        with self._path.open("rb") as file:
            while True:
                self._changed.clear()
                if self._sought:
                    await self._rewind(file, emit)
                await self._hand_over(file, emit, self._shown, self._playhead.due(self._clock()))
                emit(ReplayMoved(self._playhead.state(self._clock())))
                wait_s = self._playhead.wait_s(self._clock())
                try:
                    async with asyncio.timeout(
                        min(SHOW_EVERY_S, wait_s) if wait_s is not None else None
                    ):
                        await self._changed.wait()
                except TimeoutError:  # the next event is due, or the position moved
                    continue

    async def _rewind(self, file: BinaryIO, emit: Emit) -> None:
        """Show the state at the new position: begin before it, with what was answered earlier."""
        self._sought = False
        due = self._playhead.due(self._clock())
        offsets = self._playhead.offsets
        first = due
        while first > 0 and offsets[due - 1] - offsets[first - 1] < BEFORE_S:
            first -= 1
        emit(Rewound())
        newest = {entry.slot: n for n, entry in enumerate(self._entries[:first]) if entry.slot}
        for n in sorted(newest.values()):
            await self._hand_over(file, emit, n, n + 1)
        self._shown = first

    async def _hand_over(self, file: BinaryIO, emit: Emit, first: int, until: int) -> None:
        for n in range(first, until):
            event = _read(file, self._entries[n].offset)
            if event is not None:
                emit(event)
            if n % AT_ONCE == 0:
                await asyncio.sleep(0)
        self._shown = max(self._shown, until)

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """Refuse: answers are in the recording, as far as its maker asked for them."""
        raise RefusedError("this is a recording: only what it holds can be seen", code=REPLAY)

    # ------------------------------------------------------------ controls

    def toggle_pause(self) -> None:
        """Pause, or go on; at the end, begin again."""
        before = self._playhead.position(self._clock())
        self._playhead.toggle_pause(self._clock())
        self._sought |= self._playhead.position(self._clock()) < before
        self._changed.set()

    def change_speed(self, steps: int) -> None:
        """Take the next faster or slower speed."""
        self._playhead.change_speed(steps, self._clock())
        self._changed.set()

    def seek_by(self, seconds: float) -> None:
        """Go back or forward."""
        self.seek_to(self._playhead.position(self._clock()) + seconds)

    def seek_to(self, position: float) -> None:
        """Go to a position."""
        self._playhead.seek(position, self._clock())
        self._sought = True
        self._changed.set()

    def seek_share(self, share: float) -> None:
        """Go to a part of the whole, 0 to 1."""
        self.seek_to(share * self._playhead.length_s)


def _index(path: Path) -> Iterator[_IndexEntry]:
    """Each event of the file; a line that cannot be read is skipped."""
    offset = 0
    with path.open("rb") as file:
        for line in file:
            try:
                stamp = msgspec.json.decode(line, type=_Stamp)
            except (msgspec.ValidationError, msgspec.DecodeError):
                offset += len(line)
                continue
            yield _IndexEntry(
                offset, stamp.at, stamp.slot if stamp.type == Answered.__name__ else ""
            )
            offset += len(line)


def _read(file: BinaryIO, offset: int) -> Recorded | None:
    """The event at a place of the file; None if this version cannot read it."""
    file.seek(offset)
    try:
        event: Recorded = msgspec.json.decode(file.readline(), type=Recorded)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
    return event
