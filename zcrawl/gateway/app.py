"""The litestar application: routes, who sends a request, and errors as problem+json.

A route's function names what it needs: `services: Services` and `principal: Principal`.
"""

from __future__ import annotations

from litestar import Litestar, Request, Response, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig

from zcrawl import __version__
from zcrawl.gateway.hub import EventHub
from zcrawl.gateway.principals import Principal
from zcrawl.gateway.problem import MEDIA_TYPE, Problem, ProblemError
from zcrawl.gateway.routes import events, items, misc, seeds
from zcrawl.gateway.services import Services

ROUTES = (*misc.ROUTES, *events.ROUTES, *items.ROUTES, *seeds.ROUTES)


def make_app(services: Services) -> Litestar:
    """Return the application over this line to the cluster."""

    hub = EventHub(services)

    async def provide_hub() -> EventHub:
        return hub

    async def provide_services() -> Services:
        return services

    async def provide_principal(request: Request[object, object, State]) -> Principal:
        address = request.client.host if request.client else ""
        return await services.principal(request.headers.get("authorization", ""), address)

    return Litestar(
        route_handlers=[Router("/v1", route_handlers=list(ROUTES))],
        dependencies={
            "hub": Provide(provide_hub),
            "services": Provide(provide_services),
            "principal": Provide(provide_principal),
        },
        on_shutdown=[hub.close],
        exception_handlers={ProblemError: _show_problem},
        openapi_config=OpenAPIConfig(title="zcrawl", version=__version__, path="/v1/schema"),
        debug=False,
    )


def _show_problem(
    request: Request[object, object, State], error: ProblemError
) -> Response[Problem]:
    headers = dict(error.headers)
    if error.retry_after_s:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    return Response(
        error.problem, status_code=error.problem.status, headers=headers, media_type=MEDIA_TYPE
    )
