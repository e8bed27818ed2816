"""`zcrawl nodes` shows masters and workers, `drain` takes a worker out of service, `undrain` brings
it back. All need a running cluster, because the database does not store which nodes are alive.
"""

from __future__ import annotations

from typing import Any, Final

import click

from zcrawl.cli.base import Command, Settings, common


@click.command("nodes", cls=Command)
@common
def nodes_command(settings: Settings) -> int:
    """Show masters and workers, and where Consul and the mesh differ."""
    from zcrawl.cli import output
    from zcrawl.cli.connect import stale_note

    reply = _ask(settings, "nodes", {})
    if settings.json:
        output.print_json(reply)
        return 0
    output.note_if(stale_note(reply))
    leader = reply["leader"]
    output.note(f"leader  {leader['id'] or 'none'}, epoch {leader['epoch']}")
    if reply["masters"]:
        output.table(
            ("master", "role", "health", "cpu", "memory", "lag", "address", "pid", "host", "says"),
            [
                (
                    row["id"],
                    row["role"],
                    "passing" if row["healthy"] else "critical",
                    _cpu(row),
                    output.size(row["rss_bytes"]) if "rss_bytes" in row else "",
                    _lag(row),
                    row["control"],
                    row["pid"],
                    row["hostname"],
                    row["detail"],
                )
                for row in reply["masters"]
            ],
        )
    figures = (
        "fetching",
        "tasks",
        "waiting",
        "uncommitted",
        "rate",
        "cpu",
        "memory",
        "lag",
        "heard",
        "pid",
    )
    output.table(
        ("worker", "state", *figures, "host"),
        [_worker_cells(row) for row in reply["workers"]],
        right=figures,
    )
    for row in reply["workers"]:
        if row.get("labels"):
            output.note(f"labels of {row['id']}: {', '.join(row['labels'])}")
    for row in reply["workers"]:
        if row.get("deaf"):
            output.note(
                f"{row['id']} is heard, but does not hear the leader: its hosts go to others. "
                "It comes back by itself when messages reach it; if they do not, check the "
                "network between the two, or restart the worker"
            )
    if reply.get("drained"):
        output.note(f"drained: {', '.join(reply['drained'])}; `zcrawl undrain NODE` ends it")
    _show_standalone(reply.get("standalone"))
    if reply["catalogue"] != "ok":
        output.note(f"Consul: {reply['catalogue']}")
    for mismatch in reply["differences"]:
        output.note(
            f"{mismatch['node']}: {mismatch['mesh']} in the mesh, {mismatch['catalogue']} in Consul"
        )
    return 0


def _show_standalone(view: dict[str, Any] | None) -> None:
    """Show the list of standalone nodes, and which of them have another list."""
    from zcrawl.cli import output

    if not view:
        return
    output.note(f"standalone node {view['node']}, list {view['fingerprint']}")
    output.table(
        ("node", "state", "list", "address"),
        [
            (
                row["id"],
                ("alive" if row["alive"] else "silent") if view["watched"] else "listed",
                row["fingerprint"],
                row["address"],
            )
            for row in view["nodes"]
        ],
    )
    differing = [row["id"] for row in view["nodes"] if row["differs"]]
    if differing:
        output.note(
            f"{', '.join(differing)}: another list of nodes than this node has, so some resources "
            "have two owners or none; give all nodes the same list"
        )


GONE: Final = ("lost", "offline")


def _worker_cells(row: dict[str, Any]) -> tuple[object, ...]:
    """A worker that is gone has no figures: those of its last heartbeat are old."""
    from zcrawl.cli import output

    measured: tuple[object, ...] = ("",) * 8
    if row["state"] not in GONE:
        measured = (
            f"{row['running']}/{row['slots']}",
            f"{row.get('tasks', 0)}/{row.get('task_slots', 0)}",
            row["waiting"],
            row.get("uncommitted", 0),
            f"{row['rate'] + row.get('task_rate', 0.0):.0f}/s",
            _cpu(row),
            output.size(row["rss_bytes"]),
            _lag(row),
        )
    heard = f"{row['heard_s_ago']:.1f} s ago"
    return (row["id"], row["state"], *measured, heard, row["pid"], row["hostname"])


def _cpu(row: dict[str, Any]) -> str:
    """Percent of one core; empty for a node that has reported none."""
    used = row.get("cpu_percent")
    return "" if used is None else f"{used:.0f} %"


def _lag(row: dict[str, Any]) -> str:
    """Return the lag of a node's loop; empty for a master that has not reported it yet."""
    return f"{row['lag_ms']:.0f} ms" if "lag_ms" in row else ""


@click.command("drain", cls=Command)
@click.argument("node")
@common
def drain_command(settings: Settings, node: str) -> int:
    """Let a worker finish its work, and give it no new work.

    This is stored, until `zcrawl undrain`, or until the node is stopped and started again.
    """
    return _set_drain(settings, "drain", node)


@click.command("undrain", cls=Command)
@click.argument("node")
@common
def undrain_command(settings: Settings, node: str) -> int:
    """Give a drained worker work again."""
    return _set_drain(settings, "undrain", node)


def _set_drain(settings: Settings, op: str, node: str) -> int:
    from zcrawl.cli import output

    reply = _ask(settings, op, {"node": node})
    if settings.json:
        output.print_json(reply)
        return 0
    same = "" if reply.get("changed", 1) else ", as it was before"
    output.note(f"{reply['node']}: {reply['state']}{same}")
    if reply["state"] in ("lost", "offline"):
        then = "gets no work when it comes back" if op == "drain" else "may work when it comes back"
        output.note(f"it is not here; it {then}")
    return 0


def _ask(settings: Settings, op: str, args: dict[str, Any]) -> dict[str, Any]:
    from zcrawl.cli import connect
    from zcrawl.runtime.loop import run_async

    async def ask() -> dict[str, Any]:
        async with connect.running(settings) as running:
            return await running(op, args)

    return run_async(ask())
