"""What a job looks like from outside: one dict per job, the same for `job --json`, for the live
display and for whatever answers over the mesh.

Called by the leader, with what it knows of requests in flight, and by the CLI, which reads the
database when nobody runs. Pure. docs/commands.md defines each key.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.model.reasons.cluster import NO_SUCH_RUN
from zcrawl.model.rows import RunRow
from zcrawl.model.snapshot import RunView
from zcrawl.model.spec import UNREADABLE
from zcrawl.model.states import RunState
from zcrawl.store.queries import JobRow, OutputFact, TallyRows
from zcrawl.submit.tags import is_tagged, tags_of

MAX_IN_FLIGHT_URLS: Final = 50
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
    """What only the leader's memory knows of a run."""

    in_flight: int = 0
    workers: list[str] = []
    in_flight_urls: list[str] = []
    waiting: str = ""  # why nothing of it can be dispatched
    missing: str = ""  # what no live worker has, if `waiting` is for that


def chosen_run(job: JobRow, run: int | None = None) -> RunRow:
    """Return the run of that number, or the newest. Deleted runs only wait to be swept."""
    runs = _present_runs(job)
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
    """The run that a job's view shows; None: it has none."""
    return next(iter(_present_runs(job) or job.runs), None)


def _present_runs(job: JobRow) -> list[RunRow]:
    return [row for row in job.runs if row.state is not RunState.DELETED]


def job_view(
    job: JobRow,
    tallies: TallyRows | None,
    live: LiveRun | None,
    now: float,
    run: RunRow | None = None,
) -> dict[str, Any]:
    """The job and one of its runs, by default the newest; `runs` has the counters of all of them,
    newest first."""
    live = live or LiveRun()
    tallies = tallies or TallyRows(statuses={}, failed={}, skipped={})
    shown = run or newest_run(job)
    spec = shown.spec if shown else job.spec  # that of a run may have been tuned
    listed = _present_runs(job) or job.runs
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
        "last_actions": [
            {"at": iso(action.at), "what": action.what, "by": action.by, "via": action.via}
            for action in tallies.actions
        ],
        "runs": [_run_fields(row, live.in_flight if row is shown else 0, now) for row in listed],
    }


def output_view(output: OutputFact) -> dict[str, Any]:
    """`file` and `master` are those of the newest complete part; `places` has all of them."""
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
    """`failed`, `skipped` and `rejected` (items): reason → `url` and `detail` of the first."""
    view: dict[str, dict[str, dict[str, str]]] = {"failed": {}, "skipped": {}, "rejected": {}}
    for row in tallies.examples:
        view[row.kind][row.name] = {"url": row.url, "detail": row.detail}
    return view


def fields_view(tallies: TallyRows) -> dict[str, dict[str, float]]:
    """Of each extracted field how often it was filled, empty and unreadable, and the share."""
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
    """A deleted job may still have rows that wait to be swept; nobody wants to see it. With a tag:
    only the jobs that have it."""
    exists = not job.runs or any(run.state is not RunState.DELETED for run in job.runs)
    return exists and (not tag or is_tagged(tags_of(_spec_of(job)), tag))


def run_view(run: RunRow, in_flight: int, now: float) -> RunView:
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
        queued=max(0, counters.pending - in_flight),
        in_flight=in_flight,
        admitted=counters.admitted,
        bytes=counters.bytes,
        seconds=round(seconds, 3),
        pages_per_second=round(counters.done / seconds, 2) if seconds > 0 else 0.0,
    )


def _run_fields(run: RunRow, in_flight: int, now: float) -> dict[str, Any]:
    return msgspec.structs.asdict(run_view(run, in_flight, now))


def summary(view: dict[str, Any]) -> dict[str, Any]:
    """The keys that `crawl --json` ends with; `view` is a job's or a run's. A run's own view has
    neither counts by reason nor outputs, so whoever knows them adds REASON_KEYS and `outputs`."""
    fields = {key: view[key] for key in SUMMARY_KEYS}
    reasons = {key: view.get(key, {}) for key in REASON_KEYS}
    return {**fields, **reasons, "outputs": view.get("outputs", [])}


def elapsed(run: RunRow, now: float) -> float:
    """Seconds from the run's start to its end, or until now. A clock set back gives 0."""
    if not run.started_at:
        return 0.0
    return max(0.0, (run.ended_at or now) - run.started_at)


def percent(run: RunRow) -> float:
    """Final requests of all admitted ones, or done of max_pages if that is further; 100 only
    when the run has ended. It can fall: a page that is done may admit a hundred new links.
    """
    if run.state.ended:
        return 100.0
    counters = run.counters
    final = counters.done + counters.failed + counters.skipped
    share = final / counters.admitted if counters.admitted else 0.0
    max_pages = _max_pages(run.spec)
    if max_pages:
        share = max(share, counters.done / max_pages)
    return min(99.9, round(share * 100, 1))


def by_count(reasons: dict[str, int]) -> dict[str, int]:
    """Most frequent first, equal counts by name, so that the same tally looks the same."""
    return dict(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])))


def iso(at: float) -> str | None:
    """A UTC time as `2026-01-31T12:00:00.250Z`; None for 0, which means never."""
    if not at:
        return None
    moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _no_run(job: JobRow) -> dict[str, Any]:
    """A job whose runs are all deleted."""
    counts = dict.fromkeys(
        (
            *("pages", "unchanged", "items", "failed", "skipped", "queued", "in_flight"),
            *("admitted", "bytes"),
        ),
        0,
    )
    return {
        "job": job.id,
        "run": None,
        "name": job.name,
        "state": str(RunState.DELETED),
        "reason": "",
        **counts,
        "seconds": 0.0,
        "pages_per_second": 0.0,
    }


def _spec_of(job: JobRow) -> bytes:
    """Of its newest run, which may have been tuned."""
    return job.runs[0].spec if job.runs else job.spec


def _plain(spec: bytes) -> dict[str, Any]:
    """Empty for one that cannot be read: its run ends with the reason (`submit.stored`)."""
    try:
        plain = msgspec.json.decode(spec) if spec else {}
    except UNREADABLE:
        return {}
    return plain if isinstance(plain, dict) else {}


def _shown(spec: bytes) -> dict[str, Any]:
    """The spec without the text of its spider, which may be long."""
    plain = _plain(spec)
    if isinstance(plain.get("code"), dict):
        plain["code"] = {"sha256": plain["code"].get("sha256")}
    return plain


def _max_pages(spec: bytes) -> int | None:
    scope = _plain(spec).get("scope")
    max_pages = scope.get("max_pages") if isinstance(scope, dict) else None
    return max_pages if isinstance(max_pages, int) else None
