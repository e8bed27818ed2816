"""Files between the supervising process of a worker's host and its workers.

- The list of masters that a worker's processes connect to. The supervising process, which talks to
  Consul, writes it, and the workers read it. It stays on disk, so a worker that starts while Consul
  is away finds the last known masters.
- The live settings: what a worker's processes take over while they run. The supervising process
  writes them when the configuration changes, with the report of the last reload.
- The request of a reload: a worker's process writes it when the leader asks for one, because only
  the supervising process reads the configuration.
- The pulse: a worker touches a file of its own every second, so the supervising process sees that
  its event loop works. Only a change of the file's time counts, not its value, so a clock that is
  set does no harm.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from zcrawl.mesh.ports import Endpoints
from zcrawl.model.reload_report import ReloadReport
from zcrawl.runtime.files import replace_durably, replace_file

if TYPE_CHECKING:
    from zcrawl.config import Config

FILE: Final = "masters.json"
REQUEST_MOST: Final = 100  # characters of a request's id
MOST_REMEMBERED: Final = 16  # masters that left; each costs one connection attempt a second


class WatchedFile:
    """A file that one process replaces and others look at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark: tuple[int, int] | None = None

    def changed(self) -> bool:
        """Return whether the file was written since the last call. Cheap enough for each second."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        mark = (status.st_ino, status.st_mtime_ns)
        changed, self._mark = mark != self._mark, mark
        return changed


class MastersFile(WatchedFile):
    def remember(self, masters: list[Endpoints]) -> None:
        """Write the registered masters, followed by some earlier ones."""
        current = {endpoints.master: endpoints for endpoints in masters}
        old = [endpoints for endpoints in self.read() if endpoints.master not in current]
        text = msgspec.json.encode([*current.values(), *old[:MOST_REMEMBERED]])
        with contextlib.suppress(OSError):  # there is none yet
            if self.path.read_bytes() == text:
                return
        replace_durably(self.path, text)

    def read(self) -> list[Endpoints]:
        """Return the masters of the file; empty if it is missing or unreadable."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[Endpoints])
        except (OSError, msgspec.MsgspecError):
            return []


class LiveSettings(msgspec.Struct, frozen=True):
    """The values that a running worker process takes over."""

    slots: int
    rate: float
    bandwidth: float
    labels: tuple[str, ...]
    log_level: str
    log_text: bool


def live_settings(config: Config) -> LiveSettings:
    worker, log = config.worker, config.log
    return LiveSettings(
        worker.slots, worker.rate, worker.bandwidth, worker.labels, log.level, log.format == "text"
    )


class SettingsNote(msgspec.Struct, frozen=True):
    """The content of the file of live settings."""

    settings: LiveSettings
    node: str  # the supervising process
    request: str = ""  # of the last reload over the mesh
    report: ReloadReport = ReloadReport()  # of that reload


SETTINGS: Final = "settings.json"
RELOAD_REQUEST: Final = "reload.request"


class SettingsFile(WatchedFile):
    def write(self, note: SettingsNote) -> None:
        replace_file(self.path, msgspec.json.encode(note))

    def read(self) -> SettingsNote | None:
        """Return the settings; None if the file is missing or unreadable."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=SettingsNote)
        except (OSError, msgspec.MsgspecError):
            return None


class ReloadRequests(WatchedFile):
    """The file by which a worker process asks its supervisor for a reload."""

    def ask(self, request: str) -> None:
        replace_file(self.path, request.encode())

    def take(self) -> str:
        """Return the newest request; empty: none."""
        try:
            return self.path.read_text(errors="replace")[:REQUEST_MOST]
        except OSError:
            return ""


PULSE_S: Final = 1.0
SILENT_S: Final = 3.5


def touch(folder: Path, id: str) -> None:
    """Touch the pulse file. If it fails, e.g. on a full disk, the worker only appears silent."""
    with contextlib.suppress(OSError):
        (folder / id).touch()


class Pulses:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, tuple[int, float]] = {}  # id → (time of the file, seen when)

    def is_alive(self, id: str, now: float) -> bool:
        """Return whether a worker's loop works; True in the first seconds, without a file."""
        try:
            mark = (self.folder / id).stat().st_mtime_ns
        except OSError:
            mark = 0
        last_pulse = self._seen.get(id)
        if last_pulse is None or last_pulse[0] != mark:
            self._seen[id] = last_pulse = (mark, now)
        return now - last_pulse[1] < SILENT_S
