"""Read the configuration of a running node again, and apply what has changed.

Three causes: SIGHUP, a request over the mesh (`zcrawl reload`), and a file that changed. All end in
`LiveConfig.reload`, which is the only place that changes the configuration of a running node:

    read ──error──▶ report: nothing applied
      └─▶ check ──error──▶ report: nothing applied
            └─▶ compare (`config_changes`) ──▶ apply ──▶ report: what changed, what waits

`check` raises ConfigError before anything is applied: for example, a new key file cannot be read.

The file is looked at every half a second. Compared are the device, inode, size and time of the file
at the end of all symbolic links, so a ConfigMap's swap of a link counts, and so does a file that
was renamed over the old one. A change counts once it has stayed the same for a second look, because
an editor may write a file in two steps. A stat costs about 10 µs, so nothing is gained by a
library that watches, whose import would cost a tenth of a second of each start. A file that is gone
is reported once, and the configuration stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from zcrawl.config import Config
from zcrawl.config_changes import Changes, NodeKind, changes, line_of
from zcrawl.errors import ConfigError
from zcrawl.model.log_event import CONFIG_CHANGED, CONFIG_NEEDS_RESTART, RELOAD_REFUSED
from zcrawl.model.reload_report import ReloadReport, cut, refused
from zcrawl.runtime.loop import TASK_FAILED, in_full

LOOK_AGAIN_S: Final = 0.5

FileMark: TypeAlias = tuple[int, int, int, int] | None  # None: there is no such file


class LiveConfig:
    """The configuration in force, and the ways to change it."""

    def __init__(
        self,
        config: Config,
        kind: NodeKind,
        *,
        read: Callable[[], Config],
        files: Sequence[str],
        log: Callable[[str, str], object],
        check: Callable[[Config], object] = lambda config: None,
        apply: Callable[[Changes], None] = lambda changes: None,
    ) -> None:
        """`read` reads all sources again. `files` are looked at; others need SIGHUP."""
        self.config = config
        self._kind = kind
        self._read, self._check, self._apply = read, check, apply
        self._files = [Path(name) for name in files]
        self._log = log
        self._marks = [_mark(path) for path in self._files]
        self._seen = self._marks  # at the last look
        self._last: tuple[str, ReloadReport] = ("", ReloadReport())

    def reload(self, request: str = "") -> ReloadReport:
        """Read, compare and apply; return the report. A request that comes again gets its report
        again."""
        if request and self._last[0] == request:
            return self._last[1]
        self._marks = self._seen = [_mark(path) for path in self._files]
        report = self._reload()
        if report.error:
            self._log(RELOAD_REFUSED, report.error)
        for line in report.waiting:
            self._log(CONFIG_NEEDS_RESTART, line)
        if report.is_empty:
            self._log("config_unchanged", "the configuration has not changed")
        if request:
            self._last = (request, report)
        return report

    def _reload(self) -> ReloadReport:
        try:
            config = self._read()
            self._check(config)
        except ConfigError as error:
            return refused(self._with_line(str(error)))
        change = changes(self.config, config, self._kind)
        for line in change.report.changed:
            self._log(CONFIG_CHANGED, line)
        if change.report.changed:
            self._apply(change)
        self.config = change.config
        return change.report

    def _with_line(self, message: str) -> str:
        """Add the line of the key that is wrong; a TOML error has it already."""
        for path in self._files:
            try:
                number = line_of(path.read_text(errors="replace"), message)
            except OSError:  # the message says so
                continue
            if number and " line " not in message:
                return cut(f"{message} (line {number} of {path.name})")
        return cut(message)

    async def follow(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            try:
                self.look()
            except Exception as error:  # a bug: logged, and the next change is tried again
                self._log(TASK_FAILED, f"configuration: {in_full(error)}")

    def look(self) -> None:
        """Reload if a file has changed and stayed the same since the last look."""
        marks = [_mark(path) for path in self._files]
        before, self._seen = self._seen, marks
        if marks == self._marks or marks != before:
            return
        self._marks = marks
        for path, mark in zip(self._files, marks, strict=True):
            if mark is None:
                self._log(RELOAD_REFUSED, f"{path}: no such file")
                return
        self.reload()


def _mark(path: Path) -> FileMark:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
