"""Health of this process and of the cluster behind it."""

from __future__ import annotations

from litestar import get

from zcrawl import __version__
from zcrawl.gateway.types import Health


@get("/healthz", tags=["health"], opt={"open": True}, summary="Does this process run?")
async def healthz() -> Health:
    """Answer as long as the process runs. Needs no token."""
    return Health("ok", __version__)


ROUTES = [healthz]
