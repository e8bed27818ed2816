"""What a dialog says before something is changed: job, run, state, and what is lost."""

from __future__ import annotations

from typing import Final

from console.actions import Action, PlannedChange
from console.drawing.lines import Line, Picture, Span, line
from console.plain import plain

MOST_TARGETS: Final = 8  # targets that are named; the rest is counted


def question_title(changes: list[PlannedChange]) -> str:
    """Name what is asked about; rows of several kinds may be marked."""
    labels = dict.fromkeys(change.label for change in changes)
    return f"{', '.join(labels).capitalize()}?"


def question_lines(action: Action, changes: list[PlannedChange], left_out: int) -> Picture:
    """The sentence, each target with its state and what it loses, and the command line.

    `left_out`: marked rows that it does not fit."""
    lines: Picture = [line(Span(f" {action.about}")), ()]
    for change in changes[:MOST_TARGETS]:
        lines += _target(change)
    if len(changes) > MOST_TARGETS:
        lines.append(line(Span(f" and {len(changes) - MOST_TARGETS:,} more", "dim")))
    if left_out:
        lines.append(line(Span(f" {left_out:,} marked rows are left out: not possible", "warn")))
    if len(changes) == 1:
        lines += [(), line(Span(f" {plain(changes[0].request.command)}", "dim"))]
    else:
        lines += [(), line(Span(f" {len(changes):,} requests", "dim"))]
    return [*lines, ()]


def _target(change: PlannedChange) -> list[Line]:
    lines = [line(Span(f" {change.target.text}", "bold"))]
    return [*lines, line(Span(f"   {change.losses}", "warn"))] if change.losses else lines
