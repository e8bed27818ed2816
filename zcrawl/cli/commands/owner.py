"""`zcrawl owner RESOURCE`: which standalone node, or which worker of a cluster, owns a resource."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zcrawl.cli.base import Command, Settings, common

if TYPE_CHECKING:
    from zcrawl.standalone.node_list import NodeList


@click.command("owner", cls=Command)
@click.argument("resource")
@click.option("--nodes", metavar="LIST", help="Ids, with commas or as JSON, or @FILE: compute.")
@click.option("--url", "by_url", is_flag=True, help="The whole URL is the resource, not its host.")
@common
def owner_command(settings: Settings, resource: str, nodes: str | None, by_url: bool) -> int:
    """Show which node owns a host, a URL or any other id.

    With --nodes, or where a list of standalone nodes is configured, the answer is computed here,
    without a connection. Otherwise the leader is asked which worker has the host, or would get it.
    """
    from zcrawl.cli import output

    listed = _listed(settings, nodes)
    if listed is None:
        answer = _ask(settings, resource)
    else:
        answer = _compute(
            resource, listed, by_url or settings.config.standalone.resources == "urls"
        )
    if settings.json:
        output.print_json(answer)
        return 0
    print_owner = answer["owner"] or "nobody: no worker is there"
    output.data(print_owner)
    if not answer["held"]:
        output.note("nobody has it now; this one would get it")
    return 0


def _listed(settings: Settings, nodes: str | None) -> NodeList | None:
    """Return the list of nodes to compute with; None: ask the leader."""
    from zcrawl.roles.node_list_source import NodeListSource, read_node_file
    from zcrawl.standalone.node_list import of_entries, parse_nodes

    if nodes is None:
        source = NodeListSource(settings.config, os.environ)
        if source.is_consul:
            return _registered(settings)
        return source.read() if source.is_set else None
    if nodes.startswith("@"):
        return read_node_file(Path(nodes[1:]))
    if nodes.lstrip()[:1] in ("[", "{"):
        return parse_nodes(nodes, "--nodes")
    return of_entries(nodes.replace(",", " ").split(), "--nodes")


def _registered(settings: Settings) -> NodeList:
    """Return the nodes that live now, from Consul."""
    from zcrawl.roles.consul_nodes import registered_ids
    from zcrawl.standalone.node_list import of_entries

    return of_entries(sorted(registered_ids(settings.config)), "Consul")


def _compute(resource: str, listed: NodeList, by_url: bool) -> dict[str, Any]:
    from zcrawl.ownership import owner_of
    from zcrawl.standalone.shares import typed_resource

    name = typed_resource(resource, by_url=by_url)
    return {
        "resource": name,
        "owner": owner_of(name, listed.ids),
        "held": True,
        "nodes": list(listed.ids),
        "fingerprint": listed.fingerprint,
    }


def _ask(settings: Settings, resource: str) -> dict[str, Any]:
    from zcrawl.cli import connect
    from zcrawl.runtime.loop import run_async

    async def ask() -> dict[str, Any]:
        async with connect.running(settings) as running:
            return await running("owner", {"resource": resource})

    return run_async(ask())
