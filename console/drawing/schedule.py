"""When a job runs by itself, and the chain that its run is part of: lines of the page of a job.

What a master sends is shown as it comes: one of an earlier version sends nothing of it.
"""

from __future__ import annotations

from typing import Any, Final

from console.columns.cells import STATE_STYLE
from console.drawing.lines import Line, Picture, Span, line, title
from console.plain import fit, plain
from console.tables import Row, number, text

NAME: Final = 16
MOST_RUNS: Final = 40  # of a chain
MOST_TEXT: Final = 200  # characters of one value


def schedule_facts(row: Row) -> Picture:
    """Return when the job runs by itself, why this run started, and what it was given."""
    facts: dict[str, str] = {}
    schedule = row.get("schedule")
    if isinstance(schedule, dict):
        after = _texts(schedule.get("after"))
        parts = [text(schedule, "times"), f"after {', '.join(after)}" if after else ""]
        state = text(schedule, "state")
        facts["runs by itself"] = ", ".join(filter(None, parts)) + (
            f" ({state})" if state not in ("", "active") else ""
        )
        facts["next"] = ", ".join(map(_moment, _texts(schedule.get("next"))))
        facts["not started"] = text(schedule, "note")
    cause = text(row, "cause")
    if cause not in ("", "submitted"):
        due_at = text(row, "due_at")
        facts["started by"] = cause + (f", due {_moment(due_at)}" if due_at else "")
    params = row.get("params")
    if isinstance(params, dict):
        facts["params"] = "  ".join(f"{plain(k, 64)}={plain(v, 80)}" for k, v in params.items())
    return [
        line(Span(f"  {fit(name, NAME)}", "dim"), Span(plain(value, MOST_TEXT)))
        for name, value in facts.items()
        if value
    ]


def chain_lines(row: Row, cells: int) -> Picture:
    """Return the runs of the chain, each below the run that started it; nothing without others."""
    chain = row.get("chain")
    runs = [run for run in chain if isinstance(run, dict)] if isinstance(chain, list) else []
    if not runs:
        return []
    lines: Picture = [title("Chain of runs", cells)]
    lines += [_run_line(run, row) for run in runs[:MOST_RUNS]]
    if len(runs) > MOST_RUNS:
        lines.append(line(Span(f"  and {len(runs) - MOST_RUNS} more", "dim")))
    return [*lines, ()]


def _run_line(run: dict[str, Any], row: Row) -> Line:
    state = text(run, "state")
    indent = "  " * min(20, int(number(run, "depth")))
    reason = f" ({text(run, 'reason')})" if text(run, "reason") else ""
    here = "  this run" if number(run, "run") == number(row, "run") else ""
    return line(
        Span(f"  {indent}{plain(run.get('name'), 60)} "),
        Span(f"run {text(run, 'run')} ", "dim"),
        Span(state + plain(reason, MOST_TEXT), STATE_STYLE.get(state, "")),
        Span(here, "accent"),
    )


def _texts(value: object) -> list[str]:
    return [plain(entry, 100) for entry in value] if isinstance(value, list) else []


def _moment(moment: str) -> str:
    """Return `2026-12-01 03:00:00` of a time with a T, fractions and a Z."""
    return moment.replace("T", " ").partition(".")[0].removesuffix("Z")
