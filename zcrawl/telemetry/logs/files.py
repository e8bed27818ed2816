"""Write log events as JSON lines to a file, never to the terminal, which the commands use.

Every Note of a machine becomes one event. A few per second are also kept for consoles
(`take_lines`). A frequent event is written a few times a second, with the number of omitted ones,
so that it cannot fill the disk. `log.level` decides what is written; consoles get every line and
filter for themselves. (Not done with structlog, because it imports rich, which costs
100 ms at each start of a process.)
"""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from zcrawl.mesh.messages import LogRecords
from zcrawl.model.event_text import event_text
from zcrawl.model.log_event import level_of
from zcrawl.runtime.files import PRIVATE_FILE
from zcrawl.telemetry.log_lines import LogTail, rank
from zcrawl.text.terminal import shown, shown_json_bytes

ROTATE_BYTES: Final = 10_000_000
PER_SECOND: Final = 20  # events of one name

Log = Callable[[str, str], None]


class EventLog:
    """One process's log. Lines are appended whole, so several processes may share the file."""

    def __init__(
        self, place: Path | int, source: str, *, as_text: bool = False, level: str = ""
    ) -> None:
        """`place`: a file, or a descriptor such as 2, where a service manager collects lines.
        `as_text`: lines for people, with the sentence of each event instead of its detail.
        `level`: the least important events that are written; empty: all."""
        self._source = source
        self.configure(as_text=as_text, level=level)
        self._file: io.FileIO | None = None
        with contextlib.suppress(OSError):  # a crawl continues if its log cannot be written
            if not isinstance(place, int):
                place = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
            else:
                place = os.dup(place)
            self._file = io.FileIO(place, "a")
        self._counts: dict[str, tuple[int, int]] = {}  # name → (second, events in it)
        self._tail = LogTail()

    def configure(self, *, as_text: bool, level: str) -> None:
        """Set the form and the level of the lines from now on. A level that no event has, such as
        debug, is the lowest."""
        self._line = _text_line if as_text else _json_line
        self._least = rank(level)

    def __call__(self, name: str, detail: str = "", *, run: int = 0) -> None:
        if self.quietly(name, detail, run=run):
            self._tail.add(name, detail, time.monotonic(), run=run)

    def take_lines(self) -> LogRecords | None:
        """Return the lines that were logged since the last call."""
        return self._tail.take(time.monotonic())

    def quietly(self, name: str, detail: str = "", *, run: int = 0) -> bool:
        """Log an event that consoles get in another way, so it is not kept for them. Return whether
        it counts; it is omitted if there are too many of its name."""
        second = int(time.monotonic())
        then, count = self._counts.get(name, (0, 0))
        left_out = 0
        if then != second:
            left_out, count = max(0, count - PER_SECOND), 0
        self._counts[name] = (second, count + 1)
        if count >= PER_SECOND:
            return False
        more = {"left_out": left_out} if left_out else {}
        if run:
            more["run"] = run
        if rank(level_of(name)) >= self._least:
            self._write(name, detail, more)
        return True

    def exception(self, name: str, error: BaseException) -> None:
        trace = "".join(traceback.format_exception(error))
        self._tail.add(name, str(error), time.monotonic())
        self._write(name, str(error), {"trace": trace})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, name: str, detail: str, more: dict[str, Any]) -> None:
        if self._file is None:
            return
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        event = {"at": at, "source": self._source, "event": name, "detail": detail, **more}
        with contextlib.suppress(OSError):  # the disk is full: the store says so
            self._file.write(self._line(event))


def _text_line(event: dict[str, Any]) -> bytes:
    sentence = event_text(event["event"], event["detail"])
    text = "{at} {source} {event} {sentence}".format(**event, sentence=sentence)
    return shown(text.strip()).encode() + b"\n"


def _json_line(event: dict[str, Any]) -> bytes:
    try:
        return shown_json_bytes(msgspec.json.encode(event)) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate from somewhere
        return msgspec.json.encode({k: ascii(v) for k, v in event.items()}) + b"\n"


def rotate(path: Path) -> None:
    """Rename a long log at the start; an older renamed log is replaced."""
    with contextlib.suppress(OSError):  # there is none, or it goes on where it is
        if path.stat().st_size > ROTATE_BYTES:
            path.replace(path.with_suffix(".log.1"))
