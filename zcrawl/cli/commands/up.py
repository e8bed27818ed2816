"""`zcrawl up`: an embedded cluster that stays up and accepts jobs from `zcrawl submit`."""

from __future__ import annotations

import asyncio
import shlex
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.cli.commands.crawl import make_folder
from zcrawl.cli.labels import label_option, more_labels

if TYPE_CHECKING:
    from zcrawl.model.snapshot import ClusterSnapshot, EmbeddedSnapshot

JOIN_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.1


@click.command("up", cls=Command)
@click.option("--workers", type=click.IntRange(1, 1000), metavar="N", help="Worker processes.")
@label_option
@common
def up_command(settings: Settings, workers: int | None, labels: tuple[str, ...]) -> int:
    """Run a cluster on this machine that accepts jobs.

    It continues jobs that were running, and stays until Ctrl-C or SIGTERM.
    """
    from zcrawl.cli import output
    from zcrawl.runtime.loop import run_async

    output.note_if(make_folder(settings.data))
    return run_async(_stay_up(settings, settings.workers(workers), labels))


async def _stay_up(settings: Settings, workers: int, labels: tuple[str, ...]) -> int:
    import msgspec

    from zcrawl.cli import output
    from zcrawl.cli.crawl_session import DRAIN_TIMEOUT_S
    from zcrawl.cli.interrupt import Interrupt
    from zcrawl.roles.embedded import EmbeddedCluster

    with Interrupt(lambda: "stopped at once; nothing that was committed is lost") as interrupt:
        cluster = EmbeddedCluster(
            settings.data,
            workers,
            blobs=settings.blobs(),
            **settings.worker_limits() | more_labels(settings.config, labels),
        )
        async with cluster:
            snapshot = await _joined(cluster, workers, interrupt)
            if settings.json:
                output.print_json(msgspec.to_builtins(snapshot))
            else:
                for line in describe(snapshot, str(settings.data)):
                    output.note(line)
            await interrupt.requested.wait()
            running = sum(run.in_flight for run in cluster.snapshot().runs)
            output.note(f"finishing {running} requests in flight; Ctrl-C again stops now")
            await cluster.drain(DRAIN_TIMEOUT_S)
            await cluster.flush_outputs()
    output.note("stopped; `zcrawl up` continues from here")
    sys.stderr.flush()
    return 0


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
