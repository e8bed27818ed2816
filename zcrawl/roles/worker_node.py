"""Supervise the worker processes of one machine in a cluster: register them, give them the list of
masters, and watch them.

Wiring only. This process talks to Consul and fetches nothing. Its children, one for each core,
fetch and do not use Consul. A child is healthy while its process is alive and its loop works. After
SIGTERM, all requests in progress are finished and reported, then all processes end.

A changed configuration (`live_config`) reaches the children in two ways. Limits, labels and the log
level go into the file of live settings, which they look at every second. For other values, such as
keys, the children are replaced one by one, each after it has finished its requests. Only this
process reads the configuration; a child that the leader asks for a reload leaves a request here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, assert_never

from zcrawl import __version__
from zcrawl.config import Config
from zcrawl.config_changes import Changes, KeyUse, NodeKind
from zcrawl.coord import ports as coord
from zcrawl.errors import ConfigError, ZcrawlError
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.log_event import DRAIN_TIMEOUT, MASTERS_NOT_KEPT, SETTINGS_NOT_KEPT
from zcrawl.model.reasons.cluster import WORKERS_FAIL
from zcrawl.model.reload_report import ReloadReport
from zcrawl.roles import cluster
from zcrawl.roles.blobs import blobs_place
from zcrawl.roles.embedded import WORKER_MODULE
from zcrawl.roles.live_config import LiveConfig
from zcrawl.roles.own_id import Look, id_taken, require_free
from zcrawl.roles.place import WORKER_ERRORS
from zcrawl.roles.task_slots import default_task_slots
from zcrawl.roles.worker_files import (
    FILE,
    RELOAD_REQUEST,
    SETTINGS,
    MastersFile,
    Pulses,
    ReloadRequests,
    SettingsFile,
    SettingsNote,
    live_settings,
)
from zcrawl.runtime import clock
from zcrawl.runtime import lives as lives_files
from zcrawl.runtime.loop import TASK_FAILED, in_full, supervised
from zcrawl.runtime.notify import Notify
from zcrawl.runtime.supervisor import Supervisor, new_incarnation
from zcrawl.telemetry.logs.files import EventLog

STDERR: Final = 2
PULSES: Final = "pulses"
PULSE_S: Final = 0.5
ASK_AGAIN_S: Final = 10.0  # for the list of masters, where there is no Consul
DRAIN_TIMEOUT_S: Final = 30.0


class WorkerNode:
    def __init__(
        self,
        config: Config,
        data: Path,
        processes: int,
        log: EventLog,
        notify: Notify,
        *,
        coordinator: Callable[[], coord.Coordinator] | None,
        look: Look | None = None,
        closed: Sequence[str] = (),
        read: Callable[[], Config] | None = None,
    ) -> None:
        """Create the node. `look` reads the registered workers, to check that the names are free.
        `closed` are further files that no spider may read: those of the configuration, which
        `read` reads again."""
        self.id = cluster.node_id(config)
        self.ids = (
            [self.id] if processes == 1 else [f"{self.id}-{n}" for n in range(1, processes + 1)]
        )
        self._config = config
        self._data = data
        self._log = log
        self._notify = notify
        self._make = coordinator
        self._closed = closed
        self._look_for_double = look
        self._coordinators: dict[str, coord.Coordinator] = {}
        self._masters = MastersFile(data / FILE)
        self._pulses = Pulses(data / PULSES)
        self._failure: ConfigError | None = None
        self._stop = asyncio.Event()
        self._look = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None
        self._renew_again = False
        self._supervises = False  # before that, processes are started with the newest values
        self._settings = SettingsFile(data / SETTINGS)
        self._requests = ReloadRequests(data / RELOAD_REQUEST)
        self._live = LiveConfig(
            config,
            NodeKind.WORKER,
            read=read or (lambda: config),
            files=closed,
            log=log,
            check=cluster.client_keys,
            apply=self._apply,
        )

    async def run(self, stop: asyncio.Event) -> None:
        self._stop = stop
        clock.raise_file_limit()
        cluster.client_keys(self._config)  # report a wrong key here, not in every child
        if self._look_for_double is not None:
            await require_free(self.ids, coord.MemberRole.WORKER, self._look_for_double, stop)
        self._log_fd = os.dup(STDERR)  # children log events here; their own stderr is a file
        self._pulses.folder.mkdir(exist_ok=True)
        self._write_settings()
        self._requests.changed()  # a request from before this start is over
        with lives_files.Lives(self._data / lives_files.FILE) as lives:
            await self._supervise(lives)
        if self._failure is not None:
            raise self._failure

    async def _supervise(self, lives: lives_files.Lives) -> None:
        supervisor = Supervisor(
            WORKER_MODULE,
            self.ids,
            self._spec(self._log_fd),
            pass_fds=[self._log_fd, lives.fd],
            stderr=self._data / WORKER_ERRORS,
            log=self._log,
            lives=lives,
        )
        async with supervisor, contextlib.AsyncExitStack() as stack:
            stack.callback(os.close, self._log_fd)
            self._supervisor, self._supervises = supervisor, True
            stack.push_async_callback(self._leave_catalogue)
            for id in self.ids if self._make is not None else ():
                self._register(id)
            asking = None
            if self._make is None:
                asking = supervised(self._ask_for_masters(), "masters", self._log)
                stack.callback(asking.cancel)
            following = supervised(self._live.follow(), "configuration", self._log)
            stack.callback(following.cancel)
            await self._serve()
            if self._renewal is not None:
                self._renewal.cancel()
            supervisor.ask_to_leave()
            if not await supervisor.wait_gone(DRAIN_TIMEOUT_S):
                self._log(DRAIN_TIMEOUT, f"not all ended within {DRAIN_TIMEOUT_S:.0f} s")

    def _spec(self, log_fd: int) -> dict[str, Any]:
        """Return the start parameters of every child."""
        return {
            **self._configured(self._config),
            "masters": self._masters.read(),
            "masters_file": str(self._masters.path),
            "pulses": str(self._pulses.folder),
            "settings_file": str(self._settings.path),
            "reload_file": str(self._requests.path),
            "log": "",
            "log_fd": log_fd,
            "blobs": blobs_place(self._config, self._data, cluster=True),
            "closed": [name for name in (self._config.mesh.key_file, *self._closed) if name],
        }

    def _configured(self, config: Config) -> dict[str, Any]:
        """Return the start parameters that come from the configuration."""
        worker, mesh = config.worker, config.mesh
        return {
            "slots": worker.slots,
            "task_slots": worker.task_slots or default_task_slots(len(self.ids)),
            "rate": worker.rate,
            "bandwidth": worker.bandwidth,
            "rights": cluster.job_rights(config, owner=False),
            "stuck_after": worker.stuck_after,
            "key_file": mesh.key_file,
            "server_key": mesh.server_key,
            "log_text": config.log.format == "text",
            "log_level": config.log.level,
            "labels": list(worker.labels),
        }

    def _register(self, id: str) -> None:
        assert self._make is not None
        coordinator = self._make()
        member = coord.Member(
            coord.MemberRole.WORKER,
            id,
            self._config.cluster.name,
            __version__,
            os.uname().nodename,
            os.getpid(),
            new_incarnation(),
            slots=self._config.worker.slots,
        )
        coordinator.start(member, lambda event: self._on_coordination(id, event))
        self._coordinators[id] = coordinator

    async def _leave_catalogue(self) -> None:
        """Deregister all workers at once, because each waits a second while Consul is away."""
        await asyncio.gather(*(coordinator.close() for coordinator in self._coordinators.values()))

    async def _serve(self) -> None:
        self._notify.ready(f"{', '.join(self.ids)}")
        while not self._stop.is_set():
            for id, coordinator in self._coordinators.items():
                if self._supervisor.is_alive(id) and self._pulses.is_alive(id, clock.now()):
                    coordinator.loop_alive()
            self._notify.alive()
            self._reload_if_asked()
            complaint = self._supervisor.complaint()
            if complaint is not None:
                self._failure = ConfigError(complaint, code=WORKERS_FAIL)
                return
            if self._supervisor.all_left:
                self._tell("drained", "all workers of this host were drained")
                break
            with contextlib.suppress(TimeoutError):  # time for another beat
                await asyncio.wait_for(self._stop.wait(), PULSE_S)
        self._notify.stopping()
        for coordinator in self._coordinators.values():
            coordinator.update(coord.Condition(note="draining", tags=("draining",)))

    async def _ask_for_masters(self) -> None:
        """Ask a master of the list for all masters, if there is no Consul."""
        while True:
            try:
                self._remember(await cluster.find_masters(self._config))
            except ZcrawlError as error:
                self._tell("no_master_answers", str(error))
            except Exception as error:  # a bug: logged, and tried again
                self._log(TASK_FAILED, f"masters: {in_full(error)}")
            self._look.clear()
            with contextlib.suppress(TimeoutError):  # time to ask again
                await asyncio.wait_for(self._look.wait(), ASK_AGAIN_S)

    def _on_coordination(self, id: str, event: coord.CoordEvent) -> None:
        match event:
            case coord.MastersChanged(masters):
                self._remember(
                    [node.member.endpoints for node in masters if node.member.endpoints is not None]
                )
            case coord.IdTaken(other):
                self._failure = id_taken(coord.MemberRole.WORKER, other)
                self._stop.set()
            case coord.CoordAway(reason):
                self._tell("consul_away", reason)
            case coord.CoordBack():
                self._tell("consul_back", "Consul answers again")
            case coord.LeaderSeen() | coord.WorkersChanged() | coord.NodesChanged():
                pass  # workers learn the leader from its BEAT messages
            case coord.Elected() | coord.Deposed():
                raise AssertionError("a worker does not stand for election")
            case _:
                assert_never(event)

    def _remember(self, masters: list[Endpoints]) -> None:
        if masters:  # an empty list means that Consul lost its data, so keep the last masters
            try:
                self._masters.remember(masters)
            except OSError as error:  # the workers keep those they know
                self._log(MASTERS_NOT_KEPT, f"{self._masters.path}: {error.strerror}")

    def reload(self) -> None:
        """Read the configuration again, after SIGHUP, and look up the masters again."""
        self._notify.reloading()
        self._look.set()
        self._live.reload()
        self._notify.ready(", ".join(self.ids))

    def _reload_if_asked(self) -> None:
        """Reload if a child was asked for it by the leader, and leave the report for it."""
        if self._requests.changed() and (request := self._requests.take()):
            self._write_settings(request, self._live.reload(request))

    def _apply(self, changes: Changes) -> None:
        self._config = changes.config
        log = self._config.log
        self._log.configure(as_text=log.format == "text", level=log.level)
        self._look.set()
        if not self._supervises:
            return
        self._supervisor.use(self._spec(self._log_fd))
        self._write_settings()
        if KeyUse.RENEWED in changes.uses:
            self._renew_again = True
            if self._renewal is None:
                self._renewal = supervised(self._renew(), "renew", self._log)

    def _write_settings(self, request: str = "", report: ReloadReport | None = None) -> None:
        note = SettingsNote(live_settings(self._config), self.id, request, report or ReloadReport())
        try:
            self._settings.write(note)
        except OSError as error:  # the children keep the values they have until they end
            self._log(SETTINGS_NOT_KEPT, f"{self._settings.path}: {error.strerror}")

    async def _renew(self) -> None:
        try:
            while self._renew_again:  # it may change while processes are replaced
                self._renew_again = False
                await self._supervisor.renew(self._spec(self._log_fd))
            self._log("renewed", "all processes have the new configuration")
        finally:
            self._renewal = None

    def _tell(self, name: str, detail: str) -> None:
        self._log(name, detail)
        self._notify.status(detail)
