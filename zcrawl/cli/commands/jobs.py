"""`zcrawl jobs` and `job` show jobs; `pause`, `resume`, `cancel`, `delete` and `retry` change them.

All take a job's id or name. `pause`, `resume` and `cancel` apply to all its live runs, or to that
of `--run`; they accept a tag instead, and apply to all active jobs with this tag.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from zcrawl.cli.base import Command, Settings, common, run_option
from zcrawl.errors import RefusedError, UsageError
from zcrawl.model.reasons.cluster import NO_SUCH_TAG

MOST_EXAMPLES = 10  # of each kind; --json has all


@click.command("jobs", cls=Command)
@click.option("--tag", default="", metavar="NAME", help="Only jobs that have this tag.")
@click.option("--archived", is_flag=True, help="Also jobs that are archived.")
@click.option("--owner", default="", metavar="NAME", help="Only jobs of this owner.")
@click.option("--mine", is_flag=True, help="Only your own jobs: those of your key or user.")
@common
def jobs_command(settings: Settings, tag: str, archived: bool, owner: str, mine: bool) -> int:
    """List all jobs."""
    if owner and mine:
        raise UsageError(f"both --mine and --owner {owner} were given; give one of them")
    from zcrawl.cli import connect, output
    from zcrawl.runtime.loop import run_async
    from zcrawl.telemetry.views import ME

    owner = ME if mine else owner
    reply = run_async(connect.jobs(settings, tag, owner, archived=archived))
    # A master of an older version ignores the owner and lists all jobs.
    views = [job for job in reply["jobs"] if mine or not owner or job.get("owner") == owner]
    output.note_if(connect.stale_note(reply))
    if settings.json:
        output.print_json(views)
        return 0
    names = ("id", "name", "run", "state")
    figures = ("percent", "pages", "pages/s", "eta", "failed", "skipped", "queued", *IN_FLIGHT)
    rows = [
        [*(_cell(view, name) for name in (*names, *figures)), view.get("owner", ""), _tags(view)]
        for view in views
    ]
    output.table((*names, *figures, "owner", "tags"), rows, right=("id", "run", *figures))
    if not views:
        tagged = f" with the tag {tag}" if tag else ""
        of = " of yours" if mine else f" of {owner}" if owner else ""
        output.note(f"no jobs{of}{tagged} in {settings.place}")
    return 0


IN_FLIGHT = ("fetching", "waiting", "uncommitted")  # a request in flight is in one of these states


def _cell(view: dict[str, Any], column: str) -> Any:
    from zcrawl.cli.connect import STOPPED

    if column == "state" and view["state"] == STOPPED:
        return f"{STOPPED}: {view['reason']}"
    if column == "state" and (view.get("schedule") or {}).get("held_submission"):
        return f"{view['state']}, run {view['schedule']['held_submission']['run']} held"
    if column == "pages/s":
        return f"{view['pages_per_second']:.1f}"
    if column == "eta":
        return eta(view)
    if column in IN_FLIGHT:
        return view.get(column, "")  # an older master has one number for all three
    value = view["job" if column == "id" else column]
    return "" if value is None else value


def eta(view: dict[str, Any]) -> str:
    """The time until the run ends at its speed so far; empty if nobody can say."""
    from zcrawl.cli import output
    from zcrawl.model.states import RunState

    seconds, final = view["seconds"], view["pages"] + view["failed"] + view["skipped"]
    if view["state"] != RunState.RUNNING or not seconds or not final:
        return ""
    return output.clock((view["queued"] + view["in_flight"]) * seconds / final)


def _tags(view: dict[str, Any]) -> str:
    """Return the tags; empty for a master of an older version, which sends none."""
    return ", ".join(view.get("tags", ()))


@click.command("job", cls=Command)
@click.argument("ref", metavar="ID|NAME")
@run_option
@common
def job_command(settings: Settings, ref: str, run: int | None) -> int:
    """Show one job."""
    from zcrawl.cli import connect
    from zcrawl.runtime.loop import run_async

    return show_job(settings, run_async(connect.job(settings, ref, run)))


def show_job(settings: Settings, view: dict[str, Any]) -> int:
    """Print the view of a job and one of its runs; return 1 if that run failed."""
    from zcrawl.cli import connect, output
    from zcrawl.cli.commands.submit import with_remedy
    from zcrawl.model.states import RunState

    output.note_if(connect.stale_note(view))
    if settings.json:
        output.print_json(view)
    else:
        output.fields(readable({**view, "reason": with_remedy(view)}))
        if view["state"] == connect.STOPPED:
            output.note(f"no process runs it now; continue with: {resume_hint(settings.data)}")
    return int(view["state"] == RunState.FAILED)


def resume_hint(data: Path) -> str:
    from zcrawl.cli.interrupt import resume_command

    return resume_command(data)


def readable(view: dict[str, Any]) -> dict[str, object]:
    """Return the view of a job for people: the same facts, without empty ones."""
    from zcrawl.cli import output
    from zcrawl.cli.reason_lines import next_step

    spec = view["spec"]
    lines: dict[str, object] = {
        "job": f"{view['job']} {view['name']}",
        "version": _version_text(view),
        "tags": _tags(view),
        "run": view["run"],
        "state": view["state"] + (f" ({view['reason']})" if view["reason"] else ""),
        "percent": view["percent"],
        "pages": f"{view['pages']} ({view['pages_per_second']}/s, {output.size(view['bytes'])})",
        "unchanged": view.get("unchanged") or "",
        "items": view["items"],
        "failed": view["failed"],
        "  reasons": output.counts(view["failed_reasons"]),
        "skipped": view["skipped"],
        "  why": output.counts(view["skipped_reasons"]),
        "rejected links": output.counts(view.get("rejected_links", {})),
        "not followed": output.counts(view.get("dropped", {})),
        "items set aside": output.counts(view.get("rejected_items", {})),
        **_examples(view),
        "then": next_step(view).removeprefix("then: "),
        "queued": view["queued"],
        "in flight": in_flight_text(view),
        "statuses": output.counts(view["statuses"]),
        "created": view["created_at"],
        "started": view["started_at"],
        "ended": view["ended_at"],
        "seconds": output.seconds(view["seconds"]),
        "workers": ", ".join(view["workers"]),
        "done by": output.counts(view.get("shares", {})),
        "seeds": ", ".join(spec.get("seeds", ())[:5]),
        **_schedule_lines(view),
    }
    for n, written in enumerate(view.get("outputs", ()), 1):
        lines[f"output {n}"] = output.describe_output(written)
    for kept in view.get("not_removed", ()):
        lines[f"run {kept['run']} kept"] = kept["problem"]
    for n, action in enumerate(view.get("last_actions", ()), 1):
        lines[f"action {n}"] = f"{action['what']} by {action['by'] or 'unknown'}, {action['at']}"
    for name, counts in view.get("fields", {}).items():
        failed = f", {counts['failed']} unreadable" if counts["failed"] else ""
        lines[f"field {name}"] = f"{counts['percent']} % ({counts['filled']} filled{failed})"
    if spec.get("recrawl", {}).get("incremental"):
        lines["recrawl"] = ", ".join(f"{key}={n}" for key, n in spec["recrawl"].items())
    for section in ("scope", "politeness", "fetch", "output"):
        values = {key: value for key, value in spec.get(section, {}).items() if value}
        lines[section] = ", ".join(f"{key}={value}" for key, value in values.items())
    lines |= {f"fetching {n}": url for n, url in enumerate(view["in_flight_urls"], 1)}
    if len(view["runs"]) > 1:
        runs = [
            f"{run['run']} {run['state']} {output.plural(run['pages'], 'page')}"
            for run in view["runs"]
        ]
        lines["runs"] = "; ".join(runs)
    return {name: value for name, value in lines.items() if value not in ("", None)}


def _schedule_lines(view: dict[str, Any]) -> dict[str, object]:
    """When the job runs by itself, what this run was given, and the chain that it is part of. A
    master of an older version sends none of it."""
    from zcrawl.cli.commands.schedule import held_text, marked, when, why_none

    lines: dict[str, object] = {}
    schedule = view.get("schedule")
    if schedule:
        lines["runs by itself"] = when(schedule)
        lines["next"] = ", ".join(schedule["next"]) or (
            why_none(schedule) if view["job_state"] != "active" else ""
        )
        for key in ("overlap", "catch_up", "jitter"):
            value = schedule.get(key)
            shown = value and (key == "overlap" or schedule["times"])
            lines[key.replace("_", " ")] = value + marked(schedule, key) if shown else ""
        lines["held"] = held_text(schedule)
        lines["last not started"] = schedule["note"]
    started = view.get("cause", "submitted")
    due_at = f", due at {view['due_at']}" if view.get("due_at") else ""
    lines["started by"] = f"{started}{due_at}" if started not in ("", "submitted") else ""
    params = view.get("params", {})
    lines["params"] = ", ".join(f"{key}={value}" for key, value in params.items())
    for number, run in enumerate(view.get("chain", ())):
        here = "  <- this run" if run["run"] == view["run"] else ""
        reason = f" ({run['reason']})" if run["reason"] else ""
        text = f"{'  ' * run['depth']}{run['name']} run {run['run']}: {run['state']}{reason}{here}"
        lines["chain" if number == 0 else f"chain {number + 1}"] = text
    return lines


def _version_text(view: dict[str, Any]) -> str:
    """The version of the spec, and what is special about the job; a master of an older version
    sends none of it."""
    if "version" not in view:
        return ""
    owner = f", owner {view['owner']}" if view["owner"] else ""
    state = "" if view["job_state"] == "active" else f", {view['job_state']}"
    return f"{view['version']}{owner}{state}"


def in_flight_text(view: dict[str, Any]) -> str:
    """The three numbers of requests in flight; empty if there are none."""
    names = ("fetching", "waiting", "uncommitted")
    if not view["in_flight"]:
        return ""
    return ", ".join(f"{view.get(name, 0)} {name}" for name in names)


def _examples(view: dict[str, Any]) -> dict[str, object]:
    """Return the first request of each reason, and what happened to it."""
    from zcrawl.cli.reason_lines import example_text

    titles = {"failed": "failed", "skipped": "skipped", "rejected": "set aside"}
    return {
        f"{titles.get(kind, kind)}: {name}": example_text(example).removeprefix(": ").strip()
        for kind, examples in view.get("examples", {}).items()
        for name, example in list(examples.items())[:MOST_EXAMPLES]
    }


def _act(settings: Settings, ref: str, action: str, **only: str | int | list[int] | None) -> int:
    from zcrawl.cli import connect, output
    from zcrawl.runtime.loop import run_async

    chosen = {name: value for name, value in only.items() if value}

    async def act() -> dict[str, Any]:
        async with connect.for_actions(settings) as ask:
            return await ask("act", {"ref": ref, "action": action, **chosen})

    reply = run_async(act())
    if settings.json:
        output.print_json(reply)
    else:
        output.note(_told(reply, action))
    return 0


def _told(reply: dict[str, Any], action: str) -> str:
    more = "" if reply["changed"] else ", as it was before"
    if action == "retry":
        more = f", {retried_text(reply['changed'])}"
    return f"job {reply['job']}, run {reply['run']}: {reply['state']}{more}"


def retried_text(changed: int) -> str:
    from zcrawl.cli import output

    return f"{output.plural(changed, 'URL')} queued again" if changed else "nothing to retry"


def _one_or_tagged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments for one job, or for all jobs with a tag."""
    tag = click.option("--tag", default="", metavar="NAME", help="All jobs that have this tag.")
    return click.argument("ref", metavar="ID|NAME", required=False, default="")(tag(function))


def _act_on(settings: Settings, ref: str, tag: str, run: int | None, action: str) -> int:
    if ref and tag:
        raise UsageError(f"both a job ({ref}) and --tag {tag} were given; give one of them")
    if not ref and not tag:
        crawl = "; `zcrawl crawl --resume` continues a crawl" if action == "resume" else ""
        raise UsageError(f"give a job's id or name, or --tag NAME{crawl}")
    if tag and run is not None:
        raise UsageError(f"--run {run} is a run of one job; --tag {tag} means several jobs")
    return _act_tagged(settings, tag, action) if tag else _act(settings, ref, action, run=run)


def _act_tagged(settings: Settings, tag: str, action: str) -> int:
    """Change one job after the other; print each at once, so that after an error it is clear which
    jobs were changed."""
    from zcrawl.cli import connect, output
    from zcrawl.model.snapshot import ENDED
    from zcrawl.runtime.loop import run_async

    async def act() -> list[dict[str, Any]]:
        replies = []
        async with connect.for_actions(settings) as ask:
            jobs = (await ask("jobs", {"tag": tag}))["jobs"]
            # Checked here too: a master of an older version ignores tags and lists all jobs.
            tagged = [job for job in jobs if tag in job.get("tags", ())]
            for view in [job for job in tagged if job["state"] not in ENDED]:
                reply = await ask("act", {"ref": str(view["job"]), "action": action})
                replies.append(reply)
                if not settings.json:
                    output.note(_told(reply, action))
        return replies

    replies = run_async(act())
    if not replies:
        raise RefusedError(f"no active job has the tag {tag!r}", code=NO_SUCH_TAG)
    if settings.json:
        output.print_json(replies)
    return 0


@click.command("pause", cls=Command)
@_one_or_tagged
@run_option
@common
def pause_command(settings: Settings, ref: str, tag: str, run: int | None) -> int:
    """Stop fetching for all live runs of a job until it is resumed.

    Requests in flight are finished and their results are kept. A schedule still starts runs;
    `zcrawl schedule pause` stops that.
    """
    return _act_on(settings, ref, tag, run, "pause")


@click.command("resume", cls=Command)
@_one_or_tagged
@run_option
@common
def resume_command(settings: Settings, ref: str, tag: str, run: int | None) -> int:
    """Resume a paused job."""
    return _act_on(settings, ref, tag, run, "resume")


@click.command("cancel", cls=Command)
@_one_or_tagged
@run_option
@click.option("--offline", is_flag=True, help="Change the database directly, if no leader answers.")
@common
def cancel_command(settings: Settings, ref: str, tag: str, run: int | None, offline: bool) -> int:
    """End a job's runs, and keep their items and pages.

    Results of requests in flight are dropped. Queued URLs count as skipped: cancelled.
    --offline uses no master: it writes directly to the database of the data folder or of the
    configuration, whether masters run, hang or are gone. A running master then reloads its jobs.
    """
    if not offline:
        return _act_on(settings, ref, tag, run, "cancel")
    if not ref or tag:
        raise UsageError("--offline needs a job's id or name; --tag cannot be used with it")
    return _cancel_offline(settings, ref, run)


def _cancel_offline(settings: Settings, ref: str, run: int | None) -> int:
    import contextlib
    import time

    from zcrawl.cli import connect, output
    from zcrawl.roles import offline

    with contextlib.closing(connect.open_database(settings, writable=True)) as store:
        reply = offline.cancel(store, connect.find_job(store, ref), time.time(), run)
    if settings.json:
        output.print_json(reply)
        return 0
    output.note(_told(reply, "cancel"))
    if reply["changed"] and connect.is_live(settings):
        output.note("the running master notices it with its next write, and loads the jobs again")
    return 0


@click.command("delete", cls=Command)
@click.argument("ref", metavar="ID|NAME")
@click.option(
    "--run", type=click.IntRange(1), metavar="N", help="Only this run. [default: all of the job]"
)
@click.option("--yes", is_flag=True, help="Do not ask before it is deleted.")
@common
def delete_command(settings: Settings, ref: str, run: int | None, yes: bool) -> int:
    """End a job, or one of its runs, and remove its data.

    Its items, pages and requests are removed from the database. Output files stay.
    On a terminal it names what is lost, and asks first.
    """
    from zcrawl.cli import connect, output
    from zcrawl.runtime.loop import run_async

    if yes or settings.json or not output.can_confirm():
        return _act(settings, ref, "delete", run=run)
    view = run_async(connect.job(settings, ref, run))
    runs = [row for row in view["runs"] if run in (None, row["run"])]
    if not output.confirm(_deletion_text(view, runs, run)):
        output.note("nothing was deleted")
        return 1
    seen = [row["run"] for row in runs] if run is None else None
    return _act(settings, str(view["job"]), "delete", run=run, runs=seen)


MOST_RUNS_NAMED = 4


def _deletion_text(view: dict[str, Any], runs: list[dict[str, Any]], run: int | None) -> str:
    """Return the question: job, runs, states, and what is lost."""
    from zcrawl.cli import output

    job = f"job {view['job']} {view['name']}"
    what = f"run {run} of {job}" if run is not None else f"{job} with all its runs"
    named = [f"run {row['run']} {row['state']}" for row in runs[:MOST_RUNS_NAMED]]
    if len(runs) > MOST_RUNS_NAMED:
        named.append(f"{len(runs) - MOST_RUNS_NAMED:,} more")
    pages, items = (sum(row[name] for row in runs) for name in ("pages", "items"))
    lost = f"{output.plural(pages, 'page')} and {output.plural(items, 'item')}"
    return f"delete {what} ({', '.join(named)}) and its data: {lost}?"


@click.command("retry", cls=Command)
@click.argument("ref", metavar="ID|NAME")
@click.option("--reason", default="", help="Only URLs that failed for this reason, e.g. connect.")
@click.option("--host", type=int, default=0, help="Only URLs of the host with this number.")
@run_option
@common
def retry_command(settings: Settings, ref: str, reason: str, host: int, run: int | None) -> int:
    """Try a job's failed URLs again."""
    return _act(settings, ref, "retry", reason=reason, host=host, run=run)
