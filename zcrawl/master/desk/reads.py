"""The reads that any master can answer from the database: jobs, items, failed requests.

The leader adds what only its memory knows (requests in flight); a follower has nothing to add.
Called by `desk` and `follower`: `question` begins, `proceed` turns the store's answer into the
reply or into the next question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.replies import Pending
from zcrawl.mesh.messages import Request
from zcrawl.model.reasons.cluster import BAD_REQUEST, NO_SUCH_JOB
from zcrawl.store.queries import (
    FailedRow,
    Failures,
    FindItems,
    FindJob,
    FoundItems,
    JobList,
    JobRow,
    ListJobs,
    Query,
    QueryOutcome,
    ReadFailed,
    Tallies,
    TallyRows,
)
from zcrawl.telemetry.views import LiveRun, chosen_run, is_visible, job_view, newest_run

READS = frozenset(("jobs", "job", "items", "failed"))
MOST_ROWS = 500
_NEWEST = (1 << 63) - 1
Live = Callable[[int], LiveRun | None]


def question(pending: Pending) -> Query:
    args = pending.args
    match pending.request.op:
        case "jobs":
            return ListJobs()
        case "items":
            run = args.get("run")
            before = args.integer("before", _NEWEST) or _NEWEST
            run = None if run is None else args.integer("run")
            return FindItems(run, before, _limit(args), args.text("text", ""))
        case "failed":
            reason, host = args.text("reason", ""), args.integer("host", 0)
            after = args.integer("after", 0)
            return ReadFailed(args.integer("run"), after, _limit(args), reason, host)
        case _:  # job, act, tune
            return FindJob(args.text("ref"))


def _limit(args: Arguments) -> int:
    limit = args.integer("limit", 100)
    if not 1 <= limit <= MOST_ROWS:
        raise RefusedError(f"limit is 1 to {MOST_ROWS}", code=BAD_REQUEST)
    return limit


def proceed(
    pending: Pending, outcome: QueryOutcome, live: Live, utc: float
) -> dict[str, Any] | Query:
    if isinstance(outcome, FoundItems):
        rows = [
            {"id": one.id, "run": one.run, "data": one.data.decode(errors="replace")}
            for one in outcome.rows
        ]
        return {"rows": rows, "last": outcome.last, "more": outcome.more}
    if isinstance(outcome, Failures):
        return {"rows": [_failed(one) for one in outcome.rows]}
    if isinstance(outcome, TallyRows):
        assert pending.job is not None and pending.run is not None
        return job_view(pending.job, outcome, live(pending.run.id), utc, pending.run)
    assert isinstance(outcome, JobList)
    if pending.request.op == "jobs":
        tag = str(pending.request.args.get("tag", ""))
        visible = [job for job in outcome.jobs if is_visible(job, tag)]
        return {"jobs": [_listed(job, live, utc) for job in visible]}
    job = the_job(outcome, pending.request)
    run = wanted_run(pending.args)
    if not job.runs and run is None:
        return job_view(job, None, None, utc)
    pending.job, pending.run = job, chosen_run(job, run)
    return Tallies(pending.run.id)


def _listed(job: JobRow, live: Live, utc: float) -> dict[str, Any]:
    run = newest_run(job)
    return job_view(job, None, None if run is None else live(run.id), utc)


def wanted_run(args: Arguments) -> int | None:
    """The number of the run that a request names; None: the newest of its job."""
    return None if args.get("run") is None else args.integer("run")


def _failed(row: FailedRow) -> dict[str, Any]:
    return {**msgspec.structs.asdict(row), "state": row.state.name.lower()}


def the_job(found: JobList, request: Request) -> JobRow:
    for job in found.jobs:
        if is_visible(job):
            return job
    ref = request.args["ref"]
    raise RefusedError(f"no job {ref!r}; `zcrawl jobs` lists them", code=NO_SUCH_JOB)
