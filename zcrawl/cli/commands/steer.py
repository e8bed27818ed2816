"""`zcrawl tune` changes the pace and limits of a running job, `reassign` gives a host to another
worker, `rebalance` moves hosts from busy workers, `step-down` forces a failover. The console has
keys for most of these actions.
"""

from __future__ import annotations

from typing import Any

import click

from zcrawl.cli.base import Command, Settings, common, run_option
from zcrawl.errors import UsageError


@click.command("tune", cls=Command)
@click.argument("ref", metavar="ID|NAME")
@click.option("--rate", type=click.FloatRange(0), help="Requests per second and host; 0: no limit.")
@click.option("--concurrency", type=click.IntRange(1), help="Requests at the same time per host.")
@click.option("--burst", type=click.IntRange(1), help="Requests that may start together.")
@click.option("--depth", "max_depth", type=click.IntRange(0), help="Links of later pages only.")
@click.option("--max-pages", type=click.IntRange(0), help="0: no limit.")
@click.option("--max-pages-per-host", type=click.IntRange(0), help="0: no limit.")
@click.option("--tag", "tags", multiple=True, help="Instead of the tags it has. Can be repeated.")
@run_option
@common
def tune_command(
    settings: Settings, ref: str, run: int | None, tags: tuple[str, ...], **values: float | None
) -> int:
    """Change a job's pace and limits while it runs.

    The values are stored with the run until the run ends. The next run has the job's own values
    again. Another depth counts for links that are found from now on. A run that has --max-pages
    pages already ends.
    """
    changes: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if tags:
        changes["tags"] = list(tags)
    if not changes:
        raise UsageError(
            "nothing to change: give --rate, --concurrency, --burst, --depth, --max-pages, "
            "--max-pages-per-host or --tag"
        )
    of_run = {} if run is None else {"run": run}
    reply = _ask(settings, "tune", {"ref": ref, **of_run, **changes})
    shown = ", ".join(
        f"{name} {', '.join(value)}" if isinstance(value, list) else f"{name} {value:g}"
        for name, value in changes.items()
    )
    return _told(settings, reply, f"job {reply['job']}, run {reply['run']}: {shown}")


@click.command("reassign", cls=Command)
@click.argument("host")
@click.argument("node")
@common
def reassign_command(settings: Settings, host: str, node: str) -> int:
    """Give a host to another worker.

    Write the host as https://example.com. It moves when its present worker has finished the
    requests to it.
    """
    reply = _ask(settings, "reassign", {"host": host, "node": node})
    return _told(settings, reply, f"{reply['host']} goes to {reply['node']}")


@click.command("rebalance", cls=Command)
@click.option("--dry-run", is_flag=True, help="Only show what would move, and why.")
@common
def rebalance_command(settings: Settings, dry_run: bool) -> int:
    """Move hosts from busy workers to others, if it pays.

    The leader does this by itself when a worker is busy. The capacity of a worker is its slots,
    weighed by its measured speed, the lag of its loop and its memory.
    """
    from zcrawl.cli import output

    if dry_run:
        reply = _ask(settings, "balance", {})
    else:
        epoch = _ask(settings, "nodes", {})["leader"]["epoch"]
        reply = _ask(settings, "rebalance", {"epoch": epoch})
    if settings.json:
        output.print_json(reply)
        return 0
    output.table(
        ("worker", "capacity", "load", "because"),
        [
            (row["id"], row["capacity"], f"{row['load']:.2g}/s per slot", row["why"])
            for row in reply["workers"]
        ],
        right=("capacity", "load"),
    )
    for move in reply["moves"]:
        verb = "would go" if dry_run else "goes"
        output.note(f"{move['host']} {verb} from {move['from']} to {move['to']}: {move['why']}")
    if not reply["moves"]:
        output.note("no move pays")
    return 0


@click.command("step-down", cls=Command)
@common
def step_down_command(settings: Settings) -> int:
    """Force a failover: the leader steps down."""
    epoch = _ask(settings, "nodes", {})["leader"]["epoch"]
    reply = _ask(settings, "step_down", {"epoch": epoch})
    if reply["now"] != epoch:
        return _told(settings, reply, f"epoch {epoch} is over; {reply['leader']} leads now")
    return _told(settings, reply, f"{reply['leader']} gave up epoch {epoch}")


def _told(settings: Settings, reply: dict[str, Any], text: str) -> int:
    from zcrawl.cli import output

    if settings.json:
        output.print_json(reply)
    else:
        output.note(text)
    return 0


def _ask(settings: Settings, op: str, args: dict[str, Any]) -> dict[str, Any]:
    from zcrawl.cli import connect
    from zcrawl.runtime.loop import run_async

    async def ask() -> dict[str, Any]:
        async with connect.running(settings) as running:
            return await running(op, args)

    return run_async(ask())
