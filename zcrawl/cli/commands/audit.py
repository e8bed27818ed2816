"""`zcrawl audit`: who did what. `--archive` writes old lines to a file and removes them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from zcrawl.cli.base import Command, Settings, common

PAGE = 500


@click.command("audit", cls=Command)
@click.option("--since", metavar="DATE", help="Only lines from then on (UTC).")
@click.option("--user", metavar="NAME", default="", help="Only what this user or key did.")
@click.option("--job", metavar="JOB", default="", help="Only what was done to this job.")
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="Lines at most."
)
@click.option(
    "--archive",
    "archive",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the lines before --before to a new FILE as JSON lines, then remove them.",
)
@click.option("--before", metavar="DATE", help="With --archive: lines before then (UTC).")
@common
def audit_command(
    settings: Settings,
    since: str | None,
    user: str,
    job: str,
    limit: int,
    archive: Path | None,
    before: str | None,
) -> int:
    """Show who did what to what, from where, and with which result.

    The newest lines come first.
    """
    from zcrawl.cli.people import parse_moment
    from zcrawl.errors import UsageError

    if (archive is None) != (before is None):
        raise UsageError("--archive FILE and --before DATE go together")
    if archive is not None and before is not None:
        if since or user or job:
            raise UsageError("--archive takes all lines before a date: only --before goes with it")
        return _archive(settings, archive, parse_moment(before, "--before"))
    args = {"since": parse_moment(since, "--since") if since else 0.0, "user": user, "job": job}
    _show(settings, _read(settings, args, limit))
    return 0


def _read(settings: Settings, args: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    from zcrawl.cli.people import Ask, with_cluster

    async def work(ask: Ask) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        while len(rows) < limit:
            size = min(PAGE, limit - len(rows))
            before = rows[-1]["id"] if rows else 0
            page = (await ask("audit", {**args, "limit": size, "before": before}))["rows"]
            rows += page
            if len(page) < size:
                break
        return rows

    return with_cluster(settings, work)


def _show(settings: Settings, rows: list[dict[str, Any]]) -> None:
    from zcrawl.cli import output
    from zcrawl.cli.people import moment

    if settings.json:
        output.print_json({"rows": rows})
        return
    head = ("at (UTC)", "who", "role", "through", "from", "what", "target", "result", "detail")
    cells = [
        (
            moment(row["at"]),
            row["user"],
            row["role"],
            row["through"],
            row["address"] or row["via"],
            row["op"],
            row["target"] + (f" (run {row['run']})" if row["run"] else ""),
            row["result"],
            row["detail"],
        )
        for row in rows
    ]
    output.table(head, cells)


def _archive(settings: Settings, path: Path, before: float) -> int:
    """Write the lines, and sync the file before any of them is removed."""
    from zcrawl.cli import output
    from zcrawl.cli.people import Ask, with_cluster
    from zcrawl.errors import UsageError
    from zcrawl.runtime.files import PRIVATE_FILE, sync_folder

    path = path.absolute()

    async def work(ask: Ask) -> tuple[int, int]:
        written, last = 0, 0
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
        except OSError as error:
            raise UsageError(
                f"--archive {path}: {error.strerror}; name a file that does not exist yet"
            ) from None
        with os.fdopen(file, "w", encoding="utf-8") as lines:
            while True:
                args = {"until": before, "after": last, "limit": PAGE}
                rows = (await ask("audit", args))["rows"]
                lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                written += len(rows)
                last = rows[-1]["id"] if rows else last
                if len(rows) < PAGE:
                    break
            lines.flush()
            os.fsync(lines.fileno())
        sync_folder(path.parent)
        removed, more = 0, written > 0
        while more:
            removal = {"before": before, "last": last, "file": str(path)}
            reply = await ask("audit_archive", removal)
            removed, more = removed + reply["removed"], reply["more"]
        return written, removed

    written, removed = with_cluster(settings, work)
    if settings.json:
        output.print_json({"file": str(path), "written": written, "removed": removed})
    else:
        output.note(f"{output.plural(written, 'line')} in {path}; {removed} removed")
    return 0
