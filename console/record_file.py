"""`--record FILE` and `--replay FILE`: what a console heard, one JSON object a line.

A recording holds what the cluster said and when, nothing that was typed; so it can be replayed,
paused and looked around in on any machine, for a bug report or a review of an incident. A line
that cannot be read, such as the last one of a console that was killed, is skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import msgspec

from console.feed import Emit
from console.state import (
    Answered,
    ConsoleEvent,
    HappeningCame,
    LinkChanged,
    LinkState,
    SnapshotCame,
)
from zcrawl.errors import RefusedError, UsageError
from zcrawl.model.reasons.cluster import REPLAY

Recorded = SnapshotCame | HappeningCame | LinkChanged | Answered
LONGEST_PAUSE_S: Final = 5.0  # of a replay; a recording may have slept for hours


class Recorder:
    """Writes what is heard to a file; does nothing without one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._file = self._path.open("wb")
            except OSError as error:
                raise UsageError(f"{self._path}: cannot be written: {error.strerror}") from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, event: ConsoleEvent) -> None:
        if self._file is not None and isinstance(
            event, SnapshotCame | HappeningCame | LinkChanged | Answered
        ):
            self._file.write(msgspec.json.encode(event) + b"\n")
            self._file.flush()


class ReplayFeed:
    """Implements `feed.Feed` from a recording, at the speed at which it was made."""

    def __init__(
        self, path: Path, sleep: Callable[[float], Any] = asyncio.sleep, speed: float = 1.0
    ) -> None:
        self._path, self._sleep, self._speed = path, sleep, speed
        if not path.is_file():
            raise UsageError(f"{path}: no such recording")

    async def watch(self, emit: Emit) -> None:
        before: float | None = None
        number = 0
        with self._path.open("rb") as file:
            for line in file:
                event = _read(line)
                if event is None:
                    continue
                if before is not None:
                    pause_s = min(LONGEST_PAUSE_S, max(0.0, event.at - before)) / self._speed
                    await self._sleep(pause_s)
                before = event.at
                number += 1
                emit(event)
        text = f"the recording {self._path.name} ends here, {number} events"
        emit(LinkChanged(LinkState.LOST, text, before or 0.0))

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """Answers are in the recording, as far as its maker asked for them."""
        raise RefusedError("this is a recording: only what it holds can be seen", code=REPLAY)


def _read(line: bytes) -> Recorded | None:
    try:
        event: Recorded = msgspec.json.decode(line, type=Recorded)
        return event
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
