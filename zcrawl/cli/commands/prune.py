"""`zcrawl prune`: remove the old runs that `[retention]` does not keep, or only show them.

The leader removes them, by its ordinary way: archive first, then delete. This command begins that,
and watches until each run is gone or is kept for a reason.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import click

from zcrawl.cli.base import Command, Settings, common

if TYPE_CHECKING:
    from zcrawl.cli.connect import Ask

FIRST_LOOK_S: Final = 0.1
SLOWEST_LOOK_S: Final = 1.0
OUTPUTS_S: Final = 10.0  # for outputs that are not complete
AGAIN_S: Final = 30.0  # without any change: the leader may be another one now
COLUMNS: Final = ("run", "job", "name", "ended", "why", "archive", "problem")


@click.command("prune", cls=Command)
@click.argument("ref", metavar="[ID|NAME]", required=False, default="")
@click.option("--dry-run", is_flag=True, help="Only show which runs would be removed, and why.")
@common
def prune_command(settings: Settings, ref: str, dry_run: bool) -> int:
    """Remove old runs now, as [retention] says.

    A run is removed with its items, pages and requests; with an archive, after it was written
    there. Without ID or NAME, of all jobs. Masters do the same every ten minutes.
    """
    from zcrawl.cli import connect
    from zcrawl.runtime.loop import run_async

    if dry_run:
        return _show(settings, run_async(connect.removable(settings, ref)), ref)
    return _report(settings, run_async(_prune(settings, ref)), ref)


def _show(settings: Settings, views: list[dict[str, Any]], ref: str) -> int:
    from zcrawl.cli import output

    if settings.json:
        output.print_json({"runs": views})
        return 0
    names = ("run", "job", "name", "ended_at", "why", "archive")
    rows = [[*(view[name] for name in names), why_kept(view)] for view in views]
    output.table(COLUMNS, rows, right=("run", "job"))
    if not views:
        output.note(_nothing(settings, ref))
    return 0


def _nothing(settings: Settings, ref: str) -> str:
    return f"no run{f' of {ref}' if ref else ''} in {settings.place} is to be removed"


def why_kept(view: dict[str, Any]) -> str:
    """Return why the run is still there; empty: nothing hinders it."""
    waits = f"waits for its outputs: {', '.join(view['unwritten'])}" if view["unwritten"] else ""
    return str(view["problem"]) or waits


def _report(settings: Settings, outcome: dict[int, dict[str, Any]], ref: str) -> int:
    from zcrawl.cli import output

    kept = [view for view in outcome.values() if not view["removed"]]
    if settings.json:
        output.print_json({"runs": list(outcome.values())})
    elif not outcome:
        output.note(_nothing(settings, ref))
    else:
        more = f", {output.plural(len(kept), 'run')} kept" if kept else ""
        output.note(f"{output.plural(len(outcome) - len(kept), 'run')} removed{more}")
    return int(bool(kept))


async def _prune(settings: Settings, ref: str) -> dict[int, dict[str, Any]]:
    """Remove the runs; return the view of each, with `removed`."""
    from zcrawl.cli import connect
    from zcrawl.telemetry.views import MOST_REMOVABLE

    outcome: dict[int, dict[str, Any]] = {}
    async with connect.for_actions(settings) as ask:
        while True:
            views = (await ask("prune", {"ref": ref}))["runs"]
            pending = {view["run"]: view for view in views if view["run"] not in outcome}
            await _watch(settings, ask, ref, pending, outcome)
            if len(views) < MOST_REMOVABLE or not pending:  # else there may be more
                return outcome


async def _watch(
    settings: Settings,
    ask: Ask,
    ref: str,
    pending: dict[int, dict[str, Any]],
    outcome: dict[int, dict[str, Any]],
) -> None:
    """Wait until each pending run is removed, or is kept for a reason."""
    began = changed = time.monotonic()
    pause_s = FIRST_LOOK_S
    while pending:
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, SLOWEST_LOOK_S)
        views = (await ask("prune", {"ref": ref, "dry_run": True}))["runs"]
        now = time.monotonic()
        for run, view in settled(pending, views, patient=now < began + OUTPUTS_S).items():
            del pending[run]
            outcome[run] = view
            _tell(settings, view)
            changed, pause_s = now, FIRST_LOOK_S
        if now > changed + AGAIN_S:
            await ask("prune", {"ref": ref})
            changed = now


def settled(
    pending: dict[int, dict[str, Any]], views: list[dict[str, Any]], *, patient: bool
) -> dict[int, dict[str, Any]]:
    """Return the runs for which nothing more happens now. `patient`: outputs may still be
    completed."""
    from zcrawl.telemetry.views import MOST_REMOVABLE

    left = {view["run"]: view for view in views}
    last = views[-1] if len(views) >= MOST_REMOVABLE else None  # there may be more after it
    outcome: dict[int, dict[str, Any]] = {}
    for run, before in pending.items():
        view = left.get(run)
        if view is None:
            if last is None or (before["job"], run) < (last["job"], last["run"]):
                outcome[run] = {**before, "removed": True, "problem": ""}
        elif view["failures"] > before["failures"] or (view["unwritten"] and not patient):
            outcome[run] = {**view, "removed": False}
    return outcome


def _tell(settings: Settings, view: dict[str, Any]) -> None:
    from zcrawl.cli import output

    if settings.json:
        return
    run = f"run {view['run']} of {view['name']}"
    if view["removed"]:
        archived = f", archived in {view['archive']}" if view["archive"] else ""
        output.note(f"{run}: removed ({view['why']}){archived}")
    else:
        output.note(f"{run}: kept, {why_kept(view)}")
