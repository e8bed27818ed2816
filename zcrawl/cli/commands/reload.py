"""`zcrawl reload`: every node reads its configuration again, and tells what changed."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, Final

import click

from zcrawl.cli.base import Command, Settings, common

if TYPE_CHECKING:
    from zcrawl.cli.connect import Ask

POLL_S: Final = 0.2
GIVE_UP_S: Final = 20.0  # the leader gives up a node after 10 s; another one may take over


@click.command("reload", cls=Command)
@click.option("--node", metavar="ID", default="", help="Only this master or worker.")
@common
def reload_command(settings: Settings, node: str) -> int:
    """Let all nodes read their configuration again.

    Each node reads its own file. It applies all of it or, if something is wrong, nothing. The exit
    code is 1 if a node kept its old configuration or did not answer.
    """
    from zcrawl.cli import connect, output
    from zcrawl.runtime.loop import run_async

    async def reload() -> dict[str, Any]:
        async with connect.running(settings) as ask:
            return await _follow(ask, node)

    reply = run_async(reload())
    if settings.json:
        output.print_json(reply)
    else:
        for row in reply["nodes"]:
            for line in node_lines(row):
                output.note(line)
        for process in reply["waiting"]:
            output.note(f"{process}: no answer")
    failed = reply["waiting"] or any(row["error"] for row in reply["nodes"])
    return 1 if failed else 0


async def _follow(ask: Ask, node: str) -> dict[str, Any]:
    """Ask for a reload until all nodes have answered. A new leader does not know of it yet, and
    gets the same id: a node that has done it answers from memory."""
    id = secrets.token_hex(16)
    args = {"reload": id, "node": node} if node else {"reload": id}
    reply = await ask("reload", args)
    deadline = asyncio.get_running_loop().time() + GIVE_UP_S
    while reply["waiting"] and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(POLL_S)
        reply = await ask("reloaded", {"reload": id})
        if not reply["began"]:
            reply = await ask("reload", args)
    return reply


def node_lines(row: dict[str, Any]) -> list[str]:
    """Return the lines about one node: what changed, what waits, or why nothing did."""
    name = f"{row['kind']} {row['node']}"
    if row["error"]:
        return [f"{name}: kept its old configuration: {row['error']}"]
    lines = [f"{name}: {line}" for line in (*row["changed"], *row["needs_restart"])]
    return lines or [f"{name}: nothing has changed"]
