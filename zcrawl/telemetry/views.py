"""The views of jobs: one dict per job, the same for `job --json`, for the live display and for
answers over the mesh.

Called by the leader, which adds requests in flight, and by the CLI, which reads the database when
no cluster runs. Pure. docs/commands.md defines each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from zcrawl.dispatch.in_flight import NONE, InFlight
from zcrawl.errors import RefusedError
from zcrawl.model.reasons.cluster import NO_SUCH_RUN
from zcrawl.model.rows import JobVersion, RunRow
from zcrawl.model.snapshot import RunView
from zcrawl.model.spec import UNREADABLE, ScheduleDefaults
from zcrawl.model.states import JobState, RunState
from zcrawl.store.queries import JobRow, OutputFact, RemovableRun, TallyRows
from zcrawl.submit.differences import changes
from zcrawl.submit.tags import is_tagged, tags_of
from zcrawl.telemetry.schedules import NEXT_DUE_TIMES, params_of, schedule_view
from zcrawl.telemetry.times import iso as iso

MAX_IN_FLIGHT_URLS: Final = 50
MOST_REMOVABLE: Final = 500  # runs in an answer about retention
SUMMARY_KEYS: Final = (
    "job",
    "run",
    "state",
    "pages",
    "unchanged",
    "items",
    "failed",
    "skipped",
    "queued",
    "bytes",
    "seconds",
    "pages_per_second",
)
# What a run's own view lacks: counts by reason, with an example of each.
REASON_KEYS: Final = (
    "failed_reasons",
    "skipped_reasons",
    "dropped",
    "rejected_items",
    "fields",
    "examples",
)


class LiveRun(msgspec.Struct, frozen=True):
    """Facts of a run that only the leader's memory has."""

    in_flight: InFlight = NONE
    workers: list[str] = []
    in_flight_urls: list[str] = []
    waiting: str = ""  # why nothing of it can be dispatched
    missing: str = ""  # what no live worker has, if `waiting` is for that


def chosen_run(job: JobRow, run: int | None = None) -> RunRow:
    """Return the run of that number, or the newest. Deleted runs only wait to be swept."""
    runs = present_runs(job)
    if run is None and runs:
        return runs[0]
    for row in runs:
        if row.id == run:
            return row
    if run is None:
        raise RefusedError(f"job {job.name!r} has no run", code=NO_SUCH_RUN)
    numbers = ", ".join(str(row.id) for row in runs) or "none"
    raise RefusedError(f"job {job.name!r} has no run {run}; it has {numbers}", code=NO_SUCH_RUN)


def newest_run(job: JobRow) -> RunRow | None:
    """Return the run that a job's view shows; None: the job has no run."""
    return next(iter(present_runs(job) or job.runs), None)


def present_runs(job: JobRow) -> list[RunRow]:
    """Return the runs that are not deleted, newest first."""
    return [row for row in job.runs if row.state is not RunState.DELETED]


def live_runs(job: JobRow) -> list[RunRow]:
    """Return the runs that have not ended, newest first."""
    return [row for row in job.runs if not row.state.ended]


def would_change(run: RunRow, target: RunState) -> bool:
    """Return whether an action with this target changes a run. Resuming lets a run go on that is
    paused, and changes no other."""
    if target is RunState.RUNNING:
        return run.state is RunState.PAUSED
    return run.state is not target


def job_view(
    job: JobRow,
    tallies: TallyRows | None,
    live: LiveRun | None,
    now: float,
    run: RunRow | None = None,
    defaults: ScheduleDefaults | None = None,
) -> dict[str, Any]:
    """Return the view of a job and one of its runs, by default the newest; `runs` has the counters
    of all runs, newest first."""
    live = live or LiveRun()
    tallies = tallies or TallyRows(statuses={}, failed={}, skipped={})
    shown = run or newest_run(job)
    spec = shown.spec if shown else job.spec  # that of a run may have been tuned
    listed = present_runs(job) or job.runs
    counts = _run_fields(shown, live.in_flight, now) if shown else _no_run(job)
    waits = bool(live.waiting) and not counts["reason"]
    if waits:
        counts["reason"] = live.waiting
    return {
        **counts,
        "missing": live.missing if waits else "",
        "tags": list(tags_of(spec)),
        "percent": percent(shown) if shown else 0.0,
        "created_at": iso(job.created_at),
        "updated_at": iso(job.updated_at),
        "job_state": str(job.state),
        "version": job.version,
        "owner": job.owner,
        "cause": str(shown.cause) if shown else "",
        "due_at": iso(shown.due_at or 0.0) if shown else None,
        "params": params_of(shown) if shown else {},
        "schedule": (
            schedule_view(job, now, NEXT_DUE_TIMES, defaults or ScheduleDefaults())
            if job.schedule_from
            else None
        ),
        "shares": by_count(tallies.workers),
        "started_at": iso(shown.started_at) if shown else None,
        "ended_at": iso(shown.ended_at) if shown else None,
        "spec": _shown(spec),
        "workers": sorted(live.workers),
        "in_flight_urls": live.in_flight_urls[:MAX_IN_FLIGHT_URLS],
        # Strings as keys: JSON has no others, and MessagePack readers refuse them by default.
        "statuses": {str(status): n for status, n in sorted(tallies.statuses.items())},
        "failed_reasons": by_count(tallies.failed),
        "skipped_reasons": by_count(tallies.skipped),
        "rejected_links": by_count(tallies.links),
        "dropped": by_count(tallies.dropped),
        "rejected_items": by_count(tallies.rejected),
        "examples": examples_view(tallies),
        "fields": fields_view(tallies),
        "outputs": [output_view(output) for output in tallies.outputs],
        "not_removed": [{"run": kept.run, "problem": kept.problem} for kept in tallies.not_removed],
        "last_actions": [
            {"at": iso(action.at), "what": action.what, "by": action.by, "via": action.via}
            for action in tallies.actions
        ],
        "runs": [_run_fields(row, live.in_flight if row is shown else NONE, now) for row in listed],
    }


def output_view(output: OutputFact) -> dict[str, Any]:
    """Return the view of an output; `file` and `master` are those of the newest complete part."""
    places = [
        {"first": place.first, "last": place.last, "master": place.master, "file": place.file}
        for place in output.places
    ]
    return {
        "path": output.path,
        "format": output.format,
        "master": places[-1]["master"] if places else "",
        "file": places[-1]["file"] if places else "",
        "parts": output.part,
        "places": places,
        "problem": output.problem,
    }


def examples_view(tallies: TallyRows) -> dict[str, dict[str, dict[str, str]]]:
    """Return the first example of each reason of `failed`, `skipped` and `rejected` (items)."""
    view: dict[str, dict[str, dict[str, str]]] = {"failed": {}, "skipped": {}, "rejected": {}}
    for row in tallies.examples:
        view[row.kind][row.name] = {"url": row.url, "detail": row.detail}
    return view


def fields_view(tallies: TallyRows) -> dict[str, dict[str, float]]:
    """Return how often each extracted field was filled, empty and unreadable, and its share."""
    view: dict[str, dict[str, float]] = {}
    names = dict.fromkeys([*tallies.filled, *tallies.empty, *tallies.unread])
    for name in sorted(names):
        filled, empty, unread = (
            counts.get(name, 0) for counts in (tallies.filled, tallies.empty, tallies.unread)
        )
        percent = round(100 * filled / max(1, filled + empty + unread), 1)
        view[name] = {"filled": filled, "empty": empty, "failed": unread, "percent": percent}
    return view


def is_visible(job: JobRow, tag: str = "") -> bool:
    """Return whether a job is shown: it is not deleted, and has the tag if one is given."""
    exists = job.state is not JobState.DELETED
    return exists and (not tag or is_tagged(tags_of(_spec_of(job)), tag))


ME: Final = "me"  # in place of an owner: the one who asks


def is_listed(job: JobRow, tag: str = "", owner: str = "", *, archived: bool = False) -> bool:
    """Return whether a list of jobs has the job: archived ones are hidden unless wanted."""
    if owner and job.owner != owner:
        return False
    return is_visible(job, tag) and (archived or job.state is not JobState.ARCHIVED)


def run_listed(run: RunRow, live: LiveRun, now: float) -> dict[str, Any]:
    """Return the view of a run in a list of runs."""
    view = _run_fields(run, live.in_flight, now)
    return {
        **view,
        "reason": view["reason"] or live.waiting,
        "cause": str(run.cause),
        "version": run.version,
        "due_at": iso(run.due_at or 0.0),
        "created_at": iso(run.created_at),
        "started_at": iso(run.started_at),
        "ended_at": iso(run.ended_at),
    }


def removable_view(run: RemovableRun) -> dict[str, Any]:
    """Return the view of a run that retention removes."""
    return {
        "run": run.run,
        "job": run.job,
        "name": run.name,
        "ended_at": iso(run.ended_at),
        "why": run.why,
        "archive": run.archive,
        "unwritten": list(run.unwritten),
        "problem": run.problem,
        "failures": run.failures,
    }


def versions_view(job: JobRow, versions: Sequence[JobVersion]) -> list[dict[str, Any]]:
    """Return the versions of a job's spec, newest first, each with what it changed."""
    if not versions:  # made before versions were kept
        versions = [JobVersion(job.version, job.spec, job.created_at, job.owner)]
    views = []
    for before, version in zip([None, *versions], versions, strict=False):
        views.append(
            {
                "version": version.version,
                "at": iso(version.created_at),
                "author": version.author,
                "changes": changes(before.spec, version.spec) if before is not None else [],
            }
        )
    return views[::-1]


def run_view(run: RunRow, in_flight: InFlight, now: float) -> RunView:
    counters = run.counters
    seconds = elapsed(run, now)
    return RunView(
        job=run.job,
        run=run.id,
        name=run.name,
        state=str(run.state),
        reason=run.reason,
        pages=counters.done,
        unchanged=counters.unchanged,
        items=counters.items,
        failed=counters.failed,
        skipped=counters.skipped,
        queued=max(0, counters.pending - in_flight.total),
        in_flight=in_flight.total,
        fetching=in_flight.fetching,
        waiting=in_flight.waiting,
        uncommitted=in_flight.uncommitted,
        admitted=counters.admitted,
        unfetched=run.unfetched,
        bytes=counters.bytes,
        seconds=round(seconds, 3),
        pages_per_second=round(counters.done / seconds, 2) if seconds > 0 else 0.0,
    )


def _run_fields(run: RunRow, in_flight: InFlight, now: float) -> dict[str, Any]:
    return msgspec.structs.asdict(run_view(run, in_flight, now))


def summary(view: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that `crawl --json` prints at the end; `view` is a job's or a run's. A run's
    view has neither counts by reason nor outputs; callers add REASON_KEYS and `outputs`."""
    fields = {key: view[key] for key in SUMMARY_KEYS}
    reasons = {key: view.get(key, {}) for key in REASON_KEYS}
    return {**fields, **reasons, "outputs": view.get("outputs", [])}


def elapsed(run: RunRow, now: float) -> float:
    """Seconds from the run's start to its end, or until now, without the time between an end and
    a retry. A clock set back gives 0."""
    if not run.started_at:
        return 0.0
    return max(0.0, (run.ended_at or now) - run.started_at - run.idle_s)


def percent(run: RunRow) -> float:
    """Final requests of all admitted ones, or done of max_pages if that is further; 100 only
    when the run is complete. It can fall: a page that is done may admit a hundred new links. A run
    that a person ended has got as far as it had then.
    """
    counters = run.counters
    if run.state is RunState.COMPLETED:
        return 100.0
    if run.state.ended:
        admitted = counters.admitted
        return round(100 * (1 - run.unfetched / admitted), 1) if admitted else 0.0
    final = counters.done + counters.failed + counters.skipped
    share = final / counters.admitted if counters.admitted else 0.0
    max_pages = _max_pages(run.spec)
    if max_pages:
        share = max(share, counters.done / max_pages)
    return min(99.9, round(share * 100, 1))


def by_count(reasons: dict[str, int]) -> dict[str, int]:
    """Sort by count, then by name."""
    return dict(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])))


def _no_run(job: JobRow) -> dict[str, Any]:
    """Return the view of a job without a run."""
    counts = dict.fromkeys(
        (
            *("pages", "unchanged", "items", "failed", "skipped", "queued", "in_flight"),
            *("fetching", "waiting", "uncommitted", "admitted", "unfetched", "bytes"),
        ),
        0,
    )
    return {
        "job": job.id,
        "run": None,
        "name": job.name,
        "state": str(job.state),
        "reason": "",
        **counts,
        "seconds": 0.0,
        "pages_per_second": 0.0,
    }


def _spec_of(job: JobRow) -> bytes:
    """Return the spec of the newest run, which may have been tuned."""
    return job.runs[0].spec if job.runs else job.spec


def _plain(spec: bytes) -> dict[str, Any]:
    """Decode a spec; empty if it is unreadable, because its run ends then (`submit.stored`)."""
    try:
        plain = msgspec.json.decode(spec) if spec else {}
    except UNREADABLE:
        return {}
    return plain if isinstance(plain, dict) else {}


def _shown(spec: bytes) -> dict[str, Any]:
    """Return the spec without the text of its spider, which may be long."""
    plain = _plain(spec)
    if isinstance(plain.get("code"), dict):
        plain["code"] = {"sha256": plain["code"].get("sha256")}
    return plain


def _max_pages(spec: bytes) -> int | None:
    scope = _plain(spec).get("scope")
    max_pages = scope.get("max_pages") if isinstance(scope, dict) else None
    return max_pages if isinstance(max_pages, int) else None
