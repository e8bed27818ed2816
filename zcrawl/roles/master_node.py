"""A master of a cluster: a candidate for leadership that leads or follows, and leaves in order.

Wiring only. The order of starting: database (waits and logs while it is away), sockets,
coordinator. The order of stopping: the machine gives up its leadership and releases the lock, so
that another master can lead while this one still closes its resources.

A changed configuration (`live_config`) changes the rights of jobs, the places of outputs and the
log at once. Addresses, servers and keys need a restart, during which another master leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, assert_never

from zcrawl import __version__
from zcrawl.config import Config
from zcrawl.config_changes import Changes, NodeKind
from zcrawl.coord import ports as coord
from zcrawl.dispatch.secret_book import Vault
from zcrawl.errors import ConfigError, StoreError, StoreUnavailable
from zcrawl.master import events as m
from zcrawl.master.driver.archive import ArchivePlaces, archive_places
from zcrawl.master.driver.loop import MasterLoop, MasterProcess
from zcrawl.master.driver.outputs import OutputLoop
from zcrawl.master.driver.retention import RetentionLoop
from zcrawl.master.driver.store_threads import StoreThreads
from zcrawl.master.master import Master
from zcrawl.mesh.address import TcpAddress, advertised, parse_endpoint
from zcrawl.mesh.ports import Endpoints
from zcrawl.mesh.security import check_bind
from zcrawl.mesh.sockets.keys import AllowList
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.peers import ZmqPeers
from zcrawl.model.spec import Retention
from zcrawl.outputs.files.folder import OutputPlaces
from zcrawl.roles import cluster
from zcrawl.roles.allow_list import follow_allow_list
from zcrawl.roles.blobs import blobs_place, body_getter, in_loop
from zcrawl.roles.live_config import LiveConfig
from zcrawl.roles.own_id import Look, id_taken, require_free
from zcrawl.roles.place import OUTPUTS
from zcrawl.roles.vault import read_vault, renewed_vault
from zcrawl.runtime import clock
from zcrawl.runtime.loop import supervised
from zcrawl.runtime.notify import Notify
from zcrawl.runtime.supervisor import new_incarnation
from zcrawl.store.ports import Store
from zcrawl.submit.output_rights import OutputRights
from zcrawl.submit.shell_rights import of_masters
from zcrawl.telemetry.logs.files import EventLog

PULSE_S: Final = 0.5
DATABASE_AGAIN_S: Final = 1.0
DATABASE_AGAIN_MOST_S: Final = 10.0


class MasterNode:
    """`await MasterNode(config, ...).run(stop)`; `stop` is set by a signal."""

    def __init__(
        self,
        config: Config,
        log: EventLog,
        notify: Notify,
        *,
        coordinator: coord.Coordinator,
        open_store: Callable[[], Store],
        look: Look | None = None,
        read: Callable[[], Config] | None = None,
        files: Sequence[str] = (),
    ) -> None:
        """Create the node; `look` reads the registered masters, to check that the name is free.
        `read` reads the configuration again, which is in `files`."""
        self.id = cluster.node_id(config)
        self._config = config
        self._log = log
        self._notify = notify
        self._coordinator = coordinator
        self._open_store = open_store
        self._look = look
        self._allow = AllowList(Path(config.mesh.allow_file)) if config.mesh.allow_file else None
        self._rights = OutputRights(config.outputs.allow)
        self._live = LiveConfig(
            config,
            NodeKind.MASTER,
            read=read or (lambda: config),
            files=files,
            log=log,
            apply=self._apply,
        )
        self._failure: ConfigError | None = None
        self._stop = asyncio.Event()
        self._master: MasterLoop | None = None
        self._vault = Vault()

    async def run(self, stop: asyncio.Event) -> None:
        self._stop = stop
        clock.raise_file_limit()
        async with contextlib.AsyncExitStack() as stack:
            data = Path(self._config.data.dir)
            bodies = blobs_place(self._config, data, cluster=True)
            keys = cluster.master_keys(self._config)
            endpoints = self._bound = self._endpoints()
            check_bind(endpoints, keys, self._config.mesh.insecure)
            incarnation = new_incarnation()
            allowed = self._allow.poll() if self._allow is not None else None
            self._mesh = stack.enter_context(
                ZmqMasterMesh(endpoints, incarnation, self._log, keys=keys, allowed=allowed)
            )
            self._peers = stack.enter_context(ZmqPeers(self.id, incarnation, self._log, keys=keys))
            database = await self._database()
            if database is None:
                return
            store = StoreThreads(database, self._log)
            stack.push_async_callback(store.close)
            outputs = Path(self._config.outputs.dir or data / OUTPUTS)
            defaults = cluster.retention_defaults(self._config)
            # Stored secrets go over encrypted connections only.
            self._vault = read_vault(self._config, private=keys is not None)
            master = self._master = MasterLoop(
                Master(
                    self.id,
                    allow_private=self._allows_private(self._config),
                    allow_code=self._config.cluster.allow_code,
                    shell=of_masters(self._config.cluster.allow_shell),
                    outputs=self._rights,
                    retention=defaults,
                    label_limits=self._config.tasks.label_limits,
                    schedule_defaults=cluster.schedule_defaults(self._config),
                    vault=self._vault,
                ),
                self._mesh,
                store,
                MasterProcess(
                    clock=clock.now,
                    utc=clock.utc,
                    log=self._log,
                    log_told=self._log.quietly,
                    lines=self._log.take_lines,
                    rss_bytes=clock.rss_bytes,
                    cpu_percent=clock.CpuMeter().percent,
                    on_applied=lambda: self._outputs.committed(),
                    on_prune=lambda job: self._retention.prune(job),
                    on_step_down=self._resign,
                    reload=self._live.reload,
                ),
                self._peers,
            )
            stack.callback(master.close)
            self._outputs = OutputLoop(
                store,
                lambda: master.machine.epoch,
                master.note,
                OutputPlaces(data, outputs, self._rights, shared=self._config.outputs.shared),
                clock.utc,
                body_getter(bodies, in_loop(master.note)),
                master=self.id,
                alone=False,
            )
            stack.push_async_callback(self._outputs.close)
            self._outputs.start()
            self._outputs_folder = outputs
            self._retention = RetentionLoop(
                store,
                master.ask,
                lambda: master.machine.epoch,
                master.note,
                self._archive_places,
                clock.utc,
                defaults=defaults,
                master=self.id,
            )
            stack.push_async_callback(self._retention.close)
            self._retention.start()
            if self._allow is not None:
                following = follow_allow_list(self._allow, self._mesh.allow, self._log)
                stack.callback(supervised(following, "allow list", self._log).cancel)
            looking = supervised(self._live.follow(), "configuration", self._log)
            stack.callback(looking.cancel)
            me = self._member(incarnation)
            master.handle(m.CatalogueSeen(own=me.endpoints))
            master.listen()
            if self._look is not None:
                await require_free([self.id], coord.MemberRole.MASTER, self._look, stop)
            self._coordinator.start(me, self._on_coordination)
            await self._serve()
            master.handle(m.Deposed("this master is leaving"))
            await self._coordinator.close()
        if self._failure is not None:
            raise self._failure

    # ------------------------------------------------------------ starting

    def _endpoints(self) -> Endpoints:
        mesh = self._config.mesh
        ports = (mesh.control_port, mesh.reports_port, mesh.events_port)
        return Endpoints(self.id, *(str(TcpAddress(mesh.bind.strip("[]"), port)) for port in ports))

    def _member(self, incarnation: int) -> coord.Member:
        mesh = self._config.mesh
        hostname = os.uname().nodename
        return coord.Member(
            coord.MemberRole.MASTER,
            self.id,
            self._config.cluster.name,
            __version__,
            hostname,
            os.getpid(),
            incarnation,
            endpoints=advertised(self._mesh.endpoints, mesh.advertise or hostname),
        )

    async def _database(self) -> Store | None:
        """Open the database; while it is away, wait and log it. None: stopped meanwhile."""
        pause_s = DATABASE_AGAIN_S
        while not self._stop.is_set():
            try:
                return await asyncio.to_thread(self._open_store)
            except StoreUnavailable as error:
                self._tell("database_away", f"waiting for the database: {error}")
            except StoreError as error:
                raise ConfigError(str(error), code=error.code) from error
            with contextlib.suppress(TimeoutError):  # then try again
                await asyncio.wait_for(self._stop.wait(), pause_s)
            pause_s = min(pause_s * 2, DATABASE_AGAIN_MOST_S)
        return None

    # ------------------------------------------------------------ running

    async def _serve(self) -> None:
        self._notify.ready(f"{self.id}: standing for election")
        while not self._stop.is_set():
            self._coordinator.loop_alive()
            self._coordinator.update(self._condition())
            self._notify.alive()
            with contextlib.suppress(TimeoutError):  # time for another beat
                await asyncio.wait_for(self._stop.wait(), PULSE_S)
        self._notify.stopping()

    def _condition(self) -> coord.Condition:
        assert self._master is not None
        leader = self._master.machine.leader
        if leader is None:
            follower = self._master.machine.follower
            role = f"follower of {follower.leader}" if follower.leader else "follower"
            return coord.Condition(note=f"{role}, epoch {follower.epoch}")
        workers = sum(info.present for info in leader.state.roster.workers.values())
        return coord.Condition(note=f"leader, epoch {leader.state.epoch}, {workers} workers")

    def reload(self) -> None:
        """Read the configuration and the list of allowed keys again, after SIGHUP."""
        self._notify.reloading()
        self._live.reload()
        if self._allow is not None:
            try:
                allowed = self._allow.poll()
            except ConfigError as error:  # the list stays as it was
                self._log(error.code, str(error))
            else:
                if allowed is not None:
                    self._mesh.allow(allowed)
        self._notify.ready(f"{self.id}: read its files again")

    def _apply(self, changes: Changes) -> None:
        config = self._config = changes.config
        self._log.configure(as_text=config.log.format == "text", level=config.log.level)
        self._rights.allow(config.outputs.allow)
        if self._master is not None:  # else it starts with these rights
            self._master.handle(
                m.RightsChanged(
                    self._allows_private(config),
                    config.cluster.allow_code,
                    of_masters(config.cluster.allow_shell),
                )
            )
            self._vault = renewed_vault(config, self._vault, self._log)
            self._master.handle(m.VaultChanged(self._vault))
            defaults = cluster.retention_defaults(config)
            self._master.handle(m.RetentionChanged(defaults))
            self._master.handle(m.LabelLimitsChanged(config.tasks.label_limits))
            schedules = cluster.schedule_defaults(config)
            self._master.handle(m.ScheduleDefaultsChanged(schedules))
            self._retention.configure(defaults)

    def _archive_places(self, defaults: Retention) -> ArchivePlaces:
        data, shared = Path(self._config.data.dir), self._config.outputs.shared
        outputs, archive = self._outputs_folder, defaults.archive
        return archive_places(data, outputs, self._rights, archive, shared=shared)

    def _allows_private(self, config: Config) -> bool:
        """Return whether jobs may reach private addresses: also if only this machine's own users
        reach the masters."""
        return config.cluster.allow_private or _is_local(self._bound)

    def _resign(self, reason: str) -> None:
        self._log("step_down", reason)
        self._coordinator.resign()

    def _on_coordination(self, event: coord.CoordEvent) -> None:
        master = self._master
        assert master is not None
        match event:
            case coord.Elected(hint, alone):
                self._tell("elected", f"{self.id} holds the lock, index {hint}")
                master.handle(m.Elected(hint, alone))
                self._outputs.committed()
            case coord.Deposed(reason):
                self._tell("deposed", reason)
                master.handle(m.Deposed(reason))
                self._outputs.forget()
            case coord.LeaderSeen(leader, _, _, detail):
                self._tell("leader_seen", f"{leader or 'nobody'} holds the lock {detail}".strip())
            case coord.MastersChanged(masters):
                self._peers.follow(
                    [node.member.endpoints for node in masters if node.member.endpoints]
                )
                master.handle(m.CatalogueSeen(masters=tuple(_entry(node) for node in masters)))
            case coord.WorkersChanged(workers):
                master.handle(m.CatalogueSeen(workers=tuple(_entry(node) for node in workers)))
            case coord.NodesChanged():
                pass  # told to standalone nodes only
            case coord.IdTaken(other):
                self._failure = id_taken(coord.MemberRole.MASTER, other)
                self._stop.set()
            case coord.CoordAway(reason):
                self._tell("consul_away", reason)
                master.handle(m.CatalogueSeen(away=reason))
            case coord.CoordBack():
                self._tell("consul_back", "Consul answers again")
                master.handle(m.CatalogueSeen(away=""))
            case _:
                assert_never(event)

    def _tell(self, name: str, detail: str) -> None:
        self._log(name, detail)
        self._notify.status(detail)


def _is_local(endpoints: Endpoints) -> bool:
    """Return whether the sockets are on loopback only, so that only this machine reaches them."""
    bound = (endpoints.control, endpoints.reports, endpoints.events)
    addresses = [parse_endpoint(text) for text in bound]
    return all(address is None or address.is_loopback for address in addresses)


def _entry(sighting: coord.Sighting) -> m.NodeEntry:
    member = sighting.member
    return m.NodeEntry(
        member.id,
        sighting.health is coord.Health.PASSING,
        sighting.condition.note,
        member.hostname,
        member.version,
        member.pid,
        member.endpoints,
    )
