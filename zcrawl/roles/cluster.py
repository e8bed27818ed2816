"""Shared parts of a cluster's roles: name, keys, store and coordinator of a node, and the search
for masters. Wiring only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from zcrawl.config import Config
from zcrawl.errors import ConfigError, UnreachableError
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.reasons.cluster import CONSUL_AWAY, NO_MASTER
from zcrawl.runtime.threads import in_daemon_thread

if TYPE_CHECKING:
    from zcrawl.coord.agents.consul_client import ConsulSettings
    from zcrawl.coord.ports import Coordinator, MemberRole, Sighting
    from zcrawl.fetch.keyring import JobRights
    from zcrawl.mesh.security import MeshKeys
    from zcrawl.model.spec import Retention, ScheduleDefaults
    from zcrawl.store.ports import Store


def node_id(config: Config) -> str:
    return config.cluster.id or os.uname().nodename.partition(".")[0]


def consul_settings(config: Config) -> ConsulSettings:
    from zcrawl.coord.agents.consul_client import ConsulSettings, check_tls

    consul = config.consul
    if not consul.address:
        raise ConfigError(
            "consul.address is empty, and a node of a cluster needs a Consul agent; give --config "
            "FILE (configs/master.toml is an example). `zcrawl up` needs none"
        )
    settings = ConsulSettings(
        consul.address,
        consul.token,
        consul.datacenter,
        consul.ca_file,
        consul.cert_file,
        consul.key_file,
    )
    check_tls(settings)
    return settings


def coordinator(config: Config) -> Coordinator:
    from zcrawl.coord.agents.consul import ConsulCoordinator
    from zcrawl.runtime import clock

    return ConsulCoordinator(consul_settings(config), clock.now)


def open_store(config: Config, *, readonly: bool = False, create: bool = False) -> Store:
    from zcrawl.store.sql.store import open_mysql

    if not config.database.urls:
        raise ConfigError(
            "database.urls is empty; write where the cluster's database is (configs/master.toml)"
        )
    return open_mysql(config.database.urls, readonly=readonly, create=create)


def master_keys(config: Config) -> MeshKeys | None:
    from zcrawl.mesh.sockets.keys import read_mesh_keys

    mesh = config.mesh
    return read_mesh_keys(Path(mesh.key_file)) if mesh.key_file else None


def client_keys(config: Config) -> MeshKeys | None:
    """Return the keys of a worker, a command or a console."""
    mesh = config.mesh
    if not mesh.key_file:
        return None
    if not mesh.server_key:
        raise ConfigError(
            "mesh.key_file needs mesh.server_key too: the masters' public key, which `zcrawl keys "
            "show` prints"
        )
    from zcrawl.mesh.sockets.keys import read_mesh_keys

    return read_mesh_keys(Path(mesh.key_file), mesh.server_key)


def job_rights(config: Config, *, owner: bool) -> JobRights:
    """Return what jobs may use on a worker's machine; `owner`: the jobs are of its own user."""
    from zcrawl.fetch.keyring import JobRights
    from zcrawl.submit.shell_rights import ShellRights

    hosts = {name: secret.hosts for name, secret in config.secrets.items()}
    commands = {name: secret.commands for name, secret in config.secrets.items()}
    shell = config.worker.shell
    rights = ShellRights(
        shell.any,
        shell.allow,
        shell.env,
        shell.folders,
        processes=min(shell.processes, shell.max_processes),
        max_processes=shell.max_processes,
    )
    return JobRights(owner, config.worker.tls_files, hosts, rights, commands)


def retention_defaults(config: Config) -> Retention:
    """Return which runs are kept of jobs that do not say it."""
    from zcrawl.model.spec import Retention

    section = config.retention
    return Retention(section.keep_runs or None, section.keep_days or None, section.archive)


def schedule_defaults(config: Config) -> ScheduleDefaults:
    """Return what counts for schedules of jobs that do not say it."""
    from zcrawl.model.spec import ScheduleDefaults

    return ScheduleDefaults(**msgspec.structs.asdict(config.schedules))


async def find_masters(config: Config) -> list[Endpoints]:
    """Find the masters, healthy ones first: from Consul, or by asking one of them."""
    if not config.consul.address:
        return await ask_for_masters(config.cluster.masters, client_keys(config))
    # Not `asyncio.to_thread`: a program that ends would wait for a Consul that does not answer.
    masters = await in_daemon_thread(lambda: _registered_masters(config), "zcrawl-consul")
    if not masters:
        raise UnreachableError(
            f"no master of the cluster {config.cluster.name!r} is registered in Consul at "
            f"{config.consul.address}; `zcrawl master` starts one",
            code=NO_MASTER,
        )
    return masters


def _registered_masters(config: Config) -> list[Endpoints]:
    from zcrawl.coord.ports import Health, MemberRole

    seen = sorted(
        registered(config, MemberRole.MASTER),
        key=lambda master: (master.health is not Health.PASSING, not master.leads),
    )
    return [master.member.endpoints for master in seen if master.member.endpoints is not None]


def registered(config: Config, role: MemberRole) -> list[Sighting]:
    """Read the registered nodes from Consul. Blocks."""
    from zcrawl.coord.agents.consul_client import ConsulClient
    from zcrawl.coord.ports import Member

    asking = Member(role, "", config.cluster.name, "", "", 0, 0)
    client = ConsulClient(consul_settings(config), asking)
    try:
        _, read = client.read_members(role, None, 0)
    except Exception as error:
        raise UnreachableError(client.explain(error)[1], code=CONSUL_AWAY) from error
    return [row.sighting for row in read.rows]


async def ask_for_masters(controls: Sequence[str], keys: MeshKeys | None) -> list[Endpoints]:
    """Ask the masters for the list of all masters; the first answer is used."""
    from zcrawl.roles.client import MeshClient

    async with MeshClient(list(controls), keys=keys) as client:
        reply = await client.ask("masters", {})
    return msgspec.convert(reply["masters"], list[Endpoints])
