"""A whole cluster in one folder: a master in this process, workers in processes of their own.

Wiring only. The order of starting: names of sockets, lock, workers (they load longest), database,
leadership, sockets. `__aexit__` stops in the opposite order.

With `follow_config` a changed configuration is applied while the cluster runs (`live_config`), as
on the nodes of a cluster: `zcrawl up` does so, a `crawl` ends before anybody would change a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from zcrawl.coord.agents.local_lock import FileLock
from zcrawl.coord.ports import Leadership
from zcrawl.errors import RefusedError, StoreError, UnreachableError
from zcrawl.fetch.keyring import JobRights
from zcrawl.mesh.messages import ClientRequest
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.log_event import SETTINGS_NOT_KEPT
from zcrawl.model.reasons.cluster import NO_LEADER, WORKERS_FAIL
from zcrawl.model.reload_report import ReloadReport
from zcrawl.model.snapshot import EmbeddedSnapshot, OutputTrouble, OutputTroubles
from zcrawl.model.spec import Retention, ScheduleDefaults
from zcrawl.model.states import RunState
from zcrawl.roles import place
from zcrawl.roles.blobs import body_getter, in_loop
from zcrawl.roles.client import answer, who_asks
from zcrawl.roles.cluster import job_rights, retention_defaults, schedule_defaults
from zcrawl.roles.task_slots import default_task_slots
from zcrawl.roles.vouching import Vouching
from zcrawl.roles.worker_files import SETTINGS, SettingsFile, SettingsNote, live_settings
from zcrawl.runtime import clock
from zcrawl.runtime.files import make_private_folder, tighten
from zcrawl.runtime.loop import supervised
from zcrawl.runtime.nursery import Nursery
from zcrawl.runtime.supervisor import Supervisor, new_incarnation
from zcrawl.runtime.watchdog import STUCK_CPU_S
from zcrawl.standalone.shares import Shares
from zcrawl.submit.output_rights import OutputRights
from zcrawl.telemetry.logs.files import EventLog, rotate

if TYPE_CHECKING:
    from zcrawl.config import Config
    from zcrawl.config_changes import Changes
    from zcrawl.master.driver.archive import ArchivePlaces
    from zcrawl.master.driver.loop import MasterLoop
    from zcrawl.master.driver.outputs import OutputLoop
    from zcrawl.master.driver.retention import RetentionLoop
    from zcrawl.roles.live_config import LiveConfig

WORKER_MODULE: Final = "zcrawl.roles.worker_main"
OWNER: Final = JobRights(owner=True)
LEAD_TIMEOUT_S: Final = 30.0
ASK_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.02
GC_THRESHOLDS: Final = (20_000, 20, 50)  # a batch creates thousands of objects, and few cycles


class EmbeddedCluster:
    """`async with EmbeddedCluster(data, workers) as cluster: ...`."""

    def __init__(
        self,
        data: Path,
        workers: int,
        *,
        slots: int = 32,
        task_slots: int = 0,
        labels: Sequence[str] = (),
        rate: float = 0.0,
        bandwidth: float = 0.0,
        rights: JobRights = OWNER,
        outputs: OutputRights | None = None,
        retention: Retention | None = None,
        label_limits: Mapping[str, int] | None = None,
        schedule_defaults: ScheduleDefaults | None = None,
        stuck_after: float = STUCK_CPU_S,
        blobs: str = "",
        pause_unfinished: bool = False,
        fires: bool = False,
        takeover_timeout_s: float = 10.0,
        nursery: Nursery | None = None,
        shares: Shares | None = None,
        begin_workers: bool = True,
    ) -> None:
        """`shares`: what a standalone node owns. Without `begin_workers`, the workers start with
        the first `ensure_workers`."""
        self._data = data
        self._blobs = blobs or str(data / place.BLOBS)
        self._ids = [f"w{n}" for n in range(1, workers + 1)]
        self._worker = {
            "slots": slots,
            "task_slots": task_slots or default_task_slots(workers),
            "labels": list(labels),
            "rate": rate,
            "bandwidth": bandwidth,
            "stuck_after": stuck_after,
            "rights": rights,
        }
        self._rights = rights
        self._output_rights = outputs or OutputRights(owner=True)
        self._retention = retention or Retention()
        self._label_limits = dict(label_limits or {})
        self._schedule_defaults = schedule_defaults
        self._pause_unfinished = pause_unfinished
        self._fires = fires  # schedules start runs
        self._takeover_timeout_s = takeover_timeout_s
        self._nursery = nursery
        self._shares = shares
        self._begin_workers = begin_workers
        self._spare: Supervisor | None = None  # not started yet
        self._stack = contextlib.AsyncExitStack()
        self._master: MasterLoop | None = None
        self._outputs: OutputLoop | None = None
        self._removing: RetentionLoop | None = None
        self._supervisor: Supervisor | None = None
        self._log: EventLog | None = None
        self._spec: dict[str, Any] = {}
        self._live: LiveConfig | None = None
        self._settings = SettingsFile(data / SETTINGS)
        self._renewal: asyncio.Task[None] | None = None
        self._renew_again = False

    async def __aenter__(self) -> EmbeddedCluster:
        try:
            await self._open()
        except OSError as error:
            await self._stack.aclose()
            if error.errno is None:  # a TimeoutError
                raise
            raise place.unusable(self._data, error) from error
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        data, stack = self._data, self._stack
        clock.raise_file_limit()
        warning = make_private_folder(data)
        lock = FileLock(data)
        leadership = await lock.acquire(self._takeover_timeout_s)
        stack.callback(lock.release)
        tighten(data / name for name in (place.LOG, place.WORKER_ERRORS))
        rotate(data / place.LOG)
        level = str(self._worker.get("log_level", ""))
        log = EventLog(data / place.LOG, place.MASTER, level=level)
        stack.callback(log.close)
        if warning:
            log("data_folder_open", warning)
        endpoints, temporary = place.make_endpoints(data)
        stack.callback(place.remove_mesh_file, data, endpoints, temporary)

        self._log = log
        spec = self._spec = {
            **self._worker,
            "masters": [endpoints],
            "log": str(data / place.LOG),
            "blobs": self._blobs,
            "settings_file": str(self._settings.path) if self._live is not None else "",
        }
        with contextlib.suppress(OSError):  # of an earlier life: its values may be old
            self._settings.path.unlink()
        supervisor = Supervisor(
            WORKER_MODULE,
            self._ids,
            spec,
            pass_fds=[lock.fd],
            stderr=data / place.WORKER_ERRORS,
            log=log,
            nursery=self._nursery,
        )
        self._spare = supervisor
        if self._begin_workers:
            await self.ensure_workers()
        await self._lead(leadership, endpoints, log)
        gc.freeze()  # what is loaded stays: later collections need not look at it
        gc.set_threshold(*GC_THRESHOLDS)
        place.write_mesh_file(data, endpoints)
        if self._live is not None:
            following = supervised(self._live.follow(), "configuration", log)
            stack.callback(following.cancel)
        # The workers end first, so that the master still receives their reports.
        stack.push_async_callback(self._stop_workers)

    @property
    def log(self) -> EventLog:
        """The log of the data folder, while the cluster runs."""
        assert self._log is not None
        return self._log

    async def ensure_workers(self) -> None:
        """Start the worker processes, unless they were started."""
        if self._spare is not None:
            supervisor, self._spare = self._spare, None
            self._supervisor = await self._stack.enter_async_context(supervisor)

    async def _stop_workers(self) -> None:
        if self._supervisor is not None:
            await self._supervisor.stop()

    async def _lead(self, leadership: Leadership, endpoints: Endpoints, log: EventLog) -> None:
        # Imported only now, so that the workers can already start on another core.
        from zcrawl.store.sql import light

        light.load()
        from zcrawl.store.sql.store import open_sqlite

        data, stack = self._data, self._stack
        # A new database waits for the disk several times: the modules are loaded meanwhile.
        from zcrawl.master.driver.loop import MasterLoop, MasterProcess
        from zcrawl.master.driver.outputs import OutputLoop
        from zcrawl.master.driver.retention import RetentionLoop
        from zcrawl.master.driver.store_threads import StoreThreads
        from zcrawl.master.events import Elected
        from zcrawl.master.master import Master
        from zcrawl.mesh.sockets.master import ZmqMasterMesh
        from zcrawl.outputs.files.folder import OutputPlaces

        store = StoreThreads(await asyncio.to_thread(open_sqlite, data / place.DATABASE), log)
        stack.push_async_callback(store.close)
        mesh = stack.enter_context(ZmqMasterMesh(endpoints, new_incarnation(), log))
        master = MasterLoop(
            # Only the owner of this folder can reach its sockets, and this user can use the
            # network, files and programs of this machine anyway.
            Master(
                place.MASTER,
                allow_private=True,
                allow_code=True,
                shell=self._rights.shell,
                vouches=True,
                fires=self._fires,
                outputs=self._output_rights,
                retention=self._retention,
                label_limits=self._label_limits,
                schedule_defaults=self._schedule_defaults,
                shares=self._shares,
            ),
            mesh,
            store,
            MasterProcess(
                clock=clock.now,
                utc=clock.utc,
                log=log,
                log_told=log.quietly,
                lines=log.take_lines,
                rss_bytes=clock.rss_bytes,
                cpu_percent=clock.CpuMeter().percent,
                on_applied=lambda: outputs.committed(),
                on_prune=lambda job: retention.prune(job),
                prepare=Vouching(log).prepare,
                reload=self._reload,
            ),
        )
        stack.callback(master.close)
        outputs = OutputLoop(
            store,
            lambda: master.machine.epoch,
            master.note,
            OutputPlaces(data, data, self._output_rights),
            clock.utc,
            body_getter(self._blobs, in_loop(master.note)),
            master=place.MASTER,
            alone=True,
        )
        stack.push_async_callback(outputs.close)
        retention = RetentionLoop(
            store,
            master.ask,
            lambda: master.machine.epoch,
            master.note,
            self._archive_places,
            clock.utc,
            defaults=self._retention,
            master=place.MASTER,
        )
        stack.push_async_callback(retention.close)
        self._removing = retention
        self._master, self._outputs = master, outputs
        try:
            async with asyncio.timeout(LEAD_TIMEOUT_S):
                await master.lead(Elected(leadership.hint, leadership.alone))
        except TimeoutError:
            raise StoreError(
                f"this process does not lead after {LEAD_TIMEOUT_S:.0f} s: {master.takeover_error}"
            ) from None
        if self._pause_unfinished:
            await self._pause()
        outputs.start()
        retention.start()
        master.listen()

    async def _pause(self) -> None:
        """Pause old runs. No worker is connected yet, so nothing of them was dispatched."""
        for row in self.snapshot().runs:
            if row.state in (RunState.PENDING, RunState.RUNNING):
                args = {"ref": str(row.job), "action": "pause", "run": row.run}
                with contextlib.suppress(RefusedError):  # it has ended meanwhile
                    await self.ask("act", args)

    # ------------------------------------------------------------ configuration

    def follow_config(
        self, config: Config, read: Callable[[], Config], files: Sequence[str]
    ) -> None:
        """Apply changes of the configuration while this runs. Call it before `async with`."""
        # Not loaded for a `crawl`, which ends before anybody would change a file.
        from zcrawl.config_changes import NodeKind
        from zcrawl.roles.live_config import LiveConfig

        self._worker |= {"labels": config.worker.labels, "log_level": config.log.level}
        self._live = LiveConfig(
            config,
            NodeKind.EMBEDDED,
            read=read,
            files=files,
            log=self._note_config,
            apply=self._apply,
        )

    def reload(self) -> None:
        """Read the configuration again, after SIGHUP."""
        self._reload("")

    def _reload(self, request: str) -> ReloadReport:
        return ReloadReport() if self._live is None else self._live.reload(request)

    def _note_config(self, name: str, detail: str) -> None:
        if self._log is not None:
            self._log(name, detail)

    def _apply(self, changes: Changes) -> None:
        from zcrawl.config_changes import KeyUse

        config, worker = changes.config, changes.config.worker
        assert self._log is not None and self._supervisor is not None
        self._log.configure(as_text=False, level=config.log.level)
        self._output_rights.allow(config.outputs.allow)
        self._keep_runs(retention_defaults(config))
        self._plan_by(config)
        self._spec = {
            **self._spec,
            "slots": worker.slots,
            "task_slots": worker.task_slots or default_task_slots(len(self._ids)),
            "rate": worker.rate,
            "bandwidth": worker.bandwidth,
            "stuck_after": worker.stuck_after,
            "rights": job_rights(config, owner=True),
            "labels": worker.labels,
            "log_level": config.log.level,
        }
        self._supervisor.use(self._spec)
        settings = msgspec.structs.replace(live_settings(config), log_text=False)
        try:
            self._settings.write(SettingsNote(settings, place.MASTER))
        except OSError as error:  # the workers keep the values they have until they end
            self._log(SETTINGS_NOT_KEPT, f"{self._settings.path}: {error.strerror}")
        if KeyUse.RENEWED in changes.uses:
            self._renew_again = True
            if self._renewal is None:
                self._renewal = supervised(self._renew(), "renew", self._log)
                self._stack.callback(self._renewal.cancel)

    def _keep_runs(self, retention: Retention) -> None:
        from zcrawl.master.events import RetentionChanged

        self._retention = retention
        if self._master is None or self._removing is None:
            return  # it starts with these values
        self._master.handle(RetentionChanged(retention))
        self._removing.configure(retention)

    def _plan_by(self, config: Config) -> None:
        from zcrawl.master.events import LabelLimitsChanged, ScheduleDefaultsChanged

        self._label_limits = config.tasks.label_limits
        self._schedule_defaults = schedule_defaults(config)
        if self._master is None:
            return  # it starts with these values
        self._master.handle(LabelLimitsChanged(self._label_limits))
        self._master.handle(ScheduleDefaultsChanged(self._schedule_defaults))

    def _archive_places(self, retention: Retention) -> ArchivePlaces:
        from zcrawl.master.driver.archive import archive_places

        return archive_places(self._data, self._data, self._output_rights, retention.archive)

    async def _renew(self) -> None:
        assert self._supervisor is not None
        try:
            while self._renew_again:  # it may change while processes are replaced
                self._renew_again = False
                await self._supervisor.renew(self._spec)
        finally:
            self._renewal = None

    # ------------------------------------------------------------ what commands use

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        assert self._master is not None
        request = ClientRequest(secrets.token_hex(16), op, args, by=who_asks())
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                while True:
                    reply = await self._master.ask(request)
                    if reply.ok or reply.data.get("code") != NO_LEADER:
                        return answer(reply)
                    await asyncio.sleep(POLL_S)  # between two epochs
        except TimeoutError:
            raise UnreachableError(f"{op}: no answer within {ASK_TIMEOUT_S:.0f} s") from None

    def snapshot(self) -> EmbeddedSnapshot:
        assert self._master is not None and self._outputs is not None
        complaint = self._supervisor.complaint() if self._supervisor is not None else None
        if complaint is not None:
            raise UnreachableError(complaint, code=WORKERS_FAIL)
        restarts = self._supervisor.restarts if self._supervisor is not None else 0
        troubles = tuple(
            OutputTrouble(run, path, error.code, str(error))
            for (run, path), error in self._outputs.troubles().items()
        )
        return EmbeddedSnapshot(
            **msgspec.structs.asdict(self._master.snapshot()),
            outputs=OutputTroubles(troubles),
            restarts=restarts,
        )

    async def drain(self, timeout_s: float) -> None:
        """Let the workers finish their requests; each ends when all its results are committed."""
        if self._supervisor is None:
            return
        self._supervisor.ask_to_leave()
        await self._supervisor.wait_gone(timeout_s)

    async def flush_outputs(self, runs: Collection[int] = ()) -> None:
        assert self._outputs is not None
        await self._outputs.flush(runs)
