"""`zcrawl nodes` shows the mesh, `zcrawl drain` takes a worker out of it. Both need a running
cluster: who lives is nowhere stored.
"""

from __future__ import annotations

from typing import Any

import click

from zcrawl.cli.base import Command, Settings, common


@click.command("nodes", cls=Command)
@common
def nodes_command(settings: Settings) -> int:
    """Show the leader and its workers."""
    from zcrawl.cli import output

    reply = _ask(settings, "nodes", {})
    if settings.json:
        output.print_json(reply)
        return 0
    leader = reply["leader"]
    output.note("leader  " + ", ".join(f"{key} {value}" for key, value in leader.items()))
    output.table(
        ("worker", "state", "running", "waiting", "rate", "memory", "heard", "pid", "host"),
        [
            (
                row["id"],
                row["state"],
                f"{row['running']}/{row['slots']}",
                row["waiting"],
                f"{row['rate']:.0f}/s",
                output.size(row["rss_bytes"]),
                f"{row['heard_s_ago']:.1f} s ago",
                row["pid"],
                row["hostname"],
            )
            for row in reply["workers"]
        ],
    )
    return 0


@click.command("drain", cls=Command)
@click.argument("node")
@common
def drain_command(settings: Settings, node: str) -> int:
    """Let a worker finish, and give it nothing new."""
    from zcrawl.cli import output

    reply = _ask(settings, "drain", {"node": node})
    if settings.json:
        output.print_json(reply)
    else:
        output.note(f"{reply['node']}: {reply['state']}")
    return 0


def _ask(settings: Settings, op: str, args: dict[str, Any]) -> dict[str, Any]:
    from zcrawl.cli import connect
    from zcrawl.runtime.run_loop import run_async

    async def ask() -> dict[str, Any]:
        async with connect.running(settings.data) as running:
            return await running(op, args)

    return run_async(ask())
