"""`GET /v1/events`: what happens in the cluster, as server-sent events.

Events: `run` (a run's state), `node` (a worker's or master's state), `leader`, `log` (the leader's
log events), `gap` (events are missing). The leader publishes no event for each page, so there is
none here. A browser's EventSource connects again by itself with `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Final

from litestar import Request, get
from litestar.datastructures import State
from litestar.params import HeaderParameter, Parameter
from litestar.response import Stream

from zcrawl.errors import RefusedError
from zcrawl.gateway.changes import LEADER, NODE, RUN
from zcrawl.gateway.cutting import cut
from zcrawl.gateway.hub import GAP, LOG, EventHub, Filter
from zcrawl.gateway.principals import Principal
from zcrawl.gateway.problem import ProblemBody, ProblemError
from zcrawl.gateway.services import Services
from zcrawl.model.reasons.cluster import BAD_REQUEST

KINDS: Final = (RUN, NODE, LEADER, LOG, GAP)
CHECK_S: Final = 1.0  # a user who is disabled loses the stream within 2 s
NO_STORE: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@get(
    "/events",
    summary="Events as they happen",
    description="Server-sent events: run, node, leader, log and gap. After a reconnect with "
    "Last-Event-ID nothing is lost that this gateway still has; otherwise the first event is gap.",
    media_type="text/event-stream",
    tags=["events"],
    opt={"no_compression": True},
)
async def stream_events(
    request: Request[Any, Any, State],
    services: Services,
    principal: Principal,
    hub: EventHub,
    job: Annotated[str, Parameter(description="id or name of a job")] = "",
    run: Annotated[int, Parameter(ge=0, description="number of a run")] = 0,
    kinds: Annotated[str, Parameter(description="for example run,node")] = "",
    last_id: Annotated[str, HeaderParameter(name="Last-Event-ID", max_length=100)] = "",
) -> Stream:
    """Stream what happens from now on, or from the event that the client names."""
    chosen = frozenset(kind for kind in kinds.split(",") if kind)
    unknown = sorted(chosen - set(KINDS))
    if unknown:
        text = f"no events of the kind {unknown[0]!r}"
        remedy = f"use {', '.join(KINDS)}"
        kind = f"urn:zcrawl:reason:{BAD_REQUEST}"
        raise ProblemError(
            ProblemBody(kind, "Bad request", 400, text, BAD_REQUEST, field="kinds", remedy=remedy)
        )
    wanted_events = Filter(job, run, chosen)
    pieces = _pieces(request, services, hub, wanted_events, last_id)
    return Stream(pieces, media_type="text/event-stream", headers=NO_STORE)


async def _pieces(
    request: Request[Any, Any, State],
    services: Services,
    hub: EventHub,
    wanted_events: Filter,
    last_id: str,
) -> AsyncIterator[bytes]:
    authorization = request.headers.get("authorization", "")
    address = request.client.host if request.client else ""
    async with hub.reader(wanted_events, last_id) as reader:
        reader.cut = _cutter(request)
        checked_at = time.monotonic()
        while True:
            piece = await reader.next_piece()
            now = time.monotonic()
            if now - checked_at >= CHECK_S:
                checked_at = now
                try:
                    await services.principal(authorization, address)
                except RefusedError:
                    return  # a new request of this client gets the answer: 401
            if piece:
                reader.sending_since = now  # the hub sees how long the connection takes for it
                yield piece
                reader.sending_since = None


def _cutter(request: Request[Any, Any, State]) -> Callable[[], None]:
    task = asyncio.current_task()

    def end() -> None:
        if not cut(request.scope.get("state", {})) and task is not None:
            task.cancel()

    return end


ROUTES: Final = (stream_events,)
