"""Health of this process and of the cluster behind it, and the documents of the interface."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from litestar import MediaType, Response, get

from zcrawl import __version__
from zcrawl.gateway.docs_page import render
from zcrawl.gateway.problem import problem
from zcrawl.gateway.routes.reading import JSON, HttpRequest
from zcrawl.gateway.services import Services
from zcrawl.gateway.types import Health, Ready
from zcrawl.model.reasons.cluster import NO_LEADER

SILENT_S = 5.0


@get("/healthz", tags=["health"], opt={"open": True}, summary="Does this process run?")
async def healthz() -> Health:
    """Answer as long as the process runs. Needs no token."""
    return Health("ok", __version__)


@get("/readyz", tags=["health"], opt={"open": True}, summary="Does a leader speak?")
async def readyz(services: Services) -> Ready:
    """Answer 200 while a leader speaks to this gateway, 503 otherwise. Needs no token."""
    snapshot = services.snapshot
    if snapshot is None or services.silent_s > SILENT_S:
        raise problem(NO_LEADER, "no leader speaks to this gateway")
    return Ready("ok", snapshot.leader, snapshot.epoch, round(services.silent_s, 1))


@get("/openapi.json", opt={"open": True}, include_in_schema=False)
async def read_openapi(request: HttpRequest) -> Response[bytes]:
    return Response(_document(request.app), media_type=JSON)


@get("/docs", opt={"open": True}, include_in_schema=False)
async def read_docs(request: HttpRequest) -> Response[str]:
    page = render(msgspec.json.decode(_document(request.app)))
    return Response(page, media_type=MediaType.HTML)


@lru_cache(maxsize=2)
def _document(app: Any) -> bytes:
    return msgspec.json.encode(app.openapi_schema.to_schema())


ROUTES = [healthz, readyz, read_openapi, read_docs]
