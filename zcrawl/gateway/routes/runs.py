"""Runs: list, show, cancel, retry."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get, post
from litestar.params import Parameter

from zcrawl.gateway.principals import Principal
from zcrawl.gateway.routes.jobs import Cursor, Limit, act, shown
from zcrawl.gateway.routes.reading import HttpRequest, answer, as_of, offset_of, view
from zcrawl.gateway.services import Services
from zcrawl.gateway.types import Changed, JobView, RetryWish, RunProgress, RunsPage

Number = Annotated[int, Parameter(ge=1, description="number of the run")]


@get("/runs", tags=["runs"], summary="List runs")
async def list_runs(
    request: HttpRequest,
    principal: Principal,
    services: Services,
    job: Annotated[str | None, Parameter(description="id or name of a job", max_length=255)] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Response[RunsPage]:
    """List the runs of a job, or of all jobs; newest first."""
    args = {"before": offset_of(cursor), "limit": limit} | ({"ref": job} if job else {})
    data = await services.ask(principal, "runs", args)
    rows = [view(row, RunProgress) for row in data["runs"]]
    more = f"o{rows[-1].run}" if len(rows) == limit else None
    return answer(request, RunsPage(more, as_of(data), rows))


@get("/runs/{run:int}", tags=["runs"], summary="Show a run")
async def read_run(
    request: HttpRequest, run: Number, principal: Principal, services: Services
) -> Response[JobView]:
    """Show the run's job, with the progress of this run."""
    return answer(request, shown(await services.ask(principal, "run", {"run": run})))


@post("/runs/{run:int}/cancel", status_code=200, tags=["runs"], summary="End a run")
async def cancel_run(run: Number, principal: Principal, services: Services) -> Changed:
    """End the run, and keep its items and pages."""
    job = (await services.ask(principal, "run", {"run": run}))["job"]
    return await act(services, principal, str(job), "cancel", run)


@post("/runs/{run:int}/retry", status_code=200, tags=["runs"], summary="Try failed URLs again")
async def retry_run(
    run: Number, principal: Principal, services: Services, data: RetryWish | None = None
) -> Changed:
    """Try the failed requests of the run again."""
    job = (await services.ask(principal, "run", {"run": run}))["job"]
    return await act(services, principal, str(job), "retry", run, data)


ROUTES = [list_runs, read_run, cancel_run, retry_run]
