"""`zcrawl schedule` shows and stops what starts by itself: `list`, `next`, `pause`, `resume`.

A paused schedule starts no run; live runs of the job go on. `pause` and `resume` of
`zcrawl.cli.commands.jobs` are about runs.
"""

from __future__ import annotations

from typing import Any

import click

from zcrawl.cli.base import Command, Group, Settings, common

HEADS = ("job", "name", "state", "when", "overlap", "catch up", "next", "note")


@click.group("schedule", cls=Group)
def schedule_command() -> None:
    """Show and change what runs by itself."""


@schedule_command.command("list", cls=Command)
@common
def list_command(settings: Settings) -> int:
    """List the jobs that run by themselves."""
    from zcrawl.cli import connect, output
    from zcrawl.runtime.loop import run_async

    reply = run_async(connect.schedules(settings))
    output.note_if(connect.stale_note(reply))
    views = reply["jobs"]
    if settings.json:
        output.print_json(views)
        return 0
    rows = [
        [
            view["job"],
            view["name"],
            view["state"],
            when(view),
            view["overlap"] + marked(view, "overlap"),
            view["catch_up"] + marked(view, "catch_up"),
            view["next"][0] if view["next"] else "",
            "; ".join(filter(None, (held_text(view), view["note"]))),
        ]
        for view in views
    ]
    output.table(HEADS, rows, right=("job",))
    if not views:
        output.note(f"no job in {settings.place} has a [schedule]")
    return 0


@schedule_command.command("next", cls=Command)
@click.argument("ref", metavar="ID|NAME")
@click.option(
    "-n", "count", type=click.IntRange(1, 500), default=10, help="How many. [default: 10]"
)
@common
def next_command(settings: Settings, ref: str, count: int) -> int:
    """Show when a job runs next.

    The times are without jitter. A job that only follows other jobs has none.
    """
    from zcrawl.cli import connect, output
    from zcrawl.runtime.loop import run_async

    reply = run_async(connect.schedules(settings, ref, count))
    output.note_if(connect.stale_note(reply))
    (view,) = reply["jobs"]
    if settings.json:
        output.print_json(view)
        return 0
    for moment in view["next"]:
        output.data(moment)
    if not view["next"]:
        output.note(why_none(view))
    return 0


def when(view: dict[str, Any]) -> str:
    """Return when a job runs by itself: `cron 0 3 * * * (Europe/Berlin), after lists`."""
    shown = view["times"] and view["timezone"] != "UTC"
    zone = f" ({view['timezone']}{marked(view, 'timezone', ', ')})" if shown else ""
    word = " and " if view["after_mode"] == "all" else " or "
    after = f"after {word.join(view['after'])}" if view["after"] else ""
    return ", ".join(filter(None, (view["times"] + zone, after)))


def held_text(view: dict[str, Any]) -> str:
    """Return what waits for the end of a live run; empty: nothing. A master of an earlier version
    does not send held submissions."""
    held = view.get("held_submission")
    if held:
        by = f" by {held['by']}" if held["by"] else ""
        return f"run {held['run']}, submitted{by} at {held['at']}, is held"
    return f"the run due at {view['held']} is held" if view["held"] else ""


def marked(view: dict[str, Any], key: str, before: str = " (") -> str:
    """Return ` (default)` if the job leaves a key open. A master of an older version does not say
    which keys those are."""
    if key not in view.get("defaults", ()):
        return ""
    return f"{before}default" + (")" if before.endswith("(") else "")


def why_none(view: dict[str, Any]) -> str:
    """Return why a job has no next due time."""
    if view["state"] != "active":
        return f"{view['name']} is {view['state']}; zcrawl schedule resume {view['name']}"
    if view["times"]:
        return f"{view['name']} has no due time any more"
    return f"{view['name']} runs {when(view) or 'only when it is submitted'}"


@schedule_command.command("pause", cls=Command)
@click.argument("ref", metavar="ID|NAME")
@common
def pause_command(settings: Settings, ref: str) -> int:
    """Let a job start nothing by itself. Its live runs continue."""
    from zcrawl.cli.commands.runs import change_job

    return change_job(settings, ref, "paused")


@schedule_command.command("resume", cls=Command)
@click.argument("ref", metavar="ID|NAME")
@common
def resume_command(settings: Settings, ref: str) -> int:
    """Let a job run by itself again, from now on: what was due meanwhile is not caught up."""
    from zcrawl.cli.commands.runs import change_job

    return change_job(settings, ref, "active")
