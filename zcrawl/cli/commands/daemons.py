"""`zcrawl master` and `zcrawl worker`: the daemons of a cluster. They run in the foreground and log
to standard error, as a service manager wants it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.cli.commands.crawl import make_folder
from zcrawl.cli.commands.gateway import (
    http_option,
    open_listener,
    supervised_gateway,
    tell_address,
)
from zcrawl.cli.labels import label_option, with_labels
from zcrawl.errors import ConfigError, UsageError
from zcrawl.model.log_event import RELOAD_REFUSED
from zcrawl.runtime import watchdog

if TYPE_CHECKING:
    from zcrawl.config import Config
    from zcrawl.telemetry.logs.files import EventLog


@click.command("master", cls=Command)
@click.option("--id", "node", metavar="ID", help="This node's name. [default: the host's]")
@click.option("--create-database", is_flag=True, help="Make the database if it is missing.")
@http_option
@common
def master_command(
    settings: Settings, node: str | None, create_database: bool, http: str | None
) -> int:
    """Run a master of a cluster.

    Masters find each other and elect a leader through Consul; all state is in the database. Any
    number may run; SIGTERM hands leadership over at once. A changed configuration is used without a
    restart: when its file changes, after SIGHUP, and after `zcrawl reload`.
    """
    from zcrawl.runtime.loop import run_async

    async def run() -> int:
        from zcrawl.coord.ports import MemberRole
        from zcrawl.roles import cluster
        from zcrawl.roles.master_node import MasterNode
        from zcrawl.runtime.notify import Notify

        config = settings.named(node)
        log = settings.daemon_log(cluster.node_id(config))
        if warning:
            log("data_folder_open", warning)
        master = MasterNode(
            config,
            log,
            Notify(),
            coordinator=cluster.coordinator(config),
            open_store=lambda: cluster.open_store(config, create=create_database),
            look=lambda: cluster.registered(config, MemberRole.MASTER),
            read=lambda: settings.again(node),
            files=settings.config_files(),
        )
        async with supervised_gateway(listener, settings, log, data=None):
            return await run_until_signal(
                master.run,
                master.reload,
                even_if_stuck=True,
            )

    warning = make_folder(settings.data)
    listener = open_listener(http) if http else None
    if listener is not None:
        tell_address(listener, settings)
    return run_async(run())


@click.command("worker", cls=Command)
@click.option("--id", "node", metavar="ID", help="This node's name. [default: the host's]")
@click.option("--processes", type=click.IntRange(1, 1000), metavar="N", help="Worker processes.")
@label_option
@click.option("--standalone", is_flag=True, help="Work without masters, in a store of its own.")
@click.option("--job", "jobs", multiple=True, metavar="FILE", help="With --standalone: a job file.")
@common
def worker_command(
    settings: Settings,
    node: str | None,
    processes: int | None,
    labels: tuple[str, ...],
    standalone: bool,
    jobs: tuple[str, ...],
) -> int:
    """Run a worker of a cluster, or with --standalone a node without a master.

    One process for each core, unless --processes says otherwise. It finds the masters through
    Consul, or through cluster.masters, and needs no open port. After SIGTERM it finishes its
    requests and ends. A changed configuration is used without a restart: when its file changes,
    after SIGHUP, and after `zcrawl reload`.

    With --standalone it runs the jobs of its job files in its data folder. With a list of nodes
    (docs/standalone.md) it does its share of them: each node computes alone who owns a host.
    """
    from zcrawl.runtime.loop import run_async

    if standalone:
        return _standalone(settings, node, processes, jobs)
    if jobs:
        raise UsageError("--job needs --standalone; on a cluster: zcrawl submit FILE")

    async def run() -> int:
        from zcrawl.coord.ports import MemberRole
        from zcrawl.roles import cluster
        from zcrawl.roles.worker_node import WorkerNode
        from zcrawl.runtime.notify import Notify

        config = with_labels(settings.named(node), labels)
        in_consul = bool(config.consul.address)
        log = settings.daemon_log(cluster.node_id(config))
        if warning:
            log("data_folder_open", warning)
        worker = WorkerNode(
            config,
            settings.data,
            settings.workers(processes),
            log,
            Notify(),
            coordinator=(lambda: cluster.coordinator(config)) if in_consul else None,
            look=(lambda: cluster.registered(config, MemberRole.WORKER)) if in_consul else None,
            closed=settings.config_files(),
            read=lambda: with_labels(settings.again(node), labels),
        )
        return await run_until_signal(worker.run, worker.reload)

    settings.require_cluster()
    warning = make_folder(settings.data)
    return run_async(run())


def _standalone(
    settings: Settings, node: str | None, processes: int | None, jobs: tuple[str, ...]
) -> int:
    """Run a node without a master."""
    import os

    from zcrawl.cli.commands.crawl import check_before
    from zcrawl.cli.specs import prepare
    from zcrawl.roles.embedded import EmbeddedCluster
    from zcrawl.roles.node_list_source import NODE_ID
    from zcrawl.roles.standalone_node import StandaloneJob, StandaloneNode
    from zcrawl.runtime.loop import run_async
    from zcrawl.runtime.notify import Notify

    environ = dict(os.environ) if node is None else {**os.environ, NODE_ID: node}
    log = settings.daemon_log(environ.get(NODE_ID) or settings.config.standalone.id or "node")
    role = StandaloneNode(settings.config, environ, log, Notify())
    prepared = []
    for file in jobs:
        submission = prepare((), file, None, {}, lists_vouch=True)
        check_before(submission, None)
        spec = submission.spec
        arguments = submission.args("new", None)
        rate, shared = spec.politeness.rate, bool(spec.resources)
        prepared.append(StandaloneJob(spec.name, arguments, rate, shared))
    warning = make_folder(settings.data)
    if warning:
        log("data_folder_open", warning)
    cluster = EmbeddedCluster(
        settings.data,
        settings.workers(processes),
        **settings.worker_limits(),
        blobs=settings.blobs(),
        shares=role.shares,
        begin_workers=False,
    )
    return run_async(
        run_until_signal(
            lambda stop: role.run(cluster, prepared, stop),
            lambda: _reload(settings, role.reload, log),
        )
    )


def _reload(settings: Settings, reload: Callable[[Config], None], log: EventLog) -> None:
    """Read the files again; if one is wrong, log it and change nothing."""
    try:
        config = settings.again(None)
    except ConfigError as error:
        log(RELOAD_REFUSED, str(error))
        return
    reload(config)


async def run_until_signal(
    run: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
    reload: Callable[[], None],
    *,
    even_if_stuck: bool = False,
) -> int:
    """Run until a signal comes. `even_if_stuck`: end the process even if its loop is stuck."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    if even_if_stuck:
        watchdog.on_signals((signal.SIGTERM, signal.SIGINT), stop.set)
    else:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    await run(stop)
    return 0
