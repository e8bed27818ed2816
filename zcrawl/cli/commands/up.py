"""`zcrawl up`: an embedded cluster that stays up and accepts jobs from `zcrawl submit`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.cli.commands.crawl import make_folder
from zcrawl.cli.commands.gateway import address_of, http_option, open_listener, supervised_gateway
from zcrawl.cli.labels import label_option, with_labels

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcrawl.cli.interrupt import Interrupt
    from zcrawl.model.snapshot import ClusterSnapshot, EmbeddedSnapshot

JOIN_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.1
TERMINAL: Final = "/dev/tty"  # that of this process; it cannot be opened when it is closed


@click.command("up", cls=Command)
@click.option("--workers", type=click.IntRange(1, 1000), metavar="N", help="Worker processes.")
@label_option
@http_option
@common
def up_command(
    settings: Settings, workers: int | None, labels: tuple[str, ...], http: str | None
) -> int:
    """Run a cluster on this machine that accepts jobs.

    It continues jobs that were running, and stays until Ctrl-C or SIGTERM. A changed configuration
    is used without a restart: when its file changes, after SIGHUP, and after `zcrawl reload`.
    """
    from zcrawl.cli import output
    from zcrawl.runtime.loop import run_async

    output.note_if(make_folder(settings.data))
    listener = open_listener(http) if http else None
    return run_async(_stay_up(settings, settings.workers(workers), labels, listener))


async def _stay_up(
    settings: Settings,
    workers: int,
    labels: tuple[str, ...],
    listener: socket.socket | None,
) -> int:
    import msgspec

    from zcrawl.cli import output
    from zcrawl.cli.crawl_session import DRAIN_TIMEOUT_S
    from zcrawl.cli.interrupt import Interrupt
    from zcrawl.roles.embedded import EmbeddedCluster
    from zcrawl.roles.place import LOG

    with Interrupt(lambda: "stopped at once; nothing that was committed is lost") as interrupt:
        cluster = EmbeddedCluster(
            settings.data,
            workers,
            blobs=settings.blobs(),
            fires=True,
            **settings.worker_limits(),
        )
        cluster.follow_config(
            with_labels(settings.config, labels),
            lambda: with_labels(settings.again(None), labels),
            settings.config_files(),
        )
        async with cluster, contextlib.AsyncExitStack() as stack:
            _on_hangup(cluster.reload, interrupt)
            await stack.enter_async_context(
                supervised_gateway(
                    listener,
                    settings,
                    cluster.log,
                    data=settings.data,
                    log_file=settings.data / LOG,
                )
            )
            snapshot = await _joined(cluster, workers, interrupt)
            if settings.json:
                url = address_of(listener, settings) if listener is not None else None
                output.print_json(
                    msgspec.to_builtins(snapshot) | ({"http": url} if url is not None else {})
                )
            else:
                for line in describe(snapshot, str(settings.data)):
                    output.note(line)
                if listener is not None:
                    url = address_of(listener, settings)
                    output.note(f"HTTP on {url}; routes: {url}/v1/docs")
            await interrupt.requested.wait()
            running = sum(run.in_flight for run in cluster.snapshot().runs)
            output.note(f"finishing {running} requests in flight; Ctrl-C again stops now")
            await cluster.drain(DRAIN_TIMEOUT_S)
            await cluster.flush_outputs()
    output.note("stopped; `zcrawl up` continues from here")
    sys.stderr.flush()
    return 0


def _on_hangup(reload: Callable[[], None], interrupt: Interrupt) -> None:
    """SIGHUP means a reload, and also that the terminal was closed: then the cluster ends."""

    had_terminal = _has_terminal()

    def hung_up() -> None:
        if had_terminal and not _has_terminal():
            interrupt.press()
        else:
            reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)


def _has_terminal() -> bool:
    try:
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _joined(cluster: Any, workers: int, interrupt: Any) -> EmbeddedSnapshot:
    """Return the first snapshot with all workers, or the last one before the timeout."""
    waited = 0.0
    while True:
        snapshot: EmbeddedSnapshot = cluster.snapshot()
        here = [worker for worker in snapshot.workers if worker.state in ("idle", "busy")]
        if len(here) >= workers or waited >= JOIN_TIMEOUT_S or interrupt.requested.is_set():
            return snapshot
        await asyncio.sleep(POLL_S)
        waited += POLL_S


def describe(snapshot: ClusterSnapshot, data: str) -> list[str]:
    """Return lines that say what runs where, and what to do next."""
    lines = [f"leader {snapshot.leader}, epoch {snapshot.epoch}, data in {data}"]
    lines += [
        f"worker {worker.id}: {worker.state}, pid {worker.pid}, {worker.slots} slots"
        for worker in snapshot.workers
    ]
    lines += [f"{run.name}, run {run.run}: {run.state}" for run in snapshot.runs]
    lines.append(f"submit with: zcrawl submit URL --data {shlex.quote(data)}   (Ctrl-C ends)")
    return lines
