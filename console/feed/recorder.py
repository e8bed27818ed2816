"""`--record FILE`: what a console heard, one JSON object a line.

A recording holds what the cluster said and when, nothing that was typed; so it can be replayed
(`feed.replay`) on any machine, for a bug report or a review of an incident.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from console.state import (
    Answered,
    ConsoleEvent,
    HappeningCame,
    LinkChanged,
    SnapshotCame,
)
from zcrawl.errors import UsageError

Recorded = SnapshotCame | HappeningCame | LinkChanged | Answered


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
