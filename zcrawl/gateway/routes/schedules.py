"""Schedules: what runs by itself."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import Parameter

from zcrawl.gateway.principals import Principal
from zcrawl.gateway.routes.jobs import Ref
from zcrawl.gateway.routes.reading import HttpRequest, answer, as_of, view
from zcrawl.gateway.services import Services
from zcrawl.gateway.types import Changed, Schedules, ScheduleView

Count = Annotated[int, Parameter(ge=1, le=500, description="due times of each")]


async def _read(
    request: HttpRequest, principal: Principal, services: Services, ref: str, count: int
) -> Response[Schedules]:
    args = {"limit": count} | ({"ref": ref} if ref else {})
    data = await services.ask(principal, "schedule", args)
    views = msgspec.convert(data["jobs"], list[ScheduleView], strict=False)
    return answer(request, Schedules(views, as_of(data)))


@get("/schedules", tags=["schedules"], summary="List what runs by itself")
async def list_schedules(
    request: HttpRequest, principal: Principal, services: Services, count: Count = 1
) -> Response[Schedules]:
    """List the jobs that have a schedule, each with its next due times."""
    return await _read(request, principal, services, "", count)


@get("/schedules/{ref:str}/next", tags=["schedules"], summary="Show when a job runs next")
async def read_next(
    request: HttpRequest, ref: Ref, principal: Principal, services: Services, count: Count = 10
) -> Response[Schedules]:
    """Show the next due times of a job, without jitter."""
    return await _read(request, principal, services, ref, count)


@post("/schedules/{ref:str}/pause", status_code=200, tags=["schedules"], summary="Pause a schedule")
async def pause_schedule(ref: Ref, principal: Principal, services: Services) -> Changed:
    """Let the job start nothing by itself. Its live runs continue."""
    args = {"ref": ref, "state": "paused"}
    return view(await services.ask(principal, "change_job", args), Changed)


@post(
    "/schedules/{ref:str}/resume", status_code=200, tags=["schedules"], summary="Resume a schedule"
)
async def resume_schedule(ref: Ref, principal: Principal, services: Services) -> Changed:
    """Let the job run by itself again, from now on."""
    args = {"ref": ref, "state": "active"}
    return view(await services.ask(principal, "change_job", args), Changed)


ROUTES = [list_schedules, read_next, pause_schedule, resume_schedule]
