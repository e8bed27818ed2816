"""The lines around every page: who is watched, how the line is, which page this is."""

from __future__ import annotations

import datetime

from console.lines import Line, Span, line, line_width
from console.plain import plain
from console.units import duration
from console.view import LinkState, View

LINK_MARK = {
    LinkState.CONNECTING: ("○ connecting", "warn"),
    LinkState.LIVE: ("● live", "good"),
    LinkState.LOST: ("○ lost", "bad"),
}


def top_line(view: View, cells: int) -> Line:
    """`zcrawl  NAME  ● live  leader m1  epoch 3          12:01:22`."""
    mark, style = LINK_MARK[view.link.state]
    left = [Span(" zcrawl ", "tab"), Span(f" {plain(view.cluster)}  ", "bold"), Span(mark, style)]
    snapshot = view.known.snapshot
    if view.paused:
        left.append(Span("  ▮▮ paused", "warn"))
    if view.readonly:
        left.append(Span("  read-only", "warn"))
    if view.link.state is not LinkState.LIVE and view.link.text:
        since = duration(max(0.0, view.clock - view.link.since))
        left.append(Span(f"  {plain(view.link.text)} ({since})", style))
    elif snapshot is not None:
        left.append(Span(f"  leader {plain(snapshot.leader)}  epoch {snapshot.epoch}", "dim"))
    right = Span(clock_text(snapshot.at) + " " if snapshot else "", "dim")
    gap = cells - line_width(tuple(left)) - len(right.text)
    return line(*left, Span(" " * max(1, gap)), right)


def clock_text(at: float) -> str:
    """UTC, of the leader's clock."""
    if not at:
        return ""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%H:%M:%S")
