"""`zcrawl runs` and `run` show runs, `versions` the specs that a job has had; `archive` hides it.

A job is a definition and lives without a run. A run is one execution of it.
"""

from __future__ import annotations

from typing import Any

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.errors import UsageError


@click.command("runs", cls=Command)
@click.argument("ref", metavar="[ID|NAME]", required=False, default="")
@click.option("--limit", type=click.IntRange(1, 500), default=50, help="[default: 50]")
@common
def runs_command(settings: Settings, ref: str, limit: int) -> int:
    """List the runs of a job, or of all jobs."""
    from zcrawl.cli import connect, output
    from zcrawl.runtime.loop import run_async

    reply = run_async(connect.runs(settings, ref, limit))
    output.note_if(connect.stale_note(reply))
    views = reply["runs"]
    if settings.json:
        output.print_json(views)
        return 0
    columns = ("run", "job", "name", "version", "cause", "state", "reason")
    figures = ("pages", "failed", "skipped", "seconds")
    rows = [
        [*(view[name] for name in (*columns, *figures)), view["due_at"] or "", view["ended_at"]]
        for view in views
    ]
    right = ("run", "job", "version", *figures)
    output.table((*columns, *figures, "due", "ended"), rows, right=right)
    if not views:
        output.note(f"no runs{f' of {ref}' if ref else ''} in {settings.place}")
    return 0


@click.command("run", cls=Command)
@click.argument("number", metavar="RUN")
@common
def run_command(settings: Settings, number: str) -> int:
    """Show one run."""
    from zcrawl.cli import connect
    from zcrawl.cli.commands.jobs import show_job
    from zcrawl.runtime.loop import run_async

    if not (number.isascii() and number.isdecimal()):
        raise UsageError(
            f"{number!r} is not the number of a run; `zcrawl runs` lists them. To run a job file: "
            f"`zcrawl crawl {number}`"
        )
    return show_job(settings, run_async(connect.run(settings, int(number))))


@click.command("versions", cls=Command)
@click.argument("ref", metavar="ID|NAME")
@common
def versions_command(settings: Settings, ref: str) -> int:
    """Show what changed in a job, when and by whom."""
    from zcrawl.cli import connect, output
    from zcrawl.runtime.loop import run_async

    reply = run_async(connect.versions(settings, ref))
    output.note_if(connect.stale_note(reply))
    if settings.json:
        output.print_json(reply["versions"])
        return 0
    rows = []
    for view in reply["versions"]:
        lines = view["changes"] or ["submitted first" if view["version"] == 1 else "as before"]
        rows.append([view["version"], view["at"], view["author"], lines[0]])
        rows += [["", "", "", line] for line in lines[1:]]
    output.table(("version", "at", "author", "changes"), rows, right=("version",))
    return 0


@click.command("archive", cls=Command)
@click.argument("ref", metavar="ID|NAME")
@click.option("--undo", is_flag=True, help="Take an archived job back.")
@common
def archive_command(settings: Settings, ref: str, undo: bool) -> int:
    """Hide a job.

    Its schedule starts nothing. Its runs and items are kept.
    """
    return change_job(settings, ref, "active" if undo else "archived")


def change_job(settings: Settings, ref: str, state: str) -> int:
    """Set the state of a job, and print it."""
    from zcrawl.cli import connect, output
    from zcrawl.runtime.loop import run_async

    async def ask_leader() -> dict[str, Any]:
        async with connect.for_actions(settings) as ask:
            return await ask("change_job", {"ref": ref, "state": state})

    reply = run_async(ask_leader())
    if settings.json:
        output.print_json(reply)
    else:
        as_before = "" if reply["changed"] else ", as it was before"
        output.note(f"job {reply['job']}: {reply['state']}{as_before}")
    return 0
