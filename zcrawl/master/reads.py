"""The reads that any master can answer from the database: `jobs` and `job`.

The leader adds what only its memory knows (requests in flight); a follower has nothing to add.
Called by `desk` and `follower`: `question` begins, `proceed` turns the store's answer into the
reply or into the next question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zcrawl.errors import RefusedError
from zcrawl.master.replies import Pending
from zcrawl.mesh.messages import Request
from zcrawl.store.queries import (
    FindJob,
    JobList,
    JobRow,
    ListJobs,
    Query,
    QueryOutcome,
    Tallies,
    TallyRows,
)
from zcrawl.telemetry.views import LiveRun, is_visible, job_view

READS = frozenset(("jobs", "job"))
Live = Callable[[int], LiveRun | None]


def question(request: Request) -> Query:
    return ListJobs() if request.op == "jobs" else FindJob(str(request.args["ref"]))


def proceed(
    pending: Pending, outcome: QueryOutcome, live: Live, utc: float
) -> dict[str, Any] | Query:
    if isinstance(outcome, TallyRows):
        assert pending.job is not None
        return job_view(pending.job, outcome, live(pending.job.runs[0].id), utc)
    assert isinstance(outcome, JobList)
    if pending.request.op == "jobs":
        visible = [job for job in outcome.jobs if is_visible(job)]
        views = [
            job_view(job, None, live(job.runs[0].id) if job.runs else None, utc) for job in visible
        ]
        return {"jobs": views}
    job = the_job(outcome, pending.request)
    if not job.runs:
        return job_view(job, None, None, utc)
    pending.job = job
    return Tallies(job.runs[0].id)


def the_job(found: JobList, request: Request) -> JobRow:
    for job in found.jobs:
        if is_visible(job):
            return job
    ref = request.args["ref"]
    raise RefusedError(f"no job {ref!r}; `zcrawl jobs` lists them", code="no_such_job")
