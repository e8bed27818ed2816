"""The litestar application: routes, who sends a request, and errors as problem+json.

    connection ──limits──▶ Guarded ──routing──▶ who? how fast? ──▶ route ──▶ Services ──▶ masters

A route's function names what it needs: `services: Services` and `principal: Principal`. A route is
closed to strangers unless it says `opt={"open": True}`.
"""

from __future__ import annotations

import logging
from typing import Any

from litestar import Litestar, Request, Response, Router
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    SerializationException,
    ValidationException,
)
from litestar.handlers import BaseRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

from zcrawl import __version__
from zcrawl.config import GatewayConfig
from zcrawl.errors import ZcrawlError
from zcrawl.gateway.hub import EventHub
from zcrawl.gateway.limits import RequestRates
from zcrawl.gateway.principals import Principal
from zcrawl.gateway.problem import (
    MEDIA_TYPE,
    ProblemBody,
    ProblemError,
    bad_field,
    of_body,
    of_error,
    problem,
)
from zcrawl.gateway.routes import events, items, jobs, misc, nodes, runs, schedules, seeds
from zcrawl.gateway.services import Services
from zcrawl.model.reasons.cluster import BAD_REQUEST, NO_SUCH_ROUTE
from zcrawl.model.reasons.failure import INTERNAL_ERROR

ROUTES = (
    *jobs.ROUTES,
    *runs.ROUTES,
    *schedules.ROUTES,
    *nodes.ROUTES,
    *misc.ROUTES,
    *events.ROUTES,
    *items.ROUTES,
    *seeds.ROUTES,
)
AnyRequest = Request[Any, Any, State]
_LOG = logging.getLogger("zcrawl.gateway")


def make_app(services: Services, config: GatewayConfig | None = None) -> Litestar:
    """Return the application over this line to the cluster."""
    config = config or GatewayConfig()
    rates = RequestRates(config)

    async def admit(
        connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
    ) -> None:
        """Find out who sends the request, and count it. Runs before every route."""
        if handler.opt.get("open"):
            return
        address = connection.client.host if connection.client else ""
        principal = await services.principal(connection.headers.get("authorization", ""), address)
        rates.take(principal)
        connection.scope["state"]["principal"] = principal

    hub = EventHub(services)

    async def provide_hub() -> EventHub:
        return hub

    async def provide_services() -> Services:
        return services

    async def provide_principal(request: AnyRequest) -> Principal:
        principal = request.scope["state"]["principal"]
        assert isinstance(principal, Principal)
        return principal

    cors = CORSConfig(allow_origins=list(config.cors)) if config.cors else None
    return Litestar(
        route_handlers=[Router("/v1", route_handlers=list(ROUTES))],
        guards=[admit],
        dependencies={
            "hub": Provide(provide_hub),
            "services": Provide(provide_services),
            "principal": Provide(provide_principal),
        },
        on_shutdown=[hub.close],
        exception_handlers={
            ProblemError: _show_problem,
            ZcrawlError: _show_error,
            ValidationException: _show_invalid,
            SerializationException: _show_unreadable,
            HTTPException: _show_http,
            Exception: _show_bug,
        },
        compression_config=CompressionConfig(
            backend="gzip", minimum_size=1_000, gzip_compress_level=5, exclude=["/events", "/items"]
        ),
        cors_config=cors,
        openapi_config=OpenAPIConfig(
            title="zcrawl",
            version=__version__,
            description="Jobs, runs and nodes of a zcrawl cluster. Errors are problem+json.",
            path="/v1/schema",
            render_plugins=[],
            components=Components(
                security_schemes={"bearer": SecurityScheme(type="http", scheme="bearer")}
            ),
            security=[{"bearer": []}],
        ),
        logging_config=None,
        request_max_body_size=None,  # `limits.Guarded` counts
        debug=False,
    )


def _show_problem(request: AnyRequest, error: ProblemError) -> Response[ProblemBody]:
    headers = dict(error.headers)
    if error.retry_after_s:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    return Response(
        error.problem, status_code=error.problem.status, headers=headers, media_type=MEDIA_TYPE
    )


def _show_error(request: AnyRequest, error: ZcrawlError) -> Response[ProblemBody]:
    return _show_problem(request, of_error(error))


def _show_invalid(request: AnyRequest, error: ValidationException) -> Response[ProblemBody]:
    extra = error.extra if isinstance(error.extra, list) else []
    first = extra[0] if extra and isinstance(extra[0], dict) else {}
    if first.get("key") and str(first.get("source", "")) != "body":
        name = str(first["key"])
        name = {
            "cursor_": "cursor",
            "state_": "state",
            "after": "cursor",
            "idempotency_key": "Idempotency-Key",
        }.get(name, name)
        return _show_problem(request, bad_field(name, f"{name}: {first.get('message', '')}"))
    text = str(first.get("message") or error.detail)
    shown = of_body(text)
    if first.get("key") not in (None, "", "data"):
        shown = bad_field(str(first["key"]), text)
    return _show_problem(request, shown)


def _show_unreadable(request: AnyRequest, error: SerializationException) -> Response[ProblemBody]:
    return _show_problem(request, of_body(str(error)))


def _show_http(request: AnyRequest, error: HTTPException) -> Response[ProblemBody]:
    if isinstance(error, NotFoundException):
        shown = problem(NO_SUCH_ROUTE, f"no route {request.url.path}")
    elif isinstance(error, MethodNotAllowedException):
        shown = problem(NO_SUCH_ROUTE, f"{request.method} is not for this path", status=405)
        shown.headers.update(error.headers or {})
    elif error.status_code >= 500:
        return _show_bug(request, error)
    else:
        shown = of_body(str(error.detail))
        if error.status_code != 400:
            shown = problem(BAD_REQUEST, str(error.detail), status=error.status_code)
    return _show_problem(request, shown)


def _show_bug(request: AnyRequest, error: Exception) -> Response[ProblemBody]:
    """Hide what went wrong from the client, and log it."""
    _LOG.error("%s %s", request.method, request.url.path, exc_info=error)
    return _show_problem(
        request, problem(INTERNAL_ERROR, "an error of the gateway's own; its log has more")
    )
