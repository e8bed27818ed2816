"""Nodes, hosts, errors and ownership: the state of the cluster."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import Parameter

from zcrawl.gateway.principals import Principal
from zcrawl.gateway.routes.jobs import Limit, Run
from zcrawl.gateway.routes.reading import HttpRequest, answer, as_of, cursor, offset_of, view
from zcrawl.gateway.services import Services
from zcrawl.gateway.types import NodeChanged, Nodes, Owner, Rows

Node = Annotated[str, Parameter(description="id of a worker", max_length=255)]
Filter = Annotated[str | None, Parameter(description="a part of the row's text", max_length=500)]
Sort = Annotated[
    str | None, Parameter(description="a column; with - before it: descending", max_length=50)
]


@get("/nodes", tags=["nodes"], summary="List masters and workers")
async def list_nodes(
    request: HttpRequest, principal: Principal, services: Services
) -> Response[Nodes]:
    """List masters and workers, and where the registry and the mesh differ."""
    return answer(request, view(await services.ask(principal, "nodes", {}), Nodes))


@post("/nodes/{node:str}/drain", status_code=200, tags=["nodes"], summary="Drain a worker")
async def drain_node(node: Node, principal: Principal, services: Services) -> NodeChanged:
    """Let a worker finish its work, and give it no new work."""
    return view(await services.ask(principal, "drain", {"node": node}), NodeChanged)


@post("/nodes/{node:str}/undrain", status_code=200, tags=["nodes"], summary="Undrain a worker")
async def undrain_node(node: Node, principal: Principal, services: Services) -> NodeChanged:
    """Give a drained worker work again."""
    return view(await services.ask(principal, "undrain", {"node": node}), NodeChanged)


async def _rows(
    request: HttpRequest,
    principal: Principal,
    services: Services,
    op: str,
    args: dict[str, Any],
) -> Response[Rows]:
    plain = {name: value for name, value in args.items() if value is not None}
    sort = plain.get("sort", "")
    if sort.startswith("-"):
        plain |= {"sort": sort[1:], "desc": True}
    data = await services.ask(principal, op, plain)
    end = args["offset"] + len(data["rows"])
    more = cursor(end) if data["rows"] and end < data["total"] else None
    return answer(request, Rows(more, as_of(data), data["rows"], data["total"]))


@get("/hosts", tags=["nodes"], summary="List the hosts that are crawled")
async def list_hosts(
    request: HttpRequest,
    principal: Principal,
    services: Services,
    run: Run = None,
    filter: Filter = None,
    sort: Sort = None,
    after: Annotated[str | None, Parameter(query="cursor", max_length=20)] = None,
    limit: Limit = 100,
) -> Response[Rows]:
    """List hosts with pace, queue, owner and health."""
    args = {"run": run, "filter": filter, "sort": sort, "offset": offset_of(after), "limit": limit}
    return await _rows(request, principal, services, "hosts", args)


@get("/errors", tags=["nodes"], summary="List failures by run, host and reason")
async def list_errors(
    request: HttpRequest,
    principal: Principal,
    services: Services,
    run: Run = None,
    filter: Filter = None,
    sort: Sort = None,
    after: Annotated[str | None, Parameter(query="cursor", max_length=20)] = None,
    limit: Limit = 100,
) -> Response[Rows]:
    """List groups of failed requests, each with its newest example."""
    args = {"run": run, "filter": filter, "sort": sort, "offset": offset_of(after), "limit": limit}
    return await _rows(request, principal, services, "errors", args)


@get("/owner", tags=["nodes"], summary="Show who owns a host, a URL or an id")
async def read_owner(
    request: HttpRequest,
    principal: Principal,
    services: Services,
    resource: Annotated[str, Parameter(description="a host, a URL or any id", max_length=4_000)],
) -> Response[Owner]:
    """Show which node fetches from this host now, or would."""
    return answer(
        request, view(await services.ask(principal, "owner", {"resource": resource}), Owner)
    )


ROUTES = [list_nodes, drain_node, undrain_node, list_hosts, list_errors, read_owner]
