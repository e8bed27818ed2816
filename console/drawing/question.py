"""What a dialog says before something is changed: job, run, state, and what is lost."""

from __future__ import annotations

from typing import Final

from console.actions import Action, ActionRequest
from console.drawing.lines import Line, Picture, Span, line
from console.plain import plain
from console.state import View
from console.tables import Row, number, text

MOST_TARGETS: Final = 8  # rows that are named; the rest is counted


def question_lines(
    action: Action, rows: list[Row], requests: list[ActionRequest], view: View
) -> Picture:
    """The sentence, each target with its state and what it loses, and the command line."""
    targets = [row for row in rows if action.fits(row)]
    lines: Picture = [line(Span(f" {action.about}")), ()]
    if action.name == "step_down":
        snapshot = view.known.snapshot
        leader = plain(snapshot.leader, 60) if snapshot is not None else "unknown"
        lines.append(line(Span(f" leader {leader}", "bold"), Span(f"  {action.loses({})}", "warn")))
    for row in targets[:MOST_TARGETS] if action.name != "step_down" else ():
        lines += _target(action, row)
    if len(targets) > MOST_TARGETS:
        lines.append(line(Span(f" and {len(targets) - MOST_TARGETS:,} more", "dim")))
    left_out = len(rows) - len(targets)
    if left_out and action.name != "step_down":
        lines.append(line(Span(f" {left_out:,} marked rows are left out: not possible", "warn")))
    if len(requests) == 1:
        lines += [(), line(Span(f" {plain(requests[0].command)}", "dim"))]
    elif requests:
        lines += [(), line(Span(f" {len(requests):,} requests", "dim"))]
    return [*lines, ()]


def _target(action: Action, row: Row) -> list[Line]:
    lines = [line(Span(f" {target_text(row)}", "bold"))]
    loses = action.loses(row)
    return [*lines, line(Span(f"   {loses}", "warn"))] if loses else lines


def target_text(row: Row) -> str:
    """Name what a row is about."""
    if "reason" in row and "count" in row:
        where = f"{text(row, 'reason')} at {text(row, 'host')}"
        return f"{number(row, 'count'):,.0f} failed: {where}, job {_job(row)}"
    if text(row, "job"):
        return f"job {_job(row)}"
    if text(row, "host"):
        return f"host {text(row, 'host')}"
    state = f" ({text(row, 'state')})" if text(row, "state") else ""
    return f"worker {text(row, 'id')}{state}"


def _job(row: Row) -> str:
    """`docs (3), run 7, running`."""
    name, job = text(row, "name"), text(row, "job")
    parts = [f"{name} ({job})" if name else job]
    if number(row, "run"):
        parts.append(f"run {number(row, 'run'):.0f}")
    if text(row, "state"):
        parts.append(text(row, "state"))
    return ", ".join(parts)
