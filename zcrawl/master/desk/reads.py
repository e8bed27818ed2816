"""The reads that any master can answer from the database: jobs, items, failed requests, charts.

The leader adds what only its memory knows (requests in flight); a follower has nothing to add.
Called by `desk` and `follower`: `question` begins, `proceed` turns the store's answer into the
reply or into the next question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.operation import FromDatabase
from zcrawl.master.desk.operations import find
from zcrawl.master.desk.people_reads import PeopleReads
from zcrawl.master.desk.replies import Pending
from zcrawl.mesh.messages import ClientRequest
from zcrawl.model.history import STEPS
from zcrawl.model.reasons.cluster import BAD_REQUEST, NO_SUCH_JOB, NO_SUCH_RUN
from zcrawl.model.spec import ScheduleDefaults
from zcrawl.store.queries import (
    NEWEST,
    ChainRuns,
    FailedRow,
    Failures,
    FindItems,
    FindJob,
    FoundItem,
    FoundItems,
    HistoryPoints,
    ItemRow,
    Items,
    JobList,
    JobRow,
    JobVersions,
    ListJobs,
    Query,
    QueryOutcome,
    ReadChain,
    ReadFailed,
    ReadHistory,
    ReadItems,
    ReadRuns,
    ReadVersions,
    RunRows,
    Tallies,
    TallyRows,
)
from zcrawl.telemetry.history import MOST_SPAN_S, series, step_of
from zcrawl.telemetry.schedules import chain_view, schedule_view
from zcrawl.telemetry.views import (
    ME,
    LiveRun,
    chosen_run,
    is_listed,
    is_visible,
    job_view,
    newest_run,
    present_runs,
    run_listed,
    versions_view,
)

MOST_ROWS = 500
MOST_ITEM_BYTES = 4_000_000  # of items in one answer, oldest first
MOST_RESULT_BYTES = 1_000_000  # of failed tasks in one answer; `zcrawl export` has all
Live = Callable[[int], LiveRun | None]
Answer = dict[str, Any] | Query  # the reply, or the next question


def question(pending: Pending) -> Query:
    """Return the first question of a read."""
    return _handler(pending).question(READS)(pending.args)


def proceed(pending: Pending, outcome: QueryOutcome, live: Live, utc: float) -> Answer:
    """Return what follows from the store's answer."""
    return _handler(pending).answer(READS)(pending, outcome, live, utc)


def _handler(pending: Pending) -> FromDatabase:
    operation = find(pending.request.op)
    assert operation is not None and isinstance(operation.handler, FromDatabase)
    return operation.handler


class DatabaseReads(PeopleReads):
    """The handlers of the reads: a question, and what follows from the store's answer."""

    def list_jobs(self, args: Arguments) -> Query:
        return ListJobs()

    def jobs_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> Answer:
        assert isinstance(outcome, JobList)
        tag = pending.args.text("tag")
        archived = bool(pending.args.get("archived"))
        owner = pending.args.text("owner")
        owner = (pending.request.by or ME) if owner == ME else owner
        visible = [job for job in outcome.jobs if is_listed(job, tag, owner, archived=archived)]
        defaults = pending.schedule_defaults
        return {"jobs": [_listed(job, live, utc, defaults) for job in visible]}

    def find_job(self, args: Arguments) -> Query:
        return FindJob(args.text("ref"))

    def job_answer(self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float) -> Answer:
        if isinstance(outcome, TallyRows):
            assert pending.run is not None
            pending.tallies = outcome
            return ReadChain(pending.run.id, MOST_ROWS)
        if isinstance(outcome, ChainRuns):
            job, run, tallies = pending.job, pending.run, pending.tallies
            assert job is not None and run is not None
            view = job_view(job, tallies, live(run.id), utc, run, pending.schedule_defaults)
            return view | chain_view(outcome.rows)
        assert isinstance(outcome, JobList)
        job = the_job(outcome, pending.request)
        number = wanted_run(pending.args)
        if not present_runs(job) and number is None:
            return job_view(job, None, None, utc, None, pending.schedule_defaults)
        pending.job, pending.run = job, chosen_run(job, number)
        return Tallies(pending.run.id)

    def find_run(self, args: Arguments) -> Query:
        return FindJob("", args.integer("run"))

    def run_answer(self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float) -> Answer:
        if isinstance(outcome, JobList) and not any(map(is_visible, outcome.jobs)):
            text = f"no run {pending.args.integer('run')}; `zcrawl runs` lists them"
            raise RefusedError(text, code=NO_SUCH_RUN)
        return self.job_answer(pending, outcome, live, utc)

    def read_schedules(self, args: Arguments) -> Query:
        return FindJob(args.text("ref")) if args.text("ref") else ListJobs()

    def schedules_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> Answer:
        assert isinstance(outcome, JobList)
        limit = _limit(pending.args)
        defaults = pending.schedule_defaults
        if pending.args.text("ref"):
            job = the_job(outcome, pending.request)
            return {"jobs": [schedule_view(job, utc, limit, defaults)]}
        jobs = [job for job in outcome.jobs if is_visible(job) and job.schedule_from]
        return {"jobs": [schedule_view(job, utc, limit, defaults) for job in jobs]}

    def read_runs(self, args: Arguments) -> Query:
        if args.text("ref"):
            return FindJob(args.text("ref"))
        return ReadRuns(args.integer("before") or NEWEST, _limit(args))

    def runs_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> Answer:
        if isinstance(outcome, JobList):
            before = pending.args.integer("before") or NEWEST
            rows = [
                row for row in present_runs(the_job(outcome, pending.request)) if row.id < before
            ][: _limit(pending.args)]
        else:
            assert isinstance(outcome, RunRows)
            rows = outcome.rows
        return {"runs": [run_listed(row, live(row.id) or LiveRun(), utc) for row in rows]}

    def versions_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> Answer:
        if isinstance(outcome, JobList):
            pending.job = the_job(outcome, pending.request)
            return ReadVersions(pending.job.id)
        assert isinstance(outcome, JobVersions) and pending.job is not None
        return {"versions": versions_view(pending.job, outcome.rows)}

    def find_items(self, args: Arguments) -> Query:
        if args.get("after") is not None:
            run = wanted_run(args)
            if run is None or args.text("text") or args.integer("before"):
                text = "`after` needs the number of a run, and excludes `before` and `text`"
                raise RefusedError(text, code=BAD_REQUEST)
            return ReadItems(run, args.integer("after"), _limit(args))
        before = args.integer("before") or NEWEST
        return FindItems(wanted_run(args), before, _limit(args), args.text("text"))

    def items_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> Answer:
        if isinstance(outcome, Items):
            outcome = _in_order(outcome.rows, pending.args)
        assert isinstance(outcome, FoundItems)
        rows = [
            {"id": row.id, "run": row.run, "data": row.data.decode(errors="replace")}
            for row in outcome.rows
        ]
        return {"rows": rows, "last": outcome.last, "more": outcome.more}

    def read_failed(self, args: Arguments) -> Query:
        reason, host = args.text("reason"), args.integer("host")
        after = args.integer("after")
        return ReadFailed(args.integer("run"), after, _limit(args), reason, host)

    def failed_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> Answer:
        assert isinstance(outcome, Failures)
        return {"rows": _failed(outcome.rows)}

    def read_history(self, args: Arguments) -> Query:
        span_s = _span(args)
        step = step_of(span_s)
        host = None if args.get("host") is None else args.integer("host")
        return ReadHistory(step, int(span_s // step) + 1, wanted_run(args), host)

    def history_answer(
        self, pending: Pending, outcome: QueryOutcome, live: Live, utc: float
    ) -> Answer:
        assert isinstance(outcome, HistoryPoints)
        span_s = _span(pending.args)
        return series(outcome.points, step_of(span_s), span_s, utc)


READS: Final = DatabaseReads()


def _limit(args: Arguments) -> int:
    limit = args.integer("limit")
    if not 1 <= limit <= MOST_ROWS:
        raise RefusedError(f"limit is 1 to {MOST_ROWS}", code=BAD_REQUEST)
    return limit


def _span(args: Arguments) -> float:
    span_s = args.number("span_s")
    least = STEPS[0][0]
    if not least <= span_s <= MOST_SPAN_S:
        raise RefusedError(f"span_s is {least} to {MOST_SPAN_S:,}", code=BAD_REQUEST)
    return span_s


def _listed(job: JobRow, live: Live, utc: float, defaults: ScheduleDefaults) -> dict[str, Any]:
    run = newest_run(job)
    live_run = None if run is None else live(run.id)
    return job_view(job, None, live_run, utc, None, defaults)


def wanted_run(args: Arguments) -> int | None:
    """The number of the run that a request names; None: the newest of its job."""
    return None if args.get("run") is None else args.integer("run")


def _in_order(rows: list[ItemRow], args: Arguments) -> FoundItems:
    """Return the items of a run, oldest first, as many as fit into one answer; at least one."""
    items: list[FoundItem] = []
    run, room = args.integer("run"), MOST_ITEM_BYTES
    for row in rows:
        room -= len(row.data)
        if items and room < 0:
            break
        items.append(FoundItem(row.id, run, row.data))
    last = items[-1].id if items else args.integer("after")
    return FoundItems(items, last, len(items) < len(rows) or len(rows) == _limit(args))


def _failed(rows: list[FailedRow]) -> list[dict[str, Any]]:
    """Return the rows; results of tasks only as far as they fit into one answer."""
    views, room = [], MOST_RESULT_BYTES
    for row in rows:
        view = {**msgspec.structs.asdict(row), "state": row.state.name.lower()}
        room -= len(row.result)
        view["result"] = row.result.decode(errors="replace") if room >= 0 else ""
        view["result_left_out"] = room < 0 and bool(row.result)
        views.append(view)
    return views


def the_job(job_list: JobList, request: ClientRequest) -> JobRow:
    for job in job_list.jobs:
        if is_visible(job):
            return job
    ref = request.args["ref"]
    raise RefusedError(f"no job {ref!r}; `zcrawl jobs` lists them", code=NO_SUCH_JOB)
