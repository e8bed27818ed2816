"""Jobs: submit, list, show, change, and act on their runs."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Response, delete, get, patch, post
from litestar.params import Parameter

from zcrawl.errors import JobError
from zcrawl.gateway import submission
from zcrawl.gateway.principals import Principal
from zcrawl.gateway.problem import bad_field, of_error, problem
from zcrawl.gateway.routes.reading import (
    HttpRequest,
    answer,
    as_of,
    cursor,
    keyed_id,
    offset_of,
    view,
)
from zcrawl.gateway.services import Services
from zcrawl.gateway.types import (
    Accepted,
    Changed,
    JobChange,
    JobsPage,
    JobSubmission,
    JobView,
    RetryWish,
    Versions,
)
from zcrawl.model.reasons.cluster import NOT_LIVE
from zcrawl.model.snapshot import ENDED
from zcrawl.submit.read import to_dict

Ref = Annotated[str, Parameter(description="id or name of the job", max_length=255)]
Key = Annotated[
    str | None,
    Parameter(
        header="Idempotency-Key",
        description="A repeat with the same key and body gets the same answer, and acts once.",
        max_length=255,
    ),
]
Limit = Annotated[int, Parameter(ge=1, le=500, description="rows of a page")]
Cursor = Annotated[str | None, Parameter(description="`next` of the page before", max_length=20)]
Run = Annotated[int | None, Parameter(ge=1, description="number of a run; else the newest")]
SORTS = ("id", "name", "state", "owner", "pages", "failed", "percent", "updated_at")
_TUNED = (
    *("rate", "concurrency", "burst"),
    *("max_depth", "max_pages", "max_pages_per_host"),
)


def shown(data: dict[str, Any]) -> JobView:
    """Return a job's view, with the time that is left at the present rate."""
    job = view({**data, "id": data["job"]}, JobView)
    left, rate = job.queued + job.in_flight, job.pages_per_second
    if job.state in ENDED or not rate or not job.run:
        seconds_left = 0.0 if job.state in ENDED else None
    else:
        limit = (data.get("spec") or {}).get("scope", {}).get("max_pages")
        if limit:
            left = min(left, max(0, limit - job.pages))
        seconds_left = round(left / rate, 1)
    fields = {name: getattr(job, name) for name in job.__struct_fields__}
    return JobView(**{**fields, "seconds_left": seconds_left})


@post("/jobs", status_code=202, tags=["jobs"], summary="Submit a job")
async def submit_job(
    data: JobSubmission, principal: Principal, services: Services, idempotency_key: Key = None
) -> Response[Accepted]:
    """Store a job and start a run. The answer comes after the commit, so nothing that was
    accepted is lost."""
    args = submission.arguments(data)
    request_id = keyed_id(principal, idempotency_key or "", data)
    reply = await services.ask(principal, "submit", args, request_id)
    job, run = reply["job"], reply.get("run") or reply.get("held_run") or 0
    waits = reply.get("waits") or ""
    if reply.get("held"):
        waits = f"run {reply['after']} must end first"
    state = "held" if reply.get("held") else "running" if run else "stored"
    accepted = Accepted(job, run, state, list(reply.get("workers") or ()), waits)
    return Response(accepted, status_code=202, headers={"Location": f"/v1/jobs/{job}"})


@get("/jobs", tags=["jobs"], summary="List jobs")
async def list_jobs(
    request: HttpRequest,
    principal: Principal,
    services: Services,
    owner: Annotated[str | None, Parameter(description="a user's name, or `me`")] = None,
    tag: Annotated[str | None, Parameter(max_length=255)] = None,
    state_: Annotated[str | None, Parameter(query="state", description="of the newest run")] = None,
    name: Annotated[str | None, Parameter(description="a part of the name")] = None,
    archived: Annotated[bool, Parameter(description="archived jobs too")] = False,
    sort: Annotated[
        str, Parameter(description=f"{', '.join(SORTS)}; with - before it: descending")
    ] = "id",
    limit: Limit = 100,
    cursor_: Annotated[str | None, Parameter(query="cursor", max_length=20)] = None,
) -> Response[JobsPage]:
    """List jobs with the progress of their newest runs."""
    key = sort.removeprefix("-")
    if key not in SORTS:
        raise bad_field("sort", f"sort must be one of {', '.join(SORTS)}")
    offset = offset_of(cursor_)
    args = ({"tag": tag} if tag else {}) | ({"archived": True} if archived else {})
    data = await services.ask(principal, "jobs", args)
    rows = data["jobs"]
    if owner is not None:
        wished = principal.name if owner == "me" else owner
        rows = [row for row in rows if row.get("owner") == wished]
    if state_ is not None:
        rows = [row for row in rows if row.get("state") == state_]
    if name is not None:
        rows = [row for row in rows if name.casefold() in str(row.get("name", "")).casefold()]
    stored = "job" if key == "id" else key
    rows = sorted(rows, key=lambda row: row["job"])
    rows = sorted(
        rows,
        key=lambda row: (row.get(stored) is not None, row.get(stored) or type(row.get(stored))()),
        reverse=sort.startswith("-"),
    )
    end = offset + limit
    page = JobsPage(
        cursor(end) if end < len(rows) else None,
        as_of(data),
        [shown(row) for row in rows[offset:end]],
        len(rows),
    )
    return answer(request, page)


@get("/jobs/{ref:str}", tags=["jobs"], summary="Show a job with its progress")
async def read_job(
    request: HttpRequest, ref: Ref, principal: Principal, services: Services, run: Run = None
) -> Response[JobView]:
    """Percent, state, workers, rate and the time that is left, of the newest run or of `run`."""
    args = {"ref": ref} | ({} if run is None else {"run": run})
    return answer(request, shown(await services.ask(principal, "job", args)))


@patch("/jobs/{ref:str}", tags=["jobs"], summary="Change a job")
async def change_job(
    ref: Ref, data: JobChange, principal: Principal, services: Services
) -> Changed:
    """Change the pace, limits and labels of the live run; the priority and schedule of the job."""
    tuned = {name: getattr(data, name) for name in _TUNED if getattr(data, name) is not None}
    if data.labels is not None:
        tuned["tags"] = data.labels
    stored = {
        name: getattr(data, name)
        for name in ("priority", "schedule")
        if getattr(data, name) is not None
    }
    if not tuned and not stored and data.archived is None:
        raise bad_field("", "nothing to change: the body has no key with a value")
    reply: dict[str, Any] = {}
    if stored:
        reply = await _change_spec(ref, stored, principal, services)
    if tuned:
        reply = await services.ask(principal, "tune", {"ref": ref, **tuned})
    if data.archived is not None:
        state = "archived" if data.archived else "active"
        reply = await services.ask(principal, "change_job", {"ref": ref, "state": state})
    return view(reply, Changed)


async def _change_spec(
    ref: str, changes: dict[str, Any], principal: Principal, services: Services
) -> dict[str, Any]:
    """Store a new version of the job's spec, and give it to its live runs."""
    job = await services.ask(principal, "job", {"ref": ref})
    spec = job["spec"]
    if spec.get("code") or spec.get("params"):
        raise problem(
            NOT_LIVE,
            "a job with a spider's file or with parameters is changed by POST /v1/jobs with "
            'mode "update"',
            field=next(iter(changes)),
        )
    try:
        changed = submission.changed_spec(spec, changes)
    except JobError as error:
        raise of_error(error) from None
    live = any(run["state"] not in ENDED for run in job["runs"] if run["run"])
    args: dict[str, Any] = {"spec": to_dict(changed), "mode": "update", "seeds": [], "output": None}
    how = {"live": True} if live else {"no_run": True}
    return await services.ask(principal, "submit", args | how)


@delete("/jobs/{ref:str}", status_code=200, tags=["jobs"], summary="Delete a job")
async def delete_job(
    ref: Ref, principal: Principal, services: Services, run: Run = None
) -> Changed:
    """End the job and remove its data; with `run` only that run."""
    return await act(services, principal, ref, "delete", run)


@post("/jobs/{ref:str}/pause", status_code=200, tags=["jobs"], summary="Pause a job's runs")
async def pause_job(ref: Ref, principal: Principal, services: Services, run: Run = None) -> Changed:
    """Stop fetching until the job is resumed. What is in flight is finished."""
    return await act(services, principal, ref, "pause", run)


@post("/jobs/{ref:str}/resume", status_code=200, tags=["jobs"], summary="Resume a paused job")
async def resume_job(
    ref: Ref, principal: Principal, services: Services, run: Run = None
) -> Changed:
    """Let paused runs continue."""
    return await act(services, principal, ref, "resume", run)


@post("/jobs/{ref:str}/cancel", status_code=200, tags=["jobs"], summary="End a job's runs")
async def cancel_job(
    ref: Ref, principal: Principal, services: Services, run: Run = None
) -> Changed:
    """End the runs, and keep their items and pages."""
    return await act(services, principal, ref, "cancel", run)


@post("/jobs/{ref:str}/retry", status_code=200, tags=["jobs"], summary="Try failed URLs again")
async def retry_job(
    ref: Ref,
    principal: Principal,
    services: Services,
    data: RetryWish | None = None,
    run: Run = None,
) -> Changed:
    """Try the failed requests of a run again: all, or those of a reason or a host."""
    return await act(services, principal, ref, "retry", run, data)


async def act(
    services: Services,
    principal: Principal,
    ref: str,
    action: str,
    run: int | None,
    wish: RetryWish | None = None,
) -> Changed:
    args: dict[str, Any] = {"ref": ref, "action": action} | ({} if run is None else {"run": run})
    if wish is not None:
        args |= {"reason": wish.reason} if wish.reason else {}
        args |= {"host": wish.host} if wish.host else {}
    return view(await services.ask(principal, "act", args), Changed)


@get("/jobs/{ref:str}/versions", tags=["jobs"], summary="List the versions of a job")
async def read_versions(
    request: HttpRequest, ref: Ref, principal: Principal, services: Services
) -> Response[Versions]:
    """Show what changed in the job's spec, when, and by whom; newest first."""
    return answer(request, view(await services.ask(principal, "versions", {"ref": ref}), Versions))


@post("/tasks", status_code=202, tags=["tasks"], summary="Submit a task (alias of POST /jobs)")
async def submit_task(
    data: JobSubmission, principal: Principal, services: Services, idempotency_key: Key = None
) -> Response[Accepted]:
    """Do the same as POST /v1/jobs."""
    return await submit_job.fn(data, principal, services, idempotency_key)  # type: ignore[no-any-return]


@get("/tasks/{ref:str}", tags=["tasks"], summary="Show a task (alias of GET /jobs/{id})")
async def read_task(
    request: HttpRequest, ref: Ref, principal: Principal, services: Services, run: Run = None
) -> Response[JobView]:
    """Do the same as GET /v1/jobs/{id}."""
    return await read_job.fn(request, ref, principal, services, run)  # type: ignore[no-any-return]


ROUTES = [
    submit_job,
    list_jobs,
    read_job,
    change_job,
    delete_job,
    pause_job,
    resume_job,
    cancel_job,
    retry_job,
    read_versions,
    submit_task,
    read_task,
]
