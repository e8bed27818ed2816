"""One worker process, started by a supervisor: `python -m zcrawl.roles.worker_main SPEC`, or forked
from a process that has called `load` (`runtime.nursery`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import signal
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Never

import msgspec

from zcrawl.fetch.keyring import JobRights, Keyring
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.reasons.waiting import DRAINED as WORKER_DRAINED
from zcrawl.model.reload_report import ReloadReport, refused
from zcrawl.runtime.files import keep_private
from zcrawl.runtime.parent import DRAINED, REFUSED, end_with_parent
from zcrawl.runtime.watchdog import STUCK_CPU_S, Watchdog
from zcrawl.text.terminal import shown

if TYPE_CHECKING:
    from zcrawl.mesh.security import MeshKeys
    from zcrawl.mesh.sockets.worker import ZmqWorkerMesh
    from zcrawl.roles.worker_files import LiveSettings, ReloadRequests, SettingsFile
    from zcrawl.telemetry.logs.files import EventLog
    from zcrawl.worker.driver.loop import WorkerLoop
    from zcrawl.worker.pipeline.pipeline import Pipeline

FAILED = 1
# Modules that a worker will need; `run_worker` imports those that are not loaded yet.
MODULES = (
    "uvloop",
    "zcrawl.fetch.wire.engine",
    "zcrawl.mesh.sockets.worker",
    "zcrawl.blobs.folder",
    "zcrawl.telemetry.logs.files",
    "zcrawl.worker.pipeline.pipeline",
    "zcrawl.worker.driver.loop",
)
SETTINGS_LOOK_S = 1.0
RELOAD_LOOK_S = 0.1
GC_THRESHOLDS = (20_000, 20, 50)  # a page makes thousands of objects, and hardly any cycle


class WorkerSpec(msgspec.Struct, frozen=True):
    """The start parameters of a worker."""

    id: str
    incarnation: int
    replaces: int
    life: int  # of its supervisor
    parent: int
    parent_pipe: int
    masters: list[Endpoints]
    slots: int
    task_slots: int
    log: str
    blobs: str
    rate: float = 0.0
    bandwidth: float = 0.0
    rights: JobRights = JobRights()  # what jobs may use of this machine
    masters_file: str = ""  # read every second, because masters come and go
    pulses: str = ""  # folder of the files that show that loops work
    key_file: str = ""
    server_key: str = ""
    log_fd: int = -1  # instead of the file `log`
    log_text: bool = False
    closed: list[str] = []  # files that no spider may read
    stuck_after: float = STUCK_CPU_S  # seconds of CPU time in which the loop does not turn
    after: str = ""  # how the process before this one ended, if it was not asked to
    labels: tuple[str, ...] = ()  # by which jobs are placed
    log_level: str = ""
    settings_file: str = ""  # read every second, because the configuration can change
    reload_file: str = ""  # where a reload is asked for


def load() -> None:
    """Load modules before a process forks workers, so that they need not load them."""
    for name in MODULES:
        with contextlib.suppress(ImportError):  # a worker that needs it will report it
            importlib.import_module(name)


def work(spec_json: str | bytes) -> Never:
    """Run a worker until it ends, and exit."""
    keep_private()
    spec = msgspec.json.decode(spec_json, type=WorkerSpec)
    end_with_parent(spec.parent, spec.parent_pipe)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    gc.disable()  # while modules are loaded: nothing of them is garbage
    from zcrawl.runtime.loop import run_async

    reason, code = run_async(run_worker(spec))
    if code == REFUSED:
        print(shown(reason), file=sys.stderr)  # the supervisor reports it
    sys.stderr.flush()
    # Everything is closed, and the normal exit of the interpreter is slow.
    os._exit(code)


def _without_httpx_command() -> None:
    """httpx imports its own command line with click, rich and pygments: 80 ms of a start."""
    stub = types.ModuleType("httpx._main")
    stub.main = _without_httpx_command  # type: ignore[attr-defined] # httpx wants a function
    sys.modules.setdefault("httpx._main", stub)


async def run_worker(spec: WorkerSpec) -> tuple[str, int]:
    """Run the worker; return why it ended, and the exit code."""
    _without_httpx_command()
    from zcrawl import __version__
    from zcrawl.mesh.sockets.worker import ZmqWorkerMesh
    from zcrawl.roles.blobs import open_blobs
    from zcrawl.roles.engines import Engines
    from zcrawl.runtime import clock
    from zcrawl.telemetry.logs.files import EventLog
    from zcrawl.worker.driver.loop import WorkerLoop
    from zcrawl.worker.machine import WorkerMachine
    from zcrawl.worker.pipeline.pipeline import Pipeline, PipelineSettings

    clock.raise_file_limit()
    place = spec.log_fd if spec.log_fd >= 0 else Path(spec.log)
    log = EventLog(place, spec.id, as_text=spec.log_text, level=spec.log_level)
    machine = WorkerMachine(
        spec.id,
        spec.incarnation,
        slots=spec.slots,
        task_slots=spec.task_slots,
        version=__version__,
        hostname=os.uname().nodename,
        pid=os.getpid(),
        replaces=spec.replaces,
        life=spec.life,
        labels=spec.labels,
    )
    if spec.rights.shell.is_used:
        _prepare_commands(log)
    engines = Engines(log)
    watchdog = Watchdog(spec.stuck_after)
    watchdog.start()
    with ZmqWorkerMesh(
        spec.id,
        spec.incarnation,
        log,
        keys=_keys(spec),
        on_strangers=lambda text: worker.end(text, refused=True),
    ) as mesh:
        for endpoints in spec.masters:
            mesh.connect(endpoints)
        worker = WorkerLoop(
            machine,
            mesh,
            clock=clock.now,
            rss_bytes=clock.rss_bytes,
            cpu_percent=clock.CpuMeter().percent,
            log=log,
            lines=log.take_lines,
            after=spec.after,
            alive=watchdog.feed,
            reload=lambda request: config.ask(request),
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
        engines.shared("http")
        settings = PipelineSettings(
            blobs=open_blobs(spec.blobs),
            keyring=Keyring(spec.rights, os.environ),
            rate=spec.rate,
            bandwidth=spec.bandwidth,
            closed=spec.closed,
        )
        pipeline = Pipeline(worker, engines.of, clock.now, clock.utc, settings)
        config = _NodeConfig(spec, worker, pipeline, log)
        gc.freeze()  # later collections need not examine loaded modules
        gc.enable()
        gc.set_threshold(*GC_THRESHOLDS)
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(_follow_supervisor(spec, mesh), name="supervisor")
            following = group.create_task(config.follow(), name="configuration")
            reason = await worker.run(pipeline)
            looking.cancel()
            following.cancel()
        await engines.aclose()
    return reason, REFUSED if worker.refused else DRAINED if reason == WORKER_DRAINED else FAILED


def _prepare_commands(log: EventLog) -> None:
    """Say how the limits of commands are kept, and end what commands of dead workers left."""
    from zcrawl.runtime.cgroups import remove_leftovers
    from zcrawl.worker.extensions.shell import command_cgroups

    place = command_cgroups()
    if not place.folder:
        log("shell_limits", f"processes and memory of commands are counted: {place.why}")
        return
    log("shell_limits", f"processes and memory of commands are limited by {place.why}")
    try:
        removed = remove_leftovers(place.folder)
    except OSError as error:
        log("shell_leftovers", f"cgroups of dead workers cannot be removed: {error}")
        return
    if removed:
        log("shell_leftovers", f"removed cgroups of dead workers: {', '.join(removed)}")


def _keys(spec: WorkerSpec) -> MeshKeys | None:
    if not spec.key_file:
        return None
    from zcrawl.mesh.sockets.keys import read_mesh_keys

    return read_mesh_keys(Path(spec.key_file), spec.server_key)


class _NodeConfig:
    """What the supervising process lets this one take over from the configuration."""

    def __init__(
        self, spec: WorkerSpec, worker: WorkerLoop, pipeline: Pipeline, log: EventLog
    ) -> None:
        self._spec, self._worker, self._pipeline, self._log = spec, worker, pipeline, log
        self._file: SettingsFile | None = None
        self._requests: ReloadRequests | None = None
        if spec.settings_file:  # not in a `crawl`, which starts sooner without these modules
            from zcrawl.roles.worker_files import ReloadRequests, SettingsFile

            self._file = SettingsFile(Path(spec.settings_file))
            self._requests = ReloadRequests(Path(spec.reload_file)) if spec.reload_file else None
        self._asked = asyncio.Event()
        self._request = ""  # of the leader, without an answer yet

    def ask(self, request: str) -> None:
        """Ask the supervising process for a reload. A cluster in one process needs no answer: its
        master has read the configuration."""
        if self._requests is None:
            self._worker.reloaded(request, "", ReloadReport())
            return
        try:
            self._requests.ask(request)
        except OSError as error:
            report = refused(f"{self._spec.reload_file} cannot be written: {error.strerror}")
            self._worker.reloaded(request, self._spec.id, report)
            return
        self._request = request
        self._asked.set()

    async def follow(self) -> None:
        """Look at the file of live settings: once a second, more often while a reload is awaited.
        Only changed values are applied."""
        if self._file is None:
            return
        while True:
            if self._file.changed() and (note := self._file.read()) is not None:
                self._apply(note.settings)
                if self._request and note.request == self._request:
                    self._worker.reloaded(note.request, note.node, note.report)
                    self._request = ""
            if self._request:
                await asyncio.sleep(RELOAD_LOOK_S)
                continue
            self._asked.clear()
            with contextlib.suppress(TimeoutError):  # time to look again
                await asyncio.wait_for(self._asked.wait(), SETTINGS_LOOK_S)

    def _apply(self, settings: LiveSettings) -> None:
        self._log.configure(as_text=settings.log_text, level=settings.log_level)
        self._pipeline.limit(settings.rate, settings.bandwidth)
        self._worker.change_settings(settings.slots, settings.labels)


async def _follow_supervisor(spec: WorkerSpec, mesh: ZmqWorkerMesh) -> None:
    """Read the list of masters and touch the pulse file, once a second. For clusters."""
    if not spec.masters_file:
        return
    from zcrawl.roles import worker_files
    from zcrawl.roles.worker_files import MastersFile

    file = MastersFile(Path(spec.masters_file))
    connected_masters = {entry.master: entry for entry in spec.masters}
    while True:
        worker_files.touch(Path(spec.pulses), spec.id)
        if file.changed():
            listed_masters = {entry.master: entry for entry in file.read()}
            for master in connected_masters.keys() - listed_masters.keys():
                mesh.disconnect(master)
            for master, endpoints in listed_masters.items():
                if connected_masters.get(master) != endpoints:
                    mesh.connect(endpoints)
            connected_masters = listed_masters
        await asyncio.sleep(worker_files.PULSE_S)


if __name__ == "__main__":
    work(sys.argv[1])
